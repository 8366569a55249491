"""What names a segment within a group, and a segment as the reader that owns it sees it."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress

SegmentKey: TypeAlias = tuple[int, SegmentId]
"""(stream_id, segment): a group may read several streams."""


@attrs.frozen
class SegmentOwnership:
    """A segment that a reader owns, in one owner epoch; progress as it was when the reader acquired it."""

    stream: str
    stream_id: int
    segment: SegmentId
    owner_epoch: int
    progress: Progress

    @property
    def key(self) -> SegmentKey:
        """What names it within the group."""
        return self.stream_id, self.segment
