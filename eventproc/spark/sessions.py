"""Sessions of Spark that are set up for streams: the right Java and Python, quiet, and with the format registered."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Final

from pyspark.sql import SparkSession

from eventproc.spark.java import prepare
from eventproc.spark.source import EventprocSource

_QUIET: Final = "log4j2.properties"


def session(*, master: str = "local[*]", conf: Mapping[str, str] | None = None) -> SparkSession:
    """Return a session with the format "eventproc"; the running one, if there is one. About 4 s the first time.

    master: as Spark has it. conf: further settings, which win over the ones made here: this machine only, no web
    page, as many shuffle partitions as a local master has cores, errors alone in the log. The JVM starts once a
    process, so its memory (`spark.driver.memory`) must be set with the first. Raises NotSupported without a Java.
    """
    prepare()
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_log_configuration()}",
        **({"spark.sql.shuffle.partitions": str(_cores(master))} if master.startswith("local") else {}),
        **(conf or {}),
    }
    builder = SparkSession.Builder().master(master).config(map=settings)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Add the format "eventproc" to a session.

    Its readers use as many partitions as the session has cores, and its workers this Python, unless PYSPARK_PYTHON
    says otherwise.
    """
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        context.pythonExec = sys.executable
    cores = context.defaultParallelism
    # A class made here travels to Spark's processes with its attributes; that of the module would by name alone.
    spark.dataSource.register(type("SizedSource", (EventprocSource,), {"cores": cores}))


def _log_configuration() -> str:
    with resources.as_file(resources.files("eventproc.spark") / _QUIET) as path:
        return path.as_uri()


def _cores(master: str) -> int:
    within = master.partition("[")[2].rstrip("]").split(",")[0]
    return int(within) if within.isdigit() else os.cpu_count() or 1
