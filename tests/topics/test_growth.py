"""Adding partitions under writers, transactions, readers, groups and processors; altering, truncating, deleting."""

from __future__ import annotations

import itertools

import pytest

import eventproc
from eventproc import NewEvent, ScaleStream, Topic
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import DiskFull, InvalidArgument, InvalidCut, ScaleRefused, StreamSealed
from eventproc.store.model.ids import epoch_of
from eventproc.store.model.partitions import growth
from eventproc.store.model.policies import Partitioning
from eventproc.store.model.routing import point
from eventproc.testing import disk_full
from tests.support.reading import events_of
from tests.topics.support import by_partition

KEYS = [f"key{number}" for number in range(60)]

BIG = bytes(2**20)


async def filled(ep: Eventproc, partitions: int) -> Topic:
    """Return a topic with one event per key."""
    topic = await ep.create_topic("s/t", partitions=partitions)
    async with topic.producer() as producer:
        for key in KEYS:
            await producer.post(b"before", key=key)
    return topic


def owner(key: str | None, partitions: int) -> int:
    return int(point(str(key)) * partitions)


async def test_growth_leaves_partitions_their_segments_and_events(ep: Eventproc) -> None:
    topic = await filled(ep, 3)
    before = await topic.partitions()
    assert await topic.add_partitions(2) == (3, 4)
    after = await topic.partitions()
    assert after[:3] == before
    assert [(each.number, each.events) for each in after[3:]] == [(3, 0), (4, 0)]
    assert [epoch_of(each.segment) for each in after] == [0, 0, 0, 1, 1]
    assert (await ep.topics())[0].partitions == 5
    assert await topic.add_partitions(1) == (5,)
    assert (await ep.create_topic("s/t", partitions=6)).stream_id == topic.stream_id


