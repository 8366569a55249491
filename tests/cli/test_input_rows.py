"""Rows of a file, against the standard library's readers, whatever the blocks that a pipe gives."""

from __future__ import annotations

import csv
import io
import json

import pytest
from click import ClickException
from hypothesis import given, strategies as st

from eventproc.cli.input.lines import InputFile
from eventproc.cli.input.rows import InputRows, RowFields, guess_format, take_chunk

CELLS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"), max_size=6)


class Blocks(io.BytesIO):
    """A pipe that returns its bytes in given blocks."""

    def __init__(self, data: bytes, sizes: list[int]) -> None:
        super().__init__(data)
        self._sizes = sizes

    def read1(self, size: int | None = -1, /) -> bytes:
        self._sizes.append(given_size := self._sizes.pop(0))
        return self.read(given_size if size is None or size < 0 else min(given_size, size))


KeyedRow = tuple[bytes, str | None]
"""Payload and key of a row without an id."""


def input_of(data: bytes, sizes: list[int]) -> InputFile:
    blocks = Blocks(data, sizes)
    return InputFile(blocks, blocks, "here", None)


def all_rows(source: InputFile, kind: str | None, key: str | None = None) -> list[KeyedRow]:
    """Return every row, taken in chunks as `write` does."""
    found: list[KeyedRow] = []
    rows, more = InputRows(source, kind, RowFields(key)), True
    while more:
        taken, error, more = take_chunk(rows)
        found += [each for each in taken if isinstance(each, tuple)]
        if error is not None:
            raise error
    return found


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_lines_are_those_between_line_feeds(data: bytes, sizes: list[int]) -> None:
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert all_rows(input_of(data, sizes), "lines") == [(line, None) for line in expected]


@given(
    st.lists(st.lists(CELLS, min_size=2, max_size=2), max_size=6),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_csv_rows_are_those_of_the_standard_library(cells: list[list[str]], sizes: list[int]) -> None:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["a", "b"], *cells])
    found = all_rows(input_of(text.getvalue().encode(), sizes), "csv", "a")
    assert [list(json.loads(payload).values()) for payload, _ in found] == cells
    assert [key for _, key in found] == [row[0] or None for row in cells]


@given(
    st.lists(st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3)), max_size=6),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
)
def test_json_lines_are_handed_on_untouched(values: list[dict[str, object]], sizes: list[int]) -> None:
    encoded = [json.dumps(value).encode() for value in values]
    assert all_rows(input_of(b"\n".join(encoded), sizes), "jsonl") == [(line, None) for line in encoded]


def test_the_line_of_a_bad_row_is_where_it_begins() -> None:
    data = b'a,b\n"1\n1",2\n\n"3\n3\n3"\n'
    with pytest.raises(ClickException, match=r"here: line 5: 1 column, the header has 2"):
        all_rows(input_of(data, [100]), "csv")


@pytest.mark.parametrize(
    "path, kind",
    [
        ("-", None),
        ("a", None),
        ("a.gz", None),
        ("a.log", None),
        ("a.b.csv", "csv"),
        ("d.csv/a.jsonl.gz", "jsonl"),
        ("a.ndjson.xz", "jsonl"),
        ("a.json.bz2", "json"),
        ("a.parquet", "parquet"),
    ],
)
def test_a_format_is_guessed_from_the_end_of_the_name(path: str, kind: str | None) -> None:
    assert guess_format(path) == kind
