"""Turn the rows of a file into events: lines, JSON lines, CSV, other JSON, Parquet or Arrow.

A row that cannot be an event raises `click.ClickException`, which names its line; the rows before it were returned.
The payload and the key of a row:

lines  the line without its line feed, any bytes; no key
jsonl  the line unchanged, checked to be JSON in UTF-8. A byte order mark before the first line and blank lines are
       skipped. The key is a field of the object: a string, an integer as written in the file, or null for no key;
       an object without the field is refused
csv    a JSON object of the header's names and the row's text. The key is a column; an empty cell means no key
json   the elements of one array, or documents over several lines, each in one line. The key is as in jsonl
parquet, arrow  a JSON object of the row, see `arrow_tables`. The key is a column of text or integers; null: no key
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeAlias

import click

from eventproc import EVENT_BYTES_MAX
from eventproc.cli.input.arrow_tables import ArrowRows, payload_of
from eventproc.cli.input.csv_reader import CsvReader, not_utf8
from eventproc.cli.input.json_documents import JsonDocuments, no_constant
from eventproc.cli.input.lines import (
    PACKED,
    UNREADABLE,
    InputFile,
    InputLines,
    bad_input,
    bad_row,
    unreadable,
)
from eventproc.cli.input.recognition import ARROW_FILE_MAGIC, recognise, unpack
from eventproc.errors import InvalidArgument
from eventproc.store.model.routing import check_key

InputRow: TypeAlias = tuple[bytes, str | None]
"""Payload and key."""

CHUNK_BYTES: Final = 1024 * 1024
"""Payload bytes of the rows in a chunk. Larger: fewer commits, later acknowledgements, more memory."""

KEY_CHARS_SHOWN: Final = 40
"""Characters of an invalid key that the error message shows."""

_SUFFIXES: Final = {
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".arrow": "arrow",
}


def guess_format(path: str) -> str | None:
    """Return the format by the suffix of a file's name; None if it has no known suffix."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in PACKED]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


class InputRows(Iterator[InputRow]):
    """The rows of an input. Nothing is read before the first row is requested, which may block.

    kind: one of FORMATS; None: what the content and the name say. key: the field or column that has the key, None for
    events without keys.
    """

    def __init__(self, source: InputFile, kind: str | None, key: str | None) -> None:
        self._source, self._kind, self._key = source, kind, key
        self._rows: Iterator[InputRow] | None = None
        self._progress: _HasReady | None = None

    @property
    def ready(self) -> bool:
        """Whether the next row is available without waiting for the writer of a pipe."""
        return self._progress is not None and self._progress.ready

    def __next__(self) -> InputRow:
        if self._rows is None:
            try:
                self._rows = self._open()
            except UNREADABLE as why:
                raise unreadable(self._source, "at its beginning", why) from why
        return next(self._rows)

    def _open(self) -> Iterator[InputRow]:
        source, kind, key = self._source, self._kind, self._key
        if kind is None:
            kind = recognise(source, guess_format(source.name))
            if kind == "lines":
                source.peeked.skip(BOM_UTF8)
        elif kind != "lines":
            unpack(source)
        if key is not None and kind == "lines":
            raise click.UsageError("--key needs --format csv or jsonl: a plain line has no fields")
        if kind in ("parquet", "arrow", "arrow-stream"):
            if kind == "arrow" and not source.peeked.peek(len(ARROW_FILE_MAGIC)).startswith(ARROW_FILE_MAGIC):
                kind = "arrow-stream"
            table = ArrowRows(source, kind)
            self._progress = table
            return _objects(source, table, "row", key)
        if kind == "json":
            documents = JsonDocuments(source)
            self._progress = documents
            return _objects(source, documents, "document", key)
        lines = InputLines(source)
        self._progress = lines
        return read_rows(lines, kind, key)


class _HasReady(Protocol):
    @property
    def ready(self) -> bool: ...


