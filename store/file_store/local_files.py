"""Files in a folder of this machine, or of a file system that several machines share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final

from eventproc.base import kernel
from eventproc.store.file_store.file_store import FileStore, UnfinishedFile

if TYPE_CHECKING:
    import pyarrow as pa

PART_SUFFIX: Final = ".part"
"""Suffix of an unfinished file: it is being written, or its writer died."""

CREATE_TRIES: Final = 20
"""How often a file is created if other processes delete its empty folder. One attempt in a thousand meets that."""


class _NewLocalFile(UnfinishedFile):
    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + PART_SUFFIX)
        self._file = self._open()

    def _open(self, tries: int = CREATE_TRIES) -> FileIO:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            return self._part.open("wb", buffering=0)
        except (FileNotFoundError, FileExistsError):  # the last file of the folder was deleted meanwhile
            if tries == 1:
                raise
            return self._open(tries - 1)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        while view.nbytes:
            view = view[self._file.write(view) :]

    def finish(self) -> None:
        try:
            self._file.close()
            # Names are unique, so that nobody makes it between this line and the next.
            if self._path.exists():
                raise FileExistsError(f"{self._path} exists already")
            self._part.rename(self._path)
        finally:
            self.abandon()

    def abandon(self) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)


class LocalFiles(FileStore):
    """Files in a folder, which is made with its first file."""

    is_local = True

    def __init__(self, folder: Path) -> None:
        """folder: resolved, so that its name means the same on other machines."""
        self._folder = folder
        self.place = str(folder)

    def create(self, path: str) -> UnfinishedFile:
        """See `FileStore.create`."""
        return _NewLocalFile(self._folder / path)

    def read(self, path: str, position: int, length: int) -> bytes:
        """See `FileStore.read`."""
        descriptor = os.open(self._folder / path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(descriptor, length, position)
        finally:
            os.close(descriptor)

    def size(self, path: str) -> int | None:
        """See `FileStore.size`. A file that cannot be accessed counts as missing."""
        try:
            return (self._folder / path).stat().st_size
        except OSError:
            return None

    def modified_ms(self, path: str) -> int | None:
        """See `FileStore.modified_ms`."""
        try:
            return int((self._folder / path).stat().st_mtime * 1000)
        except OSError:
            return None

    def paths(self, folder: str = "") -> Iterator[str]:
        """See `FileStore.paths`. Files of eventproc lie two folders deep."""
        home = self._folder / folder
        for file in sorted(home.glob("/".join("*" * (3 - len(Path(folder).parts))))):
            yield str(file.relative_to(self._folder))

    def delete(self, path: str) -> None:
        """See `FileStore.delete`. Its folder goes with its last file."""
        file = self._folder / path
        file.unlink(missing_ok=True)
        with suppress(OSError):  # it holds files
            file.parent.rmdir()

    def sync(self, path: str) -> None:
        """See `FileStore.sync`. Syncs the file and the folders above it."""
        file = self._folder / path
        sync_file(file)
        for each in (*file.relative_to(self._folder).parents, Path("..")):
            sync_file(self._folder / each)

    def open_arrow(self, path: str) -> pa.NativeFile:
        """See `FileStore.open_arrow`."""
        import pyarrow as pa

        return pa.memory_map(str(self._folder / path))

    def verify_reachable(self) -> None:
        """See `FileStore.verify_reachable`."""
        if not self._folder.is_dir():
            raise FileNotFoundError(f"{self._folder}: folder not found")


def sync_file(path: Path) -> None:
    """Make a file, or the entries of a folder, survive a loss of power. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        kernel.sync(descriptor)
    finally:
        os.close(descriptor)
