"""What a compaction must keep, by a naive twin; and a compaction whose process is killed at one of its steps."""

from __future__ import annotations

import random

import anyio

import eventproc
from eventproc import Event, NewEvent, Topic
from eventproc.testing import check
from tests.support.child_process import ChildProcess
from tests.support.reading import events_of

_COMPACT = """
    import sys
    from unittest.mock import patch

    import anyio

    import eventproc
    from eventproc.testing import SignalAt

    async def main(place, point, nth):
        async with eventproc.open(place, faults=SignalAt(point, int(nth))) as ep:
            await (await ep.topic("s/t")).compact()

    with patch("eventproc.store.segments.compaction.STEP_BYTES", 300):
        anyio.run(main, *sys.argv[1:])
"""


async def write_any(topic: Topic, dice: random.Random, count: int) -> None:
    """Write events of all kinds, in small and large sends and in transactions."""
    events = [
        NewEvent(
            dice.choice([b"", b"x", b"value" * dice.randint(1, 60)]),
            key=dice.choice(["", "k", "schlüssel", f"k{dice.randrange(8)}"]),
            event_time=dice.choice([None, -1, 2**50]),
            headers=dice.choice([None, {"a": "ß"}]),
        )
        for _ in range(count)
    ]
    if dice.random() < 0.3:
        async with topic.transaction() as txn:
            for each in events:
                await txn.write(each.payload, key=each.key, event_time=each.event_time, headers=each.headers)
        return
    async with topic.producer() as producer:
        for each in events:
            await producer.post(each.payload, key=each.key, event_time=each.event_time, headers=each.headers)
            if dice.random() < 0.2:
                await producer.flush()


def kept(events: list[Event]) -> list[Event]:
    """The naive twin: the newest event of each key and partition, of events in order."""
    newest = {(event.partition, event.key): event.number for event in events}
    return [event for event in events if event.number == newest[event.partition, event.key]]


def verify_newest(known: list[Event], found: list[Event]) -> None:
    """Verify that every key has its newest event, or that its tombstone and all that came before it are gone."""
    assert [each for each in known if each in found] == found
    for newest in kept(known):
        if newest not in found:
            assert not newest.payload
            assert [each for each in found if each.key == newest.key] == []


async def verify_killed_compaction(place: str, point: str, nth: int) -> None:
    """Kill a process at a step of a compaction of the new store at `place`; verify what it left, and compact again."""
    async with eventproc.open(place) as ep:
        await ep.create_scope("s")
        policy = eventproc.CompactionPolicy(min_age_ms=0, tombstone_ms=0)
        topic = await ep.create_topic("s/t", partitions=2, compaction=policy)
        await write_any(topic, random.Random(3), 60)
        async with topic.producer() as producer:
            await producer.write_many([(b"", "k"), (b"", "")])
        known = await events_of(topic)
    with ChildProcess.running(_COMPACT, place, point, nth) as process:
        await anyio.to_thread.run_sync(process.wait_killed)
    async with eventproc.open(place) as ep:
        topic = await ep.topic("s/t")
        verify_newest(known, await events_of(topic))
        await check(ep.db)
        await topic.compact()
        verify_newest(known, await events_of(topic))
        await topic.compact()  # tombstones stay for 0 ms after the first compaction
        assert await events_of(topic) == [each for each in kept(known) if each.payload]
        await check(ep.db)
