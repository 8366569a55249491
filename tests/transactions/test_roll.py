"""Transactions of foreign clients, whose events belong to key ranges, keep the order of keys across scales."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from hypothesis import given, strategies as st

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch, first_epoch, next_epoch
from eventproc.store.model.errors import Rejected, ScaleRefused
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.roll import plan_roll
from eventproc.store.model.routing import point
from eventproc.store.segments import EventBlock, SegmentEvents, WriterSequence
from eventproc.store.transactions import (
    TXN_STEP_LIMITS,
    create_txn,
    decide_and_commit,
    decide_commit,
    stage,
)
from eventproc.streams import Stream
from eventproc.testing import VirtualClock, check, run_seeded
from tests.support.memory import ep as ep  # a fixture
from tests.transactions.support import NAME, TxnStream, events_of, wait_committed

KEYS = [f"k{number}" for number in range(8)]


class RollSimulation:
    """One client with several transactions, whose events are routed by the epoch in which each began."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.open: dict[str, tuple[Epoch, list[tuple[str, bytes]]]] = {}
        self.stagings: dict[tuple[str, SegmentId], int] = {}
        self.decided: list[tuple[str, list[tuple[str, bytes]]]] = []
        self.written: list[tuple[str, bytes]] = []
        self.count = 0

    async def run(self) -> None:
        async with eventproc.open_memory(clock=VirtualClock()) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream(NAME)
            acts = [self.begin, self.stage, self.stage, self.write, self.scale, self.decide, self.decide]
            for _ in range(60):
                await self.random.choice(acts)(stream)
            await self.decide_all(stream)
            await check(ep.db)

    async def begin(self, stream: Stream) -> None:
        txn_id = f"{self.random.getrandbits(128):032x}"

        def act(tx: Tx) -> Epoch:
            create_txn(tx, NAME, stream.stream_id, txn_id, instance=stream._db.instance_id, lease_ms=600_000)
            return current_epoch(tx, get_stream(tx, NAME).value)

        self.open[txn_id] = await stream._db.write(act), []

    async def stage(self, stream: Stream) -> None:
        if not self.open:
            return
        txn_id = self.random.choice(list(self.open))
        epoch, events = self.open[txn_id]
        key = self.random.choice(KEYS)
        segment = epoch.find(point(key)).id
        new = [self.event(key) for _ in range(self.random.choice((1, 3)))]
        before = self.stagings.get((txn_id, segment), 0)
        after = self.stagings[txn_id, segment] = before + len(new)
        part = SegmentEvents(segment, EventBlock([payload for _, payload in new]).encode())
        identity = WriterSequence(f"{segment}/w", after, after=before)
        await stream._db.write(
            partial(
                stage,
                stream=NAME,
                stream_id=stream.stream_id,
                txn_id=txn_id,
                parts=[part],
                identity=identity,
                bound=True,
            )
        )
        events += new

    async def write_with_handle(self, stream: Stream) -> None:
        """Write an event of each key to the only open transaction, routed by the present epoch."""
        ((txn_id, (_, events)),) = self.open.items()
        txn = stream.transaction_of(txn_id)
        for key in KEYS:
            events.append(self.event(key))
            await txn.write(events[-1][1], key=key)
        await txn.flush()

    async def write(self, stream: Stream, key: str | None = None) -> None:
        event = self.event(key or self.random.choice(KEYS))
        async with stream.writer() as writer:
            await writer.write(event[1], key=event[0])
        self.written.append(event)

    async def scale(self, stream: Stream) -> None:
        active = [each.id for each in (await stream.epochs())[-1].segments]
        try:
            if len(active) < 5 and self.random.random() < 0.6:
                await stream.split(self.random.choice(active))
            elif len(active) > 1:
                first = self.random.randrange(len(active) - 1)
                await stream.merge(*active[first : first + 2])
        except Rejected:  # the commits that wait have been prepared too often, or a commit rolled meanwhile
            pass

    async def decide(self, stream: Stream, txn_id: str | None = None) -> None:
        if self.open:
            txn_id = txn_id or self.random.choice(list(self.open))
            _, events = self.open.pop(txn_id)
            decide = self.random.choice((decide_commit, decide_and_commit))
            await stream._db.write(lambda tx: decide(tx, stream.stream_id, txn_id))
            self.decided.append((txn_id, events))

    async def decide_all(self, stream: Stream) -> None:
        """Commit all open transactions, wait for all decided ones, and verify what the stream holds then."""
        while self.open:
            await self.decide(stream)
        for txn_id, _ in self.decided:
            await self.committed(stream, txn_id)
        await self.verify(await self.txns(stream))

    async def committed(self, stream: Stream, txn_id: str) -> None:
        await wait_committed(await self.txns(stream), txn_id)

    async def txns(self, stream: Stream) -> TxnStream:
        return TxnStream(stream._db, await stream._db.read(lambda tx: get_stream(tx, NAME).value))

    def event(self, key: str) -> tuple[str, bytes]:
        self.count += 1
        return key, f"{key}:{self.count}".encode()

    async def verify(self, txns: TxnStream) -> None:
        """Each key's events are in order: those of the transactions by decision, the others by writing."""
        found: dict[str, list[bytes]] = {}
        for _, events in sorted((await events_of(txns)).items()):  # the order in which a reader gets a key
            for event in events:
                found.setdefault(event.payload.decode().partition(":")[0], []).append(event.payload)
        written = {payload for _, payload in self.written}
        for key in KEYS:
            committed = [payload for _, own in self.decided for k, payload in own if k == key]
            assert [each for each in found.get(key, []) if each not in written] == committed
            assert [each for each in found.get(key, []) if each in written] == [
                payload for k, payload in self.written if k == key
            ]


