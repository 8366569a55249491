"""Rows of a file as events, one after the other: lines, JSON lines or CSV, plain, .gz or .xz.

However long the file, only what one read of it gave is in memory. A row that cannot be an event raises
`click.ClickException` naming its line; the rows before it were handed out. What a row becomes:

lines  the line without its line feed, any bytes; no key
jsonl  the line as it is, checked to be JSON; blank lines are skipped; the key is a field of the object, a
       string or an integer, null for no key; an object without the field is refused
csv    a JSON object of the header's names and the row's text; the key is a column, an empty cell no key
"""

from __future__ import annotations

import csv
import gzip
import json
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final, Protocol, TypeAlias, cast

import attrs
import click

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import check_key

Row: TypeAlias = tuple[bytes, str | None]
"""Payload and key."""

READ_BYTES: Final = 256 * 1024
"""Bytes asked for at a time; a pipe gives what it has."""

CHUNK_BYTES: Final = 1024 * 1024
"""Payload bytes of rows handed out together. Larger: fewer commits, later acknowledgements, more memory."""

FORMATS: Final = ("lines", "jsonl", "csv")


class _Reads(Protocol):
    def read1(self, size: int, /) -> bytes: ...


@attrs.define
class Source:
    """An open input. size_bytes: of the file as it lies on disk, None for a pipe."""

    raw: IO[bytes]
    stream: _Reads
    name: str
    size_bytes: int | None

    @property
    def position(self) -> int:
        """Bytes of the file that were read so far."""
        return self.raw.tell() if self.size_bytes is not None and not self.raw.closed else 0


@contextmanager
def open_source(path: str) -> Iterator[Source]:
    """Open a file, unpacking .gz and .xz; "-" is standard input. Raises OSError."""
    if path == "-":
        yield Source(sys.stdin.buffer, cast("_Reads", sys.stdin.buffer), "standard input", None)
        return
    with open(path, "rb") as raw:
        status = os.fstat(raw.fileno())
        size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
        if path.endswith(".gz"):
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield Source(raw, unpacked, path, size_bytes)
        elif path.endswith(".xz"):
            with lzma.LZMAFile(raw) as unpacked_xz:
                yield Source(raw, unpacked_xz, path, size_bytes)
        else:
            yield Source(raw, raw, path, size_bytes)


def guess_format(path: str) -> str:
    """Return the format that a file's name tells; "lines" when it tells none."""
    suffixes = [suffix for suffix in Path(path).suffixes if suffix not in (".gz", ".xz")]
    return {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}.get(
        suffixes[-1] if suffixes else "", "lines"
    )


class Lines(Iterator[bytes]):
    """The lines of a source, without their line feeds. Iterating blocks only when none is in memory."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.number = 0  # of the line handed out last, from 1
        self._lines: list[bytes] = []  # reversed
        self._rest = b""
        self._ended = False

    @property
    def ready(self) -> bool:
        """Whether the next line can be had without waiting for somebody to write it."""
        return bool(self._lines) or self.source.size_bytes is not None

    def __next__(self) -> bytes:
        while not self._lines:
            self._fill()
        self.number += 1
        return self._lines.pop()

    def _fill(self) -> None:
        if self._ended:
            raise StopIteration
        try:
            block = self.source.stream.read1(READ_BYTES)
        except (OSError, EOFError, lzma.LZMAError, zlib.error) as why:
            reason = why.strerror if isinstance(why, OSError) and why.strerror else why
            raise click.ClickException(
                f"{self.source.name}: cannot be read after line {self.number}: {reason}"
            ) from why
        if not block:
            self._ended = True
            self._lines = [self._rest] if self._rest else []
            return
        self._lines = (self._rest + block).split(b"\n")
        self._rest = self._lines.pop()
        self._lines.reverse()
        if len(self._rest) > EVENT_BYTES_MAX and not self._lines:
            raise bad_row(self, self.number + 1, f"it is longer than an event, {EVENT_BYTES_MAX} bytes")


def bad_row(lines: Lines, number: int, reason: str) -> click.ClickException:
    """Return the error of the row that begins in line `number`."""
    return click.ClickException(f"{lines.source.name}: line {number}: {reason}")


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
                raise bad_row(lines, number, str(why)) from None
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
    for line in lines:
        if line.strip():
            try:
                value: object = json.loads(line)
            except (ValueError, RecursionError) as why:
                raise bad_row(lines, lines.number, f"not JSON: {why}") from None
            yield lines.number, line, None if key is None else _field(lines, value, key)


def _field(lines: Lines, value: object, key: str) -> str | None:
    if not isinstance(value, dict):
        raise bad_row(lines, lines.number, f"not an object, so it has no field {key!r} for the key")
    if key not in value:
        raise bad_row(lines, lines.number, f"no field {key!r} for the key")
    found = value[key]
    if found is None or isinstance(found, str):
        return found
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    raise bad_row(
        lines, lines.number, f"field {key!r} is {type(found).__name__}, a key is text or an integer"
    )


def _csv(lines: Lines, key: str | None) -> _Numbered:
    csv.field_size_limit(EVENT_BYTES_MAX)
    reader = csv.reader(_decoded(lines), strict=True)
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
    header, column = _header(lines, reader, key)
    width = len(header)
    while True:
        number = lines.number + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as why:
            raise bad_row(lines, number, f"not CSV: {why}") from None
        if not cells:
            continue
        if len(cells) != width:
            raise bad_row(lines, number, f"{len(cells)} columns, the header has {width}")
        payload = encode(dict(zip(header, cells, strict=True))).encode()
        yield number, payload, None if column is None else cells[column] or None


def _header(lines: Lines, reader: Iterator[list[str]], key: str | None) -> tuple[list[str], int | None]:
    try:
        header = next(reader, None)
    except csv.Error as why:
        raise bad_row(lines, 1, f"not CSV: {why}") from None
    if header is None:
        raise bad_row(lines, 1, "there is no header; the first row of a CSV names its columns")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise bad_row(lines, 1, f"two columns are named {twice[0]!r}")
    if key is not None and key not in header:
        raise InvalidArgument(what="key", value=key, reason=f"the columns are {', '.join(header)}")
    return header, None if key is None else header.index(key)


def _decoded(lines: Lines) -> Iterator[str]:
    for line in lines:
        try:
            text = line.decode()
        except UnicodeDecodeError as why:
            raise bad_row(lines, lines.number, f"not UTF-8 ({why.reason} at byte {why.start + 1})") from None
        yield (text.removeprefix("\ufeff") if lines.number == 1 else text) + "\n"
