"""What is known of a query from outside its driver: its state, and its lag as of now; without Spark."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import anyio
import attrs
import pytest

from eventproc.runtime import Eventproc, open_memory
from eventproc.spark import QueryDescription, QueryState, SparkQuery
from eventproc.spark.queries import KEPT_MS, describe_queries, publish_query
from eventproc.spark.query_publisher import QueryPublisher, positions_of, shortened
from eventproc.store.clock import new_id
from eventproc.store.database.instances import Instance
from eventproc.store.model.policies import ScalingPolicy
from tests.processors.worker import settled

FRAME_BYTES = 8


async def publish(ep: Eventproc, said: SparkQuery) -> None:
    await ep.db.write(partial(publish_query, query=said))


async def look(ep: Eventproc, path: Path) -> list[QueryDescription]:
    return await ep.db.read(partial(describe_queries, path=path))


def query(ep: Eventproc, **fields: object) -> SparkQuery:
    now_ms, instance = ep.db.clock.wall_ms(), new_id(ep.db.clock)
    made = SparkQuery(id="q", run_id="r", name="n", instance=instance, started_ms=now_ms, published_ms=now_ms)
    return attrs.evolve(made, **fields)  # type: ignore[arg-type]


@pytest.mark.acceptance(
    "Q18",
    differs="by `ep.queries()`: a source in Python reports no metrics such as offsetsBehindLatest",
)
async def test_query_lag_counts_events_behind_the_last_batch_across_scales(
    tmp_path: Path,
) -> None:
    async with open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
        pairs = [(b"%04d" % each, f"k{each % 9}") for each in range(40)]
        async with stream.writer() as writer:
            await writer.write_many(pairs[:10])
            cut = await stream.tail()
            await publish(ep, query(ep, positions={"s/t": str(cut)}))
            await writer.write_many(pairs[10:20])
            await stream.split((await stream.segments())[0].id)
            await writer.write_many(pairs[20:])
        (found,) = await look(ep, tmp_path)
        assert (found.events, found.bytes) == (30, 30 * (4 + FRAME_BYTES))
        await stream.truncate(await stream.tail())
        assert [(each.events, each.bytes) for each in await look(ep, tmp_path)] == [(0, 0)]
        await stream.seal()
        await stream.delete()
        (found,) = await look(ep, tmp_path)
        assert [(each.events, each.bytes) for each in found.streams] == [(None, None)]


async def test_query_is_running_lost_or_ended_by_its_driver_and_its_run(
    tmp_path: Path,
) -> None:
    async with open_memory() as ep:
        driver = Instance.create(tmp_path, ep.db.clock)
        said = query(ep, instance=driver.id)
        await publish(ep, said)
        states = [(await look(ep, tmp_path))[0].state]
        driver.close()
        states.append((await look(ep, tmp_path))[0].state)
        for change in (
            attrs.evolve(said, ended=True, error="why"),
            said,  # said earlier, heard later
            attrs.evolve(said, run_id="another", ended=True),
        ):
            await publish(ep, change)
            states.append((await look(ep, tmp_path))[0].state)
    lost, failed = QueryState.LOST, QueryState.FAILED
    assert states == [QueryState.RUNNING, lost, failed, failed, QueryState.ENDED]


async def test_query_without_status_for_a_week_is_forgotten(tmp_path: Path) -> None:
    async with open_memory() as ep:
        now_ms = ep.db.clock.wall_ms()
        await publish(ep, query(ep, id="old", published_ms=now_ms - KEPT_MS - 1))
        await publish(ep, query(ep, id="recent", published_ms=now_ms - KEPT_MS + 60_000))
        assert [each.query.id for each in await look(ep, tmp_path)] == ["recent"]


@pytest.mark.parametrize(
    ("offset", "found"),
    [
        ('{"s/t": "7:0.0=120"}', {"s/t": "7:0.0=120"}),
        ('{"s/t": 7}', {}),  # another source's
        ('{"topic": {"0": 12}}', {}),
        ("12", {}),
        ("no json", {}),
        (None, {}),
    ],
)
def test_positions_of_other_sources_are_ignored(offset: str | None, found: dict[str, str]) -> None:
    assert positions_of(offset) == found


def test_published_error_is_its_first_line() -> None:
    assert shortened("\n  why it failed  \n\tat java\n") == "why it failed"


async def test_status_is_published_after_a_read_in_between(tmp_path: Path) -> None:
    async with open_memory() as ep, anyio.create_task_group() as tasks:
        publisher = QueryPublisher(ep.db)
        tasks.start_soon(publisher.run)
        await settled()
        await publisher.write()
        await publisher.note("q", "r", "n", lambda said: said)
        with anyio.fail_after(10):
            while not await look(ep, tmp_path):  # noqa: ASYNC110 - what others see is the point, and signals nothing
                await anyio.sleep(0.01)
        tasks.cancel_scope.cancel()


async def test_status_of_a_cancelled_write_is_written_by_the_next_one(
    tmp_path: Path,
) -> None:
    async with open_memory() as ep:
        publisher = QueryPublisher(ep.db)
        await publisher.note("q", "r", "n", lambda said: said)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await publisher.write()
        await publisher.write()
        assert [each.query.id for each in await look(ep, tmp_path)] == ["q"]
