"""`eventproc ingest worker` as a process: what it does when its JVM dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import psutil
import pytest

from eventproc.blocking import BlockingEventproc
from eventproc.ingestion import IoConfig, SupervisorSpec
from eventproc.store.ingestion import read_tasks
from eventproc.store.model.ingestion import IngestTask, TaskState
from tests.spark.conftest import CHEAP
from tests.spark.ingestion_support import CLICKS, STREAM, write_clicks
from tests.tidy.source import ROOT

PATIENCE_S: Final = 300

LOOK: Final = threading.Event()
"""Never set: no signal of the worker process announces what its tasks do."""


def until(found: Callable[[], bool]) -> None:
    """Look again and again until something is so."""
    for _ in range(PATIENCE_S * 20):
        if found():
            return
        LOOK.wait(0.05)
    raise AssertionError("it did not come about")


@contextmanager
def worker_process(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a worker on a directory, and kill it at the end."""
    environment = {**os.environ, "SPARK_LAUNCHER_OPTS": CHEAP, "JDK_JAVA_OPTIONS": CHEAP}
    options = ["-C", str(path), "ingest", "worker", "--master", "local[1]"]
    with subprocess.Popen(
        [sys.executable, "-m", "eventproc", *options],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def jvms_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [each for each in psutil.Process(process.pid).children() if "java" in each.name()]


@pytest.mark.subprocess
def test_a_worker_whose_jvm_died_gives_its_tasks_back_and_ends_with_an_error(
    ep: BlockingEventproc, path: Path
) -> None:
    write_clicks(ep.create_stream(STREAM), range(100))
    io = IoConfig(streams=(STREAM,), use_earliest_offset=True, start_delay_ms=0, period_ms=1_000)
    ep.submit_supervisor(SupervisorSpec(io=io, schema=CLICKS))

    def tasks() -> list[IngestTask]:
        return ep._loop.call(ep._twin.db.read, lambda tx: read_tasks(tx, "clicks"))

    with worker_process(path) as process:
        until(lambda: any(each.stats.processed for each in tasks()))
        (jvm,) = jvms_of(process)
        jvm.kill()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    last = said.splitlines()[-1]
    assert f"lost Spark: its JVM, process {jvm.pid}, has ended; its tasks were given back" in last
    failed = [each for each in tasks() if not each.state.live]
    assert [each.state for each in failed] == [TaskState.FAILED]
    assert f"process {jvm.pid}, has ended" in (failed[0].error or "")
    until(lambda: [each.state for each in tasks() if each.state.live] == [TaskState.WAITING])


@pytest.mark.subprocess
def test_a_worker_whose_jvm_dies_while_it_starts_ends_with_the_same_error(
    ep: BlockingEventproc, path: Path
) -> None:
    with worker_process(path) as process:
        until(lambda: bool(jvms_of(process)))
        jvms_of(process)[0].kill()
        _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 4
    assert f"worker of process {process.pid} lost Spark: its JVM has ended" in said.splitlines()[-1]
