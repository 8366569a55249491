"""Events of a transaction on their way to the database: in batches, in order, each exactly once.

A transaction has a `Staging` for each of its streams, and one decision for all of them (`commit_together`). If nothing
was staged and all events fit into one send, that step also appends them, so that they become visible in all streams at
one moment. Otherwise batches are staged, and the decision goes with the last ones.

A batch fills while the one before it is written. It is staged in a database transaction under its own sequence, and
leaves the queue as an effect of that transaction. So a caller that was cancelled, or does not know the result, sends it
again without harm. A batch that meets a sealed segment was not staged: all waiting events are routed again by the new
epoch, in the same order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, TypeAlias

import anyio
import attrs

from eventproc.base.conventions import LINKS_MAX, TRACEPARENT
from eventproc.base.telemetry_use import NOT_TRACED, find_traces
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
    TxnState,
    abort_directly,
    commit_directly,
    create_txn,
    decide_abort,
    decide_commit,
    decide_joint_commit,
    find_txn,
    joint_rows,
    stage,
)
from eventproc.streams.segment_buffers import SegmentBuffer, SegmentBuffers, add_event, event_bytes
from eventproc.streams.writer import find_route

STAGE_BYTES: Final = 2**20
"""Bytes of one batch, headers among them, unless a single event is larger. Higher: longer holds of the write lock, and
more memory; lower: more batches for a large transaction, and more index rows for its commit."""

BY_OWNER: Final = "by its owner"
"""Reason of an abort that a caller requested."""

_IDENTITY_BYTES: Final = 8

Note: TypeAlias = Callable[[TxnRecord], None]
"""Takes a stream's record of a decided transaction, as an effect of that step."""

