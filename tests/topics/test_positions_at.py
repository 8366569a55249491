"""Positions by time: Kafka's offsets for times, and consumers that go back to a time."""

from __future__ import annotations

from typing import Any

import pytest

import eventproc
from eventproc.errors import InvalidArgument
from eventproc.testing import VirtualClock

START_MS = 1_000


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


async def filled(ep: eventproc.Eventproc, clock: VirtualClock) -> tuple[eventproc.Topic, list[int]]:
    """Return a topic of three partitions, and the times of five events in 0; 1 has the last two, 2 none."""
    await ep.create_scope("s")
    topic, times = await ep.create_topic("s/t", partitions=3), []
    async with topic.producer() as producer:
        for number in range(5):
            written = await producer.write(b"%d" % number, partition=0)
            times.append(written.timestamp)
            if number >= 3:
                await producer.write(b"%d" % number, partition=1)
            clock.advance(START_MS)
    return topic, times


def numbers(found: list[Any]) -> dict[int, int]:
    return {each.partition: each.number for each in found}


async def test_positions_are_those_of_the_first_events_at_a_time_or_later(clock: VirtualClock) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        topic, times = await filled(ep, clock)
        assert numbers(await topic.positions_at(times[2])) == {0: 2, 1: 0, 2: 0}
        assert numbers(await topic.positions_at(times[2] + START_MS // 2)) == {0: 3, 1: 0, 2: 0}
        assert numbers(await topic.positions_at({1: times[4], 0: times[1]})) == {0: 1, 1: 1}
        late = await topic.positions_at(times[4] + START_MS // 2)
        assert [(each.number, each.end) for each in late] == [(5, 5), (2, 2), (0, 0)]
        await topic.truncate(partition=0, before_number=3)
        assert numbers(await topic.positions_at(0)) == {0: 3, 1: 0, 2: 0}
        assert await topic.positions_at({}) == []


@pytest.mark.parametrize("wrong", ["x", -1, True, None, {3: 0}, {0: -1}, {"0": 0}, [0]])
async def test_wrong_times_and_partitions_are_refused_by_name(wrong: Any) -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        topic = await ep.create_topic("s/t", partitions=3)
        with pytest.raises(InvalidArgument):
            await topic.positions_at(wrong)


async def test_a_consumer_of_a_pattern_that_goes_back_to_a_time_gets_all_of_what_is_added_later(
    clock: VirtualClock,
) -> None:
    async with eventproc.open_memory(clock=clock) as ep:
        topic, times = await filled(ep, clock)
        group = await ep.create_group("s/g", ["s/t"], start="tail")
        async with group.consumer("c", topics=["s/*"]) as consumer:
            await consumer.seek_to_time(times[3])
            found = [event.payload for event in await consumer.poll()]
            await topic.add_partitions(1)
            other = await ep.create_topic("s/u", partitions=1)
            async with topic.producer() as first, other.producer() as second:
                await first.write(b"new partition", partition=3)
                await second.write(b"new topic")
            while len(found) < 6:
                found += [event.payload for event in await consumer.poll()]
        assert sorted(found) == [b"3", b"3", b"4", b"4", b"new partition", b"new topic"]


async def test_a_static_consumer_that_is_away_is_removed_by_its_id() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_topic("s/t", partitions=2)
        group = await ep.create_group("s/g", ["s/t"])
        async with group.consumer("gone", static_ms=3_600_000) as gone:
            await gone.poll(timeout_ms=0)
        async with group.consumer("here") as here:
            await here.poll(timeout_ms=0)
            assert len(here.assignment) < 2, "the static one keeps its partitions"
            await group.reader_offline("gone")
            await here.poll(timeout_ms=0)
            assert len(here.assignment) == 2
