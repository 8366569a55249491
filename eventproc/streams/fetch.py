"""What a reader asks the database in one read: events, how far its segments go, what follows those it ends.

One transaction answers all of it, so that what a reader concludes holds together: that a segment ended,
where it ended, and which segments took over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream
from eventproc.store.database import Tx, Watch
from eventproc.store.model.cuts import StreamCut, verify_cut
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import find_segment, successors
from eventproc.store.model.ids import SegmentId, epoch_of, format_segment
from eventproc.store.segments import EventRun, read, segment_states, verify_offset
from eventproc.streams.positions import truncated

Limit: TypeAlias = tuple[int, int | None]
"""Where to read on in a segment, and where to stop; None: at its tail. Event borders."""


@attrs.frozen
class Fetched:
    """runs: events, in order per segment. ended: {segment that ends where its runs do: its successors}."""

    runs: list[EventRun]
    ended: dict[SegmentId, dict[SegmentId, tuple[SegmentId, ...]]]


def fetch(
    tx: Tx,
    stream_name: str,
    stream_id: int,
    wanted: Mapping[SegmentId, Limit],
    bytes_max: int,
) -> Fetched:
    """Read from the wanted segments, {segment: (offset, limit)}.

    Raises NotFound, StreamReplaced, and Truncated when an offset lies before the head, or at the end of a
    segment of which nobody knows any more what took over.
    """
    stream = get_stream(tx, stream_name, stream_id=stream_id).value
    found = read(tx, stream_id, wanted, bytes_max=bytes_max)
    offsets = {segment: offset for segment, (offset, _) in wanted.items()}
    for segment, offset in offsets.items():
        state = found.states.get(segment)
        if state is None or offset < state.head:
            _verify_known(stream, segment)
            raise truncated(tx, stream, segment, offset)
    for run in found.runs:
        offsets[run.segment] = run.end
    history = StoredHistory(tx, stream)
    ended = {}
    for segment, state in found.states.items():
        if state.sealed and offsets[segment] == state.tail and wanted[segment][1] is None:
            try:
                ended[segment] = successors(history, segment)
            except NotFound:  # the reaper has not come to its row yet
                raise truncated(tx, stream, segment, offsets[segment]) from None
    return Fetched(found.runs, ended)


def limits_of(
    tx: Tx, stream_name: str, cut: StreamCut, held: Mapping[SegmentId, int]
) -> dict[SegmentId, int]:
    """Return where a reader that holds `held` stops in each segment in order to read up to `cut`.

    {segment: offset}; a segment that is absent is read to its end. A held segment that begins after the
    cut, or of which the cut's part was read already, stops where it stands. Raises InvalidCut for a cut that
    does not cover the key space once, or lies inside an event or beyond the end of a segment.
    """
    stream = get_stream(tx, stream_name, stream_id=cut.stream_id).value
    history = StoredHistory(tx, stream)
    known = [found for segment in cut.offsets if (found := find_segment(history, segment))]
    if len(known) == len(cut.offsets) or min(map(epoch_of, cut.offsets), default=0) >= history.first:
        verify_cut(cut, history)
    for segment in cut.offsets:
        verify_offset(tx, cut, segment)
    limits = {segment: max(offset, 0) for segment, offset in cut.offsets.items()}
    for identifier, offset in held.items():
        if identifier in limits:
            limits[identifier] = max(limits[identifier], offset)
        elif own := find_segment(history, identifier):
            overlapping = [member for member in known if member.range.overlaps(own.range)]
            if all(member.id < identifier for member in overlapping):
                limits[identifier] = offset
    return limits


def watch_stream(stream_id: int) -> Watch:
    """Return what to subscribe to in order to learn of appends, scales, seals and deletion of a stream."""

    def probe(tx: Tx) -> tuple[object, ...]:
        # The active segments of a stream are few; each costs the look-up of its last extent.
        states = segment_states(tx, stream_id, active_only=True)
        return tuple((segment, state.tail) for segment, state in states)

    return Watch(("stream", stream_id), probe)


def _verify_known(stream: StreamRecord, segment: SegmentId) -> None:
    """Raise NotFound unless the stream has, or had, that segment."""
    if segment > (stream.epoch << 32 | 0xFFFF_FFFF):
        raise NotFound(kind=f"segment of {stream.name}", name=format_segment(segment))
