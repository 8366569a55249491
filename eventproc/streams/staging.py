"""Events of a transaction on their way to the database: in batches, in order, each exactly once.

A transaction with at most one batch, of which nothing was staged, is committed directly with that batch. Otherwise its
batches are staged, and the decision goes with the last one.

A batch fills while the one before it is written. It is staged in a database transaction under its own sequence, and
leaves the queue as an effect of that transaction. So a caller that was cancelled, or does not know the result, sends it
again without harm. A batch that meets a sealed segment was not staged: all waiting events are routed again by the new
epoch, in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

import anyio
import attrs

from eventproc.store.catalog import ROUTES, KeyRoutes
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import NotFound, SegmentSealed
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.partitions import Router
from eventproc.store.segments import SegmentEvents, WriterSequence
from eventproc.store.transactions import (
    TxnRecord,
    TxnStart,
    abort_directly,
    commit_directly,
    create_txn,
    stage,
)
from eventproc.streams.segment_buffers import SegmentBuffer, SegmentBuffers, add_event
from eventproc.streams.writer import find_route

STAGE_BYTES: Final = 2**20
"""Bytes of one batch, unless a single event is larger. Higher: longer holds of the write lock, and more memory; lower:
more batches for a large transaction, and more index rows for its commit."""

BY_OWNER: Final = "by its owner"
"""Reason of an abort that a caller requested."""

_IDENTITY_BYTES: Final = 8

Last = Callable[[Tx], object]
"""A function to run in the transaction of the last batch."""

Note = Callable[[TxnRecord], None]
"""Takes the record of a transaction that was decided directly, as an effect of that step."""


@attrs.define(eq=False)
class _Batch:
    buffers: Sequence[SegmentBuffer]
    size_bytes: int
    sequence: int


class Staging:
    """Stages the events of one transaction. For any number of tasks, on the event loop only."""

    def __init__(
        self,
        db: Database,
        stream: str,
        stream_id: int,
        txn_id: str,
        *,
        lease_ms: int | None,
        begun: bool,
        joint: str | None = None,
    ) -> None:
        """begun: the transaction is in the database. Otherwise the first batch, `begin` or `send` writes it.

        joint: as in `TxnRecord`.
        """
        self.begun = begun
        self._own = not begun  # the id was made here
        self._tried = False  # to write the transaction, perhaps with an unknown result
        self._staged = False
        self.lease_ms = lease_ms
        self._db = db
        self._stream = stream
        self.stream_id = stream_id
        self._txn_id = txn_id
        self._joint = joint
        self._writer = db.clock.random_bytes(_IDENTITY_BYTES).hex()
        self._sequence = 0
        self._batches: deque[_Batch] = deque()
        self._waiting_bytes = 0  # of events that are in no batch yet
        self._one_at_a_time = anyio.Lock(fast_acquire=True)
        self._routes: KeyRoutes | None = None
        self._buffers: SegmentBuffers

    @property
    def batches(self) -> int:
        """How many full batches wait."""
        return len(self._batches)

    @property
    def waits(self) -> bool:
        """Whether an event may not be staged yet."""
        return bool(self._batches) or self._waiting_bytes > 0

    @property
    def fits_one_send(self) -> bool:
        """Whether a commit may need one step: nothing was staged, and at most one batch waits."""
        full = len(self._batches) + (self._waiting_bytes > 0)
        return self._own and not self._staged and self._routes is not None and full <= 1

    async def open(self) -> None:
        """Find out what routes events. Raises NotFound, StreamReplaced, StreamSealed.

        Reads the database unless this opening knows the stream's epoch. It may be out of date then, which the first
        batch meets.
        """
        if self._routes is None:
            known = self._db.shared[ROUTES]
            if (routes := known.find(self.stream_id)) is None:
                routes = known.add(self.stream_id, await self._db.read(self._look))
            self._use(routes)

    async def begin(self) -> None:
        """Write the transaction to the database, and read the epoch that routes events; once. Raises as `open`."""

        def make(tx: Tx) -> Router:
            self._create(tx)
            tx.after(partial(self._settled, None))
            return self._look(tx)

        async with self._one_at_a_time:
            if not self.begun:
                self._tried = True
                router = await self._db.write(make, step=Step.TRANSACTION_BEGIN)
                if self._routes is None:
                    self._use(self._db.shared[ROUTES].add(self.stream_id, router))

    def knows(self, partition: int) -> bool:
        """Whether the partition is one of the epoch that routes the events, or can be none."""
        return (
            self._routes is None
            or type(partition) is not int
            or partition < len(self._routes.router.segments)
        )

    async def learn_partitions(self) -> None:
        """Route by the current epoch: partitions may have been added. Raises as `open`."""
        async with self._one_at_a_time:
            self._reroute(await self._db.read(self._look))

    def put(
        self,
        data: bytes,
        key: str | None,
        event_time: int | None,
        headers: Mapping[str, str] | None,
        partition: int | None = None,
    ) -> bool:
        """Add an event; return whether another batch is full. Raises InvalidArgument; then it was not added."""
        closed = bool(self._waiting_bytes) and self._waiting_bytes + len(data) + FRAME_BYTES > STAGE_BYTES
        if closed:
            self._close_batch()
        add_event(self._buffers, data, key, event_time, headers, partition, self._stream)
        self._waiting_bytes += len(data) + FRAME_BYTES
        if self._waiting_bytes < STAGE_BYTES:
            return closed
        self._close_batch()
        return True

    async def send_one(self) -> None:
        """Stage the first full batch, if there is one."""
        async with self._one_at_a_time:
            if self._batches:
                await self._write(self._batches[0], None)

    async def send(self, last: Last | None = None) -> None:
        """Stage all events, and run `last` in the transaction of the last batch, or in one of its own.

        Raises what `stage`, `create_txn` and `last` raise; events that were not staged then still wait.
        """
        async with self._one_at_a_time:
            batch = await self._send_all_but_last()
            if batch is not None or last is not None or not self.begun:
                await self._write(batch, last)

    async def commit(self, decide: Last, note: Note) -> None:
        """Commit directly if possible, and call `note`; otherwise stage all events and run `decide`, as `send` does."""
        async with self._one_at_a_time:
            direct = self.fits_one_send
            batch = await self._send_all_but_last()
            await self._write(batch, decide, note if direct else None)

    async def abort(self, decide: Last, note: Note) -> None:
        """Drop events that are not staged; then run `decide`, or, for an unseen transaction, abort and call `note`."""
        async with self._one_at_a_time:
            self._drop_all()
            if self.begun:
                await self._write(None, decide)
            else:
                await self._db.write(partial(self._abort, decide, note), step=Step.TRANSACTION_END)

    def _drop_all(self) -> None:
        """Drop the events that are not staged."""
        self._batches.clear()
        self._waiting_bytes = 0
        if self._routes is not None:
            self._buffers.take()

    async def _send_all_but_last(self) -> _Batch | None:
        """Stage all batches but the last one, which is returned."""
        if self._waiting_bytes:
            self._close_batch()
        end = self._sequence
        while self._batches and self._batches[0].sequence < end:
            await self._write(self._batches[0], None)
        return self._batches[0] if self._batches and self._batches[0].sequence == end else None

    async def _write(self, batch: _Batch | None, last: Last | None, note: Note | None = None) -> None:
        while True:
            parts = () if batch is None else self._buffers.parts(batch.buffers)
            size_bytes = 0 if batch is None else batch.size_bytes
            if note is None:
                fn = partial(self._stage, batch, parts, last)
            else:
                fn = partial(self._commit, batch, parts, last, note, self._start(), self._tried)
            self._tried = True
            try:
                await self._db.write(
                    fn,
                    size_bytes=size_bytes,
                    brief=True,
                    step=Step.TRANSACTION_STAGE if last is None else Step.TRANSACTION_END,
                )
                return
            except SegmentSealed:
                await self._follow()
            except NotFound as error:
                if error.kind != "segment":
                    raise
                await self._follow()

    def _commit(
        self,
        batch: _Batch | None,
        parts: Sequence[SegmentEvents],
        decide: Last | None,
        note: Note,
        start: TxnStart,
        seen: bool,
        tx: Tx,
    ) -> None:
        if (done := commit_directly(tx, start, parts, seen=seen)) is None:
            self._stage(batch, parts, decide, tx)
        else:
            tx.after(partial(self._settled, batch, note, done))

    def _abort(self, decide: Last, note: Note, tx: Tx) -> None:
        if (done := abort_directly(tx, self._start(), reason=BY_OWNER)) is None:
            decide(tx)
        else:
            tx.after(partial(self._settled, None, note, done))

    def _stage(self, batch: _Batch | None, parts: Sequence[SegmentEvents], last: Last | None, tx: Tx) -> None:
        if not self.begun:
            self._create(tx)
        if batch is not None:
            identity = WriterSequence(self._writer, batch.sequence)
            stage(tx, self._stream, self.stream_id, self._txn_id, parts, identity=identity, guard=self._guard)
        if last is not None:
            last(tx)
        tx.after(partial(self._settled, batch))

    def _start(self) -> TxnStart:
        epoch = 0 if self._routes is None else self._routes.router.epoch.number
        return TxnStart(
            self._stream,
            self.stream_id,
            self._txn_id,
            epoch,
            self._db.instance_id,
            self.lease_ms,
            self._joint,
            self._guard,
        )

    @property
    def _guard(self) -> SegmentId | None:
        """The reserve of the topic's epoch that routed the events; None for a stream that is not a topic."""
        return None if self._routes is None else self._routes.router.reserve

    def _create(self, tx: Tx) -> None:
        # Repeating it changes nothing: the id is the caller's.
        create_txn(
            tx,
            self._stream,
            self.stream_id,
            self._txn_id,
            instance=self._db.instance_id,
            lease_ms=self.lease_ms,
            joint=self._joint,
        )

    def _settled(
        self, batch: _Batch | None, note: Note | None = None, decided: TxnRecord | None = None
    ) -> None:
        """Record that the transaction, and this batch of it, is durable, and perhaps decided."""
        self.begun = True
        if batch is not None:
            self._staged = True
            if self._batches and self._batches[0] is batch:
                self._batches.popleft()
        if note is not None and decided is not None:
            note(decided)

    def _close_batch(self) -> None:
        self._sequence += 1
        self._batches.append(_Batch(self._buffers.take(), self._waiting_bytes, self._sequence))
        self._waiting_bytes = 0

    async def _follow(self) -> None:
        """Route all waiting events by the current epoch."""
        router = await self._db.read(self._look)
        if not self._reroute(router):
            raise NotFound(kind="segment", name=f"{self._stream}, of epoch {router.epoch.number}")

    def _reroute(self, router: Router) -> bool:
        """Route all waiting events by this epoch; return False if they are routed by it already."""
        assert self._routes is not None, "a batch was routed"
        if router.epoch.number == self._routes.router.epoch.number:
            return False
        waiting = self._buffers.take()
        self._use(self._db.shared[ROUTES].add(self.stream_id, router))
        for batch in self._batches:
            self._buffers.pour(batch.buffers)
            batch.buffers = self._buffers.take()
        self._buffers.pour(waiting)
        return True

    def _use(self, routes: KeyRoutes) -> None:
        self._routes = routes
        self._buffers = SegmentBuffers(routes, int.from_bytes(self._db.clock.random_bytes(4), "big"))

    def _look(self, tx: Tx) -> Router:
        return find_route(tx, self._stream, self.stream_id, None)[0]
