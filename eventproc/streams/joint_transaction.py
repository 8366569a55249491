"""A joint transaction: events of several streams, and the progress of a consumer, all or none.

Each stream has a part, which buffers, stages and pings as a transaction of one stream does. The parts have one id and
one decision (`staging`). The consumer's progress moves with the decision and not before: the block holds it, and
a block that does not commit sets the consumer back, so that its events are delivered again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeVar, overload

import anyio
from typing_extensions import Unpack

from eventproc.base.clock import new_id
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.catalog import get_stream
from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_int, check_str
from eventproc.store.model.errors import (
    IllegalTransition,
    TransactionDecided,
)
from eventproc.store.model.names import StreamName
from eventproc.store.segments import AppendResult
from eventproc.store.transactions import PingResult
from eventproc.streams.codec import PayloadCodec, codec_for
from eventproc.streams.description import TransactionDescription
from eventproc.streams.new_events import (
    EventOptions,
    NewEvent,
    as_immediate_event,
    check_events,
    headers_by_codec,
)
from eventproc.streams.request_calls import PATIENCE_MS_MAX, WAIT_MS
from eventproc.streams.staging import MoveProgress, Staging, abort_together, commit_together, committing
from eventproc.streams.transaction import Transaction, abort_at_the_end
from eventproc.streams.txn_client import TxnClient

LOG = logging.getLogger(__name__)

P = TypeVar("P")


class ProgressHold(Protocol):
    """The progress of a consumer while a joint transaction runs. Only the transaction moves it."""

    group: str
    """The consumer's group, "scope/group"."""

    def deciding(self) -> AbstractAsyncContextManager[MoveProgress]:
        """Finish what was delivered, and yield what moves the progress behind it in the deciding transaction.

        Nothing else moves the progress while the block runs. Raises SegmentFenced if a segment was lost meanwhile,
        LockLost if an accepted event was.
        """
        ...

    async def end(self) -> None:
        """Give the progress back to the consumer. If it did not move, the events are delivered again."""
        ...

    def try_end(self) -> bool:
        """Do what `end` does if that needs no wait; return whether it was done. Saves a task for each transaction."""
        ...


class ProgressSource(Protocol):
    """A consumer whose progress a joint transaction can move: a `GroupReader`, `Consumer` or `ShareConsumer`."""

    def hold_progress(self, txn: str) -> ProgressHold:
        """Let only the transaction `txn` move the progress from now on.

        Raises:
            Closed: the consumer is not open.
            IllegalTransition: another transaction holds it.
        """
        ...


class StreamTarget(Protocol[P]):
    """Where a joint transaction writes: a handle of a stream."""

    @property
    def name(self) -> str:
        """The stream's name, "scope/stream"."""
        ...

    @property
    def stream_id(self) -> int:
        """The incarnation."""
        ...

    @property
    def codec(self) -> PayloadCodec[P]:
        """Encodes the payloads."""
        ...