async def oldest_epoch(stream: Stream) -> int:
    """Return the oldest epoch that is kept after a truncation."""
    truncation = await stream.truncation()
    assert truncation is not None
    return truncation.first_epoch


@pytest.mark.hunt(seeds=6)
def test_transactions_bound_to_key_ranges_keep_the_order_of_keys_across_scales(seed: int) -> None:
    run_seeded(RollSimulation(seed).run, seed=seed)


@pytest.mark.acceptance(
    "B9",
    differs="a scale that names what a rolling transaction has sealed is refused; its caller names the copies",
)
@pytest.mark.acceptance(
    "A4",
    differs="both epochs are opened by one transaction; the first merges what a scale divided, instead of a duplicate",
)
async def test_a_commit_after_a_split_opens_two_epochs_and_restores_the_ranges(ep: Eventproc) -> None:
    simulation, stream = RollSimulation(1), await ep.create_stream(NAME)
    await simulation.begin(stream)
    await simulation.begin(stream)
    for _ in range(8):
        await simulation.stage(stream)
    halves = await stream.split(0)
    await simulation.decide_all(stream)
    epochs = await stream.epochs()
    ranges = [[(each.range.low, each.range.high) for each in epoch.segments] for epoch in epochs]
    assert ranges == [[(0.0, 1.0)], [(0.0, 0.5), (0.5, 1.0)]] * 2
    rolled, restored = epochs[-2].ids, epochs[-1].ids
    assert [set(await stream.successors(each)) for each in halves] == [set(rolled)] * 2
    assert set(await stream.successors(rolled[0])) == set(restored)
    with pytest.raises(ScaleRefused):
        await stream.scale(seal=halves, ranges=["0-1"])
    assert len(await stream.scale(seal=restored, ranges=["0-1"])) == 1


async def test_a_commit_after_a_merge_opens_no_epoch(ep: Eventproc) -> None:
    simulation, stream = RollSimulation(1), await ep.create_stream(NAME)
    halves = await stream.split(0)
    await simulation.begin(stream)
    for _ in range(8):
        await simulation.stage(stream)
    await stream.merge(*halves)
    await simulation.decide_all(stream)
    assert len(await stream.epochs()) == 3


async def test_a_client_and_a_handle_share_a_transaction_whose_segment_was_split(ep: Eventproc) -> None:
    simulation, stream = RollSimulation(1), await ep.create_stream(NAME)
    await simulation.begin(stream)
    await simulation.stage(stream)
    await stream.split(0)
    await simulation.write_with_handle(stream)
    await stream.split(1 << 32 | 1)
    await simulation.decide_all(stream)
    assert len(await stream.epochs()) == 5


