"""Since when the limits of a policy keep events: an age gives the time directly, a size is found in the index."""

from __future__ import annotations

from functools import cached_property

from eventproc.store.catalog import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import SegmentTimes
from eventproc.store.segments.state import segment_states


def kept_since(tx: Tx, sizes: SizeSince, age_ms: int | None, size_bytes: int | None) -> list[int]:
    """Return the times since which the limits that are given keep events, in ms."""
    found = [] if age_ms is None else [tx.now_ms - age_ms]
    return found if size_bytes is None else [*found, sizes.latest_keeping(size_bytes)]


class SizeSince:
    """How many bytes of a stream were appended since a time. Look-ups of near times share what they found.

    by_extent: count the whole extent in which the time lies. No event is decoded then, nor fetched from a file.
    """

    def __init__(self, tx: Tx, stream: StreamRecord, *, by_extent: bool = False) -> None:
        self._tx = tx
        self._stream = stream
        self._by_extent = by_extent

    @cached_property
    def segments(self) -> dict[SegmentId, SegmentTimes]:
        """The times of each segment with events; a policy without a limit of size does not read them."""
        stream_id = self._stream.stream_id
        return {
            segment: SegmentTimes(self._tx, stream_id, segment, state, by_extent=self._by_extent)
            for segment, state in segment_states(self._tx, stream_id)
            if state.head < state.tail
        }

    def latest_keeping(self, size_bytes: int) -> int:
        """Return the latest time from which on at least `size_bytes` were appended, 0 if the stream has not as many.

        Halving over the life of the stream: about 40 steps.
        """
        low, high = self._stream.created_ms, self._tx.now_ms + 1  # kept since low: enough; since high: not
        if self._since(low) < size_bytes:
            return 0
        step_ms = 1_000  # it doubles: a clock may be behind by years
        while self._since(high) >= size_bytes:  # this clock is behind the one that timed the newest events
            low, high, step_ms = high, high + step_ms, 2 * step_ms
        while high - low > 1:
            middle = (low + high) // 2
            if self._since(middle) >= size_bytes:
                low = middle
            else:
                high = middle
        return low

    def _since(self, time_ms: int) -> int:
        return sum(times.tail - times.offset_at(time_ms) for times in self.segments.values())