def read_rows(lines: InputLines, kind: str, key: str | None) -> Iterator[InputRow]:
    """Iterate over the rows of a text with a row per line. Nothing is read before the first row is requested.

    kind: "lines", "jsonl" or "csv". key: the field or column that has the key, None for events without keys.
    """
    found = {"lines": _plain, "jsonl": _json_lines, "csv": _csv}[kind](lines, key)
    return _checked(found, partial(bad_row, lines))


def _checked(rows: _Numbered, bad: Callable[[int, str], click.ClickException]) -> Iterator[InputRow]:
    for number, payload, row_key in rows:
        if len(payload) > EVENT_BYTES_MAX:
            raise bad(number, f"{len(payload)} bytes; an event has at most {EVENT_BYTES_MAX}")
        if row_key is not None:
            try:
                check_key(row_key)
            except InvalidArgument as why:
                # The key itself, and not the error's value, which is escaped: the error line is escaped as one.
                shown = row_key if len(row_key) <= KEY_CHARS_SHOWN else f"{row_key[:KEY_CHARS_SHOWN]}…"
                raise bad(number, f"{why.what} {shown!r}: {why.reason}") from None
        yield payload, row_key


def take_chunk(
    rows: InputRows,
) -> tuple[list[InputRow], click.ClickException | None, bool]:
    """Return the next rows, the error that ended them, and whether there may be more.

    The chunk has about CHUNK_BYTES, or fewer if the pipe has no further row yet. Blocks until there is a row, so
    call it in a thread.
    """
    taken: list[InputRow] = []
    size_bytes = 0
    try:
        for row in rows:
            taken.append(row)
            size_bytes += len(row[0])
            if size_bytes >= CHUNK_BYTES or not rows.ready:
                return taken, None, True
    except click.ClickException as why:
        return taken, why, False
    return taken, None, False


_Numbered: TypeAlias = Iterator[tuple[int, bytes, str | None]]


def _plain(lines: InputLines, key: str | None) -> _Numbered:
    assert key is None, "lines have no key"
    for line in lines:
        yield lines.number, line, None


def _json_lines(lines: InputLines, key: str | None) -> _Numbered:
    for raw in lines:
        line = raw.removeprefix(BOM_UTF8) if lines.number == 1 else raw
        if line.strip():
            try:
                value: object = _JSON.decode(line.decode())
            except UnicodeDecodeError as why:
                raise bad_row(lines, lines.number, not_utf8(why)) from None
            except (ValueError, RecursionError) as why:
                raise bad_row(lines, lines.number, f"not JSON: {why}") from None
            yield lines.number, line, _key(value, key, partial(bad_row, lines), lines.number)


_JSON: Final = json.JSONDecoder(parse_int=str, parse_constant=no_constant)
"""Accepts what RFC 8259 allows. Python's default decoder also accepts NaN and infinities, and refuses integers of
more than 4300 digits. An integer stays as written."""


def _csv(lines: InputLines, key: str | None) -> _Numbered:
    table = CsvReader(lines)
    column = None if key is None else table.index(key)
    payload = table.payload
    for cells in table:
        yield table.number, payload(cells), None if column is None else cells[column] or None


def _objects(
    source: InputFile, found: JsonDocuments | ArrowRows, noun: str, key: str | None
) -> Iterator[InputRow]:
    """Yield values as rows. noun: what an error calls one of them."""

    def bad(number: int, reason: str) -> click.ClickException:
        return bad_input(source, f"{noun} {number}", reason)

    if key is not None and isinstance(found, ArrowRows):
        found.check_column(key)

    def rows() -> _Numbered:
        for value in found:
            yield found.number, payload_of(value), _key(value, key, bad, found.number)

    return _checked(rows(), bad)


def _key(
    value: object, key: str | None, bad: Callable[[int, str], click.ClickException], number: int
) -> str | None:
    if key is None:
        return None
    if not isinstance(value, dict):
        raise bad(number, f"it is not an object, so it has no field {key!r} for the key")
    if key not in value:
        raise bad(number, f"no field {key!r} for the key")
    found = value[key]
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise bad(number, f"field {key!r} is {type(found).__name__}, a key is text or an integer")
