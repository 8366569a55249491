"""How much of a stream lies before a cut, and between two cuts, in bytes and in events.

Each epoch stores how much is in the segments that were replaced up to it. So a size needs the segments of the cut and
those of the epochs that the cut spans, and never the history before them.
Source: reference pravega.md 1.7, "size between cuts", and 1.8. There, the total is kept with each recorded cut; here it
follows from any cut.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog.queries import head_cut, tail_cut
from eventproc.store.catalog.stored_history import StoredHistory
from eventproc.store.catalog.stream_records import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, divide_cut
from eventproc.store.model.history import segments_during
from eventproc.store.model.ids import epoch_of
from eventproc.store.segments import known_state, number_at, sealed_epoch


@attrs.frozen
class StreamSize:
    """A part of a stream. bytes: as stored, with the frame of each event."""

    bytes: int
    events: int


def size_before(tx: Tx, stream: StreamRecord, cut: StreamCut) -> StreamSize:
    """Return what was written before `cut` since the stream was created, truncated events included.

    cut: a valid cut, not before the head.
    Cost: two look-ups and one blob's ends for each segment of the cut, and the epochs that the cut spans.
    """
    stream_id, history = stream.stream_id, StoredHistory(tx, stream)
    ended = [sealed_epoch(tx, stream_id, segment) for segment in cut.offsets]
    # Each segment of the cut was active in this epoch or began later, so what had been sealed by then is before it.
    oldest = min(history.current if each is None else each - 1 for each in ended)
    epoch = history.epoch(oldest)
    size_bytes, events = epoch.sealed_bytes, epoch.sealed_events
    for segment, offset in cut.offsets.items():
        if offset > 0:
            size_bytes += offset
            events += number_at(tx, stream_id, segment, offset)
    newest = epoch_of(max(cut.offsets))
    others = [each for each in segments_during(history, oldest, newest) if each.id not in cut.offsets]
    division = divide_cut(cut, history) if others else None
    for other in others:
        if division is not None and division.is_behind(other):
            state = known_state(tx, stream_id, other.id)
            size_bytes += state.tail
            events += state.tail_number
    return StreamSize(size_bytes, events)


def size_between(tx: Tx, stream: StreamRecord, from_cut: StreamCut, to_cut: StreamCut) -> StreamSize:
    """Return what lies between two valid cuts, neither before the head, the second equal to or after the first."""
    before, after = size_before(tx, stream, from_cut), size_before(tx, stream, to_cut)
    return StreamSize(after.bytes - before.bytes, after.events - before.events)


def readable_size(tx: Tx, stream: StreamRecord) -> StreamSize:
    """Return what of the stream can be read. Cost: as `size_before`, twice, however long the history is."""
    return size_between(tx, stream, head_cut(tx, stream), tail_cut(tx, stream))
