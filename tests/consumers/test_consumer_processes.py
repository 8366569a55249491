"""Four processes consume one topic while two of them are killed and the topic grows: nothing is lost, order holds."""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc import Topic
from eventproc.groups import watch_group
from eventproc.runtime import Eventproc
from eventproc.testing import check
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.subprocess

WORKER = Path(__file__).parent / "worker.py"
EVENTS = 1_500


async def produce(topic: Topic, numbers: range, partitions: int) -> None:
    async with topic.producer() as producer:
        for number in numbers:
            await producer.post(b"%d" % number, partition=number % partitions)


def delivered(base: Path) -> list[tuple[str, int, int, int]]:
    path = base / "delivered"
    rows = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [(name, int(partition), int(number), int(payload)) for name, partition, number, payload in rows]


async def until_delivered(ep: Eventproc, base: Path, count: int) -> None:
    with anyio.fail_after(PATIENCE_S), ep.db.subscribe([watch_group("s/g")]) as changes:
        while len({payload for *_, payload in delivered(base)}) < count:
            await changes.wait(50)


@pytest.mark.acceptance("K12")
@pytest.mark.acceptance("K36")
async def test_kills_of_consumers_lose_no_event_and_no_order(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "store") as ep:
        await ep.create_scope("s")
        topic = await ep.create_topic("s/t", partitions=6)
        group = await ep.create_group("g", ["s/t"], on_deleted="drop")
        with ExitStack() as stack:

            def start(name: str) -> ChildProcess:
                worker = stack.enter_context(ChildProcess.script(WORKER, tmp_path, name))
                assert worker.hear() == "online"
                return worker

            workers = {name: start(name) for name in ("a", "b", "c", "d")}
            await produce(topic, range(EVENTS // 3), 6)
            await until_delivered(ep, tmp_path, 50)
            workers["a"].kill()
            await topic.add_partitions(2)
            await produce(topic, range(EVENTS // 3, 2 * EVENTS // 3), 8)
            await until_delivered(ep, tmp_path, EVENTS // 3 + 50)
            workers["b"].kill()
            workers["a"] = start("a")
            await produce(topic, range(2 * EVENTS // 3, EVENTS), 8)
            await topic.seal()
            for name in "a", "c", "d":
                assert workers[name].hear() == "ended"
        found = await group.describe()
        assert (found.phase, found.events) == ("empty", 0)
        await check(ep.db)
    _check_deliveries(delivered(tmp_path))


def _check_deliveries(rows: list[tuple[str, int, int, int]]) -> None:
    assert {payload for *_, payload in rows} == set(range(EVENTS))
    newest: dict[int, int] = defaultdict(lambda: -1)
    for name, partition, number, _ in rows:
        came = f"{name}: number {number} of partition {partition} came after {newest[partition]}"
        assert number <= newest[partition] + 1, came  # what was not committed before a kill comes again
        newest[partition] = max(newest[partition], number)
    assert len(rows) < EVENTS + 2 * 20 * 8, "a kill repeats at most one batch"
