"""Files as objects of S3, Google Cloud Storage or Azure, through the package obstore.

obstore repeats requests that fail with 5xx or whose connection breaks or stalls; nothing above repeats them. Only the
answer to a list or a deletion that breaks off in its middle is an error immediately: a sweep begins again. It takes
credentials from the environment, as the tools of each provider do. They are in no message: errors of the package may
quote requests, so that only their kind and the answer's code are shown.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from eventproc.base.clock import SystemClock
from eventproc.base.durations import is_measured
from eventproc.store.file_store.file_store import REQUEST_DURATIONS, FileStore, UnfinishedFile
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotSupported, Unreachable

try:
    import obstore
    from obstore import exceptions as failures
    from obstore.store import from_url
except ImportError:
    raise NotSupported(
        what="files on object storage without obstore", remedy='pip install "eventproc[objects]"'
    ) from None

if TYPE_CHECKING:
    import pyarrow as pa
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

SCHEMES: Final = ("s3", "gs", "az")

RETRIES_MAX: Final = 10
"""How often a request is repeated, after pauses that double from 0.1 s on."""

RETRY_S: Final = 60
"""Seconds after which a request that fails is not repeated any more. Higher: callers learn later that the storage is
down. Lower: an outage of that length becomes an error."""

STALLED_S: Final = 10
"""Seconds without a byte after which a request counts as failed, and is repeated."""

REQUEST_S: Final = 300
"""Seconds that one request may take: 128 MiB, the size of the largest exported file, at 0.5 MB/s."""

TAIL_BYTES: Final = 64 * 2**10
"""Bytes at the end of a file that are read first: the footer of an Arrow file, with hundreds of record batches."""

SPOOLED_BYTES: Final = 16 * 2**20
"""Bytes of a new file that stay in memory; a longer one waits in a temporary file without a name."""

_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
_STATUS: Final = re.compile(r"status code: (\d+ [\w ]+)")

_CLIENT: Final[ClientConfig] = {
    "allow_http": True,  # only an endpoint of the environment can ask for it
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=STALLED_S),
    "timeout": timedelta(seconds=REQUEST_S),
}
_RETRY: Final[RetryConfig] = {"max_retries": RETRIES_MAX, "retry_timeout": timedelta(seconds=RETRY_S)}


class _RuntimeProcess:
    """The process whose threads make the requests. In a child that is forked later they do not exist: a call would
    never return."""

    def __init__(self) -> None:
        self._pid: int | None = None

    def verify(self) -> None:
        """Raise NotSupported in a child that was forked after the first request of its parent."""
        if self._pid is None:
            self._pid = os.getpid()
        elif self._pid != os.getpid():
            raise NotSupported(
                what="object storage in a process that was forked after its parent used object storage",
                remedy='start processes by "spawn" or "forkserver", or fork before the first use',
            )


_RUNTIME: Final = _RuntimeProcess()
_CLOCK: Final = SystemClock()


class ObjectFiles(FileStore):
    """Files under a URL such as s3://bucket/prefix. A put is conditional: it never replaces an object."""

    is_local = False

    def __init__(self, url: str) -> None:
        """url: "s3://", "gs://" or "az://", a bucket and a prefix, without credentials. Raises InvalidArgument."""
        scheme, _, rest = url.partition("://")
        if scheme not in SCHEMES or any(each in rest for each in "@?#") or not rest.strip("/"):
            reason = (
                "it must be s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX; credentials come from the"
                " environment"
            )
            raise invalid_argument("place of chunk files", f"{scheme}://...", reason)
        self.place = url.rstrip("/")
        try:
            self._store: ObjectStore = from_url(self.place, client_options=_CLIENT, retry_config=_RETRY)
        except failures.BaseError as why:
            raise Unreachable(place=self.place, reason=_reason(why)) from None

    def create(self, path: str) -> UnfinishedFile:
        """See `FileStore.create`."""
        return _NewObject(self, path)

    def put(self, path: str, data: bytes | memoryview) -> None:
        """Make an object, unless there is another one of its name. Raises FileExistsError, Unreachable."""
        try:
            with self._request("put", path):
                obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except FileExistsError:
            # The name is this caller's own, so the first of two attempts may have succeeded without an answer.
            if self.read(path, 0, len(data) + 1) != bytes(data):
                raise

    def read(self, path: str, position: int, length: int) -> bytes:
        """See `FileStore.read`. One request."""
        if not length:
            return b""
        try:
            with self._request("get", path):
                return bytes(obstore.get_range(self._store, path, start=position, length=length))
        except _BeyondEndError:
            return b""

    def size(self, path: str) -> int | None:
        """See `FileStore.size`. One request."""
        try:
            with self._request("head", path):
                return obstore.head(self._store, path)["size"]
        except FileNotFoundError:
            return None

    def modified_ms(self, path: str) -> int | None:
        """See `FileStore.modified_ms`. One request."""
        try:
            with self._request("head", path):
                return int(obstore.head(self._store, path)["last_modified"].timestamp() * 1000)
        except FileNotFoundError:
            return None

    def paths(self, folder: str = "") -> Iterator[str]:
        """See `FileStore.paths`."""
        _RUNTIME.verify()
        pages = iter(obstore.list(self._store, prefix=folder or None))  # no request yet
        while True:
            with self._request("list", folder):
                if (page := next(pages, None)) is None:
                    return
            yield from sorted(each["path"] for each in page)

    def delete(self, path: str) -> None:
        """See `FileStore.delete`. One request."""
        try:
            with self._request("delete", path):
                obstore.delete(self._store, path)
        except FileNotFoundError:
            pass  # S3 does not tell, others do

    def sync(self, path: str) -> None:
        """See `FileStore.sync`: an object is durable when its put is answered."""

    def open_arrow(self, path: str) -> pa.NativeFile:
        """See `FileStore.open_arrow`."""
        import pyarrow as pa

        return pa.PythonFile(_ObjectReader(self, path), mode="r")

    def verify_reachable(self) -> None:
        """See `FileStore.verify_reachable`: the put of a file raises what is wrong."""

    @contextmanager
    def _request(self, operation: str, path: str) -> Iterator[None]:
        """Make a request, and measure it if somebody asks for that. Raises NotSupported in a forked child.

        Errors of the package become those of `FileStore`.
        """
        _RUNTIME.verify()
        if not is_measured():
            with self._translated(path):
                yield
            return
        began_ms, error = _CLOCK.monotonic_ms(), ""
        try:
            with self._translated(path):
                yield
        except _BeyondEndError:
            raise
        except Exception as why:
            error = type(why).__name__
            raise
        finally:
            REQUEST_DURATIONS.record((operation, error), began_ms, _CLOCK.monotonic_ms())

    @contextmanager
    def _translated(self, path: str) -> Iterator[None]:
        """Turn errors of the package into those of `FileStore`."""
        try:
            yield
        except FileNotFoundError as why:
            if "NoSuchBucket" in str(why) or "ContainerNotFound" in str(why):
                raise Unreachable(place=self.place, reason=_reason(why)) from None
            raise FileNotFoundError(f"{self.show(path)}: not found") from None
        except failures.AlreadyExistsError:
            raise FileExistsError(f"{self.show(path)} exists already") from None
        except failures.BaseError as why:
            if "416 Range Not Satisfiable" in str(why):
                raise _BeyondEndError from None
            raise Unreachable(place=self.place, reason=_reason(why)) from None


