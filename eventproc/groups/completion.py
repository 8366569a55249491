"""What follows a segment that was processed to its end: a question to the stream's history, within a transaction."""

from __future__ import annotations

from eventproc.groups.keys import SegmentKey
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import positions_of
from eventproc.groups.updates import SegmentCompleted
from eventproc.store.catalog import StoredHistory, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.history import successors
from eventproc.store.segments import segment_state


def completion(tx: Tx, group: str, state: GroupState, key: SegmentKey) -> SegmentCompleted:
    """Return the update that finishes an open segment, with what takes over from it; nothing where the group ends.

    Raises StreamReplaced, and NotFound when nobody knows any more what took over.
    """
    stream_id, segment = key
    reader = state.open[key].owner
    assert reader is not None, f"{key} is nobody's, and was processed to its end"
    ((_, progress),) = positions_of(tx, group, [key])
    end = state.end_offsets.get(key)
    if end is not None and progress.offset >= end:
        return SegmentCompleted(reader, key, ())
    name = next(stream.name for stream in state.streams if stream.stream_id == stream_id)
    stream = get_stream(tx, name, stream_id=stream_id).value
    found = segment_state(tx, stream_id, segment)
    assert found is None or (found.sealed and progress.offset >= found.tail), (
        f"segment {segment} of {name} goes on to {found} and is finished only to {progress}"
    )
    following = successors(StoredHistory(tx, stream), segment)
    begun = [
        (successor, before)
        for successor, before in following.items()
        if state.end_offsets.get((stream_id, successor), 1) > 0
    ]
    return SegmentCompleted(reader, key, tuple(begun))
