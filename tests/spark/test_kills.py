"""A driver that is killed, and its processes with it: the next one goes on, and nothing is lost or read twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.streams import STREAM, write
from tests.tidy.source import ROOT

EVENTS = 3000


@pytest.mark.torture
def test_a_driver_killed_between_any_two_batches_is_followed_by_one_that_reads_the_rest_once(
    spark: SparkSession, ep: BlockingEventproc, path: Path, tmp_path: Path
) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    write(stream, range(EVENTS // 2))
    stream.split(stream.segments()[0].id)
    write(stream, range(EVENTS // 2, EVENTS))
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    command = [sys.executable, "-m", "tests.spark.driver", str(path), str(checkpoint), str(output)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout is not None
        done = [line for line, _ in zip(driver.stdout, range(3), strict=False)]
        os.killpg(driver.pid, signal.SIGKILL)
    assert done == ["batch 0\n", "batch 1\n", "batch 2\n"], "it ended by itself"
    reading = spark.readStream.format("eventproc").options(stream=STREAM, maxEventsPerTrigger="1000")
    writing = reading.load(str(path)).writeStream.format("parquet")
    query = (
        writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start(str(output))
    )
    assert query.awaitTermination(200)
    rows = spark.read.parquet(str(output)).select("payload", "segment", "number").collect()
    assert sorted(bytes(row.payload) for row in rows) == [b"%06d" % each for each in range(EVENTS)]
    assert len({(row.segment, row.number) for row in rows}) == EVENTS
