"""The decision of a joint transaction: the last events of all its streams and its consumer's progress, in one step.

If nothing is staged and all events fit into one send, that step also appends the events, so that they become visible in
all streams at one moment. Otherwise it decides, and the host commits the events of each stream in that stream's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TypeAlias

from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import NotFound, SegmentSealed
from eventproc.store.model.transactions import TxnState
from eventproc.store.segments import SegmentEvents
from eventproc.store.transactions import (
    TxnRecord,
    TxnStart,
    abort_directly,
    commit_jointly,
    decide_abort,
    decide_joint_commit,
    joint_rows,
)
from eventproc.streams.staging import BY_OWNER, STAGE_BYTES, Staging

MoveProgress: TypeAlias = Callable[[Tx], None]
"""Moves the progress of a consumer within a database transaction; raises if a segment is no longer the consumer's."""


class JointStaging(Staging):
    """Stages the events of one stream of a joint transaction. Its decision needs all of them: `commit_together`."""

    @property
    def is_seen(self) -> bool:
        """Whether the transaction may be in the database in this stream."""
        return self._tried

    async def hold(self, locks: AsyncExitStack) -> None:
        """Let no other task stage until `locks` is left."""
        await locks.enter_async_context(self._one_at_a_time)

    async def stage_all_but_last(self) -> int:
        """Stage all batches but the last one; return its size. For the holder."""
        batch = await self._send_all_but_last()
        return 0 if batch is None else batch.size_bytes

    async def stage_last(self) -> None:
        """Stage the last batch. For the holder."""
        if self._batches:
            await self._write(self._batches[0], None)

    def last_events(self) -> tuple[TxnStart, Sequence[SegmentEvents]]:
        """Return what is left to stage, as `commit_jointly` takes it. For the holder."""
        self._tried = True
        batch = self._batches[0] if self._batches else None
        return self._start(), () if batch is None else self._buffers.parts(batch.buffers)

    def stage_in(self, tx: Tx, parts: Sequence[SegmentEvents]) -> None:
        """Begin, and stage the last events, within `tx`."""
        self._stage(self._batches[0] if self._batches else None, parts, None, tx)

    def settle_after(self, tx: Tx) -> None:
        """Note, as an effect of `tx`, that the last events are durable."""
        tx.after(partial(self._settled, self._batches[0] if self._batches else None))

    async def follow(self) -> bool:
        """Route the waiting events again if the epoch changed; return whether it did. Raises as `open`."""
        return self._routes is not None and self._reroute(await self._db.read(self._look))

    def drop(self) -> TxnStart:
        """Drop the events that are not staged. For the holder."""
        self._drop_all()
        return self._start()


async def commit_together(
    db: Database,
    txn_id: str,
    stagings: Sequence[JointStaging],
    move: MoveProgress | None,
    note: Callable[[TxnRecord], None],
) -> None:
    """Decide to commit in all streams and move the progress, in one database transaction.

    note: called with each stream's record, as an effect of that transaction.
    Raises what `stage`, `create_txn`, `decide_joint_commit` and `move` raise; then nothing is decided.
    """
    async with AsyncExitStack() as locks:
        for each in stagings:
            await each.hold(locks)
        direct = all(each.fits_one_send for each in stagings)
        sizes = [await each.stage_all_but_last() for each in stagings]
        if sum(sizes) > STAGE_BYTES:
            direct, sizes = False, [0 for _ in sizes]
            for each in stagings:
                await each.stage_last()
        seen = any(each.is_seen for each in stagings)
        while True:
            events = [each.last_events() for each in stagings]
            decide = partial(
                _commit, txn_id=txn_id, stagings=stagings, events=events, move=move, direct=direct, seen=seen
            )
            try:
                await db.write(
                    partial(_noted, decide=decide, note=note),
                    size_bytes=sum(sizes),
                    brief=True,
                    step=Step.TRANSACTION_END,
                )
                return
            except (SegmentSealed, NotFound) as error:
                if isinstance(error, NotFound) and error.kind != "segment":
                    raise
                if not any([await each.follow() for each in stagings]):
                    raise
            seen = True


async def abort_together(
    db: Database, txn_id: str, stagings: Sequence[JointStaging], note: Callable[[TxnRecord], None]
) -> None:
    """Drop the events that are not staged, and decide to abort in all streams. Raises as `decide_abort`."""
    async with AsyncExitStack() as locks:
        for each in stagings:
            await each.hold(locks)
        starts = [each.drop() for each in stagings]
        decide = partial(_abort, txn_id=txn_id, stagings=stagings, starts=starts)
        await db.write(partial(_noted, decide=decide, note=note), step=Step.TRANSACTION_END)


def _noted(tx: Tx, decide: Callable[[Tx], Sequence[TxnRecord]], note: Callable[[TxnRecord], None]) -> None:
    for each in decide(tx):
        tx.after(partial(note, each))


def _commit(
    tx: Tx,
    txn_id: str,
    stagings: Sequence[JointStaging],
    events: Sequence[tuple[TxnStart, Sequence[SegmentEvents]]],
    move: MoveProgress | None,
    direct: bool,
    seen: bool,
) -> Sequence[TxnRecord]:
    before = joint_rows(tx, txn_id) if seen else []
    if move is not None and all(each.state is TxnState.OPEN for each in before):
        move(tx)
    if direct and (done := commit_jointly(tx, events, seen=seen)) is not None:
        for each in stagings:
            each.settle_after(tx)
        return done
    for each, (_, parts) in zip(stagings, events, strict=True):
        each.stage_in(tx, parts)
    return decide_joint_commit(tx, txn_id, [each.stream_id for each in stagings])


def _abort(
    tx: Tx, txn_id: str, stagings: Sequence[JointStaging], starts: Sequence[TxnStart]
) -> Sequence[TxnRecord]:
    if rows := joint_rows(tx, txn_id):
        decide_abort(tx, rows[0].stream_id, txn_id, reason=BY_OWNER)
    for start, each in zip(starts, stagings, strict=True):
        abort_directly(tx, start, reason=BY_OWNER)
        each.settle_after(tx)
    return joint_rows(tx, txn_id)
