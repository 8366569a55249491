"""Scopes, streams, segments and transactions as callers see them. Functions of a database transaction."""

from __future__ import annotations

from typing import Self

import attrs

from eventproc.store.catalog import (
    Scope,
    StoredHistory,
    StreamRecord,
    StreamSize,
    count_streams,
    get_stream,
    readable_size,
)
from eventproc.store.catalog.queries import head_cut, tail_cut
from eventproc.store.database import Peers, Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.model.partitions import partition_ids
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.model.states import ScopeState, StreamState
from eventproc.store.records.plain import derived
from eventproc.store.segments import AppendResult, known_state, sealed_epoch, write_rate
from eventproc.store.transactions import TxnRecord, TxnState, joint_rows
from eventproc.workflows.policies import ScalingDescription, describe_scaling


@attrs.frozen
class ScopeInfo:
    """A scope as `ep.scopes()` lists it.

    state: ACTIVE, or DELETING while a recursive delete empties it.
    created_ms: when it was made, in ms since 1970.
    streams: how many it has.
    """

    name: str
    state: ScopeState
    created_ms: int
    streams: int

    @classmethod
    def of(cls, tx: Tx, scope: Scope) -> ScopeInfo:
        """Return what is public of a scope."""
        return cls(scope.name, scope.state, scope.created_ms, count_streams(tx, scope.name))


@attrs.frozen(kw_only=True)
class StreamInfo:
    """A stream as `ep.streams()` lists it; `ep.stream(name)` is its handle.

    name: "scope/stream".
    stream_id: the incarnation; never reused.
    state: of its life: creating, active, scaling, sealed and so on.
    config: how it was configured.
    created_ms: when it was made, in ms since 1970.
    epoch: number of the current epoch.
    events, size_bytes: what can be read.
    events_per_second: the rate of writing in the last minute.
    """

    name: str
    stream_id: int
    state: StreamState
    config: StreamConfig
    created_ms: int
    epoch: int
    events: int
    size_bytes: int
    events_per_second: float

    @classmethod
    def of(cls, tx: Tx, stream: StreamRecord) -> Self:
        """Return what is public of a stream. Cost: a few look-ups for each segment."""
        size = readable_size(tx, stream)
        return cls(
            name=stream.name,
            stream_id=stream.stream_id,
            state=stream.state,
            config=stream.config,
            created_ms=stream.created_ms,
            epoch=stream.epoch,
            events=size.events,
            size_bytes=size.bytes,
            events_per_second=round(write_rate(tx, stream.stream_id), 3),
        )


@attrs.frozen
class SegmentDescription:
    """A segment as `describe` shows it. [head, tail) is readable, in bytes and in event numbers.

    low, high: its key range [low, high).
    sealed: whether it takes no more events; then `tail` and `tail_number` are its final size.
    sealed_epoch: the epoch that replaced it; None for a segment of the current epoch.
    """

    id: SegmentId
    low: float
    high: float
    sealed: bool
    head: int
    tail: int
    head_number: int
    tail_number: int
    sealed_epoch: int | None = None

    @derived
    def events(self) -> int:
        """How many events can be read."""
        return self.tail_number - self.head_number


@attrs.frozen
class PastScale:
    """An epoch as a scale made it.

    epoch: its number. created_ms: when it began, in ms since 1970.
    sealed: the segments that it replaced; empty if the epoch before is not kept.
    opened: the segments that it opened. segments: number of its segments.
    splits, merges: of this scale alone.
    request_id: of the request that asked for it; None for the first epoch.
    """

    epoch: int
    created_ms: int
    sealed: tuple[SegmentId, ...]
    opened: tuple[SegmentId, ...]
    segments: int
    splits: int
    merges: int
    request_id: str | None


@attrs.frozen(kw_only=True)
class MeasuredPart:
    """A part of a stream, from one cut to another, as `Stream.measure` returns it.

    before: what was written before `start` since the stream was created, truncated events included.
    between: what lies from `start` to `end`.
    truncated_ms: when the stream was truncated last, in ms since 1970; None if it never was.
    """

    __repr__ = short_repr_of_fields

    start: StreamCut
    end: StreamCut
    before: StreamSize
    between: StreamSize
    truncated_ms: int | None


