"""Spark: streams as DataFrames, batch and streaming, through PySpark's Python data source API.

`session()` starts a configured local session; `register(spark)` adds the format "eventproc" to an existing session;
`attach(spark, path)` opens a directory inside the driver. Needs the extra `spark`, and Java 17 or later or the extra
`java`. Modules are imported on first use, so that finding the Java (as `eventproc doctor` does) does not import
PySpark.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventproc.spark.attached import AttachedEventproc, attach
    from eventproc.spark.ingestion.tables import Compaction, Overwriting
    from eventproc.spark.java import Java, find_java, prepare
    from eventproc.spark.jobs import job
    from eventproc.spark.queries import QueryDescription, StreamLag
    from eventproc.spark.sessions import register, session
    from eventproc.spark.sink import committed

_WHERE = {
    "AttachedEventproc": "eventproc.spark.attached",
    "Compaction": "eventproc.spark.ingestion.tables",
    "Java": "eventproc.spark.java",
    "Overwriting": "eventproc.spark.ingestion.tables",
    "QueryDescription": "eventproc.spark.queries",
    "StreamLag": "eventproc.spark.queries",
    "attach": "eventproc.spark.attached",
    "committed": "eventproc.spark.sink",
    "find_java": "eventproc.spark.java",
    "job": "eventproc.spark.jobs",
    "prepare": "eventproc.spark.java",
    "register": "eventproc.spark.sessions",
    "session": "eventproc.spark.sessions",
}

__all__ = [
    "AttachedEventproc",
    "Compaction",
    "Java",
    "Overwriting",
    "QueryDescription",
    "StreamLag",
    "attach",
    "committed",
    "find_java",
    "job",
    "prepare",
    "register",
    "session",
]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
