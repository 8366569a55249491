"""Checks of the invariants of a directory: those of the store, and those of reader groups and share groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from eventproc.groups.stored_state import folded_state, member_rows, recorded
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    KAFKA,
    PRAVEGA,
    SHARE,
    GroupKind,
    GroupRecord,
    SegmentKey,
    find_members,
    group_names,
    progress_by_segment,
    read_deliveries,
    read_taken_in,
    stored_assignments,
    stored_members,
    stored_waits,
)
from eventproc.store.inspection import (
    group_names_of_rows,
    shared_violations,
    stream_violations,
    streams_to_check,
    unrecorded_states,
)
from eventproc.store.model.errors import EventprocError
from eventproc.store.model.kafka_rounds import NO_MEMBERS
from eventproc.store.records import find, get


def violations(tx: Tx) -> list[str]:
    """Return one line for each invariant that does not hold; empty if all of them hold.

    Args:
        tx: a read transaction, as `ep.db.read(violations)` gives it.
    """
    found = [problem for name in streams_to_check(tx) for problem in stream_violations(tx, name)]
    return [*found, *violations_beside_streams(tx)]


def violations_beside_streams(tx: Tx) -> list[str]:
    """Return the violations that `stream_violations` does not find: those of all that is not one stream's."""
    return [*shared_violations(tx), *_group_violations(tx)]


def _group_violations(tx: Tx) -> Iterator[str]:
    """Yield what is wrong with groups. A group keeps its rows of deleted streams until it removes them itself."""
    for name in group_names(tx):
        try:
            group = get(tx, GROUP, name).value
            found = _CHECKS.get(group.kind, _of_group)(tx, group)
            yield from (f"group {name}: {problem}" for problem in found)
        except (AssertionError, EventprocError) as error:
            yield f"group {name}: {error!r}"
    for table, names in group_names_of_rows(tx).items():
        for name in names:
            if not name.startswith("_") and find(tx, GROUP, name) is None:
                yield f"{table}: rows of the deleted group {name}"
    for name in unrecorded_states(tx):
        yield f"key_state, watermark: rows of group {name} that no record of its state names"


def _of_share_group(tx: Tx, group: GroupRecord) -> Iterator[str]:
    places = read_taken_in(tx, group.name)
    for key, found in read_deliveries(tx, group.name).items():
        found.check()
        first = found.ranges[0].low if found.ranges else found.next_number
        if places[key].number != first:
            yield f"segment {key} stands at event {places[key].number}, its first unfinished one is {first}"


def _of_clients_group(tx: Tx, group: GroupRecord) -> Iterator[str]:
    found = find_members(tx, group.name)
    known = NO_MEMBERS if found is None else found.value
    if (rows := stored_members(tx, group.name).keys()) != known.members.keys():
        yield f"its members are {sorted(known.members)}, their rows say {sorted(rows)}"
    read = {each.stream_id for each in group.streams}
    for key, (_, owner, epoch, _) in stored_assignments(tx, group.name).items():
        if key[0] not in read:
            yield f"it has a row of segment {key}, and does not read its stream"
        if (owner is not None and owner not in known.members) or epoch > group.generation:
            yield f"segment {key} is {owner}'s since {epoch}, the members are {sorted(known.members)}"


def _segment_rows(tx: Tx, group: str) -> dict[SegmentKey, tuple[object, ...]]:
    assigned = {key: row[1:] for key, row in stored_assignments(tx, group).items()}
    return {**assigned, **dict(stored_waits(tx, group))}


def _of_group(tx: Tx, group: GroupRecord) -> Iterator[str]:
    state = folded_state(tx, group).state
    state.check()
    assigned = {each.key: (each.owner, each.owner_epoch, each.target) for each in state.assignments}
    for what, stored, derived in (
        ("record says", group, recorded(group, state)),
        ("segments say", _segment_rows(tx, group.name), {**assigned, **dict(state.waits)}),
        ("members say", stored_members(tx, group.name), member_rows(state)),
    ):
        if stored != derived:
            yield f"its {what} {stored}, its log {derived}"
    for key, progress in progress_by_segment(tx, group.name).items():
        if (assignment := state.open.get(key)) is not None:
            moved = progress.offset - assignment.progress.offset
            if moved < 0 or (moved and assignment.owner is None):
                yield f"segment {key} stands at {progress}, its log says {assignment}"


_CHECKS: Final[Mapping[GroupKind, Callable[[Tx, GroupRecord], Iterator[str]]]] = {
    SHARE: _of_share_group,
    KAFKA: _of_clients_group,
    PRAVEGA: _of_clients_group,
}
"""The checks of the kinds that have no log."""
