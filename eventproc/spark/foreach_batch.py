"""Writes batches of a query into streams from `foreachBatch`, through the sink, once per query and batch id."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame

from eventproc.spark.option_names import path_option
from eventproc.spark.sink import QUERY_ID
from eventproc.store.address import StoreAddress
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import IllegalTransition

_RUN: Final = "spark.jobGroup.id"
"""Local property of a query's thread that holds the id of this run of the query."""


_OWN_STREAMS: Final = "the streams that its rows name"


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
        *,
        stream_column: str | None,
        key: str | None,
        event_time: str | None,
        partition: str | None,
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
        options = {"path": self._path, "sink": sink, "batch": str(batch_id)}
        chosen = {
            "stream": stream,
            "streamColumn": stream_column,
            "key": key,
            "eventTime": event_time,
            "partition": partition,
        }
        options |= {name: column for name, column in chosen.items() if column is not None}
        batch.write.format("eventproc").mode("append").options(**options).save()
        self._written[place] = batch_id
