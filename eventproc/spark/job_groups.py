"""What is asked of Spark's driver about the jobs of a group, and whether the driver can run jobs at all."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

JOBS_MAX: Final = 4
"""Of a group, so many of the newest jobs are looked at. A thread runs one job at a time, and Spark few beside it."""

PARTITIONS: Final = "spark.sql.shuffle.partitions"
"""How many parts a shuffle has, and so how many Spark tasks follow it. With Spark's own number, 200, a slice takes
minutes on a cluster of a few cores."""

JobProgress: TypeAlias = tuple[tuple[int, int], ...]
"""(stage, tasks that it has completed) of the newest jobs of a group. It is equal as long as none makes progress."""


def use_every_core(spark: SparkSession) -> None:
    """Let shuffles of a session have as many parts as it has cores now: executors come and go.

    Nothing happens if the driver has ended.
    """
    with suppress(Py4JError, ConnectionError):
        spark.conf.set(PARTITIONS, spark.sparkContext.defaultParallelism)


def cancel_jobs(context: SparkContext, group: str) -> None:
    """Cancel the jobs of a group, and those that it starts later. Nothing happens if the driver has ended."""
    java: Any = context._jsc
    if java is not None:
        try:
            java.sc().cancelJobGroupAndFutureJobs(group)  # PySpark does not wrap this method
        except (Py4JError, ConnectionError) as why:
            if not is_loss(why):
                raise


def progress_of_jobs(context: SparkContext, group: str) -> JobProgress:
    """Return how far the newest jobs of a group are; empty if the driver has ended."""
    try:
        tracker = context.statusTracker()
        jobs = [tracker.getJobInfo(each) for each in sorted(tracker.getJobIdsForGroup(group))[-JOBS_MAX:]]
        stages = [
            (stage, tracker.getStageInfo(stage)) for job in jobs if job is not None for stage in job.stageIds
        ]
    except (Py4JError, ConnectionError) as why:
        if not is_loss(why):
            raise
        return ()
    return tuple((stage, info.numCompletedTasks) for stage, info in stages if info is not None)


def is_loss(why: Exception) -> bool:
    """Return whether an error says that the JVM of a driver ended, and not what the JVM found wrong."""
    if isinstance(why, PySparkRuntimeError):
        return why.getCondition() == "JAVA_GATEWAY_EXITED"
    return isinstance(why, (Py4JError, ConnectionError)) and not isinstance(why, Py4JJavaError)


def why_ended(context: SparkContext) -> str | None:
    """Return why a driver can run no more jobs: its JVM has ended, or it was stopped. None if it can.

    A call of a suspended JVM waits until it continues.
    """
    java: Any = context._jsc
    try:
        stopped = java is None or java.sc().isStopped()
    except (Py4JError, ConnectionError) as why:
        if not is_loss(why):
            raise
        process: Any = getattr(context._gateway, "proc", None)
        return "its JVM has ended" if process is None else f"its JVM, process {process.pid}, has ended"
    return "its SparkContext was stopped" if stopped else None
