"""The state of a group as a pure machine: readers online, owners and targets of segments, segments that wait.

Updates are values (`updates`), decided on and applied within one transaction. `apply` handles every update that can be
decided on, and asserts that it was allowed. It decides nothing itself: targets are recorded (`Retargeted`), so that
processes of different versions compute the same state. Source: reference pravega.md 6.3 and 6.4, without its timers.

Invariants, asserted by `check` of a state between two entries of the log:
1. a segment is open or waits, not both; a segment that waits has at least one unfinished predecessor;
2. owners are online and not away; targets subscribe to the stream of the segment;
3. an open segment has a target while a reader subscribes to its stream, unless the group is assigning; the reserve of a
   topic needs none, because it never holds an event, and any reader completes it;
4. the assignor "equal" leaves no segment whose move to another subscriber would make two shares more equal. With equal
   subscriptions the shares differ by at most one. Reserves do not count;
5. owner epochs are generations: none is above the group's, and each change of owner takes a new one;
6. an owner is late to release a segment exactly while it is the target of another reader, or its owner does not
   subscribe to it any more;
7. every reader that a checkpoint waits for is online and not away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, assert_never

import attrs

from eventproc.groups.names import subscribes
from eventproc.groups.updates import (
    AssignmentRequested,
    AssignorChanged,
    CheckpointPassed,
    CheckpointStarted,
    GroupReset,
    OptionsChanged,
    PauseChanged,
    ReaderAway,
    ReaderJoined,
    ReaderLeft,
    ReaderRejoined,
    Retargeted,
    SegmentCompleted,
    SegmentsAcquired,
    SegmentsReleased,
    StartPosition,
    StreamAdded,
    StreamDropped,
    StreamSkipped,
    SubscriptionChanged,
    Update,
)
from eventproc.store.groups import EQUAL, GroupOptions, GroupStream, SegmentKey, SegmentProgress
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import is_reserve
from eventproc.store.model.progress import Progress

CHECKPOINTS_KEPT: Final = 8
"""Complete checkpoints that a group keeps for resets, besides the newest automatic one. Each holds a position for every
segment. More: memory in every reader, and larger snapshots of the log."""

DEFAULT_OPTIONS: Final = GroupOptions()


@attrs.frozen
class SegmentAssignment:
    """A segment that may be read.

    progress: as of the last change of owner.
    owner: the reader that owns it, since generation `owner_epoch`.
    target: the reader that shall own it. An owner that is not the target releases it.
    late_since_ms: since when the owner has to release it, monotonic; None if it need not.
    """

    stream_id: int
    segment: SegmentId
    progress: Progress
    owner: str | None = None
    owner_epoch: int = 0
    target: str | None = None
    late_since_ms: int | None = None

    @property
    def key(self) -> SegmentKey:
        """Identifies the segment within the group."""
        return self.stream_id, self.segment


@attrs.frozen
class SegmentOwnership:
    """A segment that a reader owns in one owner epoch; progress as of its acquisition."""

    stream: str
    stream_id: int
    segment: SegmentId
    owner_epoch: int
    progress: Progress

    @property
    def key(self) -> SegmentKey:
        """Identifies the segment within the group."""
        return self.stream_id, self.segment


@attrs.frozen
class OnlineReader:
    """A reader that is online, in an instance, since generation `epoch`; or a static one that is away.

    subscription: names of streams, or patterns of names; None: every stream of the group.
    static_ms: how long its segments stay its own while it is away; None: it is not static.
    away_since_ms: since when it is away, monotonic; None while it is online.
    """

    instance: str
    epoch: int
    joined_ms: int
    subscription: tuple[str, ...] | None = None
    static_ms: int | None = None
    away_since_ms: int | None = None

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether the reader is away for longer than `static_ms`."""
        if self.away_since_ms is None or self.static_ms is None:
            return False
        # A monotonic clock that went back means that the machine was restarted.
        return not 0 <= now_ms - self.away_since_ms < self.static_ms


@attrs.frozen
class PendingAssignment:
    """The own assignor of the group shall decide on the targets. since_ms: monotonic."""

    generation: int
    since_ms: int


