"""Turn the rows of a file into events: lines, JSON lines, CSV, other JSON, Parquet or Arrow.

A row that cannot be an event raises `click.ClickException`, which names its line; the rows before it were returned.
The payload and the key of a row:

lines  the line without its line feed, any bytes; no key
jsonl  the line unchanged, checked to be JSON in UTF-8. A byte order mark before the first line and blank lines are
       skipped. The key is a field of the object: a string, an integer as written in the file, or null for no key;
       an object without the field is refused. The id is a field in the same way
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
from typing import Final, NamedTuple, Protocol, TypeAlias

import click

from eventproc import EVENT_BYTES_MAX, NewEvent
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
from eventproc.streams.new_events import check_event_id, checked_event

InputRow: TypeAlias = tuple[bytes, str | None] | NewEvent[bytes]
"""Payload and key; or an event, if it has an id."""

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


class RowFields(NamedTuple):
    """The fields or columns that have the keys and the ids of events; None: events have none."""

    key: str | None = None
    id: str | None = None

    def verify_none(self) -> None:
        """Raise `click.UsageError` if there is one."""
        for name, field in zip(self._fields, self, strict=True):
            if field is not None:
                raise click.UsageError(f"--{name} needs --format csv or jsonl: a plain line has no fields")

    def of(
        self, value: object, bad: Callable[[int, str], click.ClickException], number: int
    ) -> tuple[str | None, str | None]:
        """Return key and id of the row of this number, or raise `bad` of it."""
        return _text(value, self.key, "key", bad, number), _text(value, self.id, "id", bad, number)


def guess_format(path: str) -> str | None:
    """Return the format by the suffix of a file's name; None if it has no known suffix."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in PACKED]
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


class InputRows(Iterator[InputRow]):
    """The rows of an input. Nothing is read before the first row is requested, which may block.

    kind: one of FORMATS; None: what the content and the name say. fields: the fields or columns that have keys and ids.
    """

    def __init__(self, source: InputFile, kind: str | None, fields: RowFields) -> None:
        self._source, self._kind, self._fields = source, kind, fields
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
        source, kind, fields = self._source, self._kind, self._fields
        if kind is None:
            kind = recognise(source, guess_format(source.name))
            if kind == "lines":
                source.peeked.skip(BOM_UTF8)
        elif kind != "lines":
            unpack(source)
        if kind == "lines":
            fields.verify_none()
        if kind in ("parquet", "arrow", "arrow-stream"):
            if kind == "arrow" and not source.peeked.peek(len(ARROW_FILE_MAGIC)).startswith(ARROW_FILE_MAGIC):
                kind = "arrow-stream"
            table = ArrowRows(source, kind)
            self._progress = table
            return _objects(source, table, "row", fields)
        if kind == "json":
            documents = JsonDocuments(source)
            self._progress = documents
            return _objects(source, documents, "document", fields)
        lines = InputLines(source)
        self._progress = lines
        return read_rows(lines, kind, fields)


class _HasReady(Protocol):
    @property
    def ready(self) -> bool: ...


def read_rows(lines: InputLines, kind: str, fields: RowFields) -> Iterator[InputRow]:
    """Iterate over the rows of a text with a row per line. Nothing is read before the first row is requested.

    kind: "lines", "jsonl" or "csv". fields: the fields or columns that have keys and ids.
    """
    found = {"lines": _plain, "jsonl": _json_lines, "csv": _csv}[kind](lines, fields)
    return _checked(found, partial(bad_row, lines))


def _checked(rows: _Numbered, bad: Callable[[int, str], click.ClickException]) -> Iterator[InputRow]:
    for number, payload, row_key, row_id in rows:
        if len(payload) > EVENT_BYTES_MAX:
            raise bad(number, f"{len(payload)} bytes; an event has at most {EVENT_BYTES_MAX}")
        try:
            checked_event(payload, row_key, event_time=None, headers=None)
            if row_id is not None:
                check_event_id(row_id)
        except InvalidArgument as why:
            # The text itself, and not the error's value, which is escaped: the error line is escaped as one.
            text = (row_id if why.what == "id" else row_key) or ""
            shown = text if len(text) <= KEY_CHARS_SHOWN else f"{text[:KEY_CHARS_SHOWN]}…"
            raise bad(number, f"{why.what} {shown!r}: {why.reason}") from None
        yield (payload, row_key) if row_id is None else NewEvent(payload, row_key, id=row_id)


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
            size_bytes += len(row.payload if isinstance(row, NewEvent) else row[0])
            if size_bytes >= CHUNK_BYTES or not rows.ready:
                return taken, None, True
    except click.ClickException as why:
        return taken, why, False
    return taken, None, False


_Numbered: TypeAlias = Iterator[tuple[int, bytes, str | None, str | None]]
"""Number, payload, key and id of each row."""


def _plain(lines: InputLines, fields: RowFields) -> _Numbered:
    assert fields == RowFields(), "lines have no fields"
    for line in lines:
        yield lines.number, line, None, None


def _json_lines(lines: InputLines, fields: RowFields) -> _Numbered:
    bad = partial(bad_row, lines)
    for raw in lines:
        line = raw.removeprefix(BOM_UTF8) if lines.number == 1 else raw
        if line.strip():
            try:
                value: object = _JSON.decode(line.decode())
            except UnicodeDecodeError as why:
                raise bad_row(lines, lines.number, not_utf8(why)) from None
            except (ValueError, RecursionError) as why:
                raise bad_row(lines, lines.number, f"not JSON: {why}") from None
            yield lines.number, line, *fields.of(value, bad, lines.number)


_JSON: Final = json.JSONDecoder(parse_int=str, parse_constant=no_constant)
"""Accepts what RFC 8259 allows. Python's default decoder also accepts NaN and infinities, and refuses integers of
more than 4300 digits. An integer stays as written."""


def _csv(lines: InputLines, fields: RowFields) -> _Numbered:
    table = CsvReader(lines)
    key, id = (None if name is None else table.index(name) for name in fields)
    payload = table.payload
    for cells in table:
        row_key = None if key is None else cells[key] or None
        yield table.number, payload(cells), row_key, None if id is None else cells[id]


def _objects(
    source: InputFile, found: JsonDocuments | ArrowRows, noun: str, fields: RowFields
) -> Iterator[InputRow]:
    """Yield values as rows. noun: what an error calls one of them."""

    def bad(number: int, reason: str) -> click.ClickException:
        return bad_input(source, f"{noun} {number}", reason)

    for name in fields:
        if name is not None and isinstance(found, ArrowRows):
            found.check_column(name)

    def rows() -> _Numbered:
        for value in found:
            yield found.number, payload_of(value), *fields.of(value, bad, found.number)

    return _checked(rows(), bad)


def _text(
    value: object, field: str | None, noun: str, bad: Callable[[int, str], click.ClickException], number: int
) -> str | None:
    if field is None:
        return None
    if not isinstance(value, dict):
        raise bad(number, f"it is not an object, so it has no field {field!r} for the {noun}")
    if field not in value:
        raise bad(number, f"no field {field!r} for the {noun}")
    found = value[field]
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    article = "an" if noun == "id" else "a"
    raise bad(number, f"field {field!r} is {type(found).__name__}, {article} {noun} is text or an integer")