async def test_a_shared_transaction_keeps_the_order_of_keys_when_its_rows_are_packed(ep: Eventproc) -> None:
    ep.db.shared[TXN_STEP_LIMITS].round_rows = 2
    simulation, stream = RollSimulation(1), await ep.create_stream(NAME)
    await simulation.begin(stream)
    await stream.split(0)
    for _ in range(3):
        await simulation.write_with_handle(stream)
        await simulation.stage(stream)
    await simulation.decide_all(stream)


async def test_transactions_that_overlap_roll_only_for_those_begun_before_the_split(ep: Eventproc) -> None:
    simulation, stream = RollSimulation(1), await ep.create_stream(NAME)
    await simulation.begin(stream)
    await simulation.stage(stream)
    await stream.split(0)
    for _ in range(20):
        (earlier,) = simulation.open
        await simulation.begin(stream)
        for _ in range(6):
            await simulation.stage(stream)
        await simulation.decide(stream, earlier)
        await simulation.committed(stream, earlier)
    await simulation.decide_all(stream)
    assert len(await stream.epochs()) == 4


async def test_events_staged_before_a_truncation_keep_the_order_of_keys(ep: Eventproc) -> None:
    simulation = RollSimulation(1)
    stream = await ep.create_stream(NAME, scaling=eventproc.ScalingPolicy.fixed(4))
    await simulation.begin(stream)
    for _ in range(20):
        await simulation.stage(stream)
    for _ in range(3):
        await stream.scale(
            seal=[each.id for each in await stream.segments()],
            ranges=["0-0.3", "0.3-0.5", "0.5-0.6", "0.6-1"],
        )
        await stream.truncate(await stream.tail())
    assert await oldest_epoch(stream) == 0
    for _ in range(20):
        await simulation.stage(stream)
    await simulation.decide_all(stream)
    for key in KEYS:
        await simulation.write(stream, key)
    ranges = {each.id: each.range for epoch in (await stream.epochs())[-2:] for each in epoch.segments}
    txns = await simulation.txns(stream)
    for segment, events in (await events_of(txns)).items():
        for event in events:
            where = point(event.payload.decode().partition(":")[0])
            assert ranges[segment].contains(where)
    await simulation.verify(txns)
    await stream.truncate(await stream.tail())
    assert await oldest_epoch(stream) > 0


@given(st.data())
def test_any_roll_joins_what_was_divided_and_restores_it_without_more_segments(data: st.DataObject) -> None:
    epochs = [first_epoch(data.draw(st.integers(1, 6)), created_ms=0)]
    for _ in range(data.draw(st.integers(0, 4))):
        current = epochs[-1]
        first = data.draw(st.integers(0, len(current.segments) - 1))
        last = data.draw(st.integers(first, min(first + 2, len(current.segments) - 1)))
        low, high = current.segments[first].range.low, current.segments[last].range.high
        middle = (low + high) / 2
        cut = data.draw(st.booleans())
        borders = [(low, middle), (middle, high)] if cut else [(low, high)]
        epochs.append(
            next_epoch(
                current,
                stream="s/t",
                seal=current.ids[first : last + 1],
                ranges=[eventproc.KeyRange(*each) for each in borders],
                now_ms=0,
                segments_min=1,
                request_id=None,
            )
        )
    old, current = data.draw(st.sampled_from(epochs)), epochs[-1]
    divided = [each.range for each in old.segments if len(current.overlapping(each.range)) > 1]
    if not divided:
        return
    plan = plan_roll(current, divided)
    rolled = plan.first(current, stream="s/t", now_ms=0)
    restored = plan.second(rolled, stream="s/t", now_ms=0)
    rolled.check()
    restored.check()
    assert [each.range for each in restored.segments] == [each.range for each in current.segments]
    assert all(len(rolled.overlapping(each.range)) == 1 for each in old.segments)
    assert len(rolled.segments) < len(current.segments), "a limit of segments never refuses a roll"