@attrs.frozen
class CheckpointState:
    """A coordinated position of all readers.

    at_ms: when it was started, wall clock.
    pending: readers that have not answered; it is complete without any.
    positions: of the segments that were open. waiting: the segments that were not.
    streams: ids of the streams that the group read then.
    """

    name: str
    at_ms: int
    automatic: bool
    pending: tuple[str, ...]
    positions: tuple[SegmentProgress, ...]
    waiting: tuple[SegmentKey, ...]
    streams: tuple[int, ...]


@attrs.frozen(kw_only=True)
class GroupState:
    """A group at one moment.

    generation: grows by one with each update.
    assignments: the segments that may be read, sorted.
    waits: the segments that may not be read yet, with their unfinished predecessors.
    ends: offsets at which the group stops, in segments that have one.
    lost_events: number of events that were truncated before the group read them.
    started, checkpoints: checkpoints under way, and the newest complete ones, oldest first.
    options: of the group; the record of the group has a copy.
    assigning: set while the group waits for its own assignor.
    dropped: streams that were deleted, of those named at the creation; the group reads the next stream of such a name.
    """

    generation: int
    streams: tuple[GroupStream, ...] = ()
    paused: bool = False
    members: Mapping[str, OnlineReader] = attrs.field(factory=dict)
    assignments: tuple[SegmentAssignment, ...] = ()
    waits: tuple[tuple[SegmentKey, tuple[SegmentId, ...]], ...] = ()
    ends: tuple[tuple[SegmentKey, int], ...] = ()
    lost_events: int = 0
    started: tuple[CheckpointState, ...] = ()
    checkpoints: tuple[CheckpointState, ...] = ()
    options: GroupOptions = attrs.field(factory=GroupOptions)
    assigning: PendingAssignment | None = None
    dropped: tuple[GroupStream, ...] = ()

    @property
    def assignor(self) -> str:
        """The name of the assignor that decides on targets."""
        return self.options.assignor

    @cached_property
    def open(self) -> dict[SegmentKey, SegmentAssignment]:
        """The segments that may be read."""
        return {assignment.key: assignment for assignment in self.assignments}

    @cached_property
    def reserves(self) -> tuple[SegmentAssignment, ...]:
        """The reserves of topics among the segments that may be read."""
        return tuple(each for each in self.assignments if is_reserve(each.segment))

    @cached_property
    def waiting(self) -> dict[SegmentKey, frozenset[SegmentId]]:
        """The segments that may not be read yet, each with its unfinished predecessors."""
        return {key: frozenset(before) for key, before in self.waits}

    @cached_property
    def present(self) -> dict[str, OnlineReader]:
        """The readers that are online, without those that are away."""
        return {reader: each for reader, each in self.members.items() if each.away_since_ms is None}

    @cached_property
    def subscribers(self) -> dict[int, frozenset[str]]:
        """The readers that subscribe to each stream, those that are away among them."""
        return {
            stream.stream_id: frozenset(
                reader for reader, each in self.members.items() if subscribes(each.subscription, stream.name)
            )
            for stream in self.streams
        }

    @cached_property
    def end_offsets(self) -> dict[SegmentKey, int]:
        """Where the group stops."""
        return dict(self.ends)

    @property
    def is_finished(self) -> bool:
        """Whether the group has processed all of its streams, and reads none that may still be created.

        A stream may be created if it fits a pattern of a reader, has a name that a reader subscribes to, or was deleted
        while the group read it.
        """
        read = {each.name for each in self.streams}
        awaits = any(not read.issuperset(each.subscription or ()) for each in self.members.values())
        return not (self.assignments or self.waits or self.dropped or awaits)

    def owned_by(self, reader: str) -> dict[SegmentKey, SegmentAssignment]:
        """Return the segments that the reader owns."""
        return {assignment.key: assignment for assignment in self.assignments if assignment.owner == reader}

    def due_to(self, reader: str) -> tuple[SegmentKey, ...]:
        """Return the segments that the reader may acquire now."""
        return tuple(each.key for each in self.assignments if each.target == reader and each.owner is None)

    def is_surplus(self, assignment: SegmentAssignment) -> bool:
        """Return whether the owner of the segment has to release it."""
        owner = assignment.owner
        return owner is not None and (
            assignment.target not in (None, owner) or owner not in self.subscribers[assignment.stream_id]
        )

    def asked_of(self, reader: str) -> tuple[str, ...]:
        """Return the names of the checkpoints that wait for the reader."""
        return tuple(each.name for each in self.started if reader in each.pending)

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert list(self.open) == sorted(self.open), "segments are not sorted, or one occurs twice"
        assert not self.open.keys() & self.waiting.keys(), "a segment is open and waits"
        assert all(self.waiting.values()), "a segment waits for nothing"
        for key, assignment in self.open.items():
            subscribers = self.subscribers[key[0]]
            owner, target = assignment.owner, assignment.target
            assert owner is None or owner in self.present, f"{key}: {owner} is offline"
            assert target is None or target in subscribers, f"{key}: {target} does not subscribe"
            needs_none = not subscribers or self.assigning or is_reserve(key[1])
            assert target is not None or needs_none, f"{key} has no target"
            assert assignment.owner_epoch <= self.generation, (
                f"{key}: {assignment.owner_epoch} > {self.generation}"
            )
            late = assignment.late_since_ms is not None
            assert late == self.is_surplus(assignment), f"{key} is late: {late}"
        if self.assignor == EQUAL:
            self._check_shares()
        for checkpoint in self.started:
            assert set(checkpoint.pending) <= self.present.keys(), f"{checkpoint} waits for an offline reader"

    def _check_shares(self) -> None:
        shares = dict.fromkeys(self.members, 0)
        counted = [each for each in self.assignments if not is_reserve(each.segment)]
        for assignment in counted:
            if assignment.target is not None:
                shares[assignment.target] += 1
        for assignment in counted:
            if assignment.target is not None:
                least = min(shares[each] for each in self.subscribers[assignment.stream_id])
                assert shares[assignment.target] - least <= 1, f"unfair: {shares}"


