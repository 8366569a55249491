"""Ranges of a partition by event numbers, read without a group."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import eventproc
from eventproc import Topic
from eventproc.errors import InvalidArgument, StreamReplaced

EVENTS = 30


@pytest.fixture
async def topic() -> AsyncIterator[Topic[int]]:
    """A topic of two partitions; each third event lies in partition 1, and the first five of partition 0 are gone."""
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        topic = await ep.create_topic("s/t", partitions=2, payload=int)
        async with topic.producer() as producer:
            for number in range(EVENTS):
                await producer.write(number, partition=int(number % 3 == 0))
        await topic.truncate(partition=0, before_number=5)
        yield topic


def payloads(events: list[eventproc.Event[int]]) -> list[int]:
    return [event.payload for event in events]


IN_0 = [number for number in range(EVENTS) if number % 3]
IN_1 = [number for number in range(EVENTS) if number % 3 == 0]


async def test_a_range_has_the_events_of_its_numbers_that_are_kept(topic: Topic[int]) -> None:
    assert payloads(await topic.read_range(1)) == IN_1
    assert payloads(await topic.read_range(1, 2, 5)) == IN_1[2:5]
    assert payloads(await topic.read_range(0, end=8)) == IN_0[5:8], "truncated events are left out"
    assert payloads(await topic.read_range(0, 18, 1_000)) == IN_0[18:]
    for nothing in ((1, 3, 3), (1, 10, None), (1, 1_000, 2_000), (0, 0, 5)):
        assert await topic.read_range(*nothing) == []


async def test_pages_follow_each_other_by_the_numbers_of_their_events(topic: Topic[int]) -> None:
    found: list[int] = []
    start = 0
    while page := await topic.read_range(1, start, events_max=4):
        assert len(page) <= 4
        assert [event.number for event in page] == list(range(start, start + len(page)))
        found += payloads(page)
        start = page[-1].number + 1
    assert found == IN_1


@pytest.mark.parametrize(
    "wrong", [{"partition": 2}, {"start": -1}, {"start": 5, "end": 4}, {"events_max": 0}, {"end": "x"}]
)
async def test_a_range_that_cannot_be_is_refused(topic: Topic[int], wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        await topic.read_range(**{"partition": 1, **wrong})


async def test_a_range_of_a_topic_that_was_replaced_is_refused() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        topic = await ep.create_topic("s/t", partitions=1)
        await topic.seal()
        await topic.delete()
        await ep.create_topic("s/t", partitions=1)
        with pytest.raises(StreamReplaced):
            await topic.read_range(0)


def test_a_range_is_read_without_await(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "store") as ep:
        ep.create_scope("s")
        topic = ep.create_topic("s/t", partitions=1, payload=str)
        with topic.producer() as producer:
            producer.write("a")
        assert [event.payload for event in topic.read_range(0)] == ["a"]
