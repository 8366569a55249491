"""The interface of a file store: immutable files with relative names, put once, read by range.

Names are unique: the caller puts an id into each, and never uses a name twice. A file exists completely, or not at
all. Calls block. Code above this room does not know whether a file lies in a folder or in object storage.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from eventproc.base.durations import Durations

if TYPE_CHECKING:
    import pyarrow as pa

BLOCK_BYTES: Final = 4 * 2**20
"""Bytes that a reader of a complete file asks for at a time. Higher: more memory. Lower: more requests."""


REQUEST_DURATIONS: Final = Durations()
"""How long requests of this process to object storage took, with their repetitions, by operation and error."""


class UnfinishedFile(ABC):
    """A file that is being written. Nobody sees it before `finish`."""

    @abstractmethod
    def write(self, data: bytes | memoryview) -> None:
        """Append bytes. Raises OSError."""

    @abstractmethod
    def finish(self) -> None:
        """Give the file its name, complete. Repeating a put whose answer was lost succeeds.

        Raises FileExistsError if another file has the name, OSError, Unreachable; then there is no file.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Discard what was written. Does nothing after `finish`."""


class CountedFile:
    """An unfinished file as pyarrow writes one (`pa.PythonFile(file, mode="w")`). Raises as `UnfinishedFile`.

    size_bytes, checksum: of what was written so far.
    """

    closed = False

    def __init__(self, file: UnfinishedFile) -> None:
        self._file = file
        self.size_bytes = 0
        self.checksum = 0

    def write(self, data: bytes | memoryview) -> int:
        """Append bytes, and return how many."""
        view = memoryview(data)
        self.checksum = zlib.crc32(view, self.checksum)
        self.size_bytes += view.nbytes
        self._file.write(view)
        return view.nbytes

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Do nothing: pyarrow closes its file, and `finish` completes the real one."""

    def finish(self) -> None:
        """Give the file its name, complete."""
        self._file.finish()

    def abandon(self) -> None:
        """Discard what was written."""
        self._file.abandon()


class FileStore(ABC):
    """Files under one place. Safe for threads. Every call may raise OSError and Unreachable.

    place: the folder, or the URL without credentials; `open_file_store(place)` finds the files in other processes.
    is_local: whether a read costs no request over the network, so that a transaction may read.
    """

    place: str
    is_local: bool

    @abstractmethod
    def create(self, path: str) -> UnfinishedFile:
        """Begin a new file."""

    @abstractmethod
    def read(self, path: str, position: int, length: int) -> bytes:
        """Return bytes [position, position + length); fewer at the end of the file. Raises FileNotFoundError."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes, None if it does not exist."""

    @abstractmethod
    def modified_ms(self, path: str) -> int | None:
        """Return when a file was finished, by the clock of the place; None if it does not exist."""

    @abstractmethod
    def paths(self, folder: str = "") -> Iterator[str]:
        """Yield the paths of all files, or of those in a folder, unfinished ones included, in order.

        Objects: one request per 1,000 files.
        """

    @abstractmethod
    def delete(self, path: str) -> None:
        """Delete a file. Does nothing if it does not exist."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Make a finished file, and its name, survive a loss of power. An object does as soon as it exists."""

    @abstractmethod
    def open_arrow(self, path: str) -> pa.NativeFile:
        """Open a file for pyarrow, which reads the ranges that it needs; a local one is mapped into memory.

        Raises FileNotFoundError.
        """

    @abstractmethod
    def verify_reachable(self) -> None:
        """Raise FileNotFoundError if this machine does not see the place, so that a new file would be lost."""

    def show(self, path: str) -> str:
        """Return a path as people find it."""
        return f"{self.place}/{path}"

    def blocks(self, path: str) -> Iterator[bytes]:
        """Yield the complete content of a file. Raises FileNotFoundError."""
        position = 0
        while block := self.read(path, position, BLOCK_BYTES):
            yield block
            if len(block) < BLOCK_BYTES:
                return
            position += len(block)