def begin(
    generation: int, starts: Iterable[StartPosition], options: GroupOptions = DEFAULT_OPTIONS
) -> GroupState:
    """Return the state of a new group. Its generations begin above `generation`."""
    return apply(GroupState(generation=generation, options=options), GroupReset(tuple(starts)))


def apply(state: GroupState, update: Update) -> GroupState:
    """Return the state after `update`, one generation later. O(segments) for updates that move segments."""
    state = attrs.evolve(state, generation=state.generation + 1)
    match update:
        case ReaderJoined():
            return _join(state, update)
        case ReaderLeft():
            return _leave(state, update)
        case ReaderAway():
            return _go_away(state, update)
        case ReaderRejoined():
            return _rejoin(state, update)
        case SubscriptionChanged():
            return _subscribe(state, update)
        case Retargeted():
            return _retarget(state, update)
        case AssignmentRequested(at_ms):
            return attrs.evolve(state, assigning=PendingAssignment(state.generation, at_ms))
        case AssignorChanged(assignor):
            options = attrs.evolve(state.options, assignor=assignor)
            return attrs.evolve(state, options=options, assigning=None)
        case OptionsChanged(options):
            assert options.assignor == state.assignor, f"{options.assignor} is set by an update of its own"
            return attrs.evolve(state, options=options)
        case SegmentsAcquired(reader, keys):
            return _acquire(state, reader, keys)
        case SegmentsReleased(reader, positions):
            assert not state.asked_of(reader), f"{reader} owes its position to a checkpoint: {state.started}"
            for key, _ in positions:
                assert state.open[key].owner == reader, (
                    f"{key} is not {reader}'s but {state.open[key].owner}'s"
                )
            return _give_back(state, (key for key, _ in positions), positions)
        case SegmentCompleted():
            return _complete(state, update)
        case StreamAdded(start):
            return _open(state, start)
        case StreamDropped(stream_id):
            return _drop(state, stream_id)
        case StreamSkipped(start, kept, events):
            state = attrs.evolve(state, lost_events=state.lost_events + events)
            return _skip(state, start, kept)
        case GroupReset(starts):
            return _reset(state, starts)
        case PauseChanged(paused):
            return attrs.evolve(state, paused=paused)
        case CheckpointStarted():
            return _start_checkpoint(state, update)
        case CheckpointPassed(name, reader, positions):
            return _pass_checkpoint(state, name, reader, positions)
    assert_never(update)


