"""A stream with transactions in a system that lives several lives; the host runs while something is left to do."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import anyio

from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.routing import position
from eventproc.store.segments import Event, SegmentEvents, WriterSequence, read, segment_states
from eventproc.store.transactions import TxnRecord, TxnState, find_txn, watch_txn
from eventproc.workflows.requests import CreateStream, ScaleStream
from tests.transactions.rooms import NAME, Room, part
from tests.workflows.support import FEW_WORKERS, Life

Written = tuple[bytes, str | None]
"""(payload, key)"""


async def make_room(life: Life, *, segments: int = 2) -> Room:
    await life.done(CreateStream(NAME, StreamConfig(scaling=ScalingPolicy.fixed(segments))))
    return Room(life.db, (await life.record(NAME)).value)


async def find_room(life: Life) -> Room:
    return Room(life.db, (await life.record(NAME)).value)


async def write(room: Room, txn_id: str, events: Collection[Written], *, identity: int | None = None) -> None:
    """Stage the events where their keys belong now; those without a key in the first segment."""

    def act(tx: Tx) -> None:
        epoch = current_epoch(tx, get_stream(tx, NAME).value)
        routed: dict[SegmentId, list[Written]] = {}
        for payload, key in events:
            segment = epoch.ids[0] if key is None else epoch.find(position(key)).id
            routed.setdefault(segment, []).append((payload, key))
        parts: list[SegmentEvents] = [part(segment, own) for segment, own in routed.items()]
        who = None if identity is None else WriterSequence("w", identity)
        room.staging(txn_id, *parts, identity=who)(tx)

    await room.db.write(act)


async def serve(life: Life, room: Room, txn_ids: Collection[str]) -> list[TxnRecord]:
    """Be the host until these transactions are finished; return them."""
    owner = await life.claim()
    found: dict[str, TxnRecord] = {}

    def look(tx: Tx) -> list[TxnRecord | None]:
        return [find_txn(tx, room.stream.stream_id, txn_id) for txn_id in txn_ids]

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_internal_processors, life.db, owner, FEW_WORKERS)
        with life.db.subscribe([watch_txn(room.stream.stream_id, txn_id) for txn_id in txn_ids]) as changes:
            while len(found) < len(txn_ids):
                for txn in await life.db.read(look):
                    if txn is not None and txn.state.is_final:
                        found[txn.id] = txn
                if len(found) < len(txn_ids):
                    await changes.wait()
        tasks.cancel_scope.cancel()
    return [found[txn_id] for txn_id in txn_ids]


async def commit(life: Life, room: Room, *txn_ids: str) -> list[TxnRecord]:
    """Decide in this order, and let the host do it."""
    for txn_id in txn_ids:
        await room.commit(txn_id)
    done = await serve(life, room, txn_ids)
    assert all(txn.state is TxnState.COMMITTED for txn in done), done
    return done


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


async def events_of(room: Room) -> dict[SegmentId, list[Event]]:
    """Return everything that can be read, by segment."""
    return await room.db.read(partial(_read_all, stream_id=room.stream.stream_id))


def _read_all(tx: Tx, stream_id: int) -> dict[SegmentId, list[Event]]:
    found: dict[SegmentId, list[Event]] = {}
    for segment, state in segment_states(tx, stream_id):
        runs = read(tx, stream_id, {segment: (state.head, None)}, bytes_max=2**40).runs
        found[segment] = [event for run in runs for event in run.events()]
    return found


def by_key(events: dict[SegmentId, list[Event]]) -> dict[str | None, list[bytes]]:
    """Return the payloads by key, in the order in which readers get them: older segments first."""
    found: dict[str | None, list[bytes]] = {}
    for segment in sorted(events):
        for event in events[segment]:
            found.setdefault(event.key, []).append(event.payload)
    return found
