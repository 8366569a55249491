"""The batches that producers sent last, as they came: consumers at the tail get them without a read, still compressed.

A consumer that comes late reads the database instead, so that a dropped batch costs time only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from typing import Final

from eventproc.server.kafka.record_batches import PlacedBatch
from eventproc.store.model.ids import SegmentId

RECENT_BYTES_MAX: Final = 64 * 2**20
"""Bytes of all batches that are kept. Higher: more memory; lower: consumers that are some seconds behind read the
database, and their batches are made again."""


BATCH_OVERHEAD_BYTES: Final = 400
"""Memory of a batch besides its bytes."""


class RecentBatches:
    """The batches of all partitions, the oldest dropped first."""

    def __init__(self) -> None:
        self._batches: dict[tuple[int, SegmentId], list[PlacedBatch]] = {}
        self._order: deque[tuple[int, SegmentId]] = deque()
        self._size_bytes = 0

    def add(self, stream_id: int, segment: SegmentId, batch: PlacedBatch) -> None:
        """Keep a batch that is durable. Batches of a partition may come in another order than they lie in it."""
        key = stream_id, segment
        batches = self._batches.setdefault(key, [])
        batches.insert(bisect_right(batches, batch.first, key=_first), batch)
        self._order.append(key)
        self._size_bytes += len(batch.data) + BATCH_OVERHEAD_BYTES
        while self._size_bytes > RECENT_BYTES_MAX:
            oldest = self._order.popleft()
            self._size_bytes -= len(self._batches[oldest].pop(0).data) + BATCH_OVERHEAD_BYTES
            if not self._batches[oldest]:
                del self._batches[oldest]

    def find(self, stream_id: int, segment: SegmentId, offset: int, bytes_max: int) -> list[bytes]:
        """Return the batches from the one that holds the offset on, without a gap: one, and more up to bytes_max."""
        batches = self._batches.get((stream_id, segment), [])
        found: list[bytes] = []
        size_bytes = 0
        for batch in batches[max(bisect_right(batches, offset, key=_first) - 1, 0) :]:
            if not batch.first <= offset < batch.end or (found and size_bytes + len(batch.data) > bytes_max):
                break
            found.append(batch.data)
            size_bytes += len(batch.data)
            offset = batch.end
        return found


def _first(batch: PlacedBatch) -> int:
    return batch.first
