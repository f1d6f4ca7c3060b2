"""Large values that are stored as short texts."""

from __future__ import annotations

import json
from base64 import b64encode

import pytest
import zstandard

from balancer.adapters.postgres import compact as compact_module
from balancer.adapters.postgres.compact import PLAIN_MAX_BYTES, compact, expanded
from balancer.adapters.postgres.rows import memory_from_json, memory_to_json
from balancer.core.memory import Memory
from tests.support.memories import memory_of


@pytest.mark.parametrize("count", [0, 1, 1_000, 100_000])
def test_a_value_is_read_as_it_was_stored(count: int) -> None:
    value = {"names": ["ä\0\n\"'"] * count, "numbers": list(range(count)), "none": None}
    assert expanded(compact(value)) == value


def test_a_large_value_is_short_and_valid_json_and_a_small_one_can_be_read_by_people() -> None:
    large = list(range(10_000))
    text = compact(large)
    assert list(json.loads(text)) == ["zstd"]
    assert len(text) < len(json.dumps(large)) / 2
    assert compact({"n": 1}) == '{"n":1}'
    assert len(compact("x" * (PLAIN_MAX_BYTES - 2))) == PLAIN_MAX_BYTES


def test_what_an_earlier_version_stored_plain_is_read() -> None:
    assert expanded(json.dumps({"columns": {}, "members": [["a", "i"]] * 1_000})) == {
        "columns": {},
        "members": [["a", "i"]] * 1_000,
    }


def broken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(compact_module, "VALUE_MAX_BYTES", 5_000)
    streamed = zstandard.ZstdCompressor().compressobj()
    sizeless = streamed.compress(b"[]") + streamed.flush()
    bodies = [b"", b"junk", zstandard.compress(b"{"), zstandard.compress(b" " * 5_001), sizeless]
    bodies.append(zstandard.compress(b"[" * 4_000))
    whole = zstandard.compress(b" " * 4_000 + b"[]")
    texts = [b64encode(body).decode() for body in (*bodies, whole[:-3])]
    deep = "[" * 100_000
    return ["{", deep, *(json.dumps({"zstd": text}) for text in (*texts, "?", 5, None))]


def test_a_broken_text_is_told_and_a_broken_memory_is_an_empty_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for text in broken(monkeypatch):
        with pytest.raises(ValueError, match=r"."):
            expanded(text)
        assert memory_from_json(text) == Memory()


def test_a_memory_is_read_as_it_was_stored() -> None:
    memory = Memory({f"d{n}": memory_of(n).trails["db"] for n in range(500)})
    assert "zstd" in memory_to_json(memory)
    assert memory_from_json(memory_to_json(memory)) == memory
    assert memory_from_json(json.dumps(memory.to_json())) == memory
