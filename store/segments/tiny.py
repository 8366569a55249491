"""Where this process left runs of tiny extents, to be joined once they are long enough.

A hint in memory: what is lost with the process stays as it is, readable, and is never joined. That is
cheaper than asking every segment, for ever, whether it has become one. Who never lives long asks (`reaper.join_tail`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventproc.store.database import SharedSlot
from eventproc.store.model.ids import SegmentId

JOIN_EXTENTS_MAX: Final = 256
"""Inline extents in a row that call for joining. Reading a run costs a row each; joining it rewrites it."""


class InlineExtentCounter:
    """Counts the inline extents that this process appended, per segment."""

    def __init__(self) -> None:
        self._runs: dict[tuple[int, SegmentId], tuple[int, int]] = {}  # {segment: (first offset, count)}
        self._due: list[tuple[int, SegmentId, int]] = []
        self.on_due: Callable[[], None] = lambda: None

    def note(self, stream_id: int, segment: SegmentId, start: int) -> None:
        """Count an inline extent that was just made durable; calls `on_due` when a run is long enough."""
        first, count = self._runs.pop((stream_id, segment), (start, 0))
        if count + 1 < JOIN_EXTENTS_MAX:
            self._runs[stream_id, segment] = (first, count + 1)
        else:
            self._due.append((stream_id, segment, first))
            self.on_due()

    def take(self) -> list[tuple[int, SegmentId, int]]:
        """Return, once each, the runs to join: (stream id, segment, first offset)."""
        due, self._due = self._due, []
        return due


INLINE_EXTENT_COUNTER: Final = SharedSlot(InlineExtentCounter)
