"""A share group when its streams scale, are truncated, deleted, or the group is reset."""

from __future__ import annotations

import anyio
import pytest

from eventproc.errors import LockLost, NotFound, ShareStreamsDeleted
from eventproc.runtime import Eventproc
from eventproc.shares import Delivery
from tests.shares.support import drain, numbers_of, poll_now, write_numbers, written_to


async def test_successors_are_consumed_beside_their_predecessor(ep: Eventproc) -> None:
    stream = await written_to(ep, 10)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as first, group.consumer("b") as second:
        held = await first.poll(5)
        await stream.split(0, 2)
        await write_numbers(stream, range(10, 20))
        rest = await poll_now(second)
        assert numbers_of(rest) == list(range(5, 20))
        assert {str(event.event.segment) for event in rest} == {"0.0", "1.1", "2.1"}
        await second.accept(rest)
        await first.accept(held)
    assert [str(each.segment) for each in (await group.describe()).segments] != ["0.0"]
    assert await drain(group) == []


async def test_a_group_created_after_scales_consumes_all_of_them(ep: Eventproc) -> None:
    stream = await written_to(ep, 10)
    await stream.split(0, 2)
    await write_numbers(stream, range(10, 20))
    group = await ep.create_share_group("work", ["s/t"])
    assert (await group.describe()).events == 20
    assert await drain(group) == list(range(20))


async def test_truncated_events_are_skipped_and_counted(ep: Eventproc) -> None:
    stream = await written_to(ep, 10)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        held = await consumer.poll(4)
        await consumer.accept(held[0])
        await stream.truncate(await stream.tail())
        await write_numbers(stream, range(10, 12))
        events = await poll_now(consumer)
        assert numbers_of(events) == [10, 11]
        with pytest.raises(LockLost):
            await consumer.accept(held[1:])
        await consumer.accept(events)
    found = await group.describe()
    assert (found.events, found.lost_events) == (0, 9)


async def test_a_deleted_stream_does_not_stop_the_others(ep: Eventproc) -> None:
    stream = await written_to(ep, 3)
    other = await written_to(ep, 2, name="s/u")
    group = await ep.create_share_group("work", ["s/t", "s/u"])
    async with group.consumer("a") as consumer:
        held = [event for event in await poll_now(consumer) if event.event.stream == "s/t"]
        await stream.seal()
        await stream.delete()
        await write_numbers(other, [2])
        events = await poll_now(consumer)
        assert numbers_of(events) == [2]
        with pytest.raises(LockLost):
            await consumer.accept(held)
    found = await group.describe()
    assert {each.name for each in found.streams} == {"s/t", "s/u"}
    assert found.deleted == ("s/t",)
    assert await ep.create_share_group("work", ["s/t", "s/u"]) is not None


@pytest.mark.parametrize("polls_between", [False, True])
async def test_a_stream_that_is_deleted_and_created_again_is_consumed_from_its_head(
    ep: Eventproc, polls_between: bool
) -> None:
    stream = await written_to(ep, 3)
    await written_to(ep, 0, name="s/u")
    group = await ep.create_share_group("work", ["s/t", "s/u"], start="tail")
    async with group.consumer("a") as consumer:
        await stream.seal()
        await stream.delete()
        if polls_between:
            assert await poll_now(consumer) == []
        await written_to(ep, 2)
        events = await poll_now(consumer)
        assert [(event.event.stream, event.event.number) for event in events] == [("s/t", 0), ("s/t", 1)]
        await consumer.accept(events)
    found = await group.describe()
    assert {each.name for each in found.streams} == {"s/t", "s/u"}
    assert (found.deleted, found.events) == ((), 0)


