"""A stream with transactions for tests: its clients, and a host that runs while something is left to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, TypeVar

import anyio
import attrs

from eventproc.base.clock import new_id
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.catalog import SCOPE, Scope, StreamRecord, current_epoch, get_stream, insert_stream
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.routing import point
from eventproc.store.records import create
from eventproc.store.segments import Event, SegmentEvents, WriterSequence, read, segment_states
from eventproc.store.transactions import (
    PingResult,
    StagedTotals,
    TxnRecord,
    TxnState,
    create_txn,
    decide_abort,
    decide_and_commit,
    decide_commit,
    find_txn,
    get_txn,
    ping,
    stage,
    watch_txn,
)
from eventproc.workflows.requests import CreateStream, ScaleStream
from tests.segments.support import SampleEvent, part as encode_part
from tests.workflows.support import FEW_WORKERS, Life

T = TypeVar("T")

NAME: Final = "s/t"
ZERO, ONE = SegmentId(0), SegmentId(1)
LOW, HIGH = "N14228", "a"
"""Keys of the segments ZERO and ONE, while there are two."""


def part(segment: SegmentId, events: Sequence[tuple[bytes, str | None]]) -> SegmentEvents:
    """Return (payload, key) pairs as a writer hands them over."""
    return encode_part(segment, (SampleEvent(payload, key) for payload, key in events))


@attrs.frozen
class TxnStream:
    """One stream in a database."""

    db: Database
    stream: StreamRecord

    async def begin(self, *, lease_ms: int | None = 10_000, txn_id: str | None = None) -> str:
        txn_id = txn_id or new_id(self.db.clock)
        make = partial(
            create_txn,
            stream=NAME,
            stream_id=self.stream.stream_id,
            txn_id=txn_id,
            instance=self.db.instance_id,
            lease_ms=lease_ms,
        )
        return (await self.db.write(make)).id

    def staging(
        self, txn_id: str, *parts: SegmentEvents, identity: WriterSequence | None = None
    ) -> Callable[[Tx], StagedTotals]:
        return partial(
            stage,
            stream=NAME,
            stream_id=self.stream.stream_id,
            txn_id=txn_id,
            parts=parts,
            identity=identity,
        )

    async def stage(
        self, txn_id: str, *parts: SegmentEvents, identity: WriterSequence | None = None
    ) -> StagedTotals:
        return await self.db.write(self.staging(txn_id, *parts, identity=identity))

    async def ping(self, txn_id: str, lease_ms: int | None = None, instance: str = "b") -> PingResult:
        return await self.db.write(
            lambda tx: ping(tx, self.stream.stream_id, txn_id, instance=instance, lease_ms=lease_ms)
        )

    async def commit(self, txn_id: str) -> TxnRecord:
        return await self.db.write(lambda tx: decide_commit(tx, self.stream.stream_id, txn_id))

    async def commit_now(self, txn_id: str) -> TxnRecord:
        return await self.db.write(lambda tx: decide_and_commit(tx, self.stream.stream_id, txn_id))

    async def abort(self, txn_id: str, *, version: int | None = None) -> TxnRecord:
        return await self.db.write(
            lambda tx: decide_abort(tx, self.stream.stream_id, txn_id, reason="a test", version=version)
        )

    async def get(self, txn_id: str) -> TxnRecord:
        return await self.db.read(lambda tx: get_txn(tx, self.stream.stream_id, txn_id))

    async def rows(self, sql: str, *parameters: str | int) -> list[tuple[object, ...]]:
        return await self.db.read(lambda tx: tx.execute(sql, parameters).fetchall())

    async def ended(self, txn_id: str) -> TxnRecord | None:
        """Return the transaction as soon as it is over; None if it is not known."""
        stream_id = self.stream.stream_id
        with self.db.subscribe([watch_txn(stream_id, txn_id)]) as changes:
            while True:
                found = await self.db.read(partial(find_txn, stream_id=stream_id, txn_id=txn_id))
                if found is None or found.state.is_final:
                    return found
                await changes.wait()


async def open_txn_stream(db: Database, *, segments: int = 2) -> TxnStream:
    def make(tx: Tx) -> StreamRecord:
        create(tx, SCOPE, "s", Scope(name="s", created_ms=tx.now_ms))
        return insert_stream(tx, NAME, StreamConfig(scaling=ScalingPolicy.fixed(segments)))

    return TxnStream(db, await db.write(make))


KeyedPayload = tuple[bytes, str | None]
"""(payload, key)"""


async def make_txn_stream(life: Life, *, segments: int = 2) -> TxnStream:
    await life.done(CreateStream(NAME, StreamConfig(scaling=ScalingPolicy.fixed(segments))))
    return TxnStream(life.db, (await life.record(NAME)).value)


async def find_txn_stream(life: Life) -> TxnStream:
    return TxnStream(life.db, (await life.record(NAME)).value)


async def write(
    txn_stream: TxnStream, txn_id: str, events: Collection[KeyedPayload], *, identity: int | None = None
) -> None:
    """Stage the events where their keys belong now; those without a key in the first segment."""

    def act(tx: Tx) -> None:
        epoch = current_epoch(tx, get_stream(tx, NAME).value)
        routed: dict[SegmentId, list[KeyedPayload]] = {}
        for payload, key in events:
            segment = epoch.ids[0] if key is None else epoch.find(point(key)).id
            routed.setdefault(segment, []).append((payload, key))
        parts: list[SegmentEvents] = [part(segment, own) for segment, own in routed.items()]
        who = None if identity is None else WriterSequence("w", identity)
        txn_stream.staging(txn_id, *parts, identity=who)(tx)

    await txn_stream.db.write(act)


async def serve(life: Life, txn_stream: TxnStream, txn_ids: Collection[str]) -> list[TxnRecord]:
    """Be the host until these transactions are finished; return them."""
    owner = await life.claim()
    found: dict[str, TxnRecord] = {}

    def look(tx: Tx) -> list[TxnRecord | None]:
        return [find_txn(tx, txn_stream.stream.stream_id, txn_id) for txn_id in txn_ids]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_internal_processors, life.db, owner, FEW_WORKERS)
        with life.db.subscribe(
            [watch_txn(txn_stream.stream.stream_id, txn_id) for txn_id in txn_ids]
        ) as changes:
            while len(found) < len(txn_ids):
                for txn in await life.db.read(look):
                    if txn is not None and txn.state.is_final:
                        found[txn.id] = txn
                if len(found) < len(txn_ids):
                    await changes.wait()
        tasks.cancel_scope.cancel()
    return [found[txn_id] for txn_id in txn_ids]


async def commit(life: Life, txn_stream: TxnStream, *txn_ids: str) -> list[TxnRecord]:
    """Decide in this order, and let the host do it."""
    for txn_id in txn_ids:
        await txn_stream.commit(txn_id)
    done = await serve(life, txn_stream, txn_ids)
    assert all(txn.state is TxnState.COMMITTED for txn in done), done
    return done


async def wait_committed(txns: TxnStream, txn_id: str) -> None:
    stream_id = txns.stream.stream_id
    with txns.db.subscribe([watch_txn(stream_id, txn_id)]) as changes:
        while True:
            found = await txns.db.read(lambda tx: find_txn(tx, stream_id, txn_id))
            assert found is not None
            assert found.reason is None, found.reason
            if found.state is TxnState.COMMITTED:
                return
            await changes.wait()


async def split(life: Life, segment: SegmentId, at: float) -> None:
    """Split an active segment in two."""
    record = (await life.record(NAME)).value
    epoch = await life.db.read(lambda tx: current_epoch(tx, record))
    old = epoch.by_id[segment].range
    ranges = (KeyRange(old.low, at), KeyRange(at, old.high))
    await life.done(ScaleStream(NAME, record.stream_id, (segment,), ranges))


async def merge(life: Life, *segments: SegmentId) -> None:
    """Merge active neighbours."""
    record = (await life.record(NAME)).value
    epoch = await life.db.read(lambda tx: current_epoch(tx, record))
    ranges = [epoch.by_id[segment].range for segment in segments]
    whole = KeyRange(min(each.low for each in ranges), max(each.high for each in ranges))
    await life.done(ScaleStream(NAME, record.stream_id, tuple(segments), (whole,)))


async def events_of(txn_stream: TxnStream) -> dict[SegmentId, list[Event]]:
    """Return everything that can be read, by segment."""
    return await txn_stream.db.read(partial(_read_all, stream_id=txn_stream.stream.stream_id))


def _read_all(tx: Tx, stream_id: int) -> dict[SegmentId, list[Event]]:
    found: dict[SegmentId, list[Event]] = {}
    for segment, state in segment_states(tx, stream_id):
        runs = read(tx, stream_id, {segment: (state.head, None)}, bytes_max=2**40).runs
        found[segment] = [event for run in runs for event in run.events(NAME)]
    return found


def by_key(events: dict[SegmentId, list[Event]]) -> dict[str | None, list[bytes]]:
    """Return the payloads by key, in the order in which readers get them: older segments first."""
    found: dict[str | None, list[bytes]] = {}
    for segment in sorted(events):
        for event in events[segment]:
            found.setdefault(event.key, []).append(event.payload)
    return found
