"""Batches of a query into a stream, from `foreachBatch`: each once, whoever is killed when.

The batch is staged in a transaction of the stream. What makes it count once is one transaction of the database: it
decides the commit, and raises the sequence of a writer named after the query to that of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import attrs
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users know it
from pyspark.sql.types import BinaryType, StringType

from eventproc.store.database import Database, Tx
from eventproc.store.model.arguments import refused
from eventproc.store.model.errors import IllegalTransition
from eventproc.store.segments import WriterSequence, append, last_sequence
from eventproc.store.transactions import decide_commit
from eventproc.streams import NewEvent
from eventproc.streams.routes import find_route
from eventproc.streams.stream import Stream

PAYLOAD: Final = "payload"
"""The column that is an event's payload, if there is one."""


@attrs.frozen
class BatchOfQuery:
    """One batch of a query, as Spark names it. run: of this start of the query."""

    query: str
    run: str
    number: int

    @classmethod
    def of(cls, batch: DataFrame, batch_id: int) -> BatchOfQuery:
        """Return whose batch `foreachBatch` is at work on, in this thread. Raises IllegalTransition elsewhere."""
        context = batch.sparkSession.sparkContext
        query: str | None = context.getLocalProperty("sql.streaming.queryId")
        if not query:
            state = "not within `foreachBatch`; write to the stream by a writer of it"
            raise IllegalTransition(name="a batch", event="writing it once", state=state)
        return cls(query, context.getLocalProperty("spark.jobGroup.id") or "", batch_id)

    def identity(self, part: str) -> WriterSequence:
        """Return by which a stream knows that it has this batch."""
        return WriterSequence(f"spark:{self.query}:{part}", self.number + 1)


def events_of(batch: DataFrame, key: str | None, event_time: str | None) -> list[NewEvent[bytes]]:
    """Return the rows as events, collected into this process.

    Column `payload`, binary or string, is the event; without it all columns are, as JSON, without those that are null.
    key: the column that routes, cast to string. event_time: the timestamp that becomes the event's.
    Raises InvalidArgument for a column that is not there or does not fit, and for a null payload.
    """
    for column in (key, event_time):
        if column is not None and column not in batch.columns:
            raise refused("column", column, f"the batch has {', '.join(batch.columns)}")
    if PAYLOAD not in batch.columns:
        payload = F.to_json(F.struct(*(_column(batch, name) for name in batch.columns)))
    elif isinstance(batch.schema[PAYLOAD].dataType, (BinaryType, StringType)):
        payload = _column(batch, PAYLOAD)
    else:
        raise refused("column", PAYLOAD, "it must be binary or string")
    rows: pa.Table = batch.select(
        payload.cast("binary").alias("payload"),
        (F.lit(None) if key is None else _column(batch, key)).cast("string").alias("key"),
        (F.lit(None).cast("long") if event_time is None else F.unix_millis(_column(batch, event_time))).alias(
            "event_time"
        ),
    ).toArrow()
    if rows.column("payload").null_count:
        raise refused("column", PAYLOAD, "it is null in a row: an event has a payload")
    return [
        NewEvent(*event)
        for part in rows.to_batches()
        for event in zip(*(part.column(at).to_pylist() for at in range(3)), strict=True)
    ]


async def write_once(
    db: Database, stream: Stream, identity: WriterSequence, events: Sequence[NewEvent[bytes]]
) -> bool:
    """Write the events, all or none, unless the identity wrote before; return whether they were written now.

    They are visible then. Raises as a transaction of the stream; what it raises before the decision wrote nothing.
    """
    if await db.read(partial(_has_written, stream, identity)):
        return False
    async with stream.transaction() as txn:
        await txn.write_many(events)
        await txn.flush()
        decided = await db.write(partial(_decide, stream, txn.id, identity))
        if decided:
            await txn.commit()  # decided already: waits until all is visible
        else:
            await txn.abort()  # somebody else wrote the same batch meanwhile
    return decided


def _has_written(stream: Stream, identity: WriterSequence, tx: Tx) -> bool:
    _, sequence = find_route(tx, stream.name, stream.stream_id, identity.writer)
    return sequence >= identity.sequence


def _decide(stream: Stream, txn_id: str, identity: WriterSequence, tx: Tx) -> bool:
    if last_sequence(tx, stream.stream_id, identity.writer) >= identity.sequence:
        return False
    decide_commit(tx, stream.stream_id, txn_id)
    append(
        tx, stream.name, stream.stream_id, (), identity=identity
    )  # of nothing: it is the sequence that counts
    return True


def _column(batch: DataFrame, name: str) -> Column:
    return batch["`" + name.replace("`", "``") + "`"]
