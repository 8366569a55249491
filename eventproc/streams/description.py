"""Scopes, streams, segments and transactions as callers see them. Functions of a database transaction."""

from __future__ import annotations

from pathlib import Path

import attrs

from eventproc.store.catalog import Scope, StoredHistory, StreamRecord
from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.model.states import ScopeState, StreamState
from eventproc.store.segments import AppendResult, readable_size, segment_state
from eventproc.store.transactions import TxnRecord, TxnState
from eventproc.streams.stream_cuts import head_cut, tail_cut


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

    __repr__ = short_repr_of_fields

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


@attrs.frozen(kw_only=True)
class TransactionDescription:
    """A transaction of one stream, of one moment.

    created_ms, finished_ms: in ms since 1970; finished_ms is None until it ends.
    age_ms: time since it began.
    owner: pid of the process that began or pinged it last; None in memory, or if that process is gone.
    owner_alive: whether the owner still has the directory open; True in memory.
    lease_ms: how long it outlives its last ping; None: as long as its owner lives.
    lease_left_ms: time until it is aborted, unless it is pinged.
    events, size_bytes: what is staged, framed.
    position: its place in the order of the stream's commits; known once it is decided.
    appended: where its events are once it is committed, one entry a segment.
    reason: of its abort; while it is committing, the last failure of the commit.
    """

    __repr__ = short_repr_of_fields

    id: str
    stream: str
    state: TxnState
    created_ms: int
    age_ms: int
    owner: int | None
    owner_alive: bool
    lease_ms: int | None
    lease_left_ms: int | None
    events: int
    size_bytes: int
    position: int | None
    appended: tuple[AppendResult, ...]
    reason: str | None
    finished_ms: int | None


def describe_txn(tx: Tx, txn: TxnRecord, path: Path | None) -> TransactionDescription:
    """Return the transaction as people look at it. path: the directory, None in memory."""
    is_open = txn.state is TxnState.OPEN
    return TransactionDescription(
        id=txn.id,
        stream=txn.stream,
        state=txn.state,
        created_ms=txn.created_ms,
        age_ms=max(tx.now_ms - txn.created_ms, 0),
        owner=None if path is None else pid_of(path, txn.instance),
        owner_alive=path is None or is_alive(path, txn.instance),
        lease_ms=txn.lease_ms,
        lease_left_ms=txn.lease_left_ms(tx) if is_open else None,
        events=txn.events,
        size_bytes=txn.size_bytes,
        position=txn.position,
        appended=tuple([each.printable() for each in txn.appended]),
        reason=txn.reason,
        finished_ms=txn.finished_ms,
    )
