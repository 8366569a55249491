"""Spark sessions configured for streams: the right Java and Python, little logging, and the format registered."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from eventproc.spark.ingestion.table_format import EventprocTable
from eventproc.spark.java import prepare
from eventproc.spark.source import EventprocSource
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import Unreachable

_QUIET: Final = "log4j2.properties"

_MASTERS: Final = "local", "spark://", "k8s://"

_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
"""Print each exception that PySpark raises to stderr, as JSON with the stack of the JVM, beside raising it."""


def session(*, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with the format "eventproc": the active one, or a new one.

    The defaults: no web page, only errors in the log, and no delayed acknowledgements between Spark and its Python
    processes, which would cost 40 ms in a task; with a local master nobody else can connect, and there is one
    shuffle partition per core. The JVM starts once per process, so `spark.driver.memory` must be set in the first call.

    Args:
        master: Spark's master URL.
        conf: Further settings. They override the defaults.

    Raises:
        NotSupported: There is no Java 17 or later.
        InvalidArgument: The master is none that Spark has.
        Unreachable: The master does not answer; Spark gives up after a minute.

    Cost: about 4 s for the first session of a process.
    """
    if master != "yarn" and not master.startswith(_MASTERS):
        raise invalid_argument("master", master, "it must be yarn, or begin with local, spark:// or k8s://")
    prepare()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.daemon.module": "eventproc.spark.python_daemon",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_configuration()}",
        **(_local_settings(master) if master.startswith("local") else {}),
        **(conf or {}),
    }
    for each in _LOGGERS:
        PySparkLogger.getLogger(each).setLevel(logging.CRITICAL)
    builder = SparkSession.Builder().master(master).config(map=settings)
    try:
        spark = builder.getOrCreate()
    except Py4JJavaError as why:
        # A context whose master did not answer stops itself while it is made: calls of it fail then.
        if "stopped SparkContext" not in str(why):
            raise
        reason = "it did not answer for a minute; check its address, and whether it runs"
        raise Unreachable(place=f"Spark's master {master}", reason=reason) from why
    register(spark)
    return spark


@contextmanager
def borrowed_session(conf: Mapping[str, str]) -> Iterator[SparkSession]:
    """Give a session as `session` does; it ends with the block unless it was active before."""
    found = SparkSession.getActiveSession()
    spark = session(conf=conf)
    try:
        yield spark
    finally:
        if found is None:
            spark.stop()


def register(spark: SparkSession) -> None:
    """Add the formats "eventproc", of streams, and "eventproc.table", of published tables, to a session.

    It becomes the active session of the calling thread. A thread that starts queries and did not make the session calls
    this, because Spark looks for the format of a sink in the active session.

    Readers use as many partitions as the session has cores. Workers of a local session run this Python unless
    PYSPARK_PYTHON is set.

    Args:
        spark: The session.
    """
    register_with(spark, None)


def register_with(spark: SparkSession, python: Path | None) -> None:
    """Do as `register`. python: the program that Spark starts as the Python of streams; None: that of the session."""
    jvm: Any = spark._jvm
    sessions: Any = SparkSession._get_j_spark_session_class(jvm)  # PySpark does not wrap the call
    sessions.setActiveSession(spark._jsparkSession)
    context = spark.sparkContext
    choose_python(context)
    cores = context.defaultParallelism
    # A class made here is pickled with its attributes. The module's class would be pickled by name only.
    source = type("SizedSource", (EventprocSource,), {"cores": cores})
    usual = context.pythonExec
    try:
        if python is not None:
            context.pythonExec = str(python)  # Spark keeps it with the format
        spark.dataSource.register(source)
    finally:
        context.pythonExec = usual
    spark.dataSource.register(EventprocTable)


def choose_python(context: SparkContext) -> None:
    """Let the workers of a local session run this Python, unless PYSPARK_PYTHON is set."""
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable


def _log_configuration() -> str:
    with resources.as_file(resources.files("eventproc.spark") / _QUIET) as path:
        return path.as_uri()


def _local_settings(master: str) -> dict[str, str]:
    return {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(_cores(master)),
    }


def _cores(master: str) -> int:
    within = master.partition("[")[2].rstrip("]").split(",")[0]
    return int(within) if within.isdigit() else os.cpu_count() or 1
