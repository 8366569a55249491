"""Turn the rows of a file into events: lines, JSON lines or CSV.

A row that cannot be an event raises `click.ClickException`, which names its line; the rows before it were returned.
The payload and the key of a row:

lines  the line without its line feed, any bytes; no key
jsonl  the line unchanged, checked to be JSON in UTF-8. A byte order mark before the first line and blank lines are
       skipped. The key is a field of the object: a string, an integer as written in the file, or null for no key;
       an object without the field is refused
csv    a JSON object of the header's names and the row's text. The key is a column; an empty cell means no key
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import click

from eventproc.cli.input.csv_reader import CsvReader, not_utf8
from eventproc.cli.input.lines import InputLines, bad_row
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import check_key

InputRow: TypeAlias = tuple[bytes, str | None]
"""Payload and key."""

CHUNK_BYTES: Final = 1024 * 1024
"""Payload bytes of the rows in a chunk. Larger: fewer commits, later acknowledgements, more memory."""

KEY_CHARS_SHOWN: Final = 40
"""Characters of an invalid key that the error message shows."""

FORMATS: Final = ("lines", "jsonl", "csv")


def guess_format(path: str) -> str:
    """Return the format by the suffix of a file's name; "lines" if it has no known suffix."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in (".gz", ".xz")]
    return {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(
        suffixes[-1] if suffixes else "", "lines"
    )


def read_rows(lines: InputLines, kind: str, key: str | None) -> Iterator[InputRow]:
    """Iterate over the rows of an input. Nothing is read before the first row is requested.

    kind: one of FORMATS. key: the field or column that has the key, None for events without keys.
    """
    found = {"lines": _plain, "jsonl": _json_lines, "csv": _csv}[kind](lines, key)
    for number, payload, row_key in found:
        if len(payload) > EVENT_BYTES_MAX:
            raise bad_row(lines, number, f"{len(payload)} bytes; an event has at most {EVENT_BYTES_MAX}")
        if row_key is not None:
            try:
                check_key(row_key)
            except InvalidArgument as why:
                # The key itself, and not the error's value, which is escaped: the error line is escaped as one.
                shown = row_key if len(row_key) <= KEY_CHARS_SHOWN else f"{row_key[:KEY_CHARS_SHOWN]}…"
                raise bad_row(lines, number, f"{why.what} {shown!r}: {why.reason}") from None
        yield payload, row_key


def take_chunk(
    rows: Iterator[InputRow], lines: InputLines
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
            if size_bytes >= CHUNK_BYTES or not lines.ready:
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
            yield lines.number, line, None if key is None else _field(lines, value, key)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


_JSON: Final = json.JSONDecoder(parse_int=str, parse_constant=_no_constant)
"""Accepts what RFC 8259 allows. Python's default decoder also accepts NaN and infinities, and refuses integers of
more than 4300 digits. An integer stays as written."""


def _field(lines: InputLines, value: object, key: str) -> str | None:
    if not isinstance(value, dict):
        raise bad_row(lines, lines.number, f"it is not an object, so it has no field {key!r} for the key")
    if key not in value:
        raise bad_row(lines, lines.number, f"no field {key!r} for the key")
    found = value[key]
    if found is None or isinstance(found, str):
        return found
    raise bad_row(
        lines, lines.number, f"field {key!r} is {type(found).__name__}, a key is text or an integer"
    )


def _csv(lines: InputLines, key: str | None) -> _Numbered:
    table = CsvReader(lines)
    column = None if key is None else table.index(key)
    payload = table.payload
    for cells in table:
        yield table.number, payload(cells), None if column is None else cells[column] or None
