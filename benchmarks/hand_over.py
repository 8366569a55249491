"""A supervisor and a worker on a stream that is written: pauses in reading, and the time until rows can be read.

The worker runs on a thread of this process. The first groups are not counted, because the JVM compiles its code then.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from statistics import median
from threading import Event, Thread
from typing import Final

from benchmarks.ingestion import SCHEMA, SEGMENTS_COUNT, STREAM
from benchmarks.samples import Sample, Task
from benchmarks.spark import FEED_S, SparkBench, cpu_s, rss_mb, session
from eventproc import ScalingPolicy
from eventproc.blocking import BlockingSupervisor
from eventproc.ingestion import IoConfig, SupervisorSpec, TuningConfig
from eventproc.spark.ingestion.worker import SETTINGS, IngestionWorker

WARM_STEPS: Final = 40
"""Steps in reading that are not counted: over more than one group, where groups hand over."""

WARM_COUNT: Final = 4
"""Publications that are not counted."""

DURATION_MS: Final = 4_000
"""Time until a group hands over: several slices."""

LONG_MS: Final = 3_600_000
"""Time until a group hands over that never does."""

LOOK_S: Final = 0.01
"""Pause between two looks: how exact a time is."""

SLOTS_COUNT: Final = 4


async def hand_over(task: Task) -> Sample:
    """Hand over about so many times; the longest pause between two steps in reading, in ms."""
    return _longest_pause(task, DURATION_MS)


async def steady(task: Task) -> Sample:
    """Read for the same time without a hand-over; the longest pause, which is that of a slice."""
    return _longest_pause(task, LONG_MS)


def _longest_pause(task: Task, duration_ms: int) -> Sample:
    with _ingesting(task, duration_ms, TuningConfig()) as (bench, supervisor), _fed(bench):
        before_s = cpu_s()
        pauses_s = _pauses_s(supervisor, task.count)
        cpu_us = (cpu_s() - before_s) * 1e6 / len(pauses_s)
        return Sample(value=max(pauses_s) * 1000, cpu_us=cpu_us, rss_mb=rss_mb())


def _pauses_s(supervisor: BlockingSupervisor, durations: int) -> list[float]:
    """Return the times between two steps in reading, behind the first WARM_STEPS, for so many durations of a group."""
    pauses_s: list[float] = []
    read, read_at, steps, ends_at = 0, 0.0, 0, math.inf
    while time.perf_counter() < ends_at:
        found, now = sum(each.read for each in supervisor.status().partitions), time.perf_counter()
        if found > read:
            steps += 1
            if steps > WARM_STEPS:
                pauses_s.append(now - read_at)
            elif steps == WARM_STEPS:
                ends_at = now + durations * DURATION_MS / 1000
            read, read_at = found, now
        time.sleep(LOOK_S)
    return [*pauses_s, time.perf_counter() - read_at]


async def time_to_query(task: Task) -> Sample:
    """From the return of a write to its row in the table, published as soon as possible; the median in ms."""
    with _ingesting(task, LONG_MS, TuningConfig(intermediate_handoff_ms=1)) as (bench, _):
        before_s = cpu_s()
        took_s = _publications_s(bench, WARM_COUNT + task.count)
        cpu_us = (cpu_s() - before_s) * 1e6 / len(took_s)
        return Sample(value=median(took_s[WARM_COUNT:]) * 1000, cpu_us=cpu_us, rss_mb=rss_mb())


def _publications_s(bench: SparkBench, events: int) -> list[float]:
    """Write so many events, one after the other is in the table; return how long each took."""
    took_s: list[float] = []
    with bench.ep.stream(STREAM).writer() as writer:
        for number in range(events):
            rows = _rows(bench)
            writer.write(_click(number))
            began = time.perf_counter()
            while _rows(bench) == rows:
                time.sleep(LOOK_S)
            took_s.append(time.perf_counter() - began)
    return took_s


@contextmanager
def _ingesting(
    task: Task, duration_ms: int, tuning: TuningConfig
) -> Iterator[tuple[SparkBench, BlockingSupervisor]]:
    """Give a stream that a supervisor with one group ingests."""
    with session(task, SETTINGS) as bench:
        assert bench.ep.path is not None, "a directory has a path"
        bench.ep.create_stream(STREAM, scaling=ScalingPolicy.fixed(SEGMENTS_COUNT))
        worker = IngestionWorker(bench.ep.path, slots=SLOTS_COUNT, master="local[2]")
        running = Thread(target=worker.run)
        running.start()
        try:
            io = IoConfig(
                streams=(STREAM,),
                task_duration_ms=duration_ms,
                start_delay_ms=0,
                period_ms=1_000,
                use_earliest_offset=True,
            )
            yield bench, bench.ep.submit_supervisor(SupervisorSpec(io=io, schema=SCHEMA, tuning=tuning))
        finally:
            worker.stop()
            running.join()


@contextmanager
def _fed(bench: SparkBench) -> Iterator[None]:
    """Write an event every FEED_S within the block."""
    ended = Event()

    def feed() -> None:
        with bench.ep.stream(STREAM).writer() as writer:
            for number in count():
                writer.write(_click(number), key=str(number))
                if ended.wait(FEED_S):
                    return

    feeding = Thread(target=feed)
    feeding.start()
    try:
        yield
    finally:
        ended.set()
        feeding.join()


def _click(number: int) -> bytes:
    return json.dumps({"at": number * 1000, "page": f"/page/{number}", "ms": 1}).encode()


def _rows(bench: SparkBench) -> int:
    return sum(each.rows for each in bench.ep.tables())
