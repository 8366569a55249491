"""Standard input, output and error of the process, also if the parent process closed some of them.

A closed descriptor 0, 1 or 2 would be reused by the next file that is opened, such as the database, and messages
would be written into that file. So a closed one is opened here on the null device, with the opposite access mode:
using it then fails, and not using it does no harm.
"""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STDIN, STDOUT, STDERR = range(3)

TEXT: Final = "utf-8"
"""Encoding of a stream that Python did not open, because it was closed."""


class OutputLost(OSError):
    """Standard output cannot be written, for another reason than a closed pipe."""

    def __str__(self) -> str:
        return f"standard output cannot be written: {self.strerror}"


class _StandardOutput(io.FileIO):
    """Descriptor 1. Its errors are OutputLost, to tell them from errors of the directory."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as why:
            raise OutputLost(why.errno, why.strerror) from None


class _StandardError(io.FileIO):
    """Descriptor 2. A message that cannot be written is dropped, and the exit code stays."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare() -> None:
    """Open closed descriptors 0, 1 and 2, and replace sys.stdout and sys.stderr. Call it once per process."""
    for descriptor, flags in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # It becomes this descriptor: the lowest free one.
            os.open(os.devnull, flags)
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, encoding=TEXT, closefd=False)
    sys.stdout = _text(_StandardOutput(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_StandardError(STDERR, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: object) -> io.TextIOWrapper:
    """Return a text stream over `raw` with the properties of the stream `before`."""
    buffered = io.BufferedWriter(raw)
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(buffered, encoding=TEXT)
    return io.TextIOWrapper(
        buffered,
        encoding=before.encoding,
        errors=before.errors,
        line_buffering=before.line_buffering,
        write_through=before.write_through,
    )


def forget_output() -> None:
    """Discard what is in the buffer of standard output, so that flushing it at exit does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
