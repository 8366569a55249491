"""What can happen to a group, as values: its log is made of them, and `state.apply` says what each one means."""

from __future__ import annotations

from typing import TypeAlias

import attrs

from eventproc.store.groups import GroupStream, SegmentKey, SegmentProgress
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress

WaitingSegment: TypeAlias = tuple[SegmentId, tuple[SegmentId, ...]]
"""A segment that is not open yet, and those of its predecessors that are not finished."""


@attrs.frozen
class StartPosition:
    """Where a group begins in a stream: at `held`, and later in `waiting`; and where it ends, {segment: offset}."""

    stream: GroupStream
    held: tuple[tuple[SegmentId, Progress], ...]
    waiting: tuple[WaitingSegment, ...] = ()
    ends: tuple[tuple[SegmentId, int], ...] = ()


@attrs.frozen
class ReaderJoined:
    """A reader came online. Ids are unique among those online."""

    reader: str
    instance: str
    joined_ms: int


@attrs.frozen
class ReaderLeft:
    """A reader left, died, or was declared offline. positions: where all that it owned goes on."""

    reader: str
    positions: tuple[SegmentProgress, ...] = ()


@attrs.frozen
class SegmentsAcquired:
    """A reader took segments that nobody had and that it shall have."""

    reader: str
    keys: tuple[SegmentKey, ...]


@attrs.frozen
class SegmentsReleased:
    """A reader gave back segments that it owned. positions: where they go on."""

    reader: str
    positions: tuple[SegmentProgress, ...]


@attrs.frozen
class SegmentCompleted:
    """A segment was processed to its end. successors: what took over, each with all it took over from."""

    reader: str
    key: SegmentKey
    successors: tuple[WaitingSegment, ...]


@attrs.frozen
class StreamAdded:
    """The group reads one more stream."""

    start: StartPosition


@attrs.frozen
class StreamSkipped:
    """The group goes on elsewhere in one of its streams, because what it had not read there is gone.

    kept: those of `start.held` whose progress and owner stay as they are. events: how many were lost, as far as
    that was known.
    """

    start: StartPosition
    kept: tuple[SegmentId, ...]
    events: int


@attrs.frozen
class GroupReset:
    """The group begins anew: nobody owns anything, readers stay online. Its streams may be others, or new ones."""

    starts: tuple[StartPosition, ...]


@attrs.frozen
class PauseChanged:
    """Somebody paused the group, or let it go on."""

    paused: bool


@attrs.frozen
class CheckpointStarted:
    """Every reader online shall say where it stands. automatic: nobody asked for it by name."""

    name: str
    at_ms: int
    automatic: bool = False


@attrs.frozen
class CheckpointPassed:
    """A reader said where it stands, in all that it owns. Without it nothing of its may change hands meanwhile."""

    name: str
    reader: str
    positions: tuple[SegmentProgress, ...]


Update: TypeAlias = (
    ReaderJoined
    | ReaderLeft
    | SegmentsAcquired
    | SegmentsReleased
    | SegmentCompleted
    | StreamAdded
    | StreamSkipped
    | GroupReset
    | PauseChanged
    | CheckpointStarted
    | CheckpointPassed
)
