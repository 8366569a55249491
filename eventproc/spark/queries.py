"""The streaming queries of a session, as Spark reports them, and how far each is behind its streams."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import attrs
from pyspark.sql.streaming.query import StreamingQuery

from eventproc.spark.assigned_segments import AssignedPosition, parse_position, unread_of
from eventproc.store.catalog import find_stream, head_offsets, unfinished_parts
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import EventprocError, InvalidCut, NotFound


@attrs.frozen
class StreamLag:
    """How far a query lags in a stream: events and bytes between `cut` and the tail."""

    stream: str
    cut: str
    events: int
    bytes: int


@attrs.frozen(kw_only=True)
class QueryDescription:
    """A running query at one moment.

    id: the query's id, which its checkpoint keeps. run_id: of this run of it.
    batch: the one of its last trigger, None before the first. input_rows, rows_per_second: of that trigger, which may
        have found nothing.
    streams: the lag in each stream that it reads, from the cut at which that trigger ended.
    """

    id: str
    run_id: str
    name: str | None
    batch: int | None
    input_rows: int
    rows_per_second: float
    streams: tuple[StreamLag, ...]

    @property
    def label(self) -> str:
        """What metrics call it: its name, or its id."""
        return self.name or self.id

    @property
    def events(self) -> int:
        """Events behind, in all streams."""
        return sum(each.events for each in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes behind, in all streams."""
        return sum(each.bytes for each in self.streams)


def describe_query(
    query: StreamingQuery, lags: Callable[[Mapping[str, str]], tuple[StreamLag, ...]]
) -> QueryDescription:
    """Return a query as it is now. It asks the JVM, so call it outside of a transaction. lags: reads `lags_of`."""
    status = query.lastProgress
    positions: dict[str, str] = {}
    for source in [] if status is None else status.sources:
        positions |= positions_of(source.endOffset)
    return QueryDescription(
        id=str(query.id),
        run_id=str(query.runId),
        name=query.name,
        batch=None if status is None else status.batchId,
        input_rows=0 if status is None else status.numInputRows,
        rows_per_second=0.0 if status is None else round(status.processedRowsPerSecond or 0.0, 1),
        streams=lags(positions),
    )


def positions_of(offset: str | None) -> Mapping[str, str]:
    """Return the cuts in a source's offset; none if it is the offset of another format."""
    try:
        found = json.loads(offset or "null")
        if not isinstance(found, dict):
            return {}
        for name, text in found.items():
            parse_position(text, name)
    except (EventprocError, TypeError, ValueError, AttributeError):
        return {}
    return found


def lags_of(tx: Tx, positions: Mapping[str, str]) -> tuple[StreamLag, ...]:
    """Return the lag behind each position, by stream. Those in other directories, or of deleted streams, are left out.

    Positions name no directory, so streams of equal names and ids in two directories cannot be told apart.
    Cost: two look-ups per segment of the streams.
    """
    found = (_lag(tx, stream, text) for stream, text in sorted(positions.items()))
    return tuple([each for each in found if each is not None])


def _lag(tx: Tx, name: str, text: str) -> StreamLag | None:
    """Return the lag in a stream; None if it was deleted, or belongs to another directory."""
    cut = parse_position(text, name)
    found = find_stream(tx, name)
    if found is None or found.value.stream_id != cut.stream_id:
        return None
    if isinstance(cut, AssignedPosition):
        unread = unread_of(tx, cut).values()
        return StreamLag(name, text, sum(each[0] for each in unread), sum(each[1] for each in unread))
    stream = found.value
    try:
        parts = unfinished_parts(tx, stream, cut)
    except (InvalidCut, NotFound):  # its history was truncated: the query goes on at the head
        head = StreamCut(stream.name, stream.stream_id, head_offsets(tx, stream))
        parts = unfinished_parts(tx, stream, head)
    return StreamLag(name, text, sum(each.events for each in parts), sum(each.bytes for each in parts))
