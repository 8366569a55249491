"""Spark: streams as DataFrames, batch and streaming, through PySpark's Python data source API.

`session()` starts a configured local session; `register(spark)` adds the format "eventproc" to an existing session;
`attach(spark, path)` opens a directory inside the driver. Needs the extra `spark`, and Java 17 or later or the extra
`java`. Modules are imported on first use, so that finding the Java (as `eventproc doctor` does) does not import
PySpark.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventproc.spark.attached import AttachedEventproc as AttachedEventproc, attach as attach
    from eventproc.spark.ingestion.tables import Compaction as Compaction, Overwriting as Overwriting
    from eventproc.spark.java import Java as Java, find_java as find_java, prepare as prepare
    from eventproc.spark.jobs import job as job
    from eventproc.spark.queries import QueryDescription as QueryDescription, StreamLag as StreamLag
    from eventproc.spark.sessions import register as register, session as session
    from eventproc.spark.sink import committed as committed

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

if not TYPE_CHECKING:
    __all__ = (*_WHERE,)


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
