"""One consumer: polls, commits, positions, seeking and pausing."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

import eventproc
from eventproc import errors
from eventproc.runtime import Eventproc
from eventproc.store.model.progress import Progress
from eventproc.store.progress import SegmentClaim, move_progress
from eventproc.store.segments import Event
from eventproc.testing import VirtualClock
from eventproc.topics import TopicPartition
from tests.consumers.support import TOPIC, committed, make_topic, numbers_of, poll_all, produce
from tests.support.virtual_time import in_virtual_time


async def test_a_poll_returns_typed_events_with_partition_and_number(ep: Eventproc) -> None:
    topic = await ep.create_stream(TOPIC, payload=int)
    async with topic.writer() as writer:
        await writer.write(7, key="ana", headers={"h": "1"}, event_time=5)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", payload=int) as consumer:
        (event,) = await consumer.poll()
        assert (event.payload, event.key, event.headers, event.event_time) == (7, "ana", {"h": "1"}, 5)
        assert (event.stream, event.partition, event.number) == (TOPIC, 0, 0)
        assert event.timestamp > 0
        assert consumer.position == {(TOPIC, 0): 1}


async def test_a_poll_returns_at_most_what_is_asked_for_and_keeps_the_order(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        assert numbers_of(await consumer.poll(3)) == [0, 1, 2]
        assert numbers_of(await consumer.poll(4)) == [3, 4, 5, 6]
        assert numbers_of(await consumer.poll()) == [7, 8, 9]
        assert await consumer.poll(timeout_ms=0) == []
        assert await consumer.poll(timeout_ms=5) == []


async def test_iterating_yields_the_events_until_a_sealed_topic_is_processed(ep: Eventproc) -> None:
    topic = await make_topic(ep, 1, events=20)
    await topic.seal()
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        assert [int(event.payload) async for event in consumer] == list(range(20))
        assert await consumer.poll() == []


async def test_the_next_poll_commits_the_events_of_the_poll_before(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")

    async def handle() -> None:
        async with group.consumer("c") as consumer:
            await consumer.poll(4)
            await consumer.poll(3)
            raise ValueError("handler")

    with pytest.raises(ValueError, match="handler"):
        await handle()
    async with group.consumer("d") as consumer:
        assert numbers_of(await consumer.poll()) == [4, 5, 6, 7, 8, 9]


@pytest.mark.acceptance("K4")
@pytest.mark.acceptance("K38")
async def test_with_manual_commits_only_commit_moves_the_number(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(3)
        await consumer.poll(3)
        assert await committed(group) == {(TOPIC, 0): None}
        await consumer.commit()
        assert await committed(group) == {(TOPIC, 0): 6}
        await consumer.commit()  # as after a lost reply: it changes nothing
        await consumer.poll(3)
    assert await committed(group) == {(TOPIC, 0): 6}
    async with group.consumer("c", auto_commit=False) as consumer:
        assert numbers_of(await consumer.poll()) == [6, 7, 8, 9]


async def test_chosen_numbers_are_committed_and_the_position_stays(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(8)
        await consumer.commit({(TOPIC, 0): 5})
        assert consumer.committed == {(TOPIC, 0): 5}
        assert consumer.position == {(TOPIC, 0): 8}
        with pytest.raises(errors.InvalidArgument, match="numbers 0 to 10"):
            await consumer.commit({(TOPIC, 0): 11})
        assert numbers_of(await consumer.poll()) == [8, 9]
    assert await committed(group) == {(TOPIC, 0): 5}


async def test_a_commit_of_a_partition_of_others_changes_nothing(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(2)
        with pytest.raises(
            errors.SegmentFenced, match=r"segment 1 of stream .* is not assigned to reader 'c'"
        ):
            await consumer.commit({(TOPIC, 0): 2, (TOPIC, 1): 2})
        with pytest.raises(errors.SegmentFenced, match=r"segment s/none\[0\] is not assigned to reader 'c'"):
            await consumer.seek(("s/none", 0), 0)
        assert await committed(group) == {(TOPIC, 0): None}


@pytest.mark.acceptance("K8")
async def test_a_commit_with_a_future_epoch_is_refused(ep: Eventproc) -> None:
    topic = await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", auto_commit=False) as consumer:
        await consumer.poll(2)
        reader = await ep.group("s/g")
        (segment,) = (await reader.describe()).segments
        progress = Progress(2, 26)
        for epoch in segment.owner_epoch + 1, segment.owner_epoch - 1:
            claim = SegmentClaim("s/g", "c", topic.stream_id, segment.segment, epoch)
            with pytest.raises(errors.SegmentFenced):
                await ep.db.write(partial(move_progress, claim=claim, progress=progress))
        assert await committed(group) == {(TOPIC, 0): None}


async def test_seeking_delivers_other_events_next(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        await consumer.poll(5)
        await consumer.seek((TOPIC, 0), 2)
        assert consumer.position == {(TOPIC, 0): 2}
        assert numbers_of(await consumer.poll(2)) == [2, 3]
        await consumer.seek_to_end()
        assert await consumer.poll(timeout_ms=0) == []
        await consumer.seek_to_beginning([(TOPIC, 0)])
        assert numbers_of(await poll_all(consumer)) == list(range(10))
        await consumer.seek((TOPIC, 0), 7)
    assert await committed(group) == {(TOPIC, 0): 7}
    with pytest.raises(errors.Closed):
        await consumer.poll()


@in_virtual_time
async def test_seeking_to_a_time_delivers_what_was_appended_then_or_later_in_all_topics() -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        topics = [await ep.create_topic(name, partitions=1) for name in ("s/t-1", "s/t-2")]
        for first in (0, 2, 4):
            for topic in topics:
                async with topic.producer() as producer:
                    await producer.write_many((b"%d" % number, "k") for number in (first, first + 1))
            await anyio.sleep(10)
        now_ms = clock.wall_ms()
        group = await ep.create_group("g", ["s/t-1", "s/t-2"], on_deleted="drop")
        async with group.consumer("c", topics=["s/t-*"]) as consumer:
            assert len(await poll_all(consumer)) == 12
            for seconds, numbers in (
                (25, [2, 3, 4, 5]),
                (20, [2, 3, 4, 5]),
                (15, [4, 5]),
                (5, []),
                (99, range(6)),
            ):
                await consumer.seek_to_time(now_ms - 1_000 * seconds)
                assert sorted(numbers_of(await poll_all(consumer))) == sorted([*numbers, *numbers])
            await consumer.seek_to_time(now_ms - 15_000, [("s/t-2", 0)])
            assert numbers_of(await poll_all(consumer)) == [4, 5]
            with pytest.raises(errors.SegmentFenced):
                await consumer.seek_to_time(0, [("s/t-3", 0)])
            with pytest.raises(errors.InvalidArgument):
                await consumer.seek_to_time(-1)


async def test_seeking_outside_a_partition_is_refused(ep: Eventproc) -> None:
    await make_topic(ep, 1, events=10)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        with pytest.raises(errors.InvalidArgument, match=r"s/t\[0\] has numbers 0 to 10"):
            await consumer.seek((TOPIC, 0), 11)
        with pytest.raises(errors.SegmentFenced):
            await consumer.seek((TOPIC, 9), 0)


@pytest.mark.acceptance("K40", differs="for some polls: pausing has no clock")
async def test_a_paused_partition_stays_assigned_and_continues_where_it_was(ep: Eventproc) -> None:
    topic = await make_topic(ep, 2, events=20)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:
        await consumer.poll(1)
        before = consumer.position[TopicPartition(TOPIC, 0)]
        consumer.pause([(TOPIC, 0)])
        assert {event.partition for event in await poll_all(consumer)} == {1}
        await produce(topic, range(20, 40))
        assert {event.partition for event in await poll_all(consumer)} == {1}
        assert list(consumer.paused) == [(TOPIC, 0)]
        assert len(consumer.assignment) == 2
        lag = {each.partition: each.events for each in await group.partitions()}
        assert lag[0] > 0
        consumer.resume()
        rest = await poll_all(consumer)
        assert {event.partition for event in rest} == {0}
        assert [event.number for event in rest] == list(range(before, before + len(rest)))
        assert len(consumer.paused) == 0


async def test_a_payload_of_another_type_stops_at_its_event_until_a_seek(ep: Eventproc) -> None:
    topic = await ep.create_stream(TOPIC)
    async with topic.writer() as writer:
        await writer.write_many((text, None) for text in (b"1", b"2", b"x", b"4"))
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c", payload=int) as consumer:
        assert [event.payload for event in await consumer.poll()] == [1, 2]
        for _ in range(2):
            with pytest.raises(errors.InvalidArgument):
                await consumer.poll()
        assert consumer.position == {(TOPIC, 0): 2}
        await consumer.seek((TOPIC, 0), 3)
        assert [event.payload for event in await consumer.poll()] == [4]


@pytest.mark.acceptance("K33", differs="events get their numbers at the commit, so aborted ones leave no gap")
async def test_events_of_an_aborted_transaction_are_never_delivered(ep: Eventproc) -> None:
    topic = await make_topic(ep, 1, events=2)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    txn = await topic.begin()
    await txn.write(b"9")
    await txn.abort()
    await produce(topic, range(2, 4))
    async with group.consumer("c") as consumer:
        assert numbers_of(await poll_all(consumer)) == [0, 1, 2, 3]
        assert consumer.position == {(TOPIC, 0): 4}


async def test_a_handler_gets_the_events_of_each_partition_in_order(ep: Eventproc) -> None:
    topic = await make_topic(ep, 3, events=30)
    await topic.seal()
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    seen: dict[int, list[int]] = {}
    async with group.consumer("c") as consumer:

        async def handle(events: list[Event]) -> None:
            assert len({event.partition for event in events}) == 1
            seen.setdefault(events[0].partition, []).extend(event.number for event in events)

        await consumer.run(handle, poll_max=4, parallel=2)
    assert sorted(seen) == [0, 1, 2]
    assert all(numbers == list(range(len(numbers))) for numbers in seen.values())
    assert sum(map(len, seen.values())) == 30


@pytest.mark.acceptance("K13")
async def test_the_events_of_a_failed_handler_come_again_and_others_are_committed(ep: Eventproc) -> None:
    await make_topic(ep, 3, events=30)
    group = await ep.create_group("g", [TOPIC], on_deleted="drop")
    async with group.consumer("c") as consumer:

        async def handle(events: list[Event]) -> None:
            if events[0].partition == 1:
                raise ValueError("poison")

        consumer.pause([(TOPIC, 0), (TOPIC, 2)])
        with pytest.raises(ValueError, match="poison"):
            await consumer.run(handle, poll_max=100)
        consumer.resume()
        partitions = {each.partition: each for each in await group.partitions()}
        assert partitions[1].events == partitions[1].end
        assert consumer.position[TopicPartition(TOPIC, 1)] == 0
        assert [event.number for event in await consumer.poll(1)] == [0]
