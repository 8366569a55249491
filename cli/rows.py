"""Rows of a file as events, one after the other: lines, JSON lines or CSV.

A row that cannot be an event raises
`click.ClickException` naming its line; the rows before it were handed out. What a row becomes:

lines  the line without its line feed, any bytes; no key
jsonl  the line as it is, checked to be JSON in UTF-8; a byte order mark before the first line and blank lines are
       skipped; the key is a field of the object, a string, or an integer as it is written, null for no key; an
       object without the field is refused
csv    a JSON object of the header's names and the row's text; the key is a column, an empty cell no key
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

import click

from eventproc.cli.csv_rows import Csv, not_utf8
from eventproc.cli.lines import Lines, bad_row
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import check_key

Row: TypeAlias = tuple[bytes, str | None]
"""Payload and key."""

CHUNK_BYTES: Final = 1024 * 1024
"""Payload bytes of rows handed out together. Larger: fewer commits, later acknowledgements, more memory."""

KEY_CHARS_SHOWN: Final = 40
"""Characters of a key that cannot be one, in the message that says so."""

FORMATS: Final = ("lines", "jsonl", "csv")


def guess_format(path: str) -> str:
    """Return the format that a file's name tells; "lines" when it tells none."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in (".gz", ".xz")]
    return {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(
        suffixes[-1] if suffixes else "", "lines"
    )


def rows(lines: Lines, kind: str, key: str | None) -> Iterator[Row]:
    """Return the rows of a format. key: the field or column of the key. Nothing is read before the first row."""
    found = {"lines": _plain, "jsonl": _json_lines, "csv": _csv}[kind](lines, key)
    for number, payload, row_key in found:
        if len(payload) > EVENT_BYTES_MAX:
            raise bad_row(lines, number, f"{len(payload)} bytes; an event has at most {EVENT_BYTES_MAX}")
        if row_key is not None:
            try:
                check_key(row_key)
            except InvalidArgument as why:
                # Not its value, which is escaped already: who shows this line escapes what is in it.
                shown = row_key if len(row_key) <= KEY_CHARS_SHOWN else f"{row_key[:KEY_CHARS_SHOWN]}…"
                raise bad_row(lines, number, f"{why.what} {shown!r}: {why.reason}") from None
        yield payload, row_key


def take(rows: Iterator[Row], lines: Lines) -> tuple[list[Row], click.ClickException | None, bool]:
    """Return the next rows, the error that ended them, and whether there may be more.

    About CHUNK_BYTES of them; fewer when the next one has yet to be written into the pipe. Blocks until
    there is one, so call it in a thread.
    """
    taken: list[Row] = []
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


def _plain(lines: Lines, key: str | None) -> _Numbered:
    assert key is None, "lines have no key"
    for line in lines:
        yield lines.number, line, None


def _json_lines(lines: Lines, key: str | None) -> _Numbered:
    for whole in lines:
        line = whole.removeprefix(BOM_UTF8) if lines.number == 1 else whole
        if line.strip():
            try:
                value: object = _JSON.decode(line.decode())
            except UnicodeDecodeError as why:
                raise bad_row(lines, lines.number, not_utf8(why)) from None
            except (ValueError, RecursionError) as why:
                raise bad_row(lines, lines.number, f"not JSON: {why}") from None
            yield lines.number, line, None if key is None else _field(lines, value, key)


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a number of it")


_JSON: Final = json.JSONDecoder(parse_int=str, parse_constant=_no_constant)
"""Takes what RFC 8259 has; Python's own also takes NaN and the infinities, and no integer of more than 4300 digits.
An integer stays as it is written."""


def _field(lines: Lines, value: object, key: str) -> str | None:
    if not isinstance(value, dict):
        raise bad_row(lines, lines.number, f"not an object, so it has no field {key!r} for the key")
    if key not in value:
        raise bad_row(lines, lines.number, f"no field {key!r} for the key")
    found = value[key]
    if found is None or isinstance(found, str):
        return found
    raise bad_row(
        lines, lines.number, f"field {key!r} is {type(found).__name__}, a key is text or an integer"
    )


def _csv(lines: Lines, key: str | None) -> _Numbered:
    table = Csv(lines)
    column = None if key is None else table.index(key)
    payload = table.payload
    for cells in table:
        yield table.number, payload(cells), None if column is None else cells[column] or None
