"""Spark: streams as DataFrames, batch and streaming, through PySpark's Python data source API.

`session()` starts a local session that is set up and quiet; `register(spark)` adds the format "eventproc" to any
other. Needs the extra `spark`, and a Java of 17 or later or the extra `java`. Nothing is imported before it is used:
asking which Java there is (`eventproc doctor` does) costs no PySpark.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from eventproc.spark.java import Java, find_java, prepare
    from eventproc.spark.sessions import register, session

_WHERE = {
    "Java": "eventproc.spark.java",
    "find_java": "eventproc.spark.java",
    "prepare": "eventproc.spark.java",
    "register": "eventproc.spark.sessions",
    "session": "eventproc.spark.sessions",
}

__all__ = ["Java", "find_java", "prepare", "register", "session"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_WHERE[name]), name)