def _with(
    state: GroupState,
    opened: Mapping[SegmentKey, SegmentAssignment],
    waiting: Mapping[SegmentKey, Iterable[SegmentId]] | None = None,
) -> GroupState:
    assignments = tuple(opened[key] for key in sorted(opened))
    if waiting is None:
        return attrs.evolve(state, assignments=assignments)
    waits = tuple((key, tuple(sorted(waiting[key]))) for key in sorted(waiting))
    return attrs.evolve(state, assignments=assignments, waits=waits)


def _open(state: GroupState, start: StartPosition) -> GroupState:
    stream_id = start.stream.stream_id
    assert all(stream_id != each.stream_id for each in state.streams), f"{start.stream} is read already"
    state = attrs.evolve(
        state,
        streams=(*state.streams, start.stream),
        dropped=tuple(each for each in state.dropped if each.name != start.stream.name),
        ends=(*state.ends, *(((stream_id, segment), offset) for segment, offset in start.ends)),
    )
    opened = {
        (stream_id, each): SegmentAssignment(stream_id, each, progress) for each, progress in start.held
    }
    waiting = {(stream_id, each): before for each, before in start.waiting}
    return _with(state, state.open | opened, {**state.waiting, **waiting})


def _reset(state: GroupState, starts: Iterable[StartPosition]) -> GroupState:
    """Start at other positions. Keeps the checkpoints that the group can still be reset to."""
    after = attrs.evolve(state, streams=(), assignments=(), waits=(), ends=(), started=())
    for start in starts:
        after = _open(after, start)
    streams = {each.stream_id for each in after.streams}
    # With other ends, a segment that a checkpoint does not name need not be one in which the group had ended.
    kept = (each for each in state.checkpoints if streams & set(each.streams) and after.ends == state.ends)
    return attrs.evolve(after, checkpoints=tuple(kept))


def _skip(state: GroupState, start: StartPosition, kept: Iterable[SegmentId]) -> GroupState:
    """Continue at `start` in its stream. The segments `kept` stay as they are, with their owners."""
    stream_id = start.stream.stream_id
    opened = {key: assignment for key, assignment in state.open.items() if key[0] != stream_id}
    waiting: dict[SegmentKey, Iterable[SegmentId]] = {
        key: before for key, before in state.waiting.items() if key[0] != stream_id
    }
    for segment, progress in start.held:
        key = stream_id, segment
        before = state.open.get(key, SegmentAssignment(stream_id, segment, progress))
        opened[key] = before
        if segment not in kept:
            opened[key] = _without_owner(before, progress, state.generation)
    waiting |= {(stream_id, segment): before for segment, before in start.waiting}
    started = tuple(_skipped(each, start) for each in state.started)
    return _with(attrs.evolve(state, started=started), opened, waiting)


def _skipped(checkpoint: CheckpointState, start: StartPosition) -> CheckpointState:
    """Return an incomplete checkpoint moved to where its group continues. Pending readers add what they kept."""
    stream_id = start.stream.stream_id
    if stream_id not in checkpoint.streams:
        return checkpoint
    positions = [each for each in checkpoint.positions if each[0][0] != stream_id]
    positions += (((stream_id, segment), progress) for segment, progress in start.held)
    waiting = [each for each in checkpoint.waiting if each[0] != stream_id]
    waiting += ((stream_id, segment) for segment, _ in start.waiting)
    return attrs.evolve(
        checkpoint, positions=tuple(sorted(positions, key=_key_of)), waiting=tuple(sorted(waiting))
    )


def _drop(state: GroupState, stream_id: int) -> GroupState:
    """Forget a stream, and what checkpoints say of it; a checkpoint of that stream alone is dropped."""
    stream = next(each for each in state.streams if each.stream_id == stream_id)
    streams = tuple(each for each in state.streams if each.stream_id != stream_id)
    state = attrs.evolve(
        state,
        streams=streams,
        # A stream that a reader brought is found by a subscription if it is created again: else names without number
        # would be kept. Only the streams that were named when the group was created are as many as their caller chose.
        dropped=tuple(each for each in (*state.dropped, stream) if not each.added),
        ends=tuple(each for each in state.ends if each[0][0] != stream_id),
        started=tuple(_without_stream(each, stream_id) for each in state.started),
        checkpoints=tuple(
            each for each in (_without_stream(each, stream_id) for each in state.checkpoints) if each.streams
        ),
    )
    opened = {key: assignment for key, assignment in state.open.items() if key[0] != stream_id}
    waiting = {key: before for key, before in state.waiting.items() if key[0] != stream_id}
    return _with(state, opened, waiting)


