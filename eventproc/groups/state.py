"""The state of a group as a pure machine: who is online, who owns which segment, what waits for what.

Updates are values (`updates`), decided on and applied within one transaction; `apply` is total on what can have been
decided, and asserts that it was. Source: reference pravega.md 6.3 and 6.4, without its timers.

Invariants, asserted by `check`:
1. a segment is open or waits, not both; what waits, waits for at least one predecessor;
2. an owner is online, and so is a target; with a reader online every open segment has a target;
3. the numbers of segments that readers shall have differ by at most one;
4. owner epochs are generations: none is above the group's, and each change of owner takes a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import assert_never

import attrs

from eventproc.groups.assign import assign
from eventproc.groups.keys import GroupStream, SegmentKey
from eventproc.groups.updates import (
    Acquired,
    Completed,
    Joined,
    Left,
    Opening,
    PauseSet,
    Position,
    Released,
    Reset,
    StreamAdded,
    Update,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress


@attrs.frozen
class Portion:
    """A segment that may be read.

    progress: as of the last change of hands. owner: the reader that has it, since generation `owner_epoch`.
    target: the reader that shall have it; another owner gives it back.
    """

    progress: Progress
    owner: str | None = None
    owner_epoch: int = 0
    target: str | None = None


@attrs.frozen
class Member:
    """A reader that is online, in an instance, since generation `epoch`."""

    instance: str
    epoch: int
    joined_ms: int


@attrs.frozen(kw_only=True)
class GroupState:
    """A group at one moment. generation: grows by one with each update. open, waiting: its segments."""

    generation: int
    streams: tuple[GroupStream, ...] = ()
    paused: bool = False
    members: Mapping[str, Member] = attrs.field(factory=dict)
    open: Mapping[SegmentKey, Portion] = attrs.field(factory=dict)
    waiting: Mapping[SegmentKey, frozenset[SegmentId]] = attrs.field(factory=dict)

    def owned_by(self, reader: str) -> dict[SegmentKey, Portion]:
        """Return the segments that the reader owns."""
        return {key: portion for key, portion in self.open.items() if portion.owner == reader}

    def due_to(self, reader: str) -> tuple[SegmentKey, ...]:
        """Return the segments that the reader may acquire now."""
        return tuple(
            key for key, portion in self.open.items() if portion.target == reader and portion.owner is None
        )

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert not self.open.keys() & self.waiting.keys(), "a segment is open and waits"
        assert all(self.waiting.values()), "a segment waits for nothing"
        shares = dict.fromkeys(self.members, 0)
        for key, portion in self.open.items():
            assert portion.owner is None or portion.owner in self.members, (
                f"{key}: {portion.owner} is offline"
            )
            assert (portion.target is None) == (not self.members), f"{key} has no target"
            assert portion.owner_epoch <= self.generation, f"{key}: {portion.owner_epoch} > {self.generation}"
            if portion.target is not None:
                shares[portion.target] += 1
        assert not shares or max(shares.values()) - min(shares.values()) <= 1, f"unfair: {shares}"


def begin(generation: int, openings: Iterable[Opening]) -> GroupState:
    """Return the state of a new group, whose generations come after `generation`."""
    return apply(GroupState(generation=generation), Reset(tuple(openings)))


def apply(state: GroupState, update: Update) -> GroupState:
    """Return the state after `update`, one generation later. O(segments) for what moves segments."""
    state = attrs.evolve(state, generation=state.generation + 1)
    match update:
        case Joined(reader, instance, joined_ms):
            assert reader not in state.members, f"{reader} is online already"
            member = Member(instance, state.generation, joined_ms)
            return _share(attrs.evolve(state, members={**state.members, reader: member}))
        case Left(reader, positions):
            members = {each: member for each, member in state.members.items() if each != reader}
            given = _give_back(state, state.owned_by(reader), positions)
            return _share(attrs.evolve(given, members=members))
        case Acquired(reader, keys):
            return _acquire(state, reader, keys)
        case Released(reader, positions):
            for key, _ in positions:
                assert state.open[key].owner == reader, (
                    f"{key} is not {reader}'s but {state.open[key].owner}'s"
                )
            return _give_back(state, (key for key, _ in positions), positions)
        case Completed():
            return _complete(state, update)
        case StreamAdded(opening):
            return _share(_open(state, opening))
        case Reset(openings):
            state = attrs.evolve(state, streams=(), open={}, waiting={})
            for opening in openings:
                state = _open(state, opening)
            return _share(state)
        case PauseSet(paused):
            return attrs.evolve(state, paused=paused)
    assert_never(update)


def _open(state: GroupState, opening: Opening) -> GroupState:
    stream_id = opening.stream.stream_id
    assert all(stream_id != each.stream_id for each in state.streams), f"{opening.stream} is read already"
    return attrs.evolve(
        state,
        streams=(*state.streams, opening.stream),
        open=dict(state.open) | {(stream_id, each): Portion(progress) for each, progress in opening.held},
        waiting=dict(state.waiting) | {(stream_id, each): frozenset(ids) for each, ids in opening.waiting},
    )


def _acquire(state: GroupState, reader: str, keys: Iterable[SegmentKey]) -> GroupState:
    taken = {}
    for key in keys:
        before = state.open[key]
        assert before.owner is None, f"{key} is {before.owner}'s, {reader} cannot acquire it"
        assert before.target == reader, f"{key} is for {before.target}, not for {reader}"
        taken[key] = attrs.evolve(before, owner=reader, owner_epoch=state.generation)
    return attrs.evolve(state, open={**state.open, **taken})


def _give_back(state: GroupState, keys: Iterable[SegmentKey], positions: Iterable[Position]) -> GroupState:
    progress = dict(positions)
    given = {}
    for key in keys:
        before = state.open[key]
        given[key] = attrs.evolve(
            before, owner=None, owner_epoch=state.generation, progress=progress.get(key, before.progress)
        )
    return attrs.evolve(state, open={**state.open, **given})


def _complete(state: GroupState, update: Completed) -> GroupState:
    """Drop the segment; open those of its successors that waited for nothing else."""
    stream_id, segment = update.key
    assert state.open[update.key].owner == update.reader, f"{update.key} is not {update.reader}'s"
    opened = dict(state.open)
    waiting = dict(state.waiting)
    del opened[update.key]
    for successor, before in update.successors:
        key = stream_id, successor
        # Seen for the first time, its other predecessors cannot be finished: each would have entered it here.
        left = waiting.get(key, frozenset(before)) - {segment}
        if left:
            waiting[key] = left
        else:
            waiting.pop(key, None)
            opened[key] = Portion(Progress())
    return _share(attrs.evolve(state, open=opened, waiting=waiting))


def _share(state: GroupState) -> GroupState:
    """Decide anew who shall own what, after readers or segments came or went."""
    targets = assign(
        {key: portion.target for key, portion in state.open.items()},
        state.members.keys(),
        {key: portion.owner for key, portion in state.open.items()},
    )
    changed = {
        key: attrs.evolve(portion, target=targets[key])
        for key, portion in state.open.items()
        if portion.target != targets[key]
    }
    return attrs.evolve(state, open={**state.open, **changed}) if changed else state
