"""Which streams a group reads as streams come and go: dropped when deleted, added when a reader subscribes to them."""

from __future__ import annotations

from collections.abc import Iterator

from eventproc.groups.names import is_pattern, subscribes
from eventproc.groups.start_positions import start_position_of
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import change, folded_state
from eventproc.groups.updates import StreamAdded, StreamDropped, Update
from eventproc.store.catalog import find_stream, stream_names
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GroupRecord,
    get_group,
)


def follow_catalog(tx: Tx, name: str) -> GroupState:
    """Let the group read the streams that it shall read now; return its state. Raises NotFound (the group)."""
    group = get_group(tx, name)
    return change(tx, name, *stream_updates(tx, group, folded_state(tx, group).state))


def stream_updates(tx: Tx, group: GroupRecord, state: GroupState) -> list[Update]:
    """Return the updates by which the group follows the catalog: none while it reads what it shall read.

    A deleted stream is dropped if the options say so. A stream is added, from its head, if a dropped one had its name,
    or if a reader subscribes to it. One look-up for each stream, and one query for each pattern's scope.
    """
    gone = set(_deleted(tx, group, state))
    updates: list[Update] = [StreamDropped(stream_id) for stream_id in sorted(gone)]
    read = {each.name for each in state.streams if each.stream_id not in gone}
    awaited = {each.name: each.added for each in state.dropped}
    awaited |= {each.name: each.added for each in state.streams if each.stream_id in gone and not each.added}
    for name in sorted(awaited.keys() - read):
        if find_stream(tx, name) is not None:
            updates.append(StreamAdded(start_position_of(tx, name, added=awaited[name])))
            read.add(name)
    added = sorted(_subscribed(tx, state) - read)
    updates += (StreamAdded(start_position_of(tx, name, added=True)) for name in added)
    return updates


def _deleted(tx: Tx, group: GroupRecord, state: GroupState) -> Iterator[int]:
    if group.options.on_deleted == "drop":
        for each in state.streams:
            found = find_stream(tx, each.name)
            if found is None or found.value.stream_id != each.stream_id:
                yield each.stream_id


def _subscribed(tx: Tx, state: GroupState) -> set[str]:
    """Return the names of the existing streams that readers name or whose names match their patterns."""
    wanted = {part for each in state.members.values() for part in each.subscription or ()}
    found = {part for part in wanted if not is_pattern(part) and find_stream(tx, part) is not None}
    patterns = [part for part in wanted if is_pattern(part)]
    for scope in {part.partition("/")[0] for part in patterns}:
        found |= {
            name
            for name in stream_names(tx, scope)
            if not name.startswith(f"{scope}/_") and subscribes(patterns, name)
        }
    return found