MoveProgress: TypeAlias = Callable[[Tx], None]
"""Moves the progress of a consumer within a database transaction; raises if a segment is no longer the consumer's."""


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
        note: Note,
        joint: str | None = None,
    ) -> None:
        """begun: the transaction is in the database. Otherwise the first batch, `begin` or `send` writes it.

        note: takes the transaction's record as an effect of its decision. joint: as in `TxnRecord`.
        """
        self.begun = begun
        self._own = not begun  # the id was made here
        self.tried = False  # to write the transaction, perhaps with an unknown result
        self._staged = False
        self.lease_ms = lease_ms
        self._db = db
        self.stream = stream
        self.stream_id = stream_id
        self._txn_id = txn_id
        self._joint = joint
        self._note = note
        self._writer = db.clock.random_bytes(_IDENTITY_BYTES).hex()
        self._sequence = 0
        self._batches: deque[_Batch] = deque()
        self._waiting_bytes = 0  # of events that are in no batch yet
        self.lock = anyio.Lock(fast_acquire=True)
        self._routes: KeyRoutes | None = None
        self._buffers: SegmentBuffers
        self._traces = find_traces()
        self.senders: set[str] = set()  # the contexts that events carry

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
            tx.after(partial(self.note_staged, None))
            return self._look(tx)

        async with self.lock:
            if not self.begun:
                self.tried = True
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
        async with self.lock:
            self._reroute(await self._db.read(self._look))

    def put(
        self,
        data: bytes,
        key: str | bytes | None,
        event_time: int | None,
        headers: Mapping[str, str] | None,
        partition: int | None = None,
    ) -> bool:
        """Add an event; return whether another batch is full. Raises InvalidArgument; then it was not added."""
        closed = bool(self._waiting_bytes) and self._waiting_bytes + len(data) + FRAME_BYTES > STAGE_BYTES
        if closed:
            self._close_batch()
        if self._traces is not None:
            headers = self._traces.carrying(headers)
        add_event(self._buffers, data, key, event_time, headers, partition, self.stream)
        if self._traces is not None and headers and TRACEPARENT in headers and len(self.senders) < LINKS_MAX:
            self.senders.add(headers[TRACEPARENT])
        self._waiting_bytes += event_bytes(data, headers)
        if self._waiting_bytes < STAGE_BYTES:
            return closed
        self._close_batch()
        return True

    async def send_one(self) -> None:
        """Stage the first full batch, if there is one."""
        async with self.lock:
            if self._batches:
                await self.send_first()

    async def send(self) -> None:
        """Stage all events, and write the transaction to the database unless that was done.

        Raises what `stage` and `create_txn` raise; events that were not staged then still wait.
        """
        async with self.lock:
            await self.send_all_but_last()
            if self._batches or not self.begun:
                await self.send_first()

    async def send_all_but_last(self) -> int:
        """Stage all batches but the last one; return its size in bytes. For the holder of the lock."""
        if self._waiting_bytes:
            self._close_batch()
        end = self._sequence
        while self._batches and self._batches[0].sequence < end:
            await self.send_first()
        return self._batches[0].size_bytes if self._batches else 0

    async def send_first(self) -> None:
        """Begin, and stage the first batch if there is one. For the holder of the lock."""
        await _write(self._db, [self], _stage, step=Step.TRANSACTION_STAGE)

    def take_first(self) -> _First:
        """Return the first batch, if there is one, as the store takes it. For the holder of the lock."""
        self.tried = True
        batch = self._batches[0] if self._batches else None
        parts = () if batch is None else self._buffers.parts(batch.buffers)
        return self, batch, self._start(), parts

    def stage(self, tx: Tx, batch: _Batch | None, parts: Sequence[SegmentEvents]) -> None:
        """Begin, and stage the batch, within `tx`."""
        if not self.begun:
            self._create(tx)
        if batch is not None:
            identity = WriterSequence(self._writer, batch.sequence)
            stage(tx, self.stream, self.stream_id, self._txn_id, parts, identity=identity, guard=self._guard)

    def note_staged(self, batch: _Batch | None, decided: TxnRecord | None = None) -> None:
        """Record that the transaction, and this batch of it, is durable, and perhaps decided."""
        self.begun = True
        if batch is not None:
            self._staged = True
            if self._batches and self._batches[0] is batch:
                self._batches.popleft()
        if decided is not None:
            self._note(decided)

    async def follow(self) -> bool:
        """Route the waiting events again if the epoch changed; return whether it did. Raises as `open`."""
        return self._routes is not None and self._reroute(await self._db.read(self._look))

    def drop(self) -> None:
        """Drop the events that are not staged. For the holder of the lock."""
        self._batches.clear()
        self._waiting_bytes = 0
        if self._routes is not None:
            self._buffers.take()

    def _start(self) -> TxnStart:
        epoch = 0 if self._routes is None else self._routes.router.epoch.number
        return TxnStart(
            self.stream,
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
            self.stream,
            self.stream_id,
            self._txn_id,
            instance=self._db.instance_id,
            lease_ms=self.lease_ms,
            joint=self._joint,
        )

    def _close_batch(self) -> None:
        self._sequence += 1
        self._batches.append(_Batch(self._buffers.take(), self._waiting_bytes, self._sequence))
        self._waiting_bytes = 0

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
        return find_route(tx, self.stream, self.stream_id, None)[0]


_First: TypeAlias = tuple[Staging, _Batch | None, TxnStart, Sequence[SegmentEvents]]
"""The first batch of a staging, None if none waits, and what the store takes. A plain tuple: each commit makes one."""


def committing(txn_id: str, stagings: Sequence[Staging]) -> AbstractContextManager[object]:
    """Return the span of the commit of a transaction, if it is traced."""
    traces = find_traces()
    if traces is None:
        return NOT_TRACED
    contexts = sorted({context for each in stagings for context in each.senders})[:LINKS_MAX]
    senders = [{TRACEPARENT: each} for each in contexts]
    return traces.committing_transaction(txn_id, [each.stream for each in stagings], senders)


