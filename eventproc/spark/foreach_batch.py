"""Writes batches of a query into streams from `foreachBatch`, through the sink, once per query and batch id."""

from __future__ import annotations

from typing import Final, TypedDict

from pyspark.sql import DataFrame

from eventproc.spark.option_names import path_option
from eventproc.spark.sink import QUERY_ID
from eventproc.store.address import StoreAddress
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import IllegalTransition

_RUN: Final = "spark.jobGroup.id"
"""Local property of a query's thread that holds the id of this run of the query."""


_OWN_STREAMS: Final = "the streams that its rows name"


class RowColumns(TypedDict, total=False):
    """The columns of a batch that say more than its payloads. docs/design/spark-sink.md says which others it takes.

    stream_column: the full name of each row's stream, a string. Instead of a stream for all rows.
    key: the routing key, a string. None (default): the column `key`, if there is one.
    event_time: the event time, a timestamp. None (default): the column `event_time`, if any.
    partition: the topic's partition that takes a row, an integer. None (default): the column `partition` beside a
        payload, if any.
    """

    stream_column: str | None
    key: str | None
    event_time: str | None
    partition: str | None


def check_columns(stream: str | None, columns: RowColumns) -> None:
    """Raise InvalidArgument unless either `stream` or a column says where rows go; TypeError for an unknown name."""
    if unknown := columns.keys() - RowColumns.__optional_keys__:
        raise TypeError(f"unexpected keyword argument {min(unknown)!r}")
    if (stream is None) == (columns.get("stream_column") is None):
        raise invalid_argument("stream", stream, "give either stream or stream_column")


class BatchWriter:
    """Writes batches of this process's queries into the streams of one store."""

    def __init__(self, address: StoreAddress) -> None:
        self._path = path_option(address)
        # {(query, run, stream or _OWN_STREAMS, part): last batch}
        self._written: dict[tuple[str, str, str, str], int] = {}

    def write(
        self,
        batch: DataFrame,
        batch_id: int,
        stream: str | None,
        columns: RowColumns,
        part: str,
    ) -> None:
        """See `AttachedEventproc.write_batch`."""
        context = batch.sparkSession.sparkContext
        query, run = context.getLocalProperty(QUERY_ID), context.getLocalProperty(_RUN) or ""
        if not query:
            state = 'not within `foreachBatch`; use `batch.write.format("eventproc")`'
            raise IllegalTransition(name="a batch", event="writing it once", state=state)
        where = stream or _OWN_STREAMS
        place = (query, run, where, part)
        if self._written.get(place) == batch_id:
            reason = (
                f"batch {batch_id} was written to {where} already; give each write of a batch its own part"
            )
            raise invalid_argument("part", part, reason)
        sink = f"{query}:{part}" if part else query
        # The case of the sink's options does not count: streamColumn, eventTime.
        given = {"stream": stream} | {name.replace("_", ""): column for name, column in columns.items()}
        options = {name: str(value) for name, value in given.items() if value is not None}
        options |= {"path": self._path, "sink": sink, "batch": str(batch_id)}
        batch.write.format("eventproc").mode("append").options(**options).save()
        self._written[place] = batch_id
