"""Compaction beside what else changes a topic meanwhile: joins of small runs, consumers, deaths of processes."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc import CompactionPolicy
from eventproc.runtime import Eventproc
from eventproc.testing import Fault, FaultPlan, VirtualRuntime
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.checked_directory import clock as clock, ep as ep  # fixtures
from tests.support.reading import events_of
from tests.topics.compaction_twin import verify_killed_compaction

SOON = CompactionPolicy(min_age_ms=0, tombstone_ms=0)


def test_runs_that_are_joined_between_two_passes_keep_no_older_event_of_a_tombstone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventproc.streams.compaction.KEYS_MAX", 1)
    faults = FaultPlan(
        [
            Fault("task.submit.begun", "delay", ms=60_000),  # the policy's own compaction comes later
            Fault("extent.join.begun", "delay", ms=2_000),
            Fault("compaction.begun", "delay", ms=4_000),
        ]
    )

    async def main() -> None:
        async with eventproc.open_memory(faults=faults) as ep:
            await ep.create_scope("s")
            topic = await ep.create_topic("s/t", compaction=SOON)
            async with topic.producer() as producer:
                await producer.write(bytes(4 * 2**20 - 24), key="long")  # one read ends behind the next two
                await producer.write(b"1", key="a")
                await producer.write(b"", key="a")
                for number in range(260):
                    await producer.write(b"x", key=f"k{number}")
            await topic.compact()
            assert faults.reached["extent.join.committed"]
            await topic.compact()
            assert [each.payload for each in await events_of(topic) if each.key == "a"] == []

    VirtualRuntime(seed=1, backend="asyncio").run(main)


async def test_an_event_that_was_removed_while_a_consumer_held_it_becomes_no_empty_dead_letter(
    ep: Eventproc,
) -> None:
    topic = await ep.create_topic("s/t", compaction=SOON)
    share = await ep.create_share_group("s/share", ["s/t"], deliveries_max=1)
    async with topic.producer() as producer, share.consumer() as consumer:
        await producer.write_many([(b"1", "a"), (b"2", "b")])
        first, second = await consumer.poll()
        await producer.write(b"3", key="a")
        await topic.compact()
        await consumer.reject([first, second], "no")
        letters = await ep.dead_letters("s/share").list()
        assert [(each.key, each.payload) for each in letters] == [("b", b"2")]
        (third,) = await consumer.poll()
        assert third.event.payload == b"3"


@pytest.mark.subprocess
@pytest.mark.parametrize(("point", "nth"), [("compaction.commit", 3), ("compaction.committed", 1)])
async def test_a_compaction_that_is_killed_keeps_the_newest_event_of_each_key(
    tmp_path: Path, point: str, nth: int
) -> None:
    await verify_killed_compaction(str(tmp_path / "data"), point, nth)
