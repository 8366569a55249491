"""A group's position as stream cuts. All events before the cuts are finished, so the streams may be truncated there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

from eventproc.groups.state import CheckpointState, GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.store.catalog import StoredHistory, find_stream, get_stream, tail_offsets
from eventproc.store.database import Tx
from eventproc.store.groups import (
    GroupStream,
    SegmentKey,
    get_group,
    progress_by_segment,
)
from eventproc.store.model.cuts import NOT_REACHED, StreamCut, with_ends
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.states import StreamState


def group_cuts(tx: Tx, name: str) -> dict[str, StreamCut]:
    """Return the durable position of the group in each of its streams. Raises NotFound, StreamReplaced.

    The group never reads earlier events again, so its streams may be truncated there.
    """
    return {where.name: cut() for where, cut in lazy_cuts(tx, name)}


def lazy_cuts(tx: Tx, name: str) -> list[tuple[GroupStream, Callable[[], StreamCut]]]:
    """Return the streams of a group, each with what finds the group's cut in it. Raises NotFound."""
    group = get_group(tx, name)
    state = folded_state(tx, group).state
    offsets = {key: progress.offset for key, progress in progress_by_segment(tx, name).items()}
    streams = state.streams
    if group.options.on_deleted == "drop":  # a reader will drop those that were deleted
        current = {each.name: find_stream(tx, each.name) for each in streams}
        streams = tuple(
            each
            for each in streams
            if (found := current[each.name]) is not None and found.value.stream_id == each.stream_id
        )
    waiting = state.waiting.keys()
    return [(each, partial(stream_cut, tx, each, state, offsets, waiting)) for each in streams]


def checkpoint_cuts(tx: Tx, state: GroupState, checkpoint: CheckpointState) -> dict[str, StreamCut]:
    """Return the position of a complete checkpoint, in those of the group's streams that it read then.

    Raises StreamReplaced.
    """
    offsets = {key: progress.offset for key, progress in checkpoint.positions}
    streams = [each for each in state.streams if each.stream_id in checkpoint.streams]
    return {each.name: stream_cut(tx, each, state, offsets, checkpoint.waiting) for each in streams}


def stream_cut(
    tx: Tx,
    where: GroupStream,
    state: GroupState,
    offsets: Mapping[SegmentKey, int],
    waiting: Collection[SegmentKey],
) -> StreamCut:
    """Return the cut at `offsets`, and at the end of the stream, or of the group, where all segments are finished."""
    stream = get_stream(tx, where.name, stream_id=where.stream_id).value
    own = {
        segment: offset for (stream_id, segment), offset in offsets.items() if stream_id == where.stream_id
    }
    own |= {segment: NOT_REACHED for stream_id, segment in waiting if stream_id == where.stream_id}
    ends = end_offsets(state, where.stream_id)
    if not ends and stream.state is StreamState.SEALED:
        ends = tail_offsets(tx, stream)
    return StreamCut(where.name, where.stream_id, with_ends(own, ends, StoredHistory(tx, stream)))


def end_offsets(state: GroupState, stream_id: int) -> dict[SegmentId, int]:
    """Return where the group ends in a stream; empty if it does not end."""
    return {segment: offset for (each, segment), offset in state.ends if each == stream_id}
