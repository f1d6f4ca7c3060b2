"""Members' lines read many at once and one by one: the same in, the same out."""

from __future__ import annotations

import gzip
from collections.abc import Callable

from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.wire_values import documents
from worker_sdk.errors import WireError
from worker_sdk.wire.distribution import Document, decode_document, encode_document
from worker_sdk.wire.entries import Columns, Entry, as_values, decode_entry, plain_entries
from worker_sdk.wire.shares import POINTS

HEADER = b'{"destination":"d"}\n'


def lines_of(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


def one_by_one(text: bytes) -> tuple[Entry, ...] | str:
    try:
        return tuple(decode_entry(line) for line in text.splitlines(keepends=True))
    except WireError as error:
        return str(error)


def at_once(text: bytes) -> tuple[Entry, ...] | str | None:
    found = plain_entries(HEADER + text + HEADER, len(HEADER), text.count(b"\n"))
    if found is None:
        return None
    columns, end = found
    assert end == len(HEADER + text)
    return as_values(columns)


texts = st.one_of(
    st.sampled_from(
        ['"a"', '"b c"', '"\\u0041"', '"\x7f"', '"é"', '""', "1", '"a\\nb"', '"[[1,2]]"']
    ),
    st.sampled_from([f'"{"x" * 255}"', f'"{"x" * 256}"', '"],["', '"{"']),
)
numbers = st.sampled_from(
    ["0", "1", "2", "01", "-1", "1.0", "1e3", str(POINTS), str(POINTS + 1), "9" * 10, "9" * 11]
)
intervals = st.one_of(
    st.builds("[{},{}]".format, numbers, numbers),
    st.sampled_from(["", "[0,1],[2,3]", "[0,1],[1,2]", "[1]", "[0, 1]"]),
)
rows = st.builds("[{},{},[{}],{}]".format, texts, texts, intervals, numbers)


@given(st.lists(rows | st.sampled_from(['["a","b",[[0,1]],0]', '["c","d",[[5,9]],4]']), max_size=4))
@example(['["a","b",[[0,1]],0]', '["c","d",[[5,9]],4]', '["e","f",[],0]'])
@example(['["a","b",[[0,0]],0]', '["e","f",[],0]'])
@example(['["a","b",[],0]', '["e","f",[[],0]'])
@example(['["a","b",[[0,1]],0],["a","b",[[0,1]],0]', '["a","b"', "[[0,1]],0]"])
@example([' ["a","b",[[0,1]],0]'])
@example(['["a","b",[[0,1]],0]', ""])
def test_what_is_read_at_once_is_what_is_read_line_by_line(given_rows: list[str]) -> None:
    text = lines_of(*given_rows)
    found = at_once(text)
    assert found is None or found == one_by_one(text)


def test_plain_lines_are_read_at_once_up_to_the_next_destination() -> None:
    text = lines_of('["a","b",[[0,1000000000]],7]', '["c d","e]",[[5,9]],0]')
    expected = (Entry("a", "b", ((0, POINTS),), 7), Entry("c d", "e]", ((5, 9),), 0))
    assert at_once(text) == one_by_one(text) == expected
    assert plain_entries(text, 0, 2) == (
        Columns([("a", "b"), ("c d", "e]")], [0, 5], [POINTS, 9], [7, 0]),
        len(text),
    )
    without = lines_of('["a","b",[],0]')
    assert at_once(text + without) == (*expected, Entry("a", "b", (), 0))
    assert plain_entries(text, 0, 0) is None
    assert plain_entries(text, 0, 1) is None
    assert plain_entries(text, 0, 3) is None
    assert plain_entries(text[:-1], 0, 2) is None


def test_the_longest_plain_line_is_read_at_once_and_no_more_is_looked_at_than_lines_may_take() -> (
    None
):
    longest = lines_of(f'["{"h" * 255}","{"i" * 255}",[[999999999,1000000000]],1000000000]')
    assert at_once(longest) == one_by_one(longest)
    assert at_once(longest * 3) == one_by_one(longest * 3)
    assert plain_entries(longest + b" " + longest, 0, 1) is None


def outcome(read: Callable[[bytes], Document], body: bytes) -> Document | str:
    try:
        return read(body)
    except WireError as error:
        return str(error)


@given(documents(), st.data())
def test_a_damaged_document_is_refused_alike(document: Document, data: st.DataObject) -> None:
    text = bytearray(gzip.decompress(encode_document(document)))
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(0, len(text) - 1))
        text[place] = data.draw(st.sampled_from(b'0123456789[]{}",\\\n ax\xff'))
    body = gzip.compress(bytes(text), 1)

    def slowly(body: bytes) -> Document:
        # Lines that end otherwise are none that can be read at once.
        return decode_document(gzip.compress(gzip.decompress(body).replace(b"]\n", b"] \n"), 1))

    assert outcome(decode_document, body) == outcome(slowly, body)