class _BeyondEndError(Exception):
    """A range begins behind the end of an object."""


class _NewObject(UnfinishedFile):
    def __init__(self, files: ObjectFiles, path: str) -> None:
        self._files, self._path = files, path
        self._file = tempfile.SpooledTemporaryFile(SPOOLED_BYTES)  # noqa: SIM115  # closed by finish or abandon

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)

    def finish(self) -> None:
        with self._file:
            self._file.seek(0)
            self._files.put(self._path, self._file.read())

    def abandon(self) -> None:
        self._file.close()


class _ObjectReader(io.RawIOBase):
    """An object as a file for pyarrow: each read is a request, except for those of the footer."""

    def __init__(self, files: ObjectFiles, path: str) -> None:
        size = files.size(path)
        if size is None:
            raise FileNotFoundError(f"{files.show(path)}: not found")
        self._files, self._path, self._size, self._at = files, path, size, 0
        self._tail_from = max(size - TAIL_BYTES, 0)
        self._tail = files.read(path, self._tail_from, size - self._tail_from)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        length = self._size - self._at if size < 0 else min(size, self._size - self._at)
        if self._at >= self._tail_from:
            begin = self._at - self._tail_from
            found = self._tail[begin : begin + length]
        else:
            found = self._files.read(self._path, self._at, length)
        self._at += len(found)
        return found


def _reason(why: BaseException) -> str:
    """Return what people need of an error: the code of the answer, or the kind. The text may quote the request."""
    text = str(why)
    code, status = _CODE.search(text), _STATUS.search(text)
    if "NoSuchBucket" in text or "ContainerNotFound" in text:
        return "the bucket does not exist; create it"
    if isinstance(why, (failures.PermissionDeniedError, failures.UnauthenticatedError)) or (
        status is not None and status[1].startswith(("401", "403"))
    ):
        found = "" if code is None else f" ({code[1]})"
        return (
            f"it refuses the credentials of the environment{found}; set them, and allow reading, writing, listing and"
            " deleting"
        )
    if "MissingAccount" in text:
        return "the environment does not name the account; set AZURE_STORAGE_ACCOUNT_NAME"
    if status is not None:
        return f"it answers {status[1].strip()}{'' if code is None else f' ({code[1]})'}"
    if "Connect" in text or "sending request" in text:
        return "no connection; check the network and the endpoint"
    if "imed" in text:
        return f"no answer within {STALLED_S} s, several times; check the network"
    return "the request failed; check the network, and the endpoint and credentials of the environment"
