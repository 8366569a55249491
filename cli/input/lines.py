"""Open a file or a pipe, plain, .gz, .xz or .bz2, and read its lines. Only the result of one read is in memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import stat
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import IO, Any, Final, Protocol, cast

import attrs
import click

from eventproc import EVENT_BYTES_MAX

READ_BYTES: Final = 256 * 1024
"""Bytes requested in one read. A pipe returns what it has."""

PACKED: Final[Mapping[str, tuple[bytes, Callable[[IO[bytes]], Any]]]] = MappingProxyType(
    {
        ".gz": (b"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file)),
        ".xz": (b"\xfd7zXZ\x00", lzma.LZMAFile),
        ".bz2": (b"BZh", bz2.BZ2File),
    }
)
"""By the suffix of a compressed file: how it begins, and what decompresses it."""

MAGIC_BYTES: Final = max(len(magic) for magic, _ in PACKED.values())

UNREADABLE: Final = (OSError, EOFError, lzma.LZMAError, zlib.error)
"""What reading a file raises, plain or compressed."""


class _Reads(Protocol):
    def read1(self, size: int, /) -> bytes: ...


class PeekedStream:
    """A stream whose beginning can be looked at before it is read. ended: its end was seen."""

    def __init__(self, stream: _Reads) -> None:
        self.ended = False
        self._stream = stream
        self._head = b""

    def is_of(self, stream: object) -> bool:
        """Return whether this reads `stream` itself, and not what was decompressed from it."""
        return self._stream is stream

    def peek(self, least: int) -> bytes:
        """Return at least so many bytes without taking them, or all if there are fewer. Blocks until then."""
        while len(self._head) < least and not self.ended:
            block = self._stream.read1(READ_BYTES)
            self.ended = not block
            self._head += block
        return self._head

    def read1(self, size: int = READ_BYTES, /) -> bytes:
        """Return what was looked at, then what the stream has. Empty at the end."""
        if self._head:
            taken, self._head = self._head[:size], self._head[size:]
            return taken
        return b"" if self.ended else self._stream.read1(size)

    def skip(self, prefix: bytes) -> None:
        """Take `prefix` if the stream begins with it. It must have been looked at."""
        self._head = self._head.removeprefix(prefix)

    read = read1  # a decompressor calls `read`, and accepts fewer bytes


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
    def peeked(self) -> PeekedStream:
        """The stream, which from now on can be looked at."""
        if not isinstance(self.stream, PeekedStream):
            self.stream = PeekedStream(self.stream)
        return self.stream

    def read(self, size: int, where: str) -> bytes:
        """Return what the next read gives. Raises click.ClickException. where: for its text, `after line 7`."""
        try:
            return self.stream.read1(size)
        except UNREADABLE as why:
            raise unreadable(self, where, why) from why

    @property
    def position(self) -> int:
        """Bytes of the file that have been read."""
        return self.raw.tell() if self.size_bytes is not None and not self.raw.closed else 0


@contextmanager
def open_input(path: str) -> Iterator[InputFile]:
    """Open a file; "-" is standard input. Raises OSError.

    The file is decompressed if its name ends in .gz, .xz or .bz2, or if it begins as such files do.
    """
    if path == "-":
        yield InputFile(sys.stdin.buffer, cast("_Reads", sys.stdin.buffer), "standard input", None)
        return
    with open(path, "rb") as raw:
        status = os.fstat(raw.fileno())
        size_bytes, begin = None, b""
        if stat.S_ISREG(status.st_mode):
            size_bytes, begin = status.st_size, raw.read(MAGIC_BYTES)
            raw.seek(0)
        for suffix, (magic, open_packed) in PACKED.items():
            if path.endswith(suffix) or begin.startswith(magic):
                with open_packed(raw) as unpacked:
                    yield InputFile(raw, unpacked, path, size_bytes)
                return
        yield InputFile(raw, raw, path, size_bytes)


def read_text(path: str) -> str:
    """Return the text of an input as `open_input` opens it. Raises OSError; click.ClickException: it is too long."""
    with open_input(path) as source:
        found = b""
        while block := source.read(READ_BYTES, "completely"):
            found += block
            if len(found) > EVENT_BYTES_MAX:
                raise click.ClickException(f"{source.name}: it is longer than {EVENT_BYTES_MAX} bytes")
    return found.decode(errors="replace")


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
        block = self.source.read(READ_BYTES, f"after line {self.number}")
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
    return bad_input(lines.source, f"line {number}", reason)


def bad_input(source: InputFile, where: str, reason: str) -> click.ClickException:
    """Return the error of a part of an input. where: which one, `element 7`."""
    return click.ClickException(f"{source.name}: {where}: {reason}")


def refused(source: InputFile, what: str, remedy: str) -> click.ClickException:
    """Return the error for an input that is not accepted."""
    return click.ClickException(f"{source.name}: it is {what}; {remedy}")


def unreadable(source: InputFile, where: str, why: Exception) -> click.ClickException:
    """Return the error of an input that cannot be read further."""
    reason = why.strerror if isinstance(why, OSError) and why.strerror else why
    return click.ClickException(f"{source.name}: cannot be read {where}: {reason}")
