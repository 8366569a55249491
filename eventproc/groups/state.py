"""The state of a group as a pure machine: readers online, owners and targets of segments, segments that wait.

Updates are values (`updates`), decided on and applied within one transaction. `apply` handles every update that can be
decided on, and asserts that it was allowed. Source: reference pravega.md 6.3 and 6.4, without its timers.

Invariants, asserted by `check`:
1. a segment is open or waits, not both; a segment that waits has at least one unfinished predecessor;
2. owners and targets are online; while a reader is online every open segment has a target;
3. the numbers of segments that are targeted at each reader differ by at most one;
4. owner epochs are generations: none is above the group's, and each change of owner takes a new one;
5. every reader that a checkpoint waits for is online.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Final, assert_never

import attrs

from eventproc.groups.assign import assign
from eventproc.groups.updates import (
    CheckpointPassed,
    CheckpointStarted,
    GroupReset,
    PauseChanged,
    ReaderJoined,
    ReaderLeft,
    SegmentCompleted,
    SegmentsAcquired,
    SegmentsReleased,
    StartPosition,
    StreamAdded,
    StreamSkipped,
    Update,
)
from eventproc.store.groups import GroupStream, SegmentKey, SegmentProgress
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress

CHECKPOINTS_KEPT: Final = 8
"""Complete checkpoints that a group keeps for resets, besides the newest automatic one. Each holds a position for every
segment. More: memory in every reader, and larger snapshots of the log."""


@attrs.frozen
class SegmentAssignment:
    """A segment that may be read.

    progress: as of the last change of owner.
    owner: the reader that owns it, since generation `owner_epoch`.
    target: the reader that shall own it. An owner that is not the target releases it.
    """

    stream_id: int
    segment: SegmentId
    progress: Progress
    owner: str | None = None
    owner_epoch: int = 0
    target: str | None = None

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
    """A reader that is online, in an instance, since generation `epoch`."""

    instance: str
    epoch: int
    joined_ms: int


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

    @cached_property
    def open(self) -> dict[SegmentKey, SegmentAssignment]:
        """The segments that may be read."""
        return {assignment.key: assignment for assignment in self.assignments}

    @cached_property
    def waiting(self) -> dict[SegmentKey, frozenset[SegmentId]]:
        """The segments that may not be read yet, each with its unfinished predecessors."""
        return {key: frozenset(before) for key, before in self.waits}

    @cached_property
    def end_offsets(self) -> dict[SegmentKey, int]:
        """Where the group stops."""
        return dict(self.ends)

    def owned_by(self, reader: str) -> dict[SegmentKey, SegmentAssignment]:
        """Return the segments that the reader owns."""
        return {assignment.key: assignment for assignment in self.assignments if assignment.owner == reader}

    def due_to(self, reader: str) -> tuple[SegmentKey, ...]:
        """Return the segments that the reader may acquire now."""
        return tuple(each.key for each in self.assignments if each.target == reader and each.owner is None)

    def asked_of(self, reader: str) -> tuple[str, ...]:
        """Return the names of the checkpoints that wait for the reader."""
        return tuple(each.name for each in self.started if reader in each.pending)

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert list(self.open) == sorted(self.open), "segments are not sorted, or one occurs twice"
        assert not self.open.keys() & self.waiting.keys(), "a segment is open and waits"
        assert all(self.waiting.values()), "a segment waits for nothing"
        shares = dict.fromkeys(self.members, 0)
        for key, assignment in self.open.items():
            assert assignment.owner is None or assignment.owner in self.members, (
                f"{key}: {assignment.owner} is offline"
            )
            assert (assignment.target is None) == (not self.members), f"{key} has no target"
            assert assignment.owner_epoch <= self.generation, (
                f"{key}: {assignment.owner_epoch} > {self.generation}"
            )
            if assignment.target is not None:
                shares[assignment.target] += 1
        assert not shares or max(shares.values()) - min(shares.values()) <= 1, f"unfair: {shares}"
        for checkpoint in self.started:
            assert set(checkpoint.pending) <= self.members.keys(), f"{checkpoint} waits for an offline reader"


def begin(generation: int, starts: Iterable[StartPosition]) -> GroupState:
    """Return the state of a new group. Its generations begin above `generation`."""
    return apply(GroupState(generation=generation), GroupReset(tuple(starts)))


def apply(state: GroupState, update: Update) -> GroupState:
    """Return the state after `update`, one generation later. O(segments) for updates that move segments."""
    state = attrs.evolve(state, generation=state.generation + 1)
    match update:
        case ReaderJoined(reader, instance, joined_ms):
            assert reader not in state.members, f"{reader} is online already"
            member = OnlineReader(instance, state.generation, joined_ms)
            return _share(attrs.evolve(state, members={**state.members, reader: member}))
        case ReaderLeft():
            return _leave(state, update)
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
            return _share(_open(state, start))
        case StreamSkipped(start, kept, events):
            state = attrs.evolve(state, lost_events=state.lost_events + events)
            return _share(_skip(state, start, kept))
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
    return _share(attrs.evolve(after, checkpoints=tuple(kept)))


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
            opened[key] = attrs.evolve(before, progress=progress, owner=None, owner_epoch=state.generation)
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


def _leave(state: GroupState, update: ReaderLeft) -> GroupState:
    reader = update.reader
    assert reader in state.members, f"{reader} is not online"
    given = _give_back(state, state.owned_by(reader), update.positions)
    for name in state.asked_of(reader):
        positions = tuple((key, given.open[key].progress) for key in state.owned_by(reader))
        given = _pass_checkpoint(given, name, reader, positions)
    members = {each: member for each, member in state.members.items() if each != reader}
    return _share(attrs.evolve(given, members=members))


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
        given[key] = attrs.evolve(before, owner=None, owner_epoch=state.generation, progress=progress[key])
    return _with(state, state.open | given)


def _complete(state: GroupState, update: SegmentCompleted) -> GroupState:
    """Remove the segment, and open those of its successors that waited for nothing else."""
    stream_id, segment = update.key
    assert state.open[update.key].owner == update.reader, f"{update.key} is not {update.reader}'s"
    assert not state.asked_of(update.reader), f"{update.reader} owes its position to a checkpoint"
    opened = dict(state.open)
    waiting = dict(state.waiting)
    del opened[update.key]
    for successor, before in update.successors:
        key = stream_id, successor
        # If it is new here, its other predecessors are unfinished: each of them would have entered it.
        left = waiting.get(key, frozenset(before)) - {segment}
        if left:
            waiting[key] = left
        else:
            waiting.pop(key, None)
            opened[key] = SegmentAssignment(stream_id, successor, Progress())
    return _share(_with(state, opened, waiting))


def _share(state: GroupState) -> GroupState:
    """Decide on targets after readers or segments came or went."""
    targets = assign(
        {assignment.key: assignment.target for assignment in state.assignments},
        state.members.keys(),
        {assignment.key: assignment.owner for assignment in state.assignments},
    )
    changed = {
        assignment.key: attrs.evolve(assignment, target=targets[assignment.key])
        for assignment in state.assignments
        if assignment.target != targets[assignment.key]
    }
    return _with(state, state.open | changed) if changed else state


def _start_checkpoint(state: GroupState, update: CheckpointStarted) -> GroupState:
    assert all(each.name != update.name for each in state.started), f"{update.name} is under way"
    started = CheckpointState(
        name=update.name,
        at_ms=update.at_ms,
        automatic=update.automatic,
        pending=tuple(sorted(state.members)),
        positions=tuple((each.key, each.progress) for each in state.assignments if each.owner is None),
        waiting=tuple(state.waiting),
        streams=tuple(each.stream_id for each in state.streams),
    )
    return _settle_checkpoints(attrs.evolve(state, started=(*state.started, started)))


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
    return _settle_checkpoints(attrs.evolve(state, started=tuple(started)))


def _key_of(position: SegmentProgress) -> SegmentKey:
    return position[0]


def _settle_checkpoints(state: GroupState) -> GroupState:
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
