"""A driver that is killed, and its processes with it: the next one goes on; nothing is lost, read or written twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.sink_support import events_of, numbers_of
from tests.spark.support import STREAM, growing, write
from tests.spark.worker import COPY, start
from tests.tidy.source import ROOT

EVENTS = 3000


@pytest.mark.torture
@pytest.mark.acceptance("Q3")
def test_driver_after_a_killed_one_copies_the_remaining_events_once(
    spark: SparkSession, ep: BlockingEventproc, path: Path, tmp_path: Path
) -> None:
    stream = ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))
    write(stream, range(EVENTS // 2))
    stream.split(stream.segments()[0].id)
    write(stream, range(EVENTS // 2, EVENTS))
    copy = ep.create_stream(COPY, scaling=ScalingPolicy.fixed(2))
    command = [sys.executable, "-m", "tests.spark.worker", str(path), str(tmp_path)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as driver:
        assert driver.stdout is not None
        done: Counter[str] = Counter()
        while set(done) < {"parquet", "stream"} or min(done.values()) < 3:
            line = driver.stdout.readline()
            assert line, "it ended by itself"
            done[line.split()[0]] += 1
        os.killpg(driver.pid, signal.SIGKILL)
    copy.split(copy.segments()[0].id)
    for query in start(spark, str(path), str(tmp_path), events=1000):
        assert query.awaitTermination(200)
    rows = spark.read.parquet(str(tmp_path / "output")).collect()
    assert sorted(bytes(row.payload) for row in rows) == [b"%06d" % each for each in range(EVENTS)]
    assert len({(row.segment, row.number) for row in rows}) == EVENTS
    copied = events_of(copy)
    assert sorted(numbers_of(copied)) == list(range(EVENTS))
    assert growing(copied)
