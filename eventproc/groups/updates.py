"""The updates of a group, as values. Its log consists of them, and `state.apply` says what each one means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

import attrs

from eventproc.store.groups import GroupOptions, GroupStream, SegmentKey, SegmentProgress
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
    """A reader came online. Ids are unique among the readers online.

    subscription: names of streams, or patterns of names; None: every stream of the group.
    static_ms: how long the segments of a static reader stay its own while it is away; None: it is not static.
    """

    reader: str
    instance: str
    joined_ms: int
    subscription: tuple[str, ...] | None = None
    static_ms: int | None = None


@attrs.frozen
class ReaderLeft:
    """A reader left, died, or was declared dead. positions: where its segments continue."""

    reader: str
    positions: tuple[SegmentProgress, ...] = ()


@attrs.frozen
class ReaderAway:
    """A static reader ended or died, and may come back: it owns nothing, and stays the target of its segments.

    positions: where its segments continue. at_ms: now, monotonic.
    """

    reader: str
    positions: tuple[SegmentProgress, ...]
    at_ms: int


@attrs.frozen
class ReaderRejoined:
    """A static reader that was away came back under its id. It acquires its segments in new owner epochs."""

    reader: str
    instance: str
    joined_ms: int
    static_ms: int | None = None


@attrs.frozen
class SubscriptionChanged:
    """A reader subscribed to other streams: names, or patterns of names; None: every stream of the group.

    at_ms: now, monotonic: from then on it is late to release what it does not subscribe to any more.
    """

    reader: str
    subscription: tuple[str, ...] | None
    at_ms: int


@attrs.frozen
class Retargeted:
    """Segments have other targets. It stands in the entry of the change that required it.

    targets: the segments that each reader shall own, without those of which it is the target already.
    at_ms: now, monotonic: from then on their owners are late to release them.
    """

    targets: tuple[tuple[str, tuple[SegmentKey, ...]], ...]
    at_ms: int


@attrs.frozen
class AssignmentRequested:
    """The targets wait for a reader that has the code of the group's own assignor. at_ms: now, monotonic."""

    at_ms: int


@attrs.frozen
class AssignorChanged:
    """Another assignor decides from now on."""

    assignor: str


@attrs.frozen
class OptionsChanged:
    """The group has other options from now on, with the same assignor."""

    options: GroupOptions


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
    """A segment was processed to its end, and empty sealed segments that follow it were passed with it.

    reader: its owner; of the reserve of a topic, which needs no owner, the reader that found it sealed.
    successors: of the segment and of those that were passed, except the latter; each with all its predecessors.
    passed: those that count as finished too.
    """

    reader: str
    key: SegmentKey
    successors: tuple[WaitingSegment, ...]
    passed: tuple[SegmentId, ...] = ()


@attrs.frozen
class StreamAdded:
    """The group reads one more stream."""

    start: StartPosition


@attrs.frozen
class StreamDropped:
    """A stream of the group was deleted: the group forgets its position there, and reads its other streams."""

    stream_id: int


@attrs.frozen
class StreamSkipped:
    """The group continues elsewhere in one of its streams: unread events were truncated, or clients of Pravega say so.

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
    | ReaderAway
    | ReaderRejoined
    | SubscriptionChanged
    | Retargeted
    | AssignmentRequested
    | AssignorChanged
    | OptionsChanged
    | SegmentsAcquired
    | SegmentsReleased
    | SegmentCompleted
    | StreamAdded
    | StreamDropped
    | StreamSkipped
    | GroupReset
    | PauseChanged
    | CheckpointStarted
    | CheckpointPassed
)

UPDATES: Final[Mapping[str, type[Update]]] = {
    "joined": ReaderJoined,
    "left": ReaderLeft,
    "away": ReaderAway,
    "rejoined": ReaderRejoined,
    "subscription_changed": SubscriptionChanged,
    "retargeted": Retargeted,
    "assignment_requested": AssignmentRequested,
    "assignor_changed": AssignorChanged,
    "options_changed": OptionsChanged,
    "acquired": SegmentsAcquired,
    "released": SegmentsReleased,
    "completed": SegmentCompleted,
    "stream_added": StreamAdded,
    "stream_dropped": StreamDropped,
    "stream_skipped": StreamSkipped,
    "reset": GroupReset,
    "pause_set": PauseChanged,
    "checkpoint_started": CheckpointStarted,
    "checkpoint_passed": CheckpointPassed,
}
"""The updates, by the names under which the log stores them."""
