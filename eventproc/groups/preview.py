"""What a reset of a group would do, before it is done: a read that changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from eventproc.groups.cuts import ended, group_cuts
from eventproc.groups.describe import describe_group
from eventproc.groups.operations import reset_positions
from eventproc.groups.start_positions import GroupResetEnd, GroupStart
from eventproc.groups.updates import StartPosition
from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.cuts import NOT_REACHED, StreamCut, divide
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import History, find_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import number_at, segment_state


@attrs.frozen
class ResetPreview:
    """A stream before and after a reset: where the group stands in it, and how much is left to read from there.

    What was before is None for a stream that the group does not read now, or that was deleted since.
    """

    stream: str
    cut_before: StreamCut | None
    cut_after: StreamCut
    events_before: int | None
    events_after: int
    bytes_before: int | None
    bytes_after: int


def preview_reset(
    tx: Tx,
    group: str,
    start: GroupStart = "head",
    *,
    checkpoint: str | None = None,
    streams: Sequence[str] | None = None,
    until: GroupResetEnd = "same",
) -> list[ResetPreview]:
    """Return what `ReaderGroup.reset` would do now with the same arguments. Raises what it would be refused for.

    Costs a few look-ups for each segment of the streams.
    """
    starts = reset_positions(tx, group, start, checkpoint=checkpoint, streams=streams, until=until)
    described = describe_group(tx, group)
    before = {} if described.replaced else group_cuts(tx, group)
    previews: list[ResetPreview] = []
    for start_position in starts:
        name = start_position.stream.name
        stream = get_stream(tx, name, stream_id=start_position.stream.stream_id).value
        cut = _cut_of(start_position, StoredHistory(tx, stream))
        events, size_bytes = _left_at(tx, stream, cut, dict(start_position.ends))
        left = [each for each in described.segments if each.stream == name]
        known = name in before
        previews.append(
            ResetPreview(
                stream=name,
                cut_before=before.get(name),
                cut_after=cut,
                events_before=sum(each.events for each in left) if known else None,
                events_after=events,
                bytes_before=sum(each.bytes for each in left) if known else None,
                bytes_after=size_bytes,
            )
        )
    return previews


def _cut_of(start_position: StartPosition, history: History) -> StreamCut:
    own = {segment: progress.offset for segment, progress in start_position.held}
    own |= {segment: NOT_REACHED for segment, _ in start_position.waiting}
    offsets = own | ended(own, dict(start_position.ends), history)
    return StreamCut(start_position.stream.name, start_position.stream.stream_id, offsets)


def _left_at(tx: Tx, stream: StreamRecord, cut: StreamCut, ends: Mapping[SegmentId, int]) -> tuple[int, int]:
    """Return the events and bytes that lie behind a cut, to the tail, or to where the group ends."""
    history = StoredHistory(tx, stream)
    where = divide(cut, history)
    end = divide(StreamCut(stream.name, stream.stream_id, ends), history) if ends else None
    rows = tx.execute("SELECT segment FROM segment WHERE stream_id = ?", (stream.stream_id,)).fetchall()
    events = size_bytes = 0
    for segment in (SegmentId(number) for (number,) in rows):
        state = segment_state(tx, stream.stream_id, segment)
        assert state is not None, f"segment {segment} is there and is not"
        try:
            found = find_segment(history, segment)
        except NotFound:  # behind the oldest epoch kept; the reaper has not come to its row yet
            continue
        if where.is_behind(found):
            continue
        tail, tail_number = state.tail, state.tail_number
        if end is not None and not end.is_behind(found):
            tail = min(max(ends.get(segment, 0), state.head), tail)
            tail_number = number_at(tx, stream.stream_id, segment, tail)
        offset = min(max(cut.offsets.get(segment, 0), state.head), tail)
        events += tail_number - number_at(tx, stream.stream_id, segment, offset)
        size_bytes += tail - offset
    return events, size_bytes
