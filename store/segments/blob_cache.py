"""The blobs that were read last, for readers that take a blob in several parts.

A commit may write a blob of 4 MiB, and a client reads 1 MiB at a time. Without the cache each of its reads would load
and verify the complete blob.
"""

from __future__ import annotations

import threading
from typing import Final, TypeAlias

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.segments.columns import Columns
from eventproc.store.segments.event_storage import STORAGE_BLOB_FORMAT
from eventproc.store.segments.extents import BLOB_FORMAT, BlobLoader, load_blob

CACHED_BYTES_MAX: Final = 16 * 2**20
"""Bytes of columns that are cached: four blobs of the usual largest size. Higher: more memory; lower: readers of
several segments load blobs again."""

_Key: TypeAlias = tuple[int, int, int, int]
"""Id, format, checksum and size of a blob. An id may be used again after its blob was deleted."""


class BlobCache:
    """Blobs by what identifies their content, the latest ones. Used by the threads of reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._columns: dict[_Key, Columns] = {}  # in the order of use
        self._size_bytes = 0

    def load(self, tx: Tx, blob_id: int) -> Columns:
        """Return the columns of a blob, as `load_blob` does. Raises CorruptRecord."""
        row = tx.execute(
            "SELECT id, format, checksum, length(data) FROM blob WHERE id = ?", (blob_id,)
        ).fetchone()
        if row is None or row[1] not in (BLOB_FORMAT, STORAGE_BLOB_FORMAT) or row[2] is None:
            return load_blob(tx, blob_id)
        with self._lock:
            if (known := self._columns.pop(row, None)) is not None:
                self._columns[row] = known
                return known
        found = load_blob(tx, blob_id)
        with self._lock:
            self._keep(row, found)
        return found

    def _keep(self, key: _Key, columns: Columns) -> None:
        size_bytes = _size_bytes(columns)
        if key in self._columns or size_bytes > CACHED_BYTES_MAX:
            return
        self._columns[key] = columns
        self._size_bytes += size_bytes
        while self._size_bytes > CACHED_BYTES_MAX:
            self._size_bytes -= _size_bytes(self._columns.pop(next(iter(self._columns))))


def _size_bytes(columns: Columns) -> int:
    return sum(len(column) for column in columns if column is not None)


BLOB_CACHE: Final = SharedSlot(BlobCache, in_reads=True)


class CachedBlobLoader(BlobLoader):
    """Loads the blobs of one transaction through the cache."""

    def _load(self, blob_id: int) -> Columns:
        return self._tx.shared[BLOB_CACHE].load(self._tx, blob_id)