async def commit_together(
    db: Database, stagings: Sequence[Staging], move: MoveProgress | None = None
) -> None:
    """Commit a transaction in all its streams, in one database transaction with its last events and `move`.

    The caller holds the locks of the stagings, and no event is added meanwhile. If the events cannot be appended in
    that step, it stages them and decides; the host commits them.
    Raises what `stage`, `create_txn`, `decide_commit` and `move` raise; then nothing is decided.
    """
    direct, last_bytes = True, 0
    for each in stagings:
        direct = direct and each.fits_one_send
        last_bytes += await each.send_all_but_last()
    if last_bytes > STAGE_BYTES and len(stagings) > 1:
        direct = False
        for each in stagings:
            await each.send_first()
    await _write(db, stagings, partial(_commit, move=move, direct=direct), step=Step.TRANSACTION_END)


async def abort_together(db: Database, stagings: Sequence[Staging], *, force: bool = False) -> None:
    """Drop the events that are not staged, and abort a transaction in all its streams. Raises as `decide_abort`.

    The caller holds the locks of the stagings.
    """
    for each in stagings:
        each.drop()
    await _write(db, stagings, partial(_abort, force=force), step=Step.TRANSACTION_END)


async def _write(
    db: Database,
    stagings: Sequence[Staging],
    change: Callable[[Sequence[_First], bool, Tx], None],
    *,
    step: Step,
) -> None:
    """Write a change of the first batches; route the events again while their segments are sealed."""
    while True:
        firsts: list[_First] = []
        seen, size_bytes = False, 0
        for each in stagings:
            seen = seen or each.tried
            firsts.append(first := each.take_first())
            size_bytes += 0 if first[1] is None else first[1].size_bytes
        try:
            await db.write(partial(change, firsts, seen), size_bytes=size_bytes, brief=True, step=step)
            return
        except (SegmentSealed, NotFound) as error:
            if isinstance(error, NotFound) and error.kind != "segment":
                raise
            if not any([await each.follow() for each in stagings]):
                raise


def _stage(firsts: Sequence[_First], seen: bool, tx: Tx) -> None:
    for staging, batch, _, parts in firsts:
        staging.stage(tx, batch, parts)
    tx.after(partial(_note_staged, firsts, [None] * len(firsts)))


def _commit(firsts: Sequence[_First], seen: bool, tx: Tx, *, move: MoveProgress | None, direct: bool) -> None:
    """Commit, or decide to. seen: the transaction may be in the database."""
    start = firsts[0][2]
    if move is not None and not (seen and _is_decided(tx, start.id)):
        move(tx)
    done = commit_directly(tx, [first[2:] for first in firsts], seen=seen) if direct else None
    if done is None:
        for staging, batch, _, parts in firsts:
            staging.stage(tx, batch, parts)
        if start.joint is None:
            done = [decide_commit(tx, start.stream_id, start.id)]
        else:
            done = decide_joint_commit(tx, start.id, [staging.stream_id for staging, *_ in firsts])
    tx.after(partial(_note_staged, firsts, done))


def _abort(firsts: Sequence[_First], seen: bool, tx: Tx, *, force: bool) -> None:
    stored: list[_First] = []
    others: list[_First] = []
    for first in firsts:
        staging, _, start, _ = first
        is_stored = staging.begun or find_txn(tx, start.stream_id, start.id) is not None
        (stored if is_stored else others).append(first)
    # The first decision aborts it in every stream where it is stored.
    done = [
        decide_abort(tx, start.stream_id, start.id, reason=BY_OWNER, force=force) for _, _, start, _ in stored
    ]
    done += [abort_directly(tx, start, reason=BY_OWNER) for _, _, start, _ in others]
    tx.after(partial(_note_staged, stored + others, done))


def _is_decided(tx: Tx, txn_id: str) -> bool:
    return any(each.state is not TxnState.OPEN for each in joint_rows(tx, txn_id))


def _note_staged(firsts: Sequence[_First], decided: Sequence[TxnRecord | None]) -> None:
    for (staging, batch, *_), txn in zip(firsts, decided, strict=True):
        staging.note_staged(batch, txn)
