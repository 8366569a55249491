"""Planners of an attached session: forked from one process, which ends with Spark or its driver, and may be missing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import eventproc.spark
from eventproc.spark import AttachedEventproc
from eventproc.spark.attached import _StopHook
from eventproc.spark.planner_processes import PlannerProcesses
from tests.spark.support import STREAM, write

DRIVER = """
import sys
from types import SimpleNamespace
from eventproc.spark.planner_processes import PlannerProcesses
context = SimpleNamespace(master="local[2]", pythonExec=sys.executable, environment={})
planners = PlannerProcesses.begin(context)
print(planners._server.pid, planners.launcher.parent, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def attached(spark: SparkSession, path: Path) -> Iterator[AttachedEventproc]:
    with eventproc.spark.attach(spark, path, durability="os") as attached:
        attached.create_scope("s")
        write(attached.create_stream(STREAM), range(100))
        yield attached


@pytest.fixture
def planners(attached: AttachedEventproc) -> PlannerProcesses:
    found = _StopHook.of(attached.spark.sparkContext)._planners
    assert found is not None
    return found


def server_of(planners: PlannerProcesses) -> psutil.Process:
    return psutil.Process(planners._server.pid)


def count_read(attached: AttachedEventproc, checkpoint: Path) -> int:
    """Return how many events a query reads to its end."""
    read = attached.spark.readStream.format("eventproc").options(stream=STREAM, startingOffsets="earliest")
    writing = read.load(str(attached.path)).writeStream.format("noop").trigger(availableNow=True)
    query = writing.option("checkpointLocation", str(checkpoint)).start()
    query.awaitTermination()
    return sum(each.numInputRows for each in query.recentProgress)


def as_context(python: str) -> SparkContext:
    return cast("SparkContext", SimpleNamespace(master="local[2]", pythonExec=python, environment={}))


def test_planner_is_forked_from_the_server_and_ends_with_its_query(
    attached: AttachedEventproc, planners: PlannerProcesses, tmp_path: Path
) -> None:
    seen: list[int] = []
    read = attached.spark.readStream.format("eventproc").options(stream=STREAM, startingOffsets="earliest")
    query = (
        read.load(str(attached.path))
        .writeStream.foreachBatch(lambda rows, _: seen.append(rows.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    query.processAllAvailable()
    children = server_of(planners).children()
    query.stop()
    assert (sum(seen), len(children)) == (100, 1)
    psutil.wait_procs(children, timeout=30)
    assert not any(each.is_running() for each in children)


def test_query_runs_without_its_fork_server(attached: AttachedEventproc, path: Path, tmp_path: Path) -> None:
    hook = _StopHook.of(attached.spark.sparkContext)
    usual, other = hook._planners, PlannerProcesses.begin(attached.spark.sparkContext)
    assert other is not None
    try:
        hook._planners = other
        eventproc.spark.attach(attached.spark, path).detach()  # registers the other launcher
        server_of(other).kill()
        other._server.wait()
        assert count_read(attached, tmp_path / "checkpoint") == 100
    finally:
        hook._planners = usual
        eventproc.spark.attach(attached.spark, path).detach()
        other.end()
    assert not other.launcher.parent.exists()


def test_launcher_is_an_ordinary_python_for_other_programs(planners: PlannerProcesses) -> None:
    done = subprocess.run(
        [planners.launcher, "-c", "import sys; print(sys.executable, sys.flags.isolated)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == [sys.executable, "0"]


def test_fork_server_ends_and_deletes_its_folder_when_its_driver_is_killed() -> None:
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with driver:
        assert driver.stdout is not None
        pid, folder = driver.stdout.readline().split()
        server = psutil.Process(int(pid))
        driver.kill()
    server.wait(60)
    assert not Path(folder).exists()


def test_other_python_or_a_cluster_has_ordinary_planners(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert PlannerProcesses.begin(as_context("/usr/bin/python3-other")) is None
    cluster = cast("SparkContext", SimpleNamespace(master="spark://host:7077", pythonExec=sys.executable))
    assert PlannerProcesses.begin(cluster) is None
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    assert PlannerProcesses.begin(as_context(sys.executable)) is None
    assert list(long.iterdir()) == []
