"""Spark's queries as any process sees them: what each said last, whether its driver lives, how far it lags.

A driver that attached a directory publishes its queries here (docs/design/spark-embedding.md). Imports no PySpark.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord, find_stream, head_offsets
from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of
from eventproc.store.model.cuts import StreamCut, divide
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.history import find_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import RecordKind, create, delete_all, find, get, keys, replace
from eventproc.store.segments import number_at, segment_state

KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""How long a query is remembered that said nothing. Higher: longer lists; lower: a failure of a weekend is gone."""


@attrs.frozen(kw_only=True)
class SparkQuery:
    """What a query's driver said last.

    id: kept in the checkpoint. run_id: of this start. instance: the opening in its driver. batch: the last one that
    was finished, None before the first. input_rows: of that batch; rows_per_second: processed in it. positions: text of
    the cut at which that batch ended, by stream. ended: it was stopped, or failed with `error`. Times are wall clock.
    """

    id: str
    run_id: str
    name: str | None
    instance: str
    started_ms: int
    said_ms: int
    batch: int | None = None
    input_rows: int = 0
    rows_per_second: float = 0.0
    positions: Mapping[str, str] = attrs.field(factory=dict)
    ended: bool = False
    error: str | None = None


QUERY: Final = RecordKind(name="spark_query", value=SparkQuery)


class QueryState(enum.StrEnum):
    """What became of a query, as far as can be known."""

    RUNNING = "running"
    LOST = "lost"
    """Its driver is dead, and did not say that it ended."""
    ENDED = "ended"
    FAILED = "failed"


@attrs.frozen
class StreamLag:
    """How far a query is in a stream: what lies between `cut` and the tail. None: the stream is there no more."""

    stream: str
    cut: str
    events: int | None
    bytes: int | None


@attrs.frozen
class QueryDescription:
    """A query, of one moment. pid: of its driver, None when its files are gone."""

    query: SparkQuery
    state: QueryState
    pid: int | None
    streams: tuple[StreamLag, ...]

    @property
    def events(self) -> int:
        """Events behind, in all streams that are there."""
        return sum(each.events or 0 for each in self.streams)

    @property
    def bytes(self) -> int:
        """Bytes behind, in all streams that are there."""
        return sum(each.bytes or 0 for each in self.streams)


def publish_query(tx: Tx, said: SparkQuery) -> None:
    """Store what a query's driver says; what ended does not come back to life in the same run."""
    before = find(tx, QUERY, said.id)
    if before is None:
        _forget(tx)
        create(tx, QUERY, said.id, said)
    elif before.value.run_id != said.run_id or not before.value.ended:
        replace(tx, QUERY, before, said)


def describe_queries(tx: Tx, path: Path) -> list[QueryDescription]:
    """Return the queries that said something within KEPT_MS, the one that began last first. See `describe_query`."""
    found = [get(tx, QUERY, key).value for key in keys(tx, QUERY)]
    recent = [each for each in found if tx.now_ms - each.said_ms <= KEPT_MS]
    recent.sort(key=lambda each: (-each.started_ms, each.id))
    return [describe_query(tx, path, each) for each in recent]


def describe_query(tx: Tx, path: Path, said: SparkQuery) -> QueryDescription:
    """Return a query as it is now. path: the directory. Cost: two look-ups a segment of its streams."""
    lags = tuple(_lag(tx, stream, cut) for stream, cut in sorted(said.positions.items()))
    return QueryDescription(said, _state(path, said), pid_of(path, said.instance), lags)


def known_positions(tx: Tx, positions: Mapping[str, str]) -> dict[str, str]:
    """Return those that are of streams of this directory, in their present or an earlier truncated state."""
    found = {}
    for name, text in positions.items():
        stream = find_stream(tx, name)
        if stream is not None and StreamCut.parse(text, name).stream_id == stream.value.stream_id:
            found[name] = text
    return found


def _state(path: Path, said: SparkQuery) -> QueryState:
    if said.error is not None:
        return QueryState.FAILED
    if said.ended:
        return QueryState.ENDED
    return QueryState.RUNNING if is_alive(path, said.instance) else QueryState.LOST


def _lag(tx: Tx, name: str, text: str) -> StreamLag:
    cut = StreamCut.parse(text, name)
    found = find_stream(tx, name)
    if found is None or found.value.stream_id != cut.stream_id:
        return StreamLag(name, text, None, None)
    events = size_bytes = 0
    for segment, offset in _rest(tx, found.value, cut).items():
        state = segment_state(tx, cut.stream_id, segment)
        if state is not None and state.tail > offset:
            start = max(offset, state.head)
            events += state.tail_number - number_at(tx, cut.stream_id, segment, start)
            size_bytes += state.tail - start
    return StreamLag(name, text, events, size_bytes)


def _rest(tx: Tx, stream: StreamRecord, cut: StreamCut) -> dict[SegmentId, int]:
    """Return where what lies behind a cut begins, in every segment that has some."""
    history = StoredHistory(tx, stream)
    try:
        position = divide(cut, history)
    except (InvalidCut, NotFound):  # its history was truncated: the head is where it goes on
        cut = StreamCut(stream.name, stream.stream_id, head_offsets(tx, stream))
        position = divide(cut, history)
    rest = {}
    rows = tx.execute("SELECT segment FROM segment WHERE stream_id = ?", (stream.stream_id,)).fetchall()
    for (number,) in rows:
        segment = SegmentId(number)
        try:
            passed = position.is_behind(find_segment(history, segment))
        except NotFound:  # it lies before the oldest epoch kept
            continue
        if not passed:
            rest[segment] = max(cut.offsets.get(segment, 0), 0)
    return rest


def _forget(tx: Tx) -> None:
    """Drop what nobody has heard of for long."""
    old = [key for key in keys(tx, QUERY) if tx.now_ms - get(tx, QUERY, key).value.said_ms > KEPT_MS]
    delete_all(tx, QUERY, old)
