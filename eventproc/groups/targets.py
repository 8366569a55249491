"""Decides which updates follow a change of a group, so that its segments have targets. Pure.

The change and what follows it are one entry of the log. The fold only repeats it, so processes with different versions
of an assignor compute the same state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from eventproc.groups.assignors import (
    BUILT_IN,
    LAG,
    AssignableSegment,
    AssignmentInput,
    Targets,
    assign_equal,
)
from eventproc.groups.state import GroupState
from eventproc.groups.updates import (
    AssignmentRequested,
    AssignorChanged,
    GroupReset,
    ReaderJoined,
    ReaderLeft,
    Retargeted,
    SegmentCompleted,
    StreamAdded,
    StreamDropped,
    StreamSkipped,
    SubscriptionChanged,
    Update,
)
from eventproc.store.groups import SegmentKey
from eventproc.store.model.partitions import is_reserve

NOT_COUNTED: Final[Mapping[SegmentKey, int]] = MappingProxyType({})

SHARED_BY: Final = (
    ReaderJoined,
    ReaderLeft,
    SubscriptionChanged,
    AssignorChanged,
    SegmentCompleted,
    StreamAdded,
    StreamDropped,
    StreamSkipped,
    GroupReset,
)
"""Updates after which targets are decided: readers, subscriptions or segments came or went."""


def following(
    state: GroupState, updates: Sequence[Update], at_ms: int, unread: Mapping[SegmentKey, int] = NOT_COUNTED
) -> tuple[Update, ...]:
    """Return the updates that complete the entry of `updates`, which led to `state`.

    at_ms: now, monotonic. unread: the unread events of each segment, if `needs_lag`.
    """
    if not needs_targets(updates) or not state.members:
        return ()
    assign = BUILT_IN.get(state.assignor)
    if assign is None:
        return (AssignmentRequested(at_ms),)
    targets = retargeted(state, assign(assignment_input(state, unread)), at_ms)
    return () if targets is None else (targets,)


def needs_targets(updates: Sequence[Update]) -> bool:
    """Return whether targets are to be decided after one of the updates."""
    return any(isinstance(each, SHARED_BY) for each in updates)


def needs_lag(state: GroupState, updates: Sequence[Update]) -> bool:
    """Return whether targets are to be decided by the unread events of the segments."""
    return state.assignor == LAG and bool(state.members) and needs_targets(updates)


def assignment_input(state: GroupState, unread: Mapping[SegmentKey, int] = NOT_COUNTED) -> AssignmentInput:
    """Return what an assignor decides on: the open segments that a reader subscribes to, without reserves."""
    names = {stream.stream_id: stream.name for stream in state.streams}
    readers = {stream_id: tuple(sorted(each)) for stream_id, each in state.subscribers.items()}
    segments = tuple(
        AssignableSegment(
            *(names[each.stream_id], each.stream_id, each.segment, each.target, each.owner),
            unread=unread.get(each.key, 0),
        )
        for each in state.assignments
        if readers[each.stream_id] and not is_reserve(each.segment)
    )
    return AssignmentInput(segments, {names[stream_id]: each for stream_id, each in readers.items() if each})


def retargeted(state: GroupState, targets: Targets, at_ms: int) -> Retargeted | None:
    """Return the update that gives the segments these targets; None if they have them, and no answer is waited for."""
    changed: dict[str, list[SegmentKey]] = {}
    for each in state.assignments:
        reader = targets.get(each.key)
        if reader is not None and reader != each.target:
            changed.setdefault(reader, []).append(each.key)
    if not changed and state.assigning is None:
        return None
    return Retargeted(tuple((reader, tuple(keys)) for reader, keys in sorted(changed.items())), at_ms)


def fallen_back(state: GroupState, at_ms: int) -> Retargeted:
    """Return the update that ends the wait for the own assignor with equal shares. at_ms: now, monotonic."""
    found = retargeted(state, assign_equal(assignment_input(state)), at_ms)
    assert found is not None, "the group does not wait for its assignor"
    return found
