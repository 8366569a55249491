"""One Spark session for all tests of a run: starting it costs more than all they do with it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from eventproc.blocking import BlockingEventproc, BlockingStream, open_blocking
from eventproc.spark import session
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.model.policies import ScalingPolicy
from tests.spark.support import STREAM

CHEAP = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""The JVM's settings for a short life: less is compiled, and nothing in the background."""


SOURCE_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
"""Spark starts it for each streaming query, and gives it 10 s to connect, which no setting changes
(`PythonWorkerFactory.createSimpleWorker`)."""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    # Compiling what the process imports takes most of its start. Done here, it is not part of the first query's 10 s.
    subprocess.run([sys.executable, "-c", f"import {SOURCE_RUNNER}"], check=True)
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", CHEAP)
    spark = session(
        master="local[2]",
        conf={"spark.driver.defaultJavaOptions": CHEAP, "spark.sql.session.timeZone": "UTC"},
    )
    yield spark
    spark.stop()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def ep(path: Path) -> Iterator[BlockingEventproc]:
    with open_blocking(path, durability="os") as ep:
        ep.create_scope("s")
        yield ep


@pytest.fixture
def stream(ep: BlockingEventproc) -> BlockingStream:
    return ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(2))


@pytest.fixture
def directory(path: Path, ep: BlockingEventproc) -> Iterator[PlannerDirectory]:
    with PlannerDirectory(path, hold_ms=60_000) as directory:
        yield directory
