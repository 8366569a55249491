"""Truncate a stream: move its head to a cut in one transaction; the bytes before it go later.

Semantics: pravega.md 3.5 and 1.8. The head moves first and the reaper follows, never the other way
round: a reader at the head always finds what the head promises.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import STREAM, StoredHistory, Stream, get_stream, head_offsets
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, equal_or_after, segments_between, verify_cut
from eventproc.store.model.errors import InvalidCut, StreamSealed
from eventproc.store.model.history import History, sealed_in
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import Versioned, replace
from eventproc.store.segments import is_event_border, segment_state, truncate_segments
from eventproc.workflows.requests import TruncateStream


def check(tx: Tx, request: TruncateStream) -> bool:
    """Return whether the head stands there already.

    Raises NotFound, StreamReplaced, StreamSealed, and InvalidCut for a cut that does not cover the key
    space once, lies before the head or beyond the tail, or inside an event.
    """
    stream = _open_stream(tx, request).value
    head = _cut(stream, head_offsets(tx, stream))
    cut = _cut(stream, request.offsets)
    history = StoredHistory(tx, stream)
    verify_cut(cut, history)
    if cut == head:
        return True
    if not equal_or_after(cut, head, history):
        raise InvalidCut(stream=stream.name, cut=str(cut), reason=f"the head {head} is not before it")
    _verify_offsets(tx, stream, cut)
    return False


def apply(tx: Tx, request: TruncateStream, request_id: str) -> bool:
    """Move the head. One step."""
    if check(tx, request):
        return True
    before = _open_stream(tx, request)
    stream, history = before.value, StoredHistory(tx, before.value)
    head, cut = _cut(stream, head_offsets(tx, stream)), _cut(stream, request.offsets)
    truncating = advance(stream.state, StreamEvent.TRUNCATE, name=stream.name)
    passed = set(segments_between(history, head, cut)) - cut.offsets.keys()
    heads = {segment: offset for segment, offset in cut.offsets.items() if offset > 0}
    truncate_segments(tx, stream.name, stream.stream_id, heads, passed=passed)
    replace(
        tx,
        STREAM,
        before,
        attrs.evolve(
            stream,
            state=advance(truncating, StreamEvent.TRUNCATED, name=stream.name),
            head=dict(cut.offsets),
            first_epoch=_oldest_needed(cut, history),
        ),
    )
    return True


def _open_stream(tx: Tx, request: TruncateStream) -> Versioned[Stream]:
    found = get_stream(tx, request.stream, stream_id=request.stream_id)
    if found.value.state in (StreamState.SEALING, StreamState.SEALED):
        raise StreamSealed(stream=request.stream)
    return found


def _oldest_needed(cut: StreamCut, history: History) -> int:
    """Return the oldest epoch that still says something about the cut: the last one of its oldest segment."""
    ended = [sealed_in(history, segment) for segment in cut.offsets]
    return min(history.current if epoch is None else epoch - 1 for epoch in ended)


def _cut(stream: Stream, offsets: dict[SegmentId, int]) -> StreamCut:
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)


def _verify_offsets(tx: Tx, stream: Stream, cut: StreamCut) -> None:
    for segment, offset in cut.offsets.items():
        state = segment_state(tx, stream.stream_id, segment)
        if offset <= 0:
            continue
        where = f"offset {offset} of segment {format_segment(segment)}"
        if state is None or offset > state.tail:
            end = 0 if state is None else state.tail
            raise InvalidCut(stream=stream.name, cut=str(cut), reason=f"{where} lies beyond its end {end}")
        if not is_event_border(tx, stream.stream_id, segment, offset):
            raise InvalidCut(stream=stream.name, cut=str(cut), reason=f"{where} lies inside an event")