def _without_stream(checkpoint: CheckpointState, stream_id: int) -> CheckpointState:
    return attrs.evolve(
        checkpoint,
        positions=tuple(each for each in checkpoint.positions if each[0][0] != stream_id),
        waiting=tuple(each for each in checkpoint.waiting if each[0] != stream_id),
        streams=tuple(each for each in checkpoint.streams if each != stream_id),
    )


def _join(state: GroupState, update: ReaderJoined) -> GroupState:
    assert update.reader not in state.members, f"{update.reader} is online already"
    member = OnlineReader(
        update.instance, state.generation, update.joined_ms, update.subscription, update.static_ms
    )
    return attrs.evolve(state, members={**state.members, update.reader: member})


def _leave(state: GroupState, update: ReaderLeft) -> GroupState:
    reader = update.reader
    given = _disown(state, reader, update.positions)
    members = {each: member for each, member in state.members.items() if each != reader}
    untargeted = [attrs.evolve(each, target=None) for each in given.assignments if each.target == reader]
    return _replace_assignments(attrs.evolve(given, members=members), untargeted, None)


def _replace_assignments(
    state: GroupState, changed: Iterable[SegmentAssignment], at_ms: int | None
) -> GroupState:
    """Replace assignments. Those whose owner has to release them are late since `at_ms`, if not since earlier."""
    replaced = {}
    for each in changed:
        late = at_ms if each.late_since_ms is None else each.late_since_ms
        since = late if state.is_surplus(each) else None
        replaced[each.key] = each if each.late_since_ms == since else attrs.evolve(each, late_since_ms=since)
    return _with(state, state.open | replaced)


def _go_away(state: GroupState, update: ReaderAway) -> GroupState:
    given = _disown(state, update.reader, update.positions)
    member = state.members[update.reader]
    assert member.static_ms is not None, f"{update.reader} is not static"
    assert member.away_since_ms is None, f"{update.reader} is away already"
    away = attrs.evolve(member, away_since_ms=update.at_ms)
    return attrs.evolve(given, members={**state.members, update.reader: away})


def _rejoin(state: GroupState, update: ReaderRejoined) -> GroupState:
    member = state.members[update.reader]
    assert member.away_since_ms is not None, f"{update.reader} is online already"
    back = OnlineReader(
        update.instance, state.generation, update.joined_ms, member.subscription, update.static_ms
    )
    return attrs.evolve(state, members={**state.members, update.reader: back})


def _disown(state: GroupState, reader: str, positions: Iterable[SegmentProgress]) -> GroupState:
    """Take all segments from the reader, and let its last positions be its answers to checkpoints."""
    assert reader in state.members, f"{reader} is not online"
    given = _give_back(state, state.owned_by(reader), positions)
    for name in state.asked_of(reader):
        answer = tuple((key, given.open[key].progress) for key in state.owned_by(reader))
        given = _pass_checkpoint(given, name, reader, answer)
    return given


def _subscribe(state: GroupState, update: SubscriptionChanged) -> GroupState:
    """Change a subscription. Segments of streams that it leaves lose their target, and have to be released."""
    reader = update.reader
    member = attrs.evolve(state.members[reader], subscription=update.subscription)
    state = attrs.evolve(state, members={**state.members, reader: member})
    left = {stream_id for stream_id, readers in state.subscribers.items() if reader not in readers}
    changed = [
        attrs.evolve(each, target=None) if each.target == reader and each.stream_id in left else each
        for each in state.assignments
        if reader in (each.owner, each.target)
    ]
    return _replace_assignments(state, changed, update.at_ms)


def _retarget(state: GroupState, update: Retargeted) -> GroupState:
    changed = [
        attrs.evolve(state.open[key], target=reader) for reader, keys in update.targets for key in keys
    ]
    return _replace_assignments(attrs.evolve(state, assigning=None), changed, update.at_ms)


