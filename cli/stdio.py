"""Standard input, output and error of the process, whatever became of them before it began.

A descriptor that the caller closed is taken by the next file that is opened, the database perhaps, and what
is meant for people would be written into it. So 0, 1 and 2 are always taken here: a closed one by the null
device, opened the other way round, so that using it fails and not using it does no harm.
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
    """Standard output cannot be written, for another reason than a reader that went away."""

    def __str__(self) -> str:
        return f"standard output cannot be written: {self.strerror}"


class _Output(io.FileIO):
    """Descriptor 1: what fails here has nothing to do with the directory, and its error says so."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as why:
            raise OutputLost(why.errno, why.strerror) from None


class _Notes(io.FileIO):
    """Descriptor 2: what cannot be told there is not told, and the exit code stays what it was."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare() -> None:
    """Take descriptors 0, 1 and 2, and let errors of standard output be told from others. Once per process."""
    for descriptor, flags in ((STDIN, os.O_WRONLY), (STDOUT, os.O_RDONLY), (STDERR, os.O_WRONLY)):
        try:
            os.fstat(descriptor)
        except OSError:
            # The lowest free one, which is this: those below are taken.
            os.open(os.devnull, flags)
            os.set_inheritable(descriptor, True)
    if sys.stdin is None:
        sys.stdin = os.fdopen(STDIN, encoding=TEXT, closefd=False)
    sys.stdout = _text(_Output(STDOUT, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Notes(STDERR, "w", closefd=False), sys.stderr)


def _text(raw: io.FileIO, before: object) -> io.TextIOWrapper:
    """Return a stream over `raw` with the properties of the one before it."""
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
    """Send what is still in the buffer of standard output nowhere: it must not fail again when Python exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
