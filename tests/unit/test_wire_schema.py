"""The JSON Schemas: what the code writes fits them, and what fits them the code reads.

A schema cannot say everything: the length of a name in bytes, surrogates, orders between numbers,
that 1.0 is no integer, what the key in a pointer has to be. The page of the protocol says those.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator, ValidationError

from tests.golden.examples import FOLDER
from tests.support.wire_values import documents, pointers, usage_batches
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import Document, decode_document, encode_document
from worker_sdk.wire.pointer import Pointer, decode_layout, encode_pointer
from worker_sdk.wire.usage import UsageBatch, decode_batch, encode_batch

SCHEMAS = Path(__file__).parents[2] / "docs" / "reference" / "schema"
VALIDATORS = {
    path.stem: Draft202012Validator(json.loads(path.read_text())) for path in SCHEMAS.glob("*.json")
}
ODD = [None, True, -1, 0.5, 10**13, "", "x\n", "x" * 256, [], {}, [1], {"a": 1}]


def check_document(text: bytes) -> None:
    lines = iter([json.loads(line) for line in text.splitlines()])
    VALIDATORS["document-header"].validate(next(lines))
    for line in lines:
        VALIDATORS["document-destination"].validate(line)
        for _ in range(line["members"]):
            VALIDATORS["document-member"].validate(next(lines))


@pytest.mark.parametrize("name", sorted(VALIDATORS))
def test_each_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(VALIDATORS[name].schema)


def test_the_golden_files_fit_their_schemas() -> None:
    for path in FOLDER.glob("usage-*.json"):
        VALIDATORS["usage"].validate(json.loads(path.read_bytes()))
    for name in ("pointer", "layout", "answer"):
        VALIDATORS[name].validate(json.loads((FOLDER / f"{name}.json").read_bytes()))
    check_document((FOLDER / "document.jsonl").read_bytes())


@given(usage_batches)
def test_every_batch_fits_its_schema(batch: UsageBatch) -> None:
    VALIDATORS["usage"].validate(json.loads(encode_batch(batch)))


@given(documents())
def test_every_document_fits_its_schemas(document: Document) -> None:
    check_document(gzip.decompress(encode_document(document)))


@given(pointers())
def test_every_pointer_fits_its_schema(pointed: tuple[int, Pointer]) -> None:
    VALIDATORS["pointer"].validate(json.loads(encode_pointer(pointed[1])))


@given(usage_batches, st.data())
def test_a_changed_batch_is_accepted_whole_exactly_if_it_fits(
    batch: UsageBatch, data: st.DataObject
) -> None:
    value = json.loads(encode_batch(batch))
    key = data.draw(st.sampled_from(sorted(value)))
    if key == "tuples" and value["tuples"] and data.draw(st.booleans()):
        row = value["tuples"][0]
        row[data.draw(st.integers(0, 8))] = data.draw(st.sampled_from(ODD))
    else:
        value[key] = data.draw(st.sampled_from(ODD))
    try:
        whole = decode_batch(json.dumps(value).encode()).rejected == ()
    except WireError:
        whole = False
    assert whole == VALIDATORS["usage"].is_valid(value)


@given(documents(), st.sampled_from(ODD), st.data())
def test_a_changed_document_that_fits_is_accepted(
    document: Document, odd: object, data: st.DataObject
) -> None:
    lines = [json.loads(line) for line in gzip.decompress(encode_document(document)).splitlines()]
    line = data.draw(st.sampled_from(lines))
    keys = sorted(line) if isinstance(line, dict) else list(range(len(line)))
    key = data.draw(st.sampled_from(keys))
    if key in ("members", "destination", "from_window", "until_window"):
        return  # what depends on other lines or numbers, which no schema can say
    line[key] = odd
    text = b"".join(json.dumps(item).encode() + b"\n" for item in lines)
    try:
        decode_document(gzip.compress(text, 1))
    except WireError:
        with pytest.raises(ValidationError):
            check_document(text)
    else:
        check_document(text)


@pytest.mark.parametrize("shards", [0, 1, 4096, 4097, "8", None, True, 0.5])
def test_a_layout_is_accepted_exactly_if_it_fits(shards: object) -> None:
    value = {"v": 1, "shards": shards}
    try:
        decode_layout(json.dumps(value).encode())
    except WireError:
        assert not VALIDATORS["layout"].is_valid(value)
    else:
        VALIDATORS["layout"].validate(value)


@pytest.mark.parametrize("tail", ["\n", "\r", "\u2028", "\x85"])
def test_no_text_fits_with_a_line_end_behind_it(tail: str) -> None:
    usage = json.loads((FOLDER / "usage-running.json").read_bytes())
    pointer = json.loads((FOLDER / "pointer.json").read_bytes())
    assert not VALIDATORS["usage"].is_valid(usage | {"epochs": {"3" + tail: 1}})
    if tail != "\u2028":  # no control character: a legal part of a name
        assert not VALIDATORS["usage"].is_valid(usage | {"host": "h" + tail})
    for key in ("key", "sha256"):
        line = pointer["documents"][0]
        changed = {"v": 1, "documents": [line | {key: line[key] + tail}]}
        assert not VALIDATORS["pointer"].is_valid(changed)