async def test_a_writer_routes_by_the_new_number_without_being_told(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    async with topic.producer() as producer, (await ep.stream("s/t")).writer(name="w") as writer:
        await producer.write(b"0", key="k")
        await topic.add_partitions(4)
        for key in KEYS:
            await producer.post(b"p", key=key)
        await writer.write_many([(b"w", key) for key in KEYS])
        await writer.write(b"chosen", key=KEYS[0], partition=6)
    events = [each for each in await events_of(topic) if each.payload in (b"p", b"w")]
    assert len(events) == 2 * len(KEYS)
    assert all(each.partition == owner(each.key, 7) for each in events)


async def test_events_that_wait_while_a_topic_grows_keep_a_chosen_partition(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    async with topic.producer() as producer:
        for key in KEYS:
            await producer.post(b"routed", key=key)
            await producer.post(b"chosen", key=key, partition=1, headers={"a": "b"}, event_time=5)
        await topic.add_partitions(3)
    events = await events_of(topic)
    chosen = [each for each in events if each.payload == b"chosen"]
    assert {each.partition for each in chosen} == {1} and len(chosen) == len(KEYS)
    assert all(each.headers == {"a": "b"} and each.event_time == 5 for each in chosen)
    routed = [each for each in events if each.payload == b"routed"]
    assert len(routed) == len(KEYS)
    assert all(each.partition in (owner(each.key, 2), owner(each.key, 5)) for each in routed)


async def test_a_new_partition_can_be_named_without_a_send_in_between(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=1)
    other = await ep.topic("s/t")
    async with topic.producer(name="p") as one, topic.producer() as two, topic.transaction() as txn:
        await two.post(b"0", partition=0)
        await txn.write(b"1", partition=0)
        await other.add_partitions(3)
        await one.write(b"2", partition=3)
        await one.write_many([NewEvent(b"3", partition=2)], sequence=9)
        await two.post(b"4", partition=1)
        await txn.write(b"5", partition=3)
        await other.add_partitions(1)
        await two.write_many([NewEvent(b"6", partition=4)])
        await txn.write_many([NewEvent(b"7", partition=4)])
        for wrong in (5, -1, "0", True):
            with pytest.raises(InvalidArgument, match="s/t has the partitions 0 to 4"):
                await two.write(b"x", partition=wrong)  # type: ignore[arg-type]
    found = {number: sorted(each) for number, each in (await by_partition(topic)).items()}
    assert found == {0: [b"0", b"1"], 1: [b"4"], 2: [b"3"], 3: [b"2", b"5"], 4: [b"6", b"7"]}


async def test_no_event_is_lost_whose_send_fails_while_a_new_partition_is_looked_up(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=1)
    other = await ep.topic("s/t")
    async with topic.producer() as producer:
        await other.add_partitions(1)
        async with disk_full(ep.db):
            with pytest.raises(DiskFull):
                await producer.write_many([NewEvent(BIG, partition=0), NewEvent(b"1", partition=1)])
    assert await events_of(topic) == []


@pytest.mark.usefixtures("commit_path")
@pytest.mark.parametrize("flush", [False, True])
async def test_a_transaction_that_is_open_while_a_topic_grows_commits(ep: Eventproc, flush: bool) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    async with topic.transaction() as txn:
        for key in KEYS:
            await txn.write(b"1", key=key)
        await txn.write(b"chosen", partition=2)
        if flush:
            await txn.flush()
        await topic.add_partitions(2)
        for key in KEYS:
            await txn.write(b"2", key=key)
    events = await events_of(topic)
    assert len(events) == 2 * len(KEYS) + 1
    first = [each for each in events if each.payload == b"1"]
    assert all(each.partition == owner(each.key, 3 if flush else 5) for each in first)
    assert all(each.partition == owner(each.key, 5) for each in events if each.payload == b"2")


async def test_a_reader_follows_a_topic_that_grows(ep: Eventproc) -> None:
    topic = await filled(ep, 2)
    async with topic.reader("tail") as reader:
        await topic.add_partitions(2)
        async with topic.producer() as producer:
            await producer.write(b"new", partition=3)
            await producer.write(b"old", partition=0)
        found = [each async for each in reader.until(await topic.tail())]
    assert {(each.payload, each.partition) for each in found} == {(b"new", 3), (b"old", 0)}


async def test_two_growths_at_a_time_do_not_both_take_the_reserve(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    epoch = (await topic.epochs())[-1]
    seal, ranges = growth(epoch, 1)
    await topic.add_partitions(1)
    with pytest.raises(ScaleRefused, match="partitions were added meanwhile: it has 3 partitions now"):
        await ep.requests.submit(ScaleStream("s/t", topic.stream_id, seal, ranges))


@pytest.mark.parametrize("count", [0, -1, 1022])
async def test_a_number_of_new_partitions_outside_the_limits_is_refused(ep: Eventproc, count: int) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    with pytest.raises(InvalidArgument):
        await topic.add_partitions(count)
    assert len(await topic.partitions()) == 2


async def test_a_topic_grows_to_all_partitions_there_are(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=1000)
    await topic.add_partitions(23)
    async with topic.producer() as producer:
        await producer.write(b"last", key="k", partition=1022)
    assert await by_partition(topic) == {1022: [b"last"]}


async def test_a_sealed_topic_does_not_grow(ep: Eventproc) -> None:
    topic = await filled(ep, 2)
    await topic.seal()
    with pytest.raises(StreamSealed):
        await topic.add_partitions(1)


async def test_altering_changes_the_number_and_the_strategy(ep: Eventproc) -> None:
    topic = await filled(ep, 2)
    async with topic.producer() as producer:
        await producer.write(b"x", key="k")
        await topic.alter(partitions=4, partitioning="round_robin")
        await topic.alter(partitions=4)
        for number in range(8):
            await producer.write(b"%d" % number, key="same")
    found = await topic.describe()
    assert (len(found.partitions), found.partitioning) == (4, Partitioning.ROUND_ROBIN)
    late = [each.partition for each in await events_of(topic) if each.key == "same"]
    assert sorted(late) == sorted([0, 1, 2, 3] * 2)
    with pytest.raises(ScaleRefused, match="partitions can be added, and never removed"):
        await topic.alter(partitions=3)


async def test_a_new_strategy_alone_reaches_a_writer_that_is_open(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=3)
    async with topic.producer() as producer:
        await producer.write(b"x", key="k")
        await topic.alter(partitioning="round_robin")
        await producer.write_many([(b"y", "k")] * 3)
    assert sorted(each.partition for each in await events_of(topic) if each.payload == b"y") == [0, 1, 2]


async def test_one_partition_is_truncated_by_number_and_by_time(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    await topic.add_partitions(1)
    async with topic.producer() as producer:
        for partition, number in itertools.product(range(3), range(5)):
            await producer.write(b"%d" % number, partition=partition)
    await topic.truncate(partition=2, before_number=3)
    await topic.truncate(partition=0, before_number=1)
    assert [(each.first, each.end) for each in await topic.partitions()] == [(1, 5), (0, 5), (3, 5)]
    await topic.truncate(partition=0, before_number=0)  # gone already
    late = (await events_of(topic))[-1].timestamp + 1
    await topic.truncate(partition=1, before_ms=late)
    assert [each.first for each in await topic.partitions()] == [1, 5, 3]
    await topic.truncate(before_ms=late)
    assert [each.events for each in await topic.partitions()] == [0, 0, 0]


async def test_a_topic_is_truncated_by_a_cut(ep: Eventproc) -> None:
    topic = await filled(ep, 3)
    await topic.truncate(await topic.tail())
    assert (await topic.describe()).events == 0
    other = await ep.create_topic("s/u")
    with pytest.raises(InvalidCut, match="cut of s/u"):
        await topic.truncate(await other.tail())


async def test_a_truncation_without_one_clear_limit_is_refused(ep: Eventproc) -> None:
    topic = await filled(ep, 3)
    with pytest.raises(InvalidArgument, match="exactly one"):
        await topic.truncate()
    with pytest.raises(InvalidArgument, match="exactly one"):
        await topic.truncate(partition=1, before_ms=1, before_number=1)
    with pytest.raises(InvalidArgument, match="name the partition"):
        await topic.truncate(before_number=1)
    with pytest.raises(InvalidArgument, match="a cut names all partitions"):
        await topic.truncate(await topic.head(), partition=1)
    with pytest.raises(InvalidArgument, match="s/t has the partitions 0 to 2"):
        await topic.truncate(partition=3, before_ms=1)
    with pytest.raises(InvalidArgument, match="partition 0 ends at event"):
        await topic.truncate(partition=0, before_number=1000)


async def test_a_processor_handles_a_topic_that_grows(ep: Eventproc) -> None:
    topic = await filled(ep, 2)
    app = eventproc.App()
    seen: list[int] = []

    @app.processor("s/t", group="s/p")
    async def handle(event: eventproc.Event) -> None:
        seen.append(event.partition)

    async with ep.run(app) as running:
        await topic.add_partitions(2)
        async with topic.producer() as producer:
            await producer.write(b"new", partition=3)
        await running.wait_idle(timeout_ms=30_000)
    assert len(seen) == len(KEYS) + 1 and 3 in seen
