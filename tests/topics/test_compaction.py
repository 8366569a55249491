"""Compaction: a topic keeps the newest event of each key, and no position, number or reader notices."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc import CompactionPolicy, Event, NewEvent, OffloadPolicy, Topic
from eventproc.describe import CompactionResult, TaskStatus
from eventproc.errors import InvalidArgument, StreamReplaced
from eventproc.runtime import Eventproc
from eventproc.testing import Deaths, VirtualClock, check, run_until_death
from tests.backup.support import restored
from tests.cluster.support import ended_task
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.checked_directory import clock as clock, ep as ep  # fixtures
from tests.support.reading import events_of
from tests.topics.compaction_twin import kept, verify_newest, write_any

DAY_MS = 24 * 3_600_000
NEWEST = [96, 97, 98, 99]
SOON = CompactionPolicy(min_age_ms=0, tombstone_ms=DAY_MS)


async def write(topic: Topic, *events: tuple[str, bytes]) -> None:
    async with topic.producer() as producer:
        await producer.write_many([(payload, key) for key, payload in events])


def in_order(events: list[Event]) -> list[Event]:
    return sorted(events, key=lambda event: (event.partition, event.number))


@pytest.mark.hunt(seeds=6)
async def test_what_stays_is_what_a_naive_twin_keeps(
    seed: int, ep: Eventproc, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr("eventproc.store.segments.compaction.STEP_BYTES", dice.choice([1, 500, 4 * 2**20]))
    topic = await ep.create_topic("s/t", partitions=dice.choice([1, 3]), compaction=SOON)
    known: list[Event] = []
    for _ in range(6):
        before = {(event.partition, event.number) for event in known}
        await write_any(topic, dice, dice.choice([1, 20, 150]))
        known += [e for e in in_order(await events_of(topic)) if (e.partition, e.number) not in before]
        known = in_order(known)
        if dice.random() < 0.7:
            await topic.compact()
            known = kept(known)
            if dice.random() < 0.4:
                clock.advance(DAY_MS + 1)
                await topic.compact()
                known = [event for event in known if event.payload]
        assert in_order(await events_of(topic)) == known
        for partition in range((await topic.describe()).config.scaling.segments_min):
            ours = [event for event in known if event.partition == partition]
            assert await topic.read_range(partition) == ours
            if ours:
                one = dice.choice(ours)
                assert await topic.read_range(partition, one.number, one.number + 1) == [one]


async def test_a_tombstone_stays_for_its_time_and_then_its_key_is_gone(
    ep: Eventproc, clock: VirtualClock
) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    await write(topic, ("a", b"1"), ("b", b"2"), ("a", b""))
    clock.advance(10 * DAY_MS)  # a reader may have just read the older event
    assert await topic.compact() == CompactionResult(events=1, bytes=9)
    assert [(event.key, event.payload, event.headers) for event in await events_of(topic)] == [
        ("b", b"2", {}),
        ("a", b"", {}),
    ]
    clock.advance(DAY_MS // 2)
    assert await topic.compact() == CompactionResult()
    clock.advance(DAY_MS // 2)
    assert await topic.compact() == CompactionResult(events=1, bytes=8)
    assert [event.key for event in await events_of(topic)] == ["b"]
    await write(topic, ("a", b"again"))
    assert [(event.number, event.payload) for event in await events_of(topic)] == [(1, b"2"), (3, b"again")]


async def test_events_younger_than_the_age_stay(ep: Eventproc, clock: VirtualClock) -> None:
    topic = await ep.create_topic("s/t", compaction=CompactionPolicy(min_age_ms=1_000))
    await write(topic, ("a", b"1"), ("a", b"2"))
    clock.advance(600)
    await write(topic, ("a", b"3"), ("a", b"4"))
    clock.advance(500)
    assert (await topic.compact()).events == 1
    assert [event.payload for event in await events_of(topic)] == [b"2", b"3", b"4"]
    clock.advance(600)
    assert (await topic.compact()).events == 2
    assert [event.payload for event in await events_of(topic)] == [b"4"]


async def test_readers_groups_and_shares_go_on_in_the_middle_of_what_was_removed(
    tmp_path: Path, ep: Eventproc
) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    await write(topic, *[(f"k{number % 4}", b"%d" % number) for number in range(100)])
    untouched = await ep.create_group("s/untouched", ["s/t"])
    begun = await ep.create_group("s/begun", ["s/t"])
    share = await ep.create_share_group("s/share", ["s/t"])
    async with topic.reader() as reader, begun.consumer("c") as consumer, share.consumer() as taker:
        first = reader.until(await topic.tail())
        assert [(await anext(first)).number for _ in range(50)] == list(range(50))
        assert len(await consumer.poll(50)) == 50
        await consumer.commit()
        taken = await taker.poll(30)
        assert (await topic.compact()).events == 96
        async with topic.reader(reader.cut()) as other:
            assert [event.number async for event in other.until(await topic.tail())] == NEWEST
        for event in taken:
            await taker.release(event)
    async with (
        eventproc.open(
            tmp_path / "data", durability="os"
        ) as elsewhere,  # what was read ahead here stays known here
        (await elsewhere.share_group("s/share")).consumer() as taker,
    ):
        assert [delivery.event.number for delivery in await taker.poll(100)] == NEWEST
    for group in (begun, untouched):
        async with group.consumer("again") as consumer:
            assert [event.number for event in await consumer.poll(100)] == NEWEST
            await consumer.commit()
        assert [each.lag for each in await group.partitions()] == [0]


async def test_a_reader_that_meets_only_removed_events_comes_to_its_end(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    await write(topic, *[("a", b"x" * 100_000)] * 100)
    middle = await topic.tail()
    await write(topic, ("a", b"last"))
    await topic.compact()
    async with topic.reader() as reader:
        with anyio.fail_after(30):
            assert [event async for event in reader.until(middle)] == []
            assert [len(batch) async for batch in reader.batches(until=await topic.tail())] == [1]
    assert [event.payload for event in await topic.read_range(0)] == [b"last"]


async def test_the_bytes_of_removed_events_leave_the_database(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    for number in range(20):
        await write(topic, *[(f"k{key}", b"%d" % number * 1_000) for key in range(100)])
    before = await ep.db.read(_stored_bytes)
    await topic.compact()
    after = await ep.db.read(_stored_bytes)
    assert before > 2_000_000 and after < 200_000


async def test_numbers_and_offsets_of_what_stays_survive_restarts_copies_and_growth(
    tmp_path: Path, ep: Eventproc
) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    await write(topic, *[(f"k{number % 7}", b"%d" % number) for number in range(300)])
    known = kept(await events_of(topic))
    await topic.compact()
    await ep.backup(tmp_path / "copy")
    await topic.add_partitions(1)
    assert await events_of(topic) == known
    async with eventproc.open(restored(tmp_path / "copy", tmp_path / "again")) as other:
        assert await events_of(await other.topic("s/t")) == known
        await check(other.db)


async def test_writers_and_two_compactions_at_once_agree_on_the_table(
    ep: Eventproc, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.segments.compaction.STEP_BYTES", 300)
    topic = await ep.create_topic("s/t", compaction=CompactionPolicy(min_age_ms=0, tombstone_ms=5))
    table: dict[str, bytes] = {}
    dice, written = random.Random(1), anyio.Event()

    async def compact() -> None:
        while not written.is_set():
            await topic.compact()

    async with anyio.create_task_group() as tasks, topic.producer() as producer:
        tasks.start_soon(compact)
        tasks.start_soon(compact)
        for number in range(200):
            key, payload = f"k{dice.randrange(9)}", dice.choice([b"", b"%d" % number])
            await producer.write(payload, key=key)
            table[key] = payload
            clock.advance(1)
        written.set()
    await topic.compact()
    found = await events_of(topic)
    assert {each.key: each.payload for each in found if each.payload} == {k: v for k, v in table.items() if v}
    assert len({each.key for each in found}) == len(found)


@pytest.mark.parametrize("nth", range(1, 9))
@pytest.mark.parametrize("point", ["compaction.commit", "compaction.committed"])
async def test_death_at_any_step_loses_no_newest_event_and_brings_none_back(
    tmp_path: Path, point: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.segments.compaction.STEP_BYTES", 300)
    deaths = Deaths()
    known: list[Event] = []

    async def live() -> None:
        async with eventproc.open(tmp_path / "data", durability="os", faults=deaths) as ep:
            await ep.create_scope("s")
            topic = await ep.create_topic("s/t", compaction=CompactionPolicy(0, tombstone_ms=0))
            await write_any(topic, random.Random(3), 60)
            await write(topic, ("k", b""), ("", b""))
            known.extend(await events_of(topic))
            deaths.die_at(point, nth)
            await topic.compact()

    await run_until_death(live)
    async with eventproc.open(tmp_path / "data") as ep:
        topic = await ep.topic("s/t")
        found = await events_of(topic)
        verify_newest(known, found)
        await check(ep.db)
        await topic.compact()
        verify_newest(known, await events_of(topic))
        await topic.compact()  # tombstones stay for 0 ms after the first compaction
        assert [each for each in kept(known) if each.payload] == await events_of(topic)


async def test_the_policy_compacts_in_the_background(ep: Eventproc, clock: VirtualClock) -> None:
    topic = await ep.create_topic("s/t", compaction=CompactionPolicy(min_age_ms=1_000))
    await write(topic, *[(f"k{number % 10}", b"x" * 1_000) for number in range(200)])
    known = kept(await events_of(topic))
    clock.advance(61_000)
    await ep.create_topic("s/wakes-the-loop")
    task = await ended_task(ep, "stream s/t")
    assert (task.kind, task.status, task.result["events"]) == ("compact-topic", TaskStatus.DONE, 190)
    assert await events_of(topic) == known
    await write(topic, ("k1", b"little"))
    clock.advance(DAY_MS + 61_000)  # what is little waits until it is as old as a tombstone gets
    await ep.create_topic("s/wakes-it-again")
    assert (await ended_task(ep, "stream s/t", after=task)).result["events"] == 1


async def test_an_event_without_a_key_is_refused_by_every_writer(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t")
    async with topic.producer() as producer:
        await producer.write(b"before", partition=0)
        await topic.alter(compaction=SOON)
        await producer.write(b"first", key="a")  # learns of the policy with this send
        for write_one in (
            partial(producer.write, b"x"),
            partial(producer.write, b"x", partition=0),
            partial(producer.write, b"x", delay_ms=1_000),
            partial(producer.write_many, [NewEvent(b"x")]),
        ):
            with pytest.raises(InvalidArgument, match=r"s/t is compacted.*every event needs one"):
                await write_one()
    async with topic.transaction() as txn:
        with pytest.raises(InvalidArgument, match="s/t is compacted"):
            await txn.write(b"x")
    await topic.compact()
    assert [event.payload for event in await events_of(topic)] == [b"before", b"first"]
    await topic.alter(compaction=CompactionPolicy())
    async with topic.producer() as producer:
        await producer.write(b"again")


async def test_what_cannot_be_compacted_says_why(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t")
    with pytest.raises(InvalidArgument, match=r"it is not compacted; give it a policy with `topic.alter"):
        await topic.compact()
    await topic.alter(compaction=SOON)
    with pytest.raises(InvalidArgument, match="move them back; end one of the two policies first"):
        await topic.alter(offload=OffloadPolicy(age_ms=1))
    await topic.delete()
    await ep.create_topic("s/t", compaction=SOON)
    with pytest.raises(StreamReplaced):
        await topic.compact()


def _stored_bytes(tx: object) -> int:
    row = tx.execute("SELECT sum(length(data)) FROM blob").fetchone()  # type: ignore[attr-defined]
    return int(row[0])
