"""The lines of an input, plain, .gz or .xz, from a file or a pipe. Only what one read of it gave is in memory."""

from __future__ import annotations

import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Final, Protocol, cast

import attrs
import click

from eventproc.store.model.limits import EVENT_BYTES_MAX

READ_BYTES: Final = 256 * 1024
"""Bytes asked for at a time; a pipe gives what it has."""

GZIP_MAGIC: Final = b"\x1f\x8b"
XZ_MAGIC: Final = b"\xfd7zXZ\x00"


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
    """Open a file, unpacked when its name (.gz, .xz) or beginning says so; "-" is standard input. Raises OSError."""
    if path == "-":
        yield Source(sys.stdin.buffer, cast("_Reads", sys.stdin.buffer), "standard input", None)
        return
    with open(path, "rb") as raw:
        status = os.fstat(raw.fileno())
        size_bytes, begin = None, b""
        if stat.S_ISREG(status.st_mode):
            size_bytes, begin = status.st_size, raw.read(len(XZ_MAGIC))
            raw.seek(0)
        if path.endswith(".gz") or begin.startswith(GZIP_MAGIC):
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield Source(raw, unpacked, path, size_bytes)
        elif path.endswith(".xz") or begin == XZ_MAGIC:
            with lzma.LZMAFile(raw) as unpacked_xz:
                yield Source(raw, unpacked_xz, path, size_bytes)
        else:
            yield Source(raw, raw, path, size_bytes)


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
