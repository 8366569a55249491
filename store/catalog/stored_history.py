"""The epochs of a stream in the database: one immutable row each, found by number and by time with one look-up."""

from __future__ import annotations

from functools import partial
from typing import Final

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.catalog.stream_records import EPOCH, StreamRecord
from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.argument_checks import INT_MAX
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import CorruptRecord, NotFound
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.metadata_errors import HistoryCompacted
from eventproc.store.segments import sealed_epoch

CACHED_SEGMENTS_MAX: Final = 16_384
"""Segments of all cached epochs, about 0.3 kB each. Raise it if a process alternates between more streams."""


class EpochCache(BoundedCache[tuple[int, int], Epoch]):
    """Cache of epochs by (stream id, number).

    Entries stay valid for every snapshot: an epoch never changes, and a stream id is never reused. Only committed
    transactions add entries. Measured: without it a scale reads the same epoch twice, 25 us each.
    """

    def __init__(self) -> None:
        super().__init__(CACHED_SEGMENTS_MAX, lambda epoch: len(epoch.segments))


EPOCH_CACHE: Final = SharedSlot(EpochCache, in_reads=True)


class StoredHistory:
    """The history of a stream, as the model's `History`. Reads epochs one by one from one transaction.

    stored: read every epoch from its row, as checks of a directory do, and none from the cache.
    """

    def __init__(self, tx: Tx, stream: StreamRecord, *, stored: bool = False) -> None:
        self._tx = tx
        self._stream_id = stream.stream_id
        self._epochs: dict[int, Epoch] = {}
        self._known = EpochCache() if stored else tx.shared[EPOCH_CACHE]
        self.stream = stream.name
        self.current = stream.epoch
        self.first = stream.first_epoch

    def epoch(self, number: int) -> Epoch:
        """Return the epoch. Raises NotFound outside [first, current]: HistoryCompacted before it."""
        if (found := self._epochs.get(number)) is None:
            if 0 <= number < self.first:
                raise HistoryCompacted(
                    kind="epoch", name=str(number), stream=self.stream, first_epoch=self.first
                )
            if not 0 <= number <= self.current:
                raise NotFound(kind="epoch", name=f"{self.stream} {number}")
            key = self._stream_id, number
            if (found := self._known.find(key)) is None:
                found = self._read(number)
                if self._tx.snapshot:
                    self._known.keep(key, found)
                else:
                    self._tx.after(partial(self._known.keep, key, found))
            self._epochs[number] = found
        return found

    def sealed_in(self, identifier: SegmentId) -> int | None:
        """Return the first epoch without the segment, None while it is active. One look-up. Raises NotFound."""
        get_segment(self, identifier)
        return sealed_epoch(self._tx, self._stream_id, identifier)

    def number_at(self, time_ms: int) -> int:
        """Return the number of the epoch that was active at a time; the oldest one kept for an earlier time."""
        row = self._tx.execute(
            "SELECT number FROM epoch WHERE stream_id = ? AND created_ms <= ? ORDER BY created_ms DESC LIMIT 1",
            (self._stream_id, time_ms),
        ).fetchone()
        return self.first if row is None else max(int(row[0]), self.first)

    def opened_by(self, request_id: str) -> Epoch:
        """Return the epoch that a request opened. Raises HistoryCompacted. Looks at the newest epochs first."""
        for number in range(self.current, self.first - 1, -1):
            if (found := self.epoch(number)).request_id == request_id:
                return found
        name = f"of request {request_id}"
        raise HistoryCompacted(kind="epoch", name=name, stream=self.stream, first_epoch=self.first)

    def _read(self, number: int) -> Epoch:
        key = f"{self.stream} {number}"
        row = self._tx.execute(
            "SELECT body FROM epoch WHERE stream_id = ? AND number = ?", (self._stream_id, number)
        ).fetchone()
        if row is None:
            raise CorruptRecord(key=f"epoch {key}", reason="its row is missing")
        return EPOCH.decode(key, row[0])


def insert_epoch(tx: Tx, stream_id: int, epoch: Epoch) -> None:
    """Write a new epoch of the stream. An existing one is never changed."""
    tx.execute(
        "INSERT INTO epoch (stream_id, number, created_ms, body) VALUES (?, ?, ?, ?)",
        (stream_id, epoch.number, epoch.created_ms, EPOCH.encode(epoch)),
    )
    tx.after(partial(tx.shared[EPOCH_CACHE].keep, (stream_id, epoch.number), epoch))


def forget_epochs(tx: Tx, stream_id: int, *, before: int | None, limit: int) -> bool:
    """Delete the oldest epochs of a stream, at most `limit`; return whether none is left to delete.

    before: the oldest epoch to keep. None: all are deleted.
    """
    done = tx.execute(
        "DELETE FROM epoch WHERE stream_id = ? AND number IN"
        " (SELECT number FROM epoch WHERE stream_id = ? AND number < ? ORDER BY number LIMIT ?)",
        (stream_id, stream_id, INT_MAX if before is None else before, limit),
    )
    return done.rowcount < limit
