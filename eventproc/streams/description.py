"""A stream as people look at it: its state, segments, ends and sizes. Functions of a transaction."""

from __future__ import annotations

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.states import StreamState
from eventproc.store.segments import readable_size, segment_state
from eventproc.streams.positions import head_cut, tail_cut


@attrs.frozen
class SegmentDescription:
    """A segment as `describe` shows it. [head, tail) is readable, in bytes and in event numbers."""

    id: SegmentId
    low: float
    high: float
    sealed: bool
    head: int
    tail: int
    head_number: int
    tail_number: int


@attrs.frozen
class StreamDescription:
    """A stream as `describe` shows it; everything of one moment."""

    name: str
    stream_id: int
    state: StreamState
    config: StreamConfig
    created_ms: int
    epoch: int
    segments: tuple[SegmentDescription, ...]
    head: StreamCut
    tail: StreamCut
    events: int
    size_bytes: int


def describe_stream(tx: Tx, stream: StreamRecord) -> StreamDescription:
    """Return the stream as it is in this transaction."""
    history = StoredHistory(tx, stream)
    segments = []
    for identifier in history.epoch(stream.epoch).ids:
        key_range = get_segment(history, identifier).range
        state = segment_state(tx, stream.stream_id, identifier)
        assert state is not None, f"active segment {identifier} of {stream.name} has no row"
        segments.append(
            SegmentDescription(
                id=identifier,
                low=key_range.low,
                high=key_range.high,
                sealed=state.sealed,
                head=state.head,
                tail=state.tail,
                head_number=state.head_number,
                tail_number=state.tail_number,
            )
        )
    events, size_bytes = readable_size(tx, stream.stream_id)
    return StreamDescription(
        name=stream.name,
        stream_id=stream.stream_id,
        state=stream.state,
        config=stream.config,
        created_ms=stream.created_ms,
        epoch=stream.epoch,
        segments=tuple(segments),
        head=head_cut(tx, stream),
        tail=tail_cut(tx, stream),
        events=events,
        size_bytes=size_bytes,
    )