@attrs.frozen
class TruncationDescription:
    """The last truncation of a stream.

    head: the cut at which the stream begins since. truncated_ms: when, in ms since 1970.
    bytes_before, events_before: everything that was ever truncated.
    first_epoch: the oldest epoch that is kept.
    """

    __repr__ = short_repr_of_fields

    head: StreamCut
    truncated_ms: int
    bytes_before: int
    events_before: int
    first_epoch: int


@attrs.frozen
class StreamDescription:
    """A stream as `describe` shows it; everything of one moment.

    scaling: what the scaling policy sees, and why it acts or does not; None if the policy goes by no rate.
    version: grows with each change of the stream's metadata, also by a policy, and never with events. Pass it to a
        change as `if_version`. A stream of the same name that is made later counts from 1 again.
    """

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
    scaling: ScalingDescription | None = attrs.field(default=None, kw_only=True)
    version: int = attrs.field(kw_only=True)


def describe_segment(tx: Tx, stream: StreamRecord, identifier: SegmentId) -> SegmentDescription:
    """Return a segment, active or sealed. Raises NotFound if no epoch that is kept has it."""
    key_range = get_segment(StoredHistory(tx, stream), identifier).range
    state = known_state(tx, stream.stream_id, identifier)
    return SegmentDescription(
        id=printable(identifier),
        low=key_range.low,
        high=key_range.high,
        sealed=state.sealed,
        head=state.head,
        tail=state.tail,
        head_number=state.head_number,
        tail_number=state.tail_number,
        sealed_epoch=sealed_epoch(tx, stream.stream_id, identifier) if state.sealed else None,
    )


def describe_scale(history: StoredHistory, number: int) -> PastScale:
    """Return the scale that made an epoch. Raises NotFound."""
    epoch = history.epoch(number)
    before = history.epoch(number - 1) if number > history.first else None
    opened = tuple([printable(each.id) for each in epoch.opened])
    return PastScale(
        epoch=number,
        created_ms=epoch.created_ms,
        sealed=()
        if before is None
        else tuple([printable(each) for each in before.ids if each not in epoch.by_id]),
        opened=opened,
        segments=len(epoch.segments),
        splits=0 if before is None else epoch.splits - before.splits,
        merges=0 if before is None else epoch.merges - before.merges,
        request_id=epoch.request_id,
    )


def describe_stream(tx: Tx, stream: StreamRecord) -> StreamDescription:
    """Return the stream as it is in this transaction. The reserve of a topic is left out: it is always empty."""
    partitions = partition_ids(StoredHistory(tx, stream).epoch(stream.epoch))
    segments = [describe_segment(tx, stream, each) for each in partitions]
    size = readable_size(tx, stream)
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
        events=size.events,
        size_bytes=size.bytes,
        scaling=describe_scaling(tx, stream),
        version=get_stream(tx, stream.name, stream_id=stream.stream_id).version,
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
    order: its place in the order of the stream's commits; known once it is decided.
    appended: where its events are once it is committed, one entry a segment.
    reason: of its abort; while it is committing, the last failure of the commit.
    streams: of a joint transaction, all in which it is stored by now; else its own.
    group: of a joint transaction, the group whose progress its commit moves, or the Kafka producer that began it, as
        "scope/transactional id"; None if any process may commit it.
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
    order: int | None
    appended: tuple[AppendResult, ...]
    reason: str | None
    finished_ms: int | None
    streams: tuple[str, ...]
    group: str | None


def describe_txn(tx: Tx, txn: TxnRecord, peers: Peers) -> TransactionDescription:
    """Return the transaction as people look at it. peers: the openings of the database."""
    is_open = txn.state is TxnState.OPEN
    streams = [txn.stream] if txn.joint is None else sorted(each.stream for each in joint_rows(tx, txn.id))
    return TransactionDescription(
        id=txn.id,
        stream=txn.stream,
        state=txn.state,
        created_ms=txn.created_ms,
        age_ms=max(tx.now_ms - txn.created_ms, 0),
        owner=peers.pid_of(txn.instance),
        owner_alive=peers.is_alive(txn.instance),
        lease_ms=txn.lease_ms,
        lease_left_ms=txn.lease_left_ms(tx) if is_open else None,
        events=txn.events,
        size_bytes=txn.size_bytes,
        order=txn.order,
        appended=tuple([each.printable() for each in txn.appended]),
        reason=txn.reason,
        finished_ms=txn.finished_ms,
        streams=tuple(streams),
        group=txn.joint or None,
    )
