"""The updates of a group, as values. Its log consists of them, and `state.apply` says what each one means."""

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
    """Where a group starts in a stream: at `held`, and later in `waiting`; and where it ends, {segment: offset}."""

    stream: GroupStream
    held: tuple[tuple[SegmentId, Progress], ...]
    waiting: tuple[WaitingSegment, ...] = ()
    ends: tuple[tuple[SegmentId, int], ...] = ()


@attrs.frozen
class ReaderJoined:
    """A reader came online. Ids are unique among the readers online."""

    reader: str
    instance: str
    joined_ms: int


@attrs.frozen
class ReaderLeft:
    """A reader left, died, or was declared dead. positions: where its segments continue."""

    reader: str
    positions: tuple[SegmentProgress, ...] = ()


@attrs.frozen
class SegmentsAcquired:
    """A reader took segments that had no owner and are targeted at it."""

    reader: str
    keys: tuple[SegmentKey, ...]


@attrs.frozen
class SegmentsReleased:
    """A reader released segments. positions: where they continue."""

    reader: str
    positions: tuple[SegmentProgress, ...]


@attrs.frozen
class SegmentCompleted:
    """A segment was processed to its end. successors: each with all its predecessors."""

    reader: str
    key: SegmentKey
    successors: tuple[WaitingSegment, ...]


@attrs.frozen
class StreamAdded:
    """The group reads one more stream."""

    start: StartPosition


@attrs.frozen
class StreamSkipped:
    """The group continues elsewhere in one of its streams, because unread events were truncated.

    kept: those of `start.held` whose progress and owner stay as they are.
    events: how many were lost, as far as known.
    """

    start: StartPosition
    kept: tuple[SegmentId, ...]
    events: int


@attrs.frozen
class GroupReset:
    """The group starts at other positions: no segment has an owner, and readers stay online. Streams may change."""

    starts: tuple[StartPosition, ...]


@attrs.frozen
class PauseChanged:
    """The group was paused or continued."""

    paused: bool


@attrs.frozen
class CheckpointStarted:
    """Every online reader is asked for its position. automatic: the group itself asked."""

    name: str
    at_ms: int
    automatic: bool = False


@attrs.frozen
class CheckpointPassed:
    """A reader answered with the positions of all its segments. Before that none of them may change hands."""

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