class JointTransaction:
    """A transaction of any number of streams, with the progress of a consumer. Made by `ep.transaction`.

    In `async with`, leaving the block commits and returns when all events are visible; an exception or cancellation
    aborts, and the consumer then delivers the events of the block again. Several tasks may write simultaneously.

    Either all events become visible and the progress moves, or nothing of it happens. A transaction of at most 1 MiB
    that takes less than 100 ms becomes visible in all streams at one moment. The host commits others stream by stream,
    each in the order of that stream's commits: a reader of two streams may see one before the other.

    id: the transaction's id, the same in each of its streams.
    """

    def __init__(self, db: Database, *, lease_ms: int | None, consumer: ProgressSource | None) -> None:
        self.id = new_id(db.clock)
        self._db = db
        self._lease_ms = lease_ms
        self._consumer = consumer
        self._hold: ProgressHold | None = None
        self._parts: dict[int, _StreamPart] = {}
        self._ids: dict[str, int] = {}  # of streams that were passed by name
        self._changing = anyio.Lock(
            fast_acquire=True
        )  # held while a stream is added, and during the decision
        self._entered = False
        self._left = False
        self._decided_here = False  # decided by a call of this handle
        self._given_up = False  # an abort was requested

    def __repr__(self) -> str:
        return f"JointTransaction({self.id!r}, {list(self.streams)!r})"

    async def __aenter__(self) -> JointTransaction:
        if self._entered or self._left:
            state = "entered already; begin another one"
            raise IllegalTransition(name=self._name, event="entering", state=state)
        if self._consumer is not None:
            self._hold = self._consumer.hold_progress(self.id)
        self._entered = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered, "the block was entered"
        try:
            if why is None and not self._decided_here and not self._given_up:
                await self.commit()
        finally:
            self._entered, self._left = False, True
            for part in self._parts.values():
                part.leave()
            try:
                if not self._is_decided:
                    await run_uninterrupted(partial(abort_at_the_end, self._name, self._abort))
            finally:  # also if the task was cancelled during the abort
                hold, self._hold = self._hold, None
                if hold is not None and not hold.try_end():
                    await run_uninterrupted(hold.end)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams that it has written to."""
        return tuple([part.stream for part in self._parts.values()])

    @property
    def appended(self) -> dict[str, tuple[AppendResult, ...]]:
        """Where its events are, by stream, as `Transaction.appended`. Empty until the commit is known to be visible."""
        return {part.stream: part.appended for part in self._parts.values() if part.appended}

    @overload
    async def write(
        self,
        stream: str,
        payload: bytes,
        *,
        partition: int | None = None,
        **options: Unpack[EventOptions],
    ) -> None: ...
    @overload
    async def write(
        self,
        stream: StreamTarget[P],
        payload: P,
        *,
        partition: int | None = None,
        **options: Unpack[EventOptions],
    ) -> None: ...
    async def write(
        self,
        stream: str | StreamTarget[Any],
        payload: Any,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event to a stream. Waits only while full batches are ahead of it.

        If the call raises or is cancelled, this event was not added, and no earlier event is lost.

        Args:
            stream: a handle, whose codec encodes the payload, or a name, for payloads that are bytes. A handle saves
                one read for each stream and transaction.
            payload: the event.
            key: routing key, as for `Transaction.write`.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            partition: number of the topic's partition that takes it. None (default): its strategy chooses.

        Raises:
            InvalidArgument: the payload, key, event time, headers or partition are not valid.
            IllegalTransition: outside of the block.
            NotFound: the stream does not exist.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            StreamSealed: the stream is sealed.
            TransactionAborted: the transaction was aborted.
            TransactionDecided: the transaction is already committed, or will be.
            DiskFull: an earlier batch could not be staged: the disk is full.
            LockHeld: an earlier batch could not be staged: another process held the write lock for too long.
        """
        part, codec = await self._part(stream)
        data, headers = codec.encode(payload), headers_by_codec(headers, codec.ttl_ms)
        await part.write(data, key=key, event_time=event_time, headers=headers, partition=partition)

    @overload
    async def write_many(
        self, stream: str, events: Iterable[NewEvent[bytes] | tuple[bytes, str | bytes | None]]
    ) -> int: ...
    @overload
    async def write_many(
        self, stream: StreamTarget[P], events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]]
    ) -> int: ...
    async def write_many(
        self,
        stream: str | StreamTarget[Any],
        events: Iterable[NewEvent[Any] | tuple[Any, str | bytes | None]],
    ) -> int:
        """Add events to a stream, in order; return their number.

        Args:
            stream: as for `write`.
            events: `NewEvent`s, or pairs of payload and key.

        Raises:
            InvalidArgument: an event is not valid; the events before it were added.
            IllegalTransition, NotFound, StreamReplaced, StreamSealed, TransactionAborted, TransactionDecided, DiskFull,
                LockHeld: as for `write`.
        """
        check_events(events)
        part, codec = await self._part(stream)
        count = 0
        for event in events:
            new = as_immediate_event(event)
            await part.write(
                codec.encode(new.payload),
                key=new.key,
                event_time=new.event_time,
                headers=headers_by_codec(new.stored_headers, codec.ttl_ms),
                partition=new.partition,
            )
            count += 1
        return count

    async def flush(self) -> None:
        """Return when everything written is staged durably.

        Raises:
            TransactionAborted: the transaction was aborted.
            TransactionDecided: the transaction is already committed, or will be.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        self._verify_entered("flush")
        await anyio.lowlevel.checkpoint()
        for part in list(self._parts.values()):
            await part.flush()

    async def commit(self, *, wait: bool = True, timeout_ms: int = WAIT_MS) -> None:
        """Decide that all events become visible, move the consumer's progress, and return when they are visible.

        Everything that the consumer has delivered counts as finished; of a `ShareConsumer`, what it accepted in the
        block, and the event in hand of a loop. If the call raises SegmentFenced or LockLost, nothing was written, and
        the end of the block sets the consumer back.

        Args:
            wait: False returns when the decision is durable. Default: True.
            timeout_ms: how long to wait until the events are visible, in ms. Default: 120 s.

        Raises:
            SegmentFenced: a segment was taken from the consumer; nothing was written.
            LockLost: a `ShareConsumer` lost an event that it accepted; nothing was written.
            Closed: the consumer was closed; nothing was written.
            TransactionPending: the wait ended first; the events will become visible, and the progress has moved.
            TransactionAborted: the transaction was aborted.
            StreamSealed: a stream is sealed; nothing was written.
            StreamReplaced: a stream was deleted; nothing was written.
            DiskFull: the disk is full; the transaction is still open, try again.
            LockHeld: another process held the write lock for too long; the transaction is still open, try again.
        """
        timeout_ms = check_int("timeout_ms", timeout_ms, least=0, most=PATIENCE_MS_MAX, unit="ms")
        with committing(self.id, [each.staging for each in self._parts.values()]):
            await self._commit(wait, timeout_ms)

    async def _commit(self, wait: bool, timeout_ms: int) -> None:
        if not self._is_decided or (not self._decided_here and self._waits):
            self._verify_open("commit")
            await self._decide()
        else:
            await anyio.lowlevel.checkpoint()
        deadline_ms = self._db.clock.monotonic_ms() + timeout_ms
        for part in list(self._parts.values()):
            if await part.knows_decision():
                part.client.verify_commit()
                if wait and not part.client.is_final:
                    await part.wait_visible(max(deadline_ms - self._db.clock.monotonic_ms(), 0))

    async def abort(self) -> None:
        """Decide that no event becomes visible, durably. The end of the block sets the consumer back.

        Raises:
            TransactionDecided: the transaction is committed.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        self._verify_entered("abort")
        self._given_up = True
        try:
            await self._abort()
        except TransactionDecided:
            self._given_up = False  # another process committed it
            raise
        self._decided_here = True

    async def ping(self) -> PingResult:
        """Extend the lease from now, and return whether that was possible. The block does so by itself.

        Raises:
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        self._verify_entered("ping")
        await anyio.lowlevel.checkpoint()
        for part in self._parts.values():
            return await part.ping()  # it extends the lease of all
        return PingResult.OK

    async def status(self) -> tuple[TransactionDescription, ...]:
        """Stage what was written, and return what the database knows of the transaction, for each of its streams."""
        self._verify_entered("status")
        await anyio.lowlevel.checkpoint()
        return tuple([await part.status() for part in list(self._parts.values())])

    @property
    def _name(self) -> str:
        return f"joint transaction {self.id}"

    @property
    def _is_decided(self) -> bool:
        return self._decided_here or any(part.is_decided for part in self._parts.values())

    @property
    def _waits(self) -> bool:
        """Whether an event may not be staged yet."""
        return any(part.staging.waits for part in self._parts.values())

    async def _part(self, stream: str | StreamTarget[Any]) -> tuple[_StreamPart, PayloadCodec[Any]]:
        codec: PayloadCodec[Any]
        if isinstance(stream, str):
            codec = _BYTES
            stream_id = self._ids.get(stream)
        else:
            codec, stream_id = stream.codec, stream.stream_id
        if stream_id is None or (part := self._parts.get(stream_id)) is None:
            part = await self._add(stream)
        return part, codec

    async def _add(self, stream: str | StreamTarget[Any]) -> _StreamPart:
        """Return the part of the stream, after adding it to the transaction. Raises as `write`."""
        self._verify_open("write")
        if isinstance(stream, str):
            name = str(StreamName.parse(check_str("stream", stream)))
            stream_id = await self._db.read(lambda tx: get_stream(tx, name).value.stream_id)
            self._ids[stream] = stream_id
        else:
            name, stream_id = stream.name, stream.stream_id
        async with self._changing:
            self._verify_open("write")
            if (part := self._parts.get(stream_id)) is None:
                group = "" if self._hold is None else self._hold.group
                lease_ms = self._lease_ms
                part = _StreamPart(
                    self._db, name, stream_id, _BYTES, lease_ms=lease_ms, txn_id=self.id, joint=group
                )
                await part.__aenter__()
                self._parts[stream_id] = part
        return part

    async def _decide(self) -> None:
        async with self._changing, self._moving() as move:
            parts = list(self._parts.values())
            for part in parts:
                part.client.verify_open("commit")
            if parts:
                async with _closed(parts) as stagings:
                    with parts[0].client.explained("commit"):
                        await commit_together(self._db, stagings, move)
            elif move is not None:
                await self._db.write(move, step=Step.TRANSACTION_END)
            self._decided_here = True

    @asynccontextmanager
    async def _moving(self) -> AsyncIterator[MoveProgress | None]:
        if self._hold is None:
            yield None
        else:
            async with self._hold.deciding() as move:
                yield move

    async def _abort(self) -> None:
        async with self._changing:
            if parts := list(self._parts.values()):
                async with _closed(parts) as stagings:
                    with parts[0].client.explained("abort"):
                        await abort_together(self._db, stagings)

    def _verify_entered(self, event: str) -> None:
        if not self._entered:
            state = "left" if self._left else "not entered; use it in `async with`"
            raise IllegalTransition(name=self._name, event=event, state=state)

    def _verify_open(self, event: str) -> None:
        self._verify_entered(event)
        if self._given_up or self._decided_here:
            state = "aborted" if self._given_up else "committed"
            raise IllegalTransition(name=self._name, event=event, state=f"{state}; begin another one")


class _StreamPart(Transaction[bytes]):
    """The events of one stream of a joint transaction."""

    @property
    def staging(self) -> Staging:
        return self._staging

    @property
    def client(self) -> TxnClient:
        return self._client

    @property
    def is_decided(self) -> bool:
        return self._client.decided is not None

    async def knows_decision(self) -> bool:
        """Return whether the decision concerns this stream, and learn it if only another part has noticed it.

        Nothing of a part that was not written to the database is decided.
        """
        if not self.is_decided and self._staging.begun:
            await self._client.look()
        return self.is_decided

    async def wait_visible(self, timeout_ms: int) -> None:
        """Wait until the commit, which is decided, is visible. Raises TransactionPending."""
        with self._client.watched() as wait_ended:
            await wait_ended(timeout_ms)

    def close(self) -> None:
        """Accept no event while the decision is made."""
        self._failure, self._closing, self._ready = None, True, False

    def reopen(self) -> None:
        self._closing = False

    def leave(self) -> None:
        """Accept no event any more, and end the attendant's work."""
        self._entered, self._ready, self._left = False, False, True
        self._attendant.leave(self._block)


@asynccontextmanager
async def _closed(parts: Iterable[_StreamPart]) -> AsyncIterator[list[Staging]]:
    """Let no task add or stage events of these parts; yield their stagings."""
    for part in parts:
        part.close()
    try:
        async with AsyncExitStack() as locks:
            for part in parts:
                await locks.enter_async_context(part.staging.lock)
            yield [part.staging for part in parts]
    finally:
        for part in parts:
            part.reopen()


_BYTES = codec_for(None, None)
