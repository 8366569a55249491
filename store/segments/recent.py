"""Events just committed by this process, for its readers that wait at the tail.

Within a process, waiting readers get committed bytes without a read (architecture.md section 1, "Notification"). Runs
are added after the acknowledgement, and the oldest are dropped first. A reader that comes late reads the database
instead, so that a dropped run costs time only.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from eventproc.store.database import SharedSlot, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.event import EventRun

RECENT_BYTES_MAX: Final = 16 * 2**20
"""Bytes kept for all streams of a process: frames, and RUN_OVERHEAD_BYTES per run. More keeps slower readers off the
disk. Every embedding process pays this memory, and small events take several times the size of their frames."""

RUN_OVERHEAD_BYTES: Final = 512
"""Memory of a run besides its events: an object, its lists, its entry here. Where each run is one small event, as with
the requests of a host, this is ten times the rest."""


class RecentEvents:
    """The runs last committed, by where they begin: {(stream id, segment, offset): run}, the oldest first."""

    def __init__(self) -> None:
        self._watched: Counter[int] = Counter()
        self._runs: OrderedDict[tuple[int, SegmentId, int], EventRun] = OrderedDict()
        self._size_bytes = 0

    @staticmethod
    def of(tx: Tx) -> RecentEvents:
        """Return the object of this transaction's database."""
        return tx.shared[RECENT_EVENTS]

    @contextmanager
    def watching(self, stream_id: int) -> Iterator[None]:
        """Keep what is appended to the stream while the block runs."""
        self._watched[stream_id] += 1
        try:
            yield
        finally:
            self._watched[stream_id] -= 1
            if not self._watched[stream_id]:
                del self._watched[stream_id]
                self.forget(stream_id)

    def wanted(self, stream_id: int) -> bool:
        """Return whether a reader watches the stream. Called on the writer's thread; a stale answer is harmless."""
        return stream_id in self._watched

    def add(self, stream_id: int, runs: Sequence[EventRun]) -> None:
        """Keep runs that were just acknowledged, if the stream is still watched."""
        if stream_id not in self._watched:
            return
        for run in runs:
            self._runs[stream_id, run.segment, run.start] = run
            self._size_bytes += _size_bytes(run)
        while self._size_bytes > RECENT_BYTES_MAX:
            _, oldest = self._runs.popitem(last=False)
            self._size_bytes -= _size_bytes(oldest)

    def find(self, stream_id: int, segment: SegmentId, offset: int) -> EventRun | None:
        """Return the run that begins at this offset, if it is still kept."""
        return self._runs.get((stream_id, segment, offset))

    def forget(self, stream_id: int) -> None:
        """Drop the runs of a stream that was truncated or deleted, or that is no longer watched."""
        for key in [key for key in self._runs if key[0] == stream_id]:
            self._size_bytes -= _size_bytes(self._runs.pop(key))


RECENT_EVENTS: Final = SharedSlot(RecentEvents)


def _size_bytes(run: EventRun) -> int:
    return run.end - run.start + RUN_OVERHEAD_BYTES
