"""A backfill on Spark: a bounded supervisor publishes the gap, and a query counts every event once meanwhile."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc
from eventproc.ingestion import IoConfig, SupervisorSpec
from eventproc.spark import attach
from eventproc.store.ingestion import read_offsets
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.ingestion_support import (
    CLICKS,
    STREAM,
    expected,
    merged,
    rows_of,
    run_backfill,
    wait_until,
    worker_room,
    write_clicks,
)


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
        run_backfill(ep, room, bounded)
        assert rows_of(attached.table("clicks")) == expected(range(3000))
        assert merged(rows_of(attached.table("clicks", realtime=True))) == expected(range(3500))
