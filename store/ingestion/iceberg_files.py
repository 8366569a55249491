"""The files of Iceberg's tables in a file store: what pyiceberg reads and writes through.

A location in Iceberg's metadata is a URL of the place where the table was written. The store may lie elsewhere by now:
its directory was moved, or it is a copy. So the place is cut off, and the rest is a path of the file store.
"""

from __future__ import annotations

from types import TracebackType
from typing import cast

from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream

from eventproc.store.file_store import CountedFile, FileStore
from eventproc.store.model.errors import CorruptRecord


class StoreFiles(FileIO):
    """Files below `base`, a URL without a slash at its end, lie in `files`."""

    def __init__(self, files: FileStore, base: str, *, synced: bool) -> None:
        """synced: whether written files must survive a loss of power."""
        super().__init__()
        self.files = files
        self.base = base
        self.synced = synced

    def path_of(self, location: str) -> str:
        """Return the path of a location. Raises CorruptRecord for one that lies elsewhere."""
        if not location.startswith(f"{self.base}/") or ".." in location.split("/"):
            raise CorruptRecord(key=f"file {location}", reason=f"it lies outside of {self.base}")
        return location[len(self.base) + 1 :]

    def location_of(self, path: str) -> str:
        """Return how the metadata of a table names a path."""
        return f"{self.base}/{path}"

    def new_input(self, location: str) -> InputFile:
        """See `FileIO`."""
        return _Input(self, location)

    def new_output(self, location: str) -> OutputFile:
        """See `FileIO`."""
        return _Output(self, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See `FileIO`. A missing file is ignored."""
        self.files.delete(self.path_of(location if isinstance(location, str) else location.location))


class _Input(InputFile):
    def __init__(self, io: StoreFiles, location: str) -> None:
        super().__init__(location)
        self._files, self._path = io.files, io.path_of(location)

    def __len__(self) -> int:
        size = self._files.size(self._path)
        if size is None:
            raise FileNotFoundError(f"{self._files.show(self._path)}: not found")
        return size

    def exists(self) -> bool:
        return self._files.size(self._path) is not None

    def open(self, seekable: bool = True) -> InputStream:
        return cast("InputStream", self._files.open_arrow(self._path))


class _Output(OutputFile):
    def __init__(self, io: StoreFiles, location: str) -> None:
        super().__init__(location)
        self._io, self._path = io, io.path_of(location)

    def __len__(self) -> int:
        return len(self.to_input_file())

    def exists(self) -> bool:
        return self.to_input_file().exists()

    def to_input_file(self) -> InputFile:
        return _Input(self._io, self.location)

    def create(self, overwrite: bool = False) -> OutputStream:
        return _NewMetadata(self._io, self._path)


class _NewMetadata:
    """A file that is complete when it is closed, and discarded if its block raises."""

    def __init__(self, io: StoreFiles, path: str) -> None:
        self._io, self._path = io, path
        self._file = CountedFile(io.files.create(path))
        self._open = True

    def write(self, b: bytes) -> int:
        return self._file.write(b)

    def tell(self) -> int:
        return self._file.size_bytes

    def close(self) -> None:
        if self._open:
            self._open = False
            self._file.finish()
            if self._io.synced:
                self._io.files.sync(self._path)

    def __enter__(self) -> _NewMetadata:
        return self

    def __exit__(
        self,
        exctype: type[BaseException] | None,
        excinst: BaseException | None,
        exctb: TracebackType | None,
    ) -> None:
        if excinst is None:
            self.close()
        elif self._open:
            self._open = False
            self._file.abandon()
