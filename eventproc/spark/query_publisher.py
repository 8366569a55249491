"""Publishes the status of a driver's Spark queries in the directory.

Spark's callbacks only enqueue and return: a listener that waits blocks all listeners of Spark.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import anyio
import attrs
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from eventproc.processors.retry import retry_transient
from eventproc.spark.assigned_segments import parse_position
from eventproc.spark.queries import SparkQuery, known_positions, publish_query
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import EventprocError

LOG: Final = logging.getLogger("eventproc.spark")

PAUSE_MS: Final = 1_000
"""Shortest time between two writes. A higher value publishes later; a lower one costs several commits a second."""

ERROR_CHARS_MAX: Final = 500
"""Longest published error text. Stack traces of the JVM take pages."""

Change = Callable[[SparkQuery], SparkQuery]


class QueryPublisher:
    """Writes noted changes to the directory in a task of its own on the loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._latest: dict[str, SparkQuery] = {}  # {query id: status noted last}
        self._fresh: set[str] = set()
        self._noted = anyio.Event()
        self._writing = anyio.Lock()

    async def note(self, query_id: str, run_id: str, name: str | None, change: Change) -> None:
        """Note a change of a query; `run` writes it soon."""
        known = self._latest.get(query_id)
        if known is None or known.run_id != run_id:
            now_ms = self._db.clock.wall_ms()
            known = SparkQuery(
                id=query_id,
                run_id=run_id,
                name=name,
                instance=self._db.instance_id,
                started_ms=now_ms,
                published_ms=now_ms,
                positions={} if known is None else known.positions,
            )
        if not known.ended:
            self._latest[query_id] = change(known)
            self._fresh.add(query_id)
            self._noted.set()

    async def run(self) -> None:
        """Write noted changes, with pauses, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted = anyio.Event()  # only here: `write` has other callers, too
            await self.write()
            await anyio.sleep(PAUSE_MS / 1000)

    async def write(self) -> None:
        """Write all noted changes; return when they are durable, also if another call wrote them."""
        async with self._writing:
            taken, self._fresh = self._fresh, set()
            if not taken:
                return
            fresh = [self._latest[each] for each in taken]
            try:
                await retry_transient(
                    partial(self._db.write, partial(_publish, fresh)),
                    "the status of queries",
                    self._db.clock,
                    LOG,
                )
            except BaseException:
                self._fresh |= taken  # after a cancellation the next call writes them
                raise


class QueryListener(StreamingQueryListener):
    """Passes Spark's events of a query to `note`, on the thread on which Spark calls it."""

    def __init__(self, note: Callable[[str, str, str | None, Change], None]) -> None:
        """note: must return immediately and raise nothing."""
        self._note = note

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that a query started."""
        self._note(str(event.id), str(event.runId), event.name, lambda query: query)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note the end position and the speed of a batch."""
        status = event.progress
        positions: dict[str, str] = {}
        for source in status.sources:
            positions |= positions_of(source.endOffset)
        change = partial(
            attrs.evolve,
            batch=status.batchId,
            input_rows=status.numInputRows,
            rows_per_second=round(status.processedRowsPerSecond or 0.0, 1),
            positions=positions,
        )
        self._note(str(status.id), str(status.runId), status.name, change)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the position has not changed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that a query ended, with its error."""
        error = None if event.exception is None else shortened(event.exception)
        self._note(str(event.id), str(event.runId), None, partial(attrs.evolve, ended=True, error=error))


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


def shortened(error: str) -> str:
    """Return the first line that is not empty, at most ERROR_CHARS_MAX characters."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines or [""])[0][:ERROR_CHARS_MAX]


def _publish(fresh: list[SparkQuery], tx: Tx) -> None:
    for status in fresh:
        positions = known_positions(tx, status.positions)
        publish_query(tx, attrs.evolve(status, positions=positions, published_ms=tx.now_ms))
