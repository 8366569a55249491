"""What Spark refuses about a query, as an error of eventproc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from eventproc.store.model.argument_checks import invalid_argument


@contextmanager
def explained(sql: str) -> Iterator[None]:
    """Raise InvalidArgument with Spark's reason, and without its plan, for what it refuses about a query."""
    try:
        yield
    except PySparkException as why:
        reason = next((line.strip() for line in str(why).splitlines() if line.strip()), type(why).__name__)
        raise invalid_argument("query", sql, reason.partition(" SQLSTATE:")[0]) from None
