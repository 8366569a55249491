"""A stream as people look at it: its state, segments, ends and sizes. Functions of a transaction."""

from __future__ import annotations

import attrs

from eventproc.store.catalog import Scope, StoredHistory, StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.states import ScopeState, StreamState
from eventproc.store.segments import readable_size, segment_state
from eventproc.streams.positions import head_cut, tail_cut


@attrs.frozen
class ScopeInfo:
    """A scope as `ep.scopes()` lists it.

    state: ACTIVE, or DELETING while a recursive delete empties it.
    created_ms: when it was made, in ms since 1970.
    """

    name: str
    state: ScopeState
    created_ms: int

    @classmethod
    def of(cls, scope: Scope) -> ScopeInfo:
        """Return what is public of a scope's record."""
        return cls(scope.name, scope.state, scope.created_ms)


@attrs.frozen
class StreamInfo:
    """A stream as `ep.streams()` lists it; `ep.stream(name)` is its handle.

    name: "scope/stream".
    stream_id: the incarnation; never reused.
    state: of its life: creating, active, scaling, sealed and so on.
    config: how it was configured.
    created_ms: when it was made, in ms since 1970.
    epoch: number of the current epoch.
    """

    name: str
    stream_id: int
    state: StreamState
    config: StreamConfig
    created_ms: int
    epoch: int

    @classmethod
    def of(cls, stream: StreamRecord) -> StreamInfo:
        """Return what is public of a stream's record."""
        return cls(
            stream.name, stream.stream_id, stream.state, stream.config, stream.created_ms, stream.epoch
        )


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
                id=printable(identifier),
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
