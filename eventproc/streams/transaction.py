"""A transaction of one stream: events that become visible together, or never.

In a block, events wait in memory, and full batches are staged in the background. A short, small transaction costs one
commit of the database, which begins it, appends its events and ends it. One that takes longer than BEGIN_AFTER_MS is
written to the database, so that other processes see it, and pinged while its block runs (`txn_attendant`).

What must be true: no event is visible before the commit, and every event after it; an event is staged exactly once,
whatever was cancelled, in the order of its key; leaving a block leaves no open transaction.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Final, Generic, TypeVar

import anyio

from eventproc.base.clock import new_id
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.database import Database
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.errors import (
    Closed,
    EventprocError,
    IllegalTransition,
    NotFound,
    Retryable,
    StreamSealed,
    TransactionAborted,
    TransactionDecided,
)
from eventproc.store.model.limits import LEASE_MS_MIN
from eventproc.store.segments import AppendResult
from eventproc.store.transactions import PingResult, ping_interval_ms, state_after_abort
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.description import TransactionDescription
from eventproc.streams.new_events import NewEvent, as_immediate_event, check_events, headers_by_codec
from eventproc.streams.request_calls import PATIENCE_MS_MAX, WAIT_MS
from eventproc.streams.staging import Staging, abort_together, commit_together, committing
from eventproc.streams.txn_attendant import TRANSACTION_ATTENDANT, AttendedBlock
from eventproc.streams.txn_client import TxnClient

LOG = logging.getLogger(__name__)

P = TypeVar("P")

LEASE_MS: Final = 30_000
"""Default lease of a transaction. Higher: a hung process leaves its transaction open for longer; lower: a process that
is slow for a moment loses its transaction."""

PINGS_PER_LEASE_MIN: Final = 3
"""How often a block pings within a lease at least, so that one ping may fail."""

AHEAD_BATCHES: Final = 2
"""Batches that may wait in a block before its writes do: one is staged while the next one fills."""

YIELD_BYTES: Final = 64 * 1024
"""Bytes written between two scheduling points, as in a writer."""

ABORT_WAIT_MS: Final = 5_000
"""How long the end of a block tries to abort. After that its lease, or its process's death, does it."""


