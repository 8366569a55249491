"""Processes that die while a topic grows: the growth is complete or absent, and no event is lost or misplaced."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventproc.runtime import Eventproc
from eventproc.store.model.errors import ScaleRefused, StillPending
from eventproc.store.model.routing import position
from eventproc.testing import CrashDirectory
from tests.topics.support import all_events

pytestmark = pytest.mark.subprocess

KEYS = [f"key{number}" for number in range(30)]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def make_topic(ep: Eventproc) -> None:
    await ep.create_scope("s")
    topic = await ep.create_topic("s/t", partitions=2)
    async with topic.producer() as producer:
        await producer.write_many([(b"before", key) for key in KEYS])


async def grow_and_produce(ep: Eventproc) -> None:
    topic = await ep.topic("s/t")
    async with topic.producer(name="p") as producer:
        await producer.write(b"x", key="first")
        await topic.add_partitions(3)
        await producer.write_many([(b"after", key) for key in KEYS], sequence=100)


async def repeat(ep: Eventproc) -> list[tuple[int, str | None, bytes]]:
    """Do what the dead process may not have done, and return all events."""
    topic = await ep.topic("s/t")
    if len(await topic.partitions()) == 2:
        try:
            await topic.add_partitions(3)
        except (ScaleRefused, StillPending):
            pass  # the request of the dead process ran meanwhile
    async with topic.producer(name="p") as producer:
        await producer.write_many([(b"after", key) for key in KEYS], sequence=100)
    return [(each.partition, each.key, each.payload) for each in await all_events(topic)]


@pytest.mark.parametrize(
    "point",
    ["request.submit.committed", "request.run.commit", "request.run.committed", "writer.append.commit"],
)
def test_a_kill_during_growth_leaves_all_or_nothing(tmp_path: Path, point: str) -> None:
    with CrashDirectory(tmp_path / "data", durability="os") as crash:
        crash.run(make_topic)
        process = crash.start(grow_and_produce, at=point, nth=2 if "append" in point else 1)
        process.wait_killed()
        crash.check()
        events = crash.run(repeat)
        crash.check()
    after = [(partition, key) for partition, key, payload in events if payload == b"after"]
    assert sorted(after) == sorted((int(position(key) * 5), key) for key in KEYS)
    assert sum(payload == b"before" for *_, payload in events) == len(KEYS)
