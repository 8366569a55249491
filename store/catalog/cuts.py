"""Cuts of a stream: its head, its tail, and a time."""

from __future__ import annotations

from eventproc.store.catalog.queries import head_offsets, tail_offsets
from eventproc.store.catalog.stored_history import StoredHistory
from eventproc.store.catalog.stream_records import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, later
from eventproc.store.model.history import epoch_at
from eventproc.store.segments import offset_at_time


def head_cut(tx: Tx, stream: StreamRecord) -> StreamCut:
    """Return the earliest readable cut."""
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=head_offsets(tx, stream))


def tail_cut(tx: Tx, stream: StreamRecord) -> StreamCut:
    """Return the cut after the last event, of one moment."""
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=tail_offsets(tx, stream))


def time_cut(tx: Tx, stream: StreamRecord, time_ms: int) -> StreamCut:
    """Return the cut before the first events that were appended at or after `time_ms`, in each segment.

    Where the head is later, in all of the key space or in a part of it, its offsets count. One look-up, and one per
    segment of the epoch of that time.
    """
    history = StoredHistory(tx, stream)
    offsets = {
        segment: offset_at_time(tx, stream.stream_id, segment, time_ms)
        for segment in epoch_at(history, time_ms).ids
    }
    cut = StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)
    return later(cut, head_cut(tx, stream), history)
