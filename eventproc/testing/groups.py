"""What must hold of groups: the invariants of their states, and rows that say what their logs say."""

from __future__ import annotations

import json
from collections.abc import Iterator

from eventproc.groups import GROUP, GroupRecord, folded_state
from eventproc.store.database import Tx
from eventproc.store.model.errors import EventprocError
from eventproc.store.records import find, get, keys


def group_violations(tx: Tx) -> Iterator[str]:
    """Yield a line for each thing that does not hold. Rows of streams that are gone stay: the group says so."""
    for name in keys(tx, GROUP):
        try:
            yield from (f"group {name}: {problem}" for problem in _of_group(tx, get(tx, GROUP, name).value))
        except (AssertionError, EventprocError) as error:
            yield f"group {name}: {error!r}"
    for table in ("group_segment", "group_member"):
        for (name,) in tx.execute(f"SELECT DISTINCT group_name FROM {table}").fetchall():
            if not name.startswith("_") and find(tx, GROUP, name) is None:
                yield f"{table}: rows of the group {name}, which is gone"


def _of_group(tx: Tx, group: GroupRecord) -> Iterator[str]:
    state = folded_state(tx, group).state
    state.check()
    if (group.generation, group.streams, group.paused) != (state.generation, state.streams, state.paused):
        yield f"its record says {group}, its log {state}"
    found: dict[object, object] = {}
    rows = tx.execute(
        "SELECT stream_id, segment, offset, owner, owner_epoch, target, waiting FROM group_segment"
        " WHERE group_name = ?",
        (group.name,),
    ).fetchall()
    for stream_id, segment, offset, owner, owner_epoch, target, waiting in rows:
        key = stream_id, segment
        found[key] = (owner, owner_epoch, target) if waiting is None else tuple(json.loads(waiting))
        assignment = state.open.get(key)
        if assignment is not None and (offset > assignment.progress.offset and owner is None):
            yield f"nobody has segment {key}, and it moved from {assignment.progress} to {offset}"
        if assignment is not None and offset < assignment.progress.offset:
            yield f"segment {key} moved back from {assignment.progress} to {offset}"
    said: dict[object, object] = {
        each.key: (each.owner, each.owner_epoch, each.target) for each in state.assignments
    }
    if found != said | dict(state.waits):
        yield f"its rows say {found}, its log {said | dict(state.waits)}"
    members = tx.execute(
        "SELECT reader, instance, epoch FROM group_member WHERE group_name = ?", (group.name,)
    ).fetchall()
    if {reader: (instance, epoch) for reader, instance, epoch in members} != {
        reader: (member.instance, member.epoch) for reader, member in state.members.items()
    }:
        yield f"its rows say that {members} are online, its log {state.members}"
