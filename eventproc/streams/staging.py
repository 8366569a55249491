"""Events of a transaction on their way to the database: staged in batches, in order, each exactly once.

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

from eventproc.store.database import Database, SharedSlot, Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import NotFound, SegmentSealed
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import SegmentEvents, WriterSequence
from eventproc.store.transactions import create_txn, stage
from eventproc.streams.segment_buffers import SegmentBuffer, SegmentBuffers, add_event
from eventproc.streams.writer import find_route

STAGE_BYTES: Final = 2**20
"""Bytes of one batch, unless a single event is larger. Higher: longer holds of the write lock, and more memory; lower:
more batches for a large transaction, and more index rows for its commit."""

_IDENTITY_BYTES: Final = 8

Last = Callable[[Tx], object]
"""A function to run in the transaction of the last batch."""


@attrs.define(eq=False)
class _Batch:
    buffers: Sequence[SegmentBuffer]
    size_bytes: int
    sequence: int


class Staging:
    """Stages the events of one transaction. For any number of tasks, on the event loop only."""

    def __init__(
        self, db: Database, stream: str, stream_id: int, txn_id: str, *, lease_ms: int | None, begun: bool
    ) -> None:
        """begun: the transaction is in the database. Otherwise the first batch, `begin` or `send` writes it."""
        self.begun = begun
        self.lease_ms = lease_ms
        self._db = db
        self._stream = stream
        self.stream_id = stream_id
        self._txn_id = txn_id
        self._writer = db.clock.random_bytes(_IDENTITY_BYTES).hex()
        self._sequence = 0
        self._batches: deque[_Batch] = deque()
        self._waiting_bytes = 0  # of events that are in no batch yet
        self._one_at_a_time = anyio.Lock()
        self._epoch: Epoch | None = None
        self._buffers: SegmentBuffers

    @property
    def batches(self) -> int:
        """How many full batches wait."""
        return len(self._batches)

    @property
    def waits(self) -> bool:
        """Whether an event may not be staged yet."""
        return bool(self._batches) or self._waiting_bytes > 0

    async def open(self) -> None:
        """Read the epoch that routes events. Raises NotFound, StreamReplaced, StreamSealed."""
        if self._epoch is None:
            self._use(await self._db.read(self._look))

    async def begin(self) -> None:
        """Write the transaction to the database, and read the epoch that routes events; once. Raises as `open`."""

        def make(tx: Tx) -> Epoch:
            self._create(tx)
            tx.after(partial(self._settled, None))
            return self._look(tx)

        async with self._one_at_a_time:
            if not self.begun:
                epoch = await self._db.write(make)
                if self._epoch is None:
                    self._use(epoch)

    def put(
        self, data: bytes, key: str | None, event_time: int | None, headers: Mapping[str, str] | None
    ) -> bool:
        """Add an event; return whether another batch is full. Raises InvalidArgument; then it was not added."""
        closed = bool(self._waiting_bytes) and self._waiting_bytes + len(data) + FRAME_BYTES > STAGE_BYTES
        if closed:
            self._close_batch()
        self._waiting_bytes += add_event(self._buffers, data, key, event_time, headers)
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
            if self._waiting_bytes:
                self._close_batch()
            end = self._sequence
            while self._batches and self._batches[0].sequence < end:
                await self._write(self._batches[0], None)
            batch = self._batches[0] if self._batches and self._batches[0].sequence == end else None
            if batch is not None or last is not None or not self.begun:
                await self._write(batch, last)

    async def drop(self, last: Last) -> None:
        """Drop events that are not staged, and run `last` in a transaction."""
        async with self._one_at_a_time:
            self._batches.clear()
            self._waiting_bytes = 0
            if self._epoch is not None:
                self._buffers.take()
            await self._write(None, last)

    async def _write(self, batch: _Batch | None, last: Last | None) -> None:
        while True:
            parts = () if batch is None else self._buffers.parts(batch.buffers)
            size_bytes = 0 if batch is None else batch.size_bytes
            try:
                await self._db.write(partial(self._stage, batch, parts, last), size_bytes=size_bytes)
                return
            except SegmentSealed:
                await self._follow()
            except NotFound as error:
                if error.kind != "segment":
                    raise
                await self._follow()

    def _stage(self, batch: _Batch | None, parts: Sequence[SegmentEvents], last: Last | None, tx: Tx) -> None:
        if not self.begun:
            self._create(tx)
        if batch is not None:
            identity = WriterSequence(self._writer, batch.sequence)
            stage(tx, self._stream, self.stream_id, self._txn_id, parts, identity=identity)
        if last is not None:
            last(tx)
        tx.after(partial(self._settled, batch))

    def _create(self, tx: Tx) -> None:
        # Repeating it changes nothing: the id is the caller's.
        instance = self._db.instance_id
        create_txn(tx, self._stream, self.stream_id, self._txn_id, instance=instance, lease_ms=self.lease_ms)

    def _settled(self, batch: _Batch | None) -> None:
        """Record that the transaction, and this batch of it, is durable."""
        self.begun = True
        if batch is not None and self._batches and self._batches[0] is batch:
            self._batches.popleft()

    def _close_batch(self) -> None:
        self._sequence += 1
        self._batches.append(_Batch(self._buffers.take(), self._waiting_bytes, self._sequence))
        self._waiting_bytes = 0

    async def _follow(self) -> None:
        """Route all waiting events by the current epoch."""
        epoch = await self._db.read(self._look)
        assert self._epoch is not None, "a batch was routed"
        if epoch.number == self._epoch.number:
            raise NotFound(kind="segment", name=f"{self._stream}, of epoch {epoch.number}")
        waiting = self._buffers.take()
        self._use(epoch)
        for batch in self._batches:
            self._buffers.pour(batch.buffers)
            batch.buffers = self._buffers.take()
        self._buffers.pour(waiting)

    def _use(self, epoch: Epoch) -> None:
        self._epoch = epoch
        self._buffers = SegmentBuffers(epoch, int.from_bytes(self._db.clock.random_bytes(4), "big"))

    def _look(self, tx: Tx) -> Epoch:
        return find_route(tx, self._stream, self.stream_id, None)[0]


class UnbegunTxns:
    """Transactions of this instance that may not be in the database yet: those of running blocks."""

    def __init__(self) -> None:
        self.running: set[Staging] = set()

    def of(self, stream_id: int) -> list[Staging]:
        """Return those of a stream."""
        return [each for each in self.running if each.stream_id == stream_id]


UNBEGUN_TXNS: Final = SharedSlot(UnbegunTxns)