async def test_a_topic_that_is_deleted_and_created_again_wakes_a_waiting_poll(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/clicks", partitions=2)
    await written_to(ep, 0, name="s/u")
    group = await ep.create_share_group("work", ["s/clicks", "s/u"])
    found: list[Delivery] = []
    async with group.consumer("a") as consumer, anyio.create_task_group() as tasks:

        async def take() -> None:
            with anyio.fail_after(20):
                found.extend(await consumer.poll())

        await topic.delete()
        assert await poll_now(consumer) == []
        tasks.start_soon(take)
        await anyio.lowlevel.checkpoint()
        topic = await ep.create_topic("s/clicks", partitions=2)
        async with topic.producer() as producer:
            await producer.write(b"7", partition=1)
    assert numbers_of(found) == [7]


async def test_a_consumer_watches_no_stream_that_was_deleted(ep: Eventproc) -> None:
    await ep.create_stream("s/u")
    group = await ep.create_share_group("work", ["s/u"])
    watches: list[int] = []
    async with group.consumer("a") as consumer:
        for number in range(4):
            stream = await ep.create_stream("s/t")
            await group.update(streams=["s/u", "s/t"])
            await write_numbers(stream, range(number))
            assert numbers_of(await consumer.poll(timeout_ms=0)) == list(range(number))
            assert await consumer.poll(timeout_ms=0) == []
            watches.append(len(ep.db._subscriptions.watches))
            await stream.seal()
            await stream.delete()
    assert set(watches[1:]) == {watches[1]}, "each commit of another process asks all of them"


async def test_a_reset_keeps_a_deleted_stream_in_the_group(ep: Eventproc) -> None:
    stream = await written_to(ep, 3)
    await written_to(ep, 1, name="s/u")
    group = await ep.create_share_group("work", ["s/t", "s/u"])
    await stream.seal()
    await stream.delete()
    await group.reset()
    assert await drain(group) == [0]
    await written_to(ep, 2)
    assert await drain(group) == [0, 1]


@pytest.mark.parametrize("name", ["s/t", "s/u"])
async def test_a_group_whose_streams_are_all_deleted_goes_on_with_the_next_or_is_reset_to_others(
    ep: Eventproc, name: str
) -> None:
    stream = await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"])
    await stream.seal()
    await stream.delete()
    async with group.consumer("a") as consumer:
        with pytest.raises(ShareStreamsDeleted):
            await consumer.poll()
        with pytest.raises(NotFound):
            await group.reset()
        await written_to(ep, 2, name=name)
        if name == "s/u":
            await group.reset(streams=[name])
        assert numbers_of(await poll_now(consumer)) == [0, 1]


async def test_a_reset_takes_the_locks_and_delivers_from_the_new_position(ep: Eventproc) -> None:
    await written_to(ep, 4)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        held = await consumer.poll()
        await consumer.accept(held[:2])
        await group.reset("head")
        with pytest.raises(LockLost):
            await consumer.accept(held[2:])
        again = await poll_now(consumer)
        assert [(event.event.number, event.deliveries) for event in again] == [(0, 1), (1, 1), (2, 1), (3, 1)]
        for settle in (consumer.accept, consumer.release, consumer.reject, consumer.renew):
            with pytest.raises(LockLost):  # deliveries of before the reset, with equal numbers
                await settle(held[2:])
        assert (await group.describe()).in_flight == 4
        await consumer.accept(again)


async def test_small_polls_take_events_of_all_segments(ep: Eventproc) -> None:
    await written_to(ep, 40, segments=2)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        segments = set()
        for _ in range(4):
            events = await consumer.poll(1)
            segments |= {event.event.segment for event in events}
            await consumer.accept(events)
    assert len(segments) == 2


async def test_an_iteration_ends_when_another_consumer_finishes_the_last_event(ep: Eventproc) -> None:
    stream = await written_to(ep, 1)
    await stream.seal()
    group = await ep.create_share_group("work", ["s/t"], lock_ms=600_000)
    async with group.consumer("a") as first, group.consumer("b") as second:
        held = await first.poll()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:

                async def end() -> None:
                    assert await second.poll() == []

                tasks.start_soon(end)
                await anyio.wait_all_tasks_blocked()
                await first.accept(held)


async def test_describe_counts_what_is_in_flight_and_how_often_it_was_delivered(ep: Eventproc) -> None:
    await written_to(ep, 10)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        events = await consumer.poll(6)
        await consumer.release(events[:2])
        await consumer.accept(events[5])
        again = await consumer.poll(1)
        found = await group.describe()
        assert (found.state, found.events, found.in_flight) == ("active", 9, 4)
        assert found.deliveries == {1: 4, 2: 1}
        (segment,) = found.segments
        assert (segment.number, segment.next_number, segment.available) == (0, 6, 1)
        assert [(each.consumer, each.events) for each in found.consumers] == [("a", 4)]
        await consumer.accept(again)


async def test_describe_counts_what_no_consumer_has_seen_yet(ep: Eventproc) -> None:
    stream = await written_to(ep, 4)
    group = await ep.create_share_group("work", ["s/t"])
    await stream.split(0)
    await write_numbers(stream, [5, 6])
    assert (await group.describe()).events == 6
    await stream.seal()
    await stream.delete()
    assert (await group.describe()).deleted == ("s/t",)
    await written_to(ep, 3)
    found = await group.describe()
    assert (found.events, found.deleted) == (3, ())


async def test_events_that_are_held_or_set_aside_stop_none_behind_them(ep: Eventproc) -> None:
    await written_to(ep, 6_000)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("slow") as slow, group.consumer("b") as second:
        held = await poll_now(slow, 2_500)
        later = await poll_now(second, 2_500)
        await second.release(later[::2], delay_ms=3_600_000)
        await second.accept(later[1::2])
        rest = await poll_now(second, 5_000)
        assert numbers_of(rest) == list(range(5_000, 6_000))
        (segment,) = (await group.describe()).segments
        assert (segment.in_flight, segment.set_aside, segment.available) == (3_500, 1_250, 0)
        await slow.accept(held)


async def test_a_reset_to_other_streams_keeps_what_was_redriven(ep: Eventproc) -> None:
    await written_to(ep, 1)
    await written_to(ep, 2, name="s/u")
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        await consumer.reject(await consumer.poll())
        await ep.dead_letters("s/work").redrive("all")
        await group.reset("head", streams=["s/u"])
        events = await poll_now(consumer)
        assert sorted((event.event.stream, event.event.number) for event in events) == [
            ("s/u", 0),
            ("s/u", 1),
            ("s/work-redrive", 0),
        ]
        redrive = await ep.stream("s/work-redrive")
        await redrive.seal()
        await redrive.delete()
        await group.reset("head", streams=["s/t"])
        assert numbers_of(await poll_now(consumer)) == [0]
