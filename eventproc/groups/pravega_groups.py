"""Reader groups of Pravega's clients, as functions of a transaction: create, update, delete, and where they stand.

The clients agree among themselves, in a log of the group, on which reader has which segment, and where. Here a group
has the record and the rows of all groups. The rows move with the cuts up to which the group lets streams be truncated,
which it sends if it subscribes to them. A group that does not subscribe has no streams here: nobody knows where it is.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from eventproc.groups.changes import insert_group
from eventproc.groups.followed_streams import follow_catalog
from eventproc.groups.names import group_name, stream_names
from eventproc.groups.start_positions import start_position_of, start_positions_of
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import change, write_segments
from eventproc.groups.updates import GroupReset, OptionsChanged, StartPosition, StreamSkipped, Update
from eventproc.store.catalog import get_scope, get_stream, verify_active
from eventproc.store.client_logs import create_client_log
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GROUP,
    PRAVEGA,
    GroupOptions,
    allow_truncation,
    delete_group,
    get_group,
    note_committed,
)
from eventproc.store.groups.pravega_groups import PRAVEGA_GROUP, PravegaGroup, group_log_name
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import AlreadyExists, InvalidCut, NotFound, Truncated, VersionConflict
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import Versioned, create, find, replace


def create_pravega_group(tx: Tx, name: str, asked: PravegaGroup) -> PravegaGroup:
    """Create a group with its log, and return its configuration: that of the group of this name, if there is one.

    asked: its `generation` has no meaning.
    Raises InvalidArgument, NotFound (the scope, a stream), IllegalTransition (the scope is being deleted), and
    AlreadyExists if a group that other clients use has the name.
    """
    name = group_name(name)
    if (found := find(tx, GROUP, name)) is not None:
        if found.value.kind != PRAVEGA:
            raise AlreadyExists(kind="group", name=name, differing=("kind",))
        return find_pravega_group(tx, name).value
    verify_active(get_scope(tx, name.partition("/")[0]).value, "create a group")
    group = attrs.evolve(asked, generation=0)
    state = insert_group(tx, name, PRAVEGA, _starts(tx, group), _options(group))
    write_segments(tx, name, GroupState(generation=0), state)
    create(tx, PRAVEGA_GROUP, name, group)
    create_client_log(tx, group_log_name(name))
    return group


def find_pravega_group(tx: Tx, name: str) -> Versioned[PravegaGroup]:
    """Return the configuration of a group. Raises NotFound, also for a group that other clients use."""
    if (found := find(tx, PRAVEGA_GROUP, name)) is None:
        raise NotFound(kind="group", name=name)
    return found


def update_pravega_group(tx: Tx, name: str, asked: PravegaGroup) -> int:
    """Give a group another configuration; return its new generation.

    What it let be truncated stays so, of the streams that it still reads. Raises NotFound; VersionConflict if `asked`
    has another id, or another generation than the group has; and as `create_pravega_group`.
    """
    found = find_pravega_group(tx, name)
    if asked.group_id != found.value.group_id or asked.generation != found.value.generation:
        raise VersionConflict(key=name, expected=asked.generation, actual=found.value.generation)
    group = attrs.evolve(asked, generation=asked.generation + 1)
    replace(tx, PRAVEGA_GROUP, found, group)
    updates: list[Update] = [GroupReset(tuple(_starts(tx, group)))]
    if (options := _options(group)) != get_group(tx, name).options:
        updates.append(OptionsChanged(options))
    change(tx, name, *updates)
    return group.generation


def delete_pravega_group(tx: Tx, name: str, group_id: str) -> None:
    """Delete a group with its log. Raises NotFound, also for another id than the group has."""
    if find_pravega_group(tx, name).value.group_id != group_id:
        raise NotFound(kind="group", name=name)
    delete_group(tx, name)


def release_stream(
    tx: Tx, name: str, *, group_id: str, generation: int, stream: str, offsets: Mapping[SegmentId, int]
) -> None:
    """Let a stream be truncated up to a cut, as far as this subscriber is concerned; it counts as standing there.

    Raises NotFound for the stream, and with kind "subscriber" for a group that has another id, or does not subscribe to
    the stream; VersionConflict for another generation; InvalidCut for a cut that is none, or lies before the last one.
    Cost: reads all rows of the group, 40 us each with its records. A client calls this for each of its streams in turn.
    """
    stream_id = get_stream(tx, stream).value.stream_id
    found = find(tx, PRAVEGA_GROUP, name)
    reads = found is not None and any(each.name == stream for each in get_group(tx, name).streams)
    if found is None or not reads or found.value.release == "none" or found.value.group_id != group_id:
        raise NotFound(kind="subscriber", name=f"{name} of {stream}")
    if generation != found.value.generation:
        raise VersionConflict(key=name, expected=generation, actual=found.value.generation)
    allow_truncation(tx, name, cut := StreamCut(stream, stream_id, dict(offsets)))
    if all(each.stream_id != stream_id for each in get_group(tx, name).streams):
        follow_catalog(tx, name)  # the stream was deleted and created again
    moved = _position(tx, stream, cut)
    change(tx, name, StreamSkipped(moved, kept=(), events=0))
    note_committed(tx, name, [(stream_id, segment) for segment, _ in moved.held])


def _options(group: PravegaGroup) -> GroupOptions:
    """Return the options of a group: a deleted stream leaves it, as its clients find out by themselves."""
    return GroupOptions(on_deleted="drop", retains=None if group.release == "none" else "manual")


def _starts(tx: Tx, group: PravegaGroup) -> list[StartPosition]:
    """Return where a group begins in its streams, and nothing if it will not say where it goes. Raises NotFound."""
    found = []
    for stream in stream_names(list(group.starts)):
        cut = StreamCut(stream, get_stream(tx, stream).value.stream_id, dict(group.starts[stream]))
        if group.release != "none":
            found.append(_position(tx, stream, cut))
    return found


def _position(tx: Tx, stream: str, cut: StreamCut) -> StartPosition:
    """Return the position at a cut; at the head for one without offsets, and for one that is not valid or before it.

    Clients go by the cut themselves. Their checkpoints are none of ours while a segment is sealed: what they have read
    to its end has offset -1, and a segment that waits for its predecessors is missing.
    """
    try:
        (found,) = start_positions_of(tx, [stream], cut)
    except (InvalidCut, Truncated):
        return start_position_of(tx, stream, added=False)
    return found
