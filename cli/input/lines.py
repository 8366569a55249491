"""Read the lines of a file or a pipe, plain, .gz or .xz. Only the result of one read is in memory."""

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
"""Bytes requested in one read. A pipe returns what it has."""

GZIP_MAGIC: Final = b"\x1f\x8b"
XZ_MAGIC: Final = b"\xfd7zXZ\x00"


class _Reads(Protocol):
    def read1(self, size: int, /) -> bytes: ...


@attrs.define
class InputFile:
    """An open input.

    size_bytes: of the file on disk, before decompression. None for a pipe.
    """

    raw: IO[bytes]
    stream: _Reads
    name: str
    size_bytes: int | None

    @property
    def position(self) -> int:
        """Bytes of the file that have been read."""
        return self.raw.tell() if self.size_bytes is not None and not self.raw.closed else 0


@contextmanager
def open_input(path: str) -> Iterator[InputFile]:
    """Open a file; "-" is standard input. Raises OSError.

    The file is decompressed if its name ends in .gz or .xz, or if it begins as such files do.
    """
    if path == "-":
        yield InputFile(sys.stdin.buffer, cast("_Reads", sys.stdin.buffer), "standard input", None)
        return
    with open(path, "rb") as raw:
        status = os.fstat(raw.fileno())
        size_bytes, begin = None, b""
        if stat.S_ISREG(status.st_mode):
            size_bytes, begin = status.st_size, raw.read(len(XZ_MAGIC))
            raw.seek(0)
        if path.endswith(".gz") or begin.startswith(GZIP_MAGIC):
            with gzip.GzipFile(fileobj=raw) as unpacked:
                yield InputFile(raw, unpacked, path, size_bytes)
        elif path.endswith(".xz") or begin == XZ_MAGIC:
            with lzma.LZMAFile(raw) as unpacked_xz:
                yield InputFile(raw, unpacked_xz, path, size_bytes)
        else:
            yield InputFile(raw, raw, path, size_bytes)


class InputLines(Iterator[bytes]):
    """The lines of an input, without their line feeds. Iterating blocks only when no line is in memory."""

    def __init__(self, source: InputFile) -> None:
        self.source = source
        self.number = 0  # of the last line returned, from 1
        self._lines: list[bytes] = []  # reversed
        self._rest = b""
        self._ended = False

    @property
    def ready(self) -> bool:
        """Whether the next line is available without waiting for the writer of a pipe."""
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
            raise bad_row(
                self, self.number + 1, f"it is longer than {EVENT_BYTES_MAX} bytes, the limit of an event"
            )


def bad_row(lines: InputLines, number: int, reason: str) -> click.ClickException:
    """Return the error of the row that begins in line `number`."""
    return click.ClickException(f"{lines.source.name}: line {number}: {reason}")
