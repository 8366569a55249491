"""A backfill on Spark: a bounded supervisor publishes the gap, and a query counts every event once meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc
from eventproc.describe import SupervisorState
from eventproc.ingestion import IoConfig, SupervisorSpec
from eventproc.ingestion.memory import Memory
from eventproc.spark import attach
from eventproc.spark.ingestion.task import TaskRun
from eventproc.store.database import Tx
from eventproc.store.ingestion import read_offsets, watch_ingestion
from eventproc.store.ingestion.rows import waiting_tasks
from eventproc.store.ingestion.supervisors import read_memory
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.ingestion_support import (
    CLICKS,
    STREAM,
    claim,
    expected,
    merged,
    rows_of,
    worker_room,
    write_clicks,
)

WAIT_S = 600


def wait_until(ep: BlockingEventproc, is_done: Callable[[Tx], bool]) -> None:
    """Return when something of ingestion has changed so that a condition holds."""
    db = ep._twin.db

    async def wait() -> None:
        with db.subscribe([watch_ingestion()]) as changes:
            while not await db.read(is_done):
                await changes.wait()

    ep._loop.call(wait)


def is_completed(tx: Tx, supervisor: str) -> bool:
    text = read_memory(tx, supervisor)
    return text is not None and Memory.decode(text).health.state is SupervisorState.COMPLETED


def test_a_backfill_publishes_the_gap_and_a_query_counts_every_event_once(
    spark: SparkSession, ep: BlockingEventproc, path: Path
) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    write_clicks(stream, range(3000))
    io = IoConfig(streams=(STREAM,), use_earliest_offset=True, start_delay_ms=0, period_ms=500)
    supervisor = ep.submit_supervisor(SupervisorSpec(io=io, schema=CLICKS))
    wait_until(ep, lambda tx: len(read_offsets(tx, "clicks")) == 2)
    bounded = supervisor.backfill()
    write_clicks(stream, range(3000, 3500))
    with worker_room(spark, path) as room, attach(spark, path, host=False) as attached:
        assert rows_of(attached.table("clicks")) == []
        assert merged(rows_of(attached.table("clicks", realtime=True))) == expected(range(3500))
        wait_until(ep, lambda tx: any(each.supervisor == bounded.id for each in waiting_tasks(tx)))
        (order,) = [each for each in claim(room) if each.task.supervisor == bounded.id]
        run = TaskRun(order, bounded.spec(), room)
        run.start()
        run.join(WAIT_S)
        assert run.finished
        wait_until(ep, lambda tx: is_completed(tx, bounded.id))
        assert rows_of(attached.table("clicks")) == expected(range(3000))
        assert merged(rows_of(attached.table("clicks", realtime=True))) == expected(range(3500))