class Transaction(Generic[P]):
    """A transaction of one stream. Made by `Stream.transaction`, `begin` and `transaction_of`.

    In `async with`, leaving the block commits and returns when all events are visible; an exception or cancellation
    aborts. If the block has committed or aborted itself, leaving it does neither. Several tasks may write
    simultaneously.

    Events are in memory until a batch is full, 100 ms have passed, or `flush`, `commit`, `status` or `ping` is
    called. While the block runs it pings, at least three times per lease. After the longest execution time (1000
    leases, at most a day) the transaction is aborted nevertheless. Without a block, its owner must ping.

    id: the transaction's id, by which another process can continue it.
    stream: name of the stream, "scope/stream".
    """

    def __init__(
        self,
        db: Database,
        stream: str,
        stream_id: int,
        codec: PayloadCodec[P],
        *,
        lease_ms: int | None,
        txn_id: str | None = None,
        joint: str | None = None,
    ) -> None:
        """txn_id: of a transaction that another handle began, which also has the lease; None: a new one.

        joint: as in `TxnRecord`; `txn_id` is then the id of the joint transaction.
        """
        given = txn_id is not None and joint is None
        self.id = new_id(db.clock) if txn_id is None else txn_id
        self.stream = stream
        self._encode, self._ttl_ms = codec.encode, codec.ttl_ms
        self._client = TxnClient(db, stream, stream_id, self.id, known=not given)
        self._db = db
        self._staging = Staging(
            *(db, stream, stream_id, self.id),
            lease_ms=lease_ms,
            begun=given,
            note=self._client.note,
            joint=joint,
        )
        self._given = given
        self._attendant = db.shared[TRANSACTION_ATTENDANT]
        self._block = AttendedBlock(stream_id, self.begin, self._attend)
        self._entered = False
        self._seen = False  # written to the database by the attendant, so that the next thing to do is a ping
        self._ready = False  # to accept events without any check first
        self._draining = False
        self._closing = False
        self._expires = False  # at the end of its lease, as it has reached its longest execution time
        self._decided_here = False  # decided by a call of this handle
        self._given_up = False  # an abort was requested
        self._left = False
        self._since_yield = 0
        self._failure: EventprocError | None = None  # of a task in the background, for the next call

    def __repr__(self) -> str:
        return f"Transaction({self.id!r}, {self.stream!r})"

    async def __aenter__(self) -> Transaction[P]:
        self._client.verify_open("entering")
        if self._entered or self._left:
            state = "entered already; begin another one"
            raise IllegalTransition(name=self._client.name, event="entering", state=state)
        if self._given:
            self._verify_answer(await self.ping())
        await self._staging.open()
        self._entered = True
        self._ready = not self._is_stopped()
        self._attendant.enter(self._block)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._entered, "the block was entered"
        try:
            if why is None and not self._decided_here and not self._given_up:
                await self.commit()
        finally:
            self._entered, self._ready, self._left = False, False, True
            self._attendant.leave(self._block)
            if self._client.decided is None:
                await run_uninterrupted(partial(abort_at_the_end, self._client.name, self.abort))

    @property
    def appended(self) -> tuple[AppendResult, ...]:
        """Where its events are, one entry per segment: offset and number of the first one, and how many.

        Known when `commit` has waited, or `status` has seen the commit; empty before.
        """
        decided = self._client.decided
        return () if decided is None else tuple([each.printable() for each in decided.appended])

    async def begin(self) -> Transaction[P]:
        """Write the transaction to the database now, and return it.

        A block does so by itself. Repeating the call does nothing.

        Raises:
            StreamReplaced: the stream was deleted and created again.
            StreamSealed: the stream is sealed.
            InvalidArgument: the lease is out of range.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        await self._staging.begin()
        return self

    async def write(
        self,
        payload: P,
        *,
        key: str | bytes | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event. Waits only while full batches are ahead of it.

        If the call raises or is cancelled, this event was not added, and no earlier event is lost. A decision by
        another process is noticed with the next batch.

        Args:
            payload: a value of the writer's payload type.
            key: routing key, as for `EventWriter.write`; events of one key keep their order. None (default): any
                segment.
            event_time: the event's time, in ms. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            partition: number of the topic's partition that takes it. None (default): its strategy chooses.

        Raises:
            InvalidArgument: the payload, key, event time, headers or partition are not valid.
            TransactionAborted: the transaction was aborted.
            TransactionDecided: the transaction is already committed, or will be.
            TransactionNotFound: no transaction has this id.
            DiskFull: an earlier batch could not be staged: the disk is full.
            LockHeld: an earlier batch could not be staged: another process held the write lock for too long.

        Cost:
            About 0.8 us.
        """
        if not self._ready:
            await self._get_ready()
        if partition is not None and not self._staging.knows(partition):
            await self._learn_partitions()
        self._put(payload, key, event_time, headers, partition)

    async def write_many(self, events: Iterable[NewEvent[P] | tuple[P, str | bytes | None]]) -> int:
        """Add events, in order; return their number.

        Args:
            events: `NewEvent`s, or pairs of payload and key. Any iterable of any length: a few batches are in memory.

        Raises:
            InvalidArgument: an event is not valid; the events before it were added.
            TransactionAborted: the transaction was aborted.
            TransactionDecided: the transaction is already committed, or will be.
            TransactionNotFound: no transaction has this id.
            DiskFull: an earlier batch could not be staged: the disk is full.
            LockHeld: an earlier batch could not be staged: another process held the write lock for too long.
        """
        check_events(events)
        await anyio.lowlevel.checkpoint()
        count = 0
        for event in events:
            if not self._ready:
                await self._get_ready()
            new = as_immediate_event(event)
            if new.partition is not None and not self._staging.knows(new.partition):
                await self._learn_partitions()
            self._put(new.payload, new.key, new.event_time, new.stored_headers, new.partition)
            count += 1
        return count

    async def flush(self) -> None:
        """Return when everything written is staged durably: another process may continue by the id.

        Raises:
            TransactionAborted: the transaction was aborted.
            TransactionDecided: the transaction is already committed, or will be.
            TransactionNotFound: no transaction has this id.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        self._verify_begun()
        self._verify_kept("flush")
        self._failure = None  # what failed is tried again
        with self._client.explained("write"):
            await self._staging.send()

    async def commit(self, *, wait: bool = True, timeout_ms: int = WAIT_MS) -> None:
        """Decide that all events become visible, and return when they are. Repeating it waits again.

        A transaction of at most 1 MiB that was not flushed needs one step, and no host. A host makes others visible:
        see `open`.

        Args:
            wait: False returns when the decision is durable; the events then become visible even if this process dies.
                Default: True.
            timeout_ms: how long to wait until they are visible, in ms. Default: 120 s.

        Raises:
            TransactionPending: the wait ended first; the events will become visible.
            TransactionAborted: the transaction was aborted.
            TransactionNotFound: no transaction has this id.
            StreamSealed: the stream is sealed.
            StreamReplaced: the handle belongs to a deleted stream of this name.
            DiskFull: the disk is full; the transaction is still open, try again.
            LockHeld: another process held the write lock for too long; the transaction is still open, try again.
        """
        timeout_ms = check_int("timeout_ms", timeout_ms, least=0, most=PATIENCE_MS_MAX, unit="ms")
        self._verify_begun()
        with committing(self.id, [self._staging]):
            if not wait or self._staging.fits_one_send:
                await self._decide()
                if not wait or self._client.is_final:
                    return
            with self._client.watched() as wait_ended:
                await self._decide()
                await wait_ended(timeout_ms)

    async def abort(self, *, force: bool = False) -> None:
        """Decide that the events never become visible, durably. Repeating it does nothing.

        If the call fails or is cancelled, this handle accepts no event and no commit: call `abort` again, as the end of
        a block does.

        Args:
            force: also abort a transaction that is decided to commit, if its commit has failed (see
                `TransactionPending`). Default: False.

        Raises:
            TransactionDecided: the transaction is committed.
            TransactionNotFound: no transaction has this id.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        self._verify_begun()
        self._ready, self._given_up = False, True
        try:
            with self._client.explained("abort"):
                async with self._staging.lock:
                    await abort_together(self._db, [self._staging], force=force)
        except TransactionDecided:
            self._given_up = False  # another process committed it
            raise
        self._decided_here = True

    async def preview_abort(self, *, force: bool = False) -> TransactionDescription:
        """Return the transaction that `abort` would end, and change nothing.

        Args:
            force: as for `abort`.

        Raises:
            TransactionDecided: `abort` would refuse it.
            TransactionNotFound: no transaction has this id.
        """
        found = await self.status()
        with self._client.explained("abort"):
            state_after_abort(found.state, found.reason, force=force)
        return found

    async def ping(self, *, lease_ms: int | None = None) -> PingResult:
        """Extend the lease from now, become the owner, and return whether that was possible.

        Args:
            lease_ms: the new lease, in ms. None (default): as before.

        Raises:
            InvalidArgument: the lease is not valid.
            DiskFull: the disk is full.
            LockHeld: another process held the write lock for too long.
        """
        if lease_ms is not None:  # too large is an answer, not an error
            lease_ms = check_int("lease_ms", lease_ms, least=LEASE_MS_MIN, unit="ms")
        self._verify_begun()
        await self._staging.begin()
        answer, txn = await self._client.ping(lease_ms)
        if answer is PingResult.OK and txn is not None:
            self._staging.lease_ms = txn.lease_ms
        else:
            self._ready = False
        return answer

    async def status(self) -> TransactionDescription:
        """Stage what was written, and return what the database knows of the transaction.

        Raises:
            TransactionNotFound: no transaction has this id.
        """
        self._verify_begun()
        try:
            if self._client.decided is None:
                await self.flush()
        except EventprocError:  # it is aborted, or the disk is full: the record can still be described
            if not self._staging.begun:
                raise
        self._ready = False
        return await self._client.look()

    async def _decide(self) -> None:
        """Commit, unless that was done."""
        if self._client.decided is None or self._staging.waits:
            self._verify_kept("commit")
            self._failure, self._closing, self._ready = None, True, False  # what failed is tried again
            try:
                with self._client.explained("commit"):
                    async with self._staging.lock:
                        await commit_together(self._db, [self._staging])
            finally:
                self._closing = False
        else:
            await anyio.lowlevel.checkpoint()
        self._client.verify_commit()
        self._decided_here = True

    async def _get_ready(self) -> None:
        """Return when an event can be accepted, which then needs no await. Raises why it cannot be."""
        while not self._ready:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            self._verify_begun()
            self._verify_kept("write")
            self._client.verify_open("write")
            if self._closing or self._left:
                raise Closed(what=self._client.name)
            await self._client.verify_known()
            with self._client.explained("write"):
                await self._staging.open()
                await self._make_room()
            self._ready = not self._is_stopped()  # meanwhile; then check everything again

    async def _learn_partitions(self) -> None:
        """Read which partitions the topic has by now, and get ready again."""
        with self._client.explained("write"):
            await self._staging.learn_partitions()
        if not self._ready:
            await self._get_ready()

    def _is_stopped(self) -> bool:
        refused = self._closing or self._left or self._given_up or self._client.decided is not None
        return refused or self._failure is not None

    def _put(
        self,
        payload: P,
        key: str | bytes | None,
        event_time: int | None,
        headers: Mapping[str, str] | None,
        partition: int | None,
    ) -> None:
        data = self._encode(payload)
        if self._ttl_ms is not None:
            headers = headers_by_codec(headers, self._ttl_ms)
        full = self._staging.put(data, key, event_time, headers, partition)
        self._since_yield += len(data)
        if full or self._since_yield >= YIELD_BYTES:
            self._ready = False  # the next one makes room, or yields, first
            if full:
                self._drain_soon()

    async def _make_room(self) -> None:
        """Yield; wait while more full batches than may be ahead are not staged."""
        self._since_yield = 0
        self._drain_soon()
        await anyio.lowlevel.checkpoint()
        while self._staging.batches > (AHEAD_BATCHES if self._entered else 0):
            await self._staging.send_one()

    def _drain_soon(self) -> None:
        if self._entered and not self._draining and self._staging.batches:
            self._draining = True
            self._attendant.start_soon(self._block, self._drain)

    async def _drain(self) -> None:
        """Stage full batches. Called by the attendant."""
        try:
            with self._client.explained("write"):
                while self._staging.batches:
                    await self._staging.send_one()
        except EventprocError as error:
            self._fail(error)
        finally:
            self._draining = False

    def _fail(self, error: EventprocError) -> None:
        self._failure, self._ready = error, False

    async def _attend(self) -> float | None:
        """Write the transaction, when it turns out to be no short one, to the database; then ping while it is open.

        Called by the attendant. Returns in how many ms to call it again, None: not again.
        """
        try:
            if self._seen:
                await self._ping_again()
            else:
                self._seen = True
                await self._flush_again()
        except EventprocError as error:
            self._fail(error)
            return None
        lease_ms = self._staging.lease_ms
        if lease_ms is None or self._left or self._expires or self._client.decided is not None:
            return None
        return min(ping_interval_ms(lease_ms), lease_ms // PINGS_PER_LEASE_MIN)

    async def _flush_again(self) -> None:
        try:
            await self.flush()
        except Retryable as error:
            self._fail(error)

    async def _ping_again(self) -> None:
        """Ping. Raises TransactionAborted, TransactionDecided or TransactionNotFound if the transaction has ended."""
        try:
            answer = await self.ping()
        except Retryable as error:
            LOG.info("%s was not pinged: %s", self._client.name, error)
            return
        if answer is PingResult.MAX_EXECUTION_TIME_EXCEEDED:
            LOG.warning("%s has reached its longest execution time and will be aborted", self._client.name)
            self._expires = True
            return
        self._verify_answer(answer)

    def _verify_answer(self, answer: PingResult) -> None:
        if answer is PingResult.UNKNOWN:
            raise self._client.not_found()
        self._client.verify_open("write")

    def _verify_begun(self) -> None:
        if not self._entered and not self._staging.begun and not self._left:
            state = "not begun; enter it with `async with`, or take `await stream.begin()`"
            raise IllegalTransition(name=self._client.name, event="this", state=state)

    def _verify_kept(self, event: str) -> None:
        """Raise IllegalTransition if an abort was requested and its result is not known yet."""
        if self._given_up and self._client.decided is None:
            state = "aborting, and the abort failed; call `abort` again"
            raise IllegalTransition(name=self._client.name, event=event, state=state)


async def abort_at_the_end(name: str, abort: Callable[[], Awaitable[object]]) -> None:
    """Abort a transaction that is not decided at the end of its block; log why that failed."""
    with anyio.move_on_after(ABORT_WAIT_MS / 1000) as scope:
        try:
            await abort()
        except (TransactionAborted, NotFound, StreamSealed):
            pass  # there is nothing to abort
        except EventprocError as error:
            LOG.warning("%s was not aborted: %s", name, error)
    if scope.cancelled_caught:
        text = "%s was not aborted within %s ms; its lease, or the end of this process, does it"
        LOG.warning(text, name, ABORT_WAIT_MS)
