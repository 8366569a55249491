"""Spark queries as any process sees them: last published status, whether the driver lives, and the lag.

A driver that attached a directory publishes its queries here (docs/design/spark-embedding.md). Imports no PySpark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from eventproc.spark.assigned_segments import AssignedPosition, parse_position, unread_of
from eventproc.store.catalog import find_stream, head_offsets, unfinished_parts
from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of
from eventproc.store.inspection.database_file import has_sinks_or_holds
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.records import RecordKind, create, delete_all, find, get, keys, replace

KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long a silent query is kept. A higher value makes longer lists; a lower one hides a failure of a weekend."""


@attrs.frozen(kw_only=True)
class SparkQuery:
    """The status of a query that its driver published last.

    id: the query's id, which its checkpoint keeps.
    run_id: id of this run of the query.
    instance: the opening of the directory in its driver.
    started_ms, published_ms: when the run started and when the status was published, wall clock.
    batch: the last finished batch; None before the first.
    input_rows, rows_per_second: of that batch.
    positions: text of the cut at which that batch ended, by stream.
    ended: whether the query was stopped, or failed with `error`.
    """

    id: str
    run_id: str
    name: str | None
    instance: str
    started_ms: int
    published_ms: int
    batch: int | None = None
    input_rows: int = 0
    rows_per_second: float = 0.0
    positions: Mapping[str, str] = attrs.field(factory=dict)
    ended: bool = False
    error: str | None = None


QUERY: Final = RecordKind(name="spark_query", value=SparkQuery)


def was_used_by_spark(tx: Tx) -> bool:
    """Return whether Spark read or wrote a stream of the directory: a query, a sink, or a held range."""
    return bool(keys(tx, QUERY)) or has_sinks_or_holds(tx)


class QueryState(enum.StrEnum):
    """The state of a query, as far as it can be known."""

    RUNNING = "running"
    LOST = "lost"
    """The driver died without publishing an end."""
    ENDED = "ended"
    FAILED = "failed"


@attrs.frozen
class StreamLag:
    """How far a query lags in a stream: events and bytes between `cut` and the tail; None if the stream was deleted."""

    stream: str
    cut: str
    events: int | None
    bytes: int | None


@attrs.frozen
class QueryDescription:
    """A query at one moment. pid: that of its driver; None if the instance's files are gone."""

    query: SparkQuery
    state: QueryState
    pid: int | None
    streams: tuple[StreamLag, ...]

    @property
    def events(self) -> int:
        """Events behind, in all existing streams."""
        return sum(each.events or 0 for each in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes behind, in all existing streams."""
        return sum(each.bytes or 0 for each in self.streams)


def publish_query(tx: Tx, query: SparkQuery) -> None:
    """Store the status of a query. A run that has ended stays ended."""
    before = find(tx, QUERY, query.id)
    if before is None:
        _forget(tx)
        create(tx, QUERY, query.id, query)
    elif before.value.run_id != query.run_id or not before.value.ended:
        replace(tx, QUERY, before, query)


def describe_queries(tx: Tx, path: Path) -> list[QueryDescription]:
    """Return the queries with a status of the last KEPT_MS, newest run first. Cost: see `describe_query`."""
    found = [get(tx, QUERY, key).value for key in keys(tx, QUERY)]
    recent = [each for each in found if tx.now_ms - each.published_ms <= KEPT_MS]
    recent.sort(key=lambda each: (-each.started_ms, each.id))
    return [describe_query(tx, path, each) for each in recent]


def describe_query(tx: Tx, path: Path, query: SparkQuery) -> QueryDescription:
    """Return a query as it is now. path: the directory. Cost: two look-ups per segment of its streams."""
    lags = tuple(_lag(tx, stream, cut) for stream, cut in sorted(query.positions.items()))
    return QueryDescription(query, _state(path, query), pid_of(path, query.instance), lags)


def known_positions(tx: Tx, positions: Mapping[str, str]) -> dict[str, str]:
    """Return the positions that belong to existing streams of this directory."""
    found = {}
    for name, text in positions.items():
        stream = find_stream(tx, name)
        if stream is not None and parse_position(text, name).stream_id == stream.value.stream_id:
            found[name] = text
    return found


def _state(path: Path, query: SparkQuery) -> QueryState:
    if query.error is not None:
        return QueryState.FAILED
    if query.ended:
        return QueryState.ENDED
    return QueryState.RUNNING if is_alive(path, query.instance) else QueryState.LOST


def _lag(tx: Tx, name: str, text: str) -> StreamLag:
    cut = parse_position(text, name)
    found = find_stream(tx, name)
    if found is None or found.value.stream_id != cut.stream_id:
        return StreamLag(name, text, None, None)
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


def _forget(tx: Tx) -> None:
    """Delete queries without a status for longer than KEPT_MS."""
    old = [key for key in keys(tx, QUERY) if tx.now_ms - get(tx, QUERY, key).value.published_ms > KEPT_MS]
    delete_all(tx, QUERY, old)