def _acquire(state: GroupState, reader: str, keys: Iterable[SegmentKey]) -> GroupState:
    assert not state.asked_of(reader), f"{reader} owes its position to a checkpoint: {state.started}"
    taken = {}
    for key in keys:
        before = state.open[key]
        assert before.owner is None, f"{key} is {before.owner}'s, {reader} cannot acquire it"
        assert before.target == reader, f"{key} is for {before.target}, not for {reader}"
        taken[key] = attrs.evolve(before, owner=reader, owner_epoch=state.generation)
    return _with(state, state.open | taken)


def _give_back(
    state: GroupState, keys: Iterable[SegmentKey], positions: Iterable[SegmentProgress]
) -> GroupState:
    progress = dict(positions)
    given = {}
    for key in keys:
        assert key in progress, f"{key} is released without its progress"
        before = state.open[key]
        given[key] = _without_owner(before, progress[key], state.generation)
    return _with(state, state.open | given)


def _complete(state: GroupState, update: SegmentCompleted) -> GroupState:
    """Remove the segment, and open those of its successors that waited for nothing else."""
    stream_id, segment = update.key
    owner = state.open[update.key].owner
    is_free = owner is None and is_reserve(segment)
    assert owner == update.reader or is_free, f"{update.key} is {owner}'s, not {update.reader}'s"
    assert not state.asked_of(update.reader), f"{update.reader} owes its position to a checkpoint"
    opened = dict(state.open)
    waiting = dict(state.waiting)
    del opened[update.key]
    finished = {segment, *update.passed}
    for each in update.passed:
        waiting.pop((stream_id, each), None)
    for successor, before in update.successors:
        key = stream_id, successor
        # If it is new here, its other predecessors are unfinished: each of them would have entered it.
        left = waiting.get(key, frozenset(before)) - finished
        if left:
            waiting[key] = left
        else:
            waiting.pop(key, None)
            opened[key] = SegmentAssignment(stream_id, successor, Progress())
    return _with(state, opened, waiting)


def _without_owner(before: SegmentAssignment, progress: Progress, generation: int) -> SegmentAssignment:
    return attrs.evolve(before, owner=None, owner_epoch=generation, progress=progress, late_since_ms=None)


def _start_checkpoint(state: GroupState, update: CheckpointStarted) -> GroupState:
    assert all(each.name != update.name for each in state.started), f"{update.name} is under way"
    started = CheckpointState(
        name=update.name,
        at_ms=update.at_ms,
        automatic=update.automatic,
        pending=tuple(sorted(state.present)),
        positions=tuple((each.key, each.progress) for each in state.assignments if each.owner is None),
        waiting=tuple(state.waiting),
        streams=tuple(each.stream_id for each in state.streams),
    )
    return _complete_checkpoints(attrs.evolve(state, started=(*state.started, started)))


def _pass_checkpoint(
    state: GroupState, name: str, reader: str, positions: Iterable[SegmentProgress]
) -> GroupState:
    started = []
    for each in state.started:
        if each.name == name:
            assert reader in each.pending, f"{reader} has passed {name} already"
            pending = tuple(other for other in each.pending if other != reader)
            merged = dict(each.positions) | dict(positions)
            each = attrs.evolve(each, pending=pending, positions=tuple(sorted(merged.items(), key=_key_of)))
        started.append(each)
    return _complete_checkpoints(attrs.evolve(state, started=tuple(started)))


def _key_of(position: SegmentProgress) -> SegmentKey:
    return position[0]


def _complete_checkpoints(state: GroupState) -> GroupState:
    """Move checkpoints without pending readers to the complete ones."""
    done = tuple(each for each in state.started if not each.pending)
    if not done:
        return state
    names = {each.name for each in done}
    complete = [*(each for each in state.checkpoints if each.name not in names), *done]
    automatic = [each.name for each in complete if each.automatic][:-1]
    named = [each.name for each in complete if not each.automatic][:-CHECKPOINTS_KEPT]
    return attrs.evolve(
        state,
        started=tuple(each for each in state.started if each.pending),
        checkpoints=tuple(each for each in complete if each.name not in {*automatic, *named}),
    )
