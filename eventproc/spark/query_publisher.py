"""What Spark says of its queries, published to who looks at the directory.

Callbacks of Spark hand over and return: a listener that waits holds up all of Spark's listeners.
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

from eventproc.processors.again import again
from eventproc.spark.queries import SparkQuery, known_positions, publish_query
from eventproc.store.database import Database, Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import EventprocError

LOG: Final = logging.getLogger("eventproc.spark")

PAUSE_MS: Final = 1_000
"""Shortest time between two writes of what queries said. Higher: staler; lower: several commits a second."""

ERROR_CHARS_MAX: Final = 500
"""Of what failed, as others are shown it: the JVM's stack traces go on for pages."""

Change = Callable[[SparkQuery], SparkQuery]


class QueryPublisher:
    """Writes what was noted to the directory, in a task of its own on the loop."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._said: dict[str, SparkQuery] = {}  # {query id: as noted last}
        self._fresh: set[str] = set()
        self._noted = anyio.Event()
        self._writing = anyio.Lock()

    async def note(self, query_id: str, run_id: str, name: str | None, change: Change) -> None:
        """Take note of a change of a query; it is written soon."""
        known = self._said.get(query_id)
        if known is None or known.run_id != run_id:
            now_ms = self._db.clock.wall_ms()
            known = SparkQuery(
                id=query_id,
                run_id=run_id,
                name=name,
                instance=self._db.instance_id,
                started_ms=now_ms,
                said_ms=now_ms,
                positions={} if known is None else known.positions,
            )
        if not known.ended:
            self._said[query_id] = change(known)
            self._fresh.add(query_id)
            self._noted.set()

    async def run(self) -> None:
        """Write what is noted, with pauses, until cancelled."""
        while True:
            await self._noted.wait()
            self._noted = anyio.Event()  # here alone: `write` is called by others, too
            await self.write()
            await anyio.sleep(PAUSE_MS / 1000)

    async def write(self) -> None:
        """Write what is noted and not written; return when it is, whoever wrote it."""
        async with self._writing:
            taken, self._fresh = self._fresh, set()
            if not taken:
                return
            fresh = [self._said[each] for each in taken]
            try:
                await again(partial(self._db.write, partial(_publish, fresh)), "the status of queries", LOG)
            except BaseException:
                self._fresh |= taken  # who was cancelled leaves it to the next
                raise


class QueryListener(StreamingQueryListener):
    """Hands what Spark says of a query to `note`, on whichever thread Spark says it."""

    def __init__(self, note: Callable[[str, str, str | None, Change], None]) -> None:
        """note: returns at once, and raises nothing."""
        self._note = note

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that there is a query."""
        self._note(str(event.id), str(event.runId), event.name, lambda said: said)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802 - Spark's name
        """Note where a batch ended, and how fast it was."""
        said = event.progress
        positions: dict[str, str] = {}
        for source in said.sources:
            positions |= positions_of(source.endOffset)
        change = partial(
            attrs.evolve,
            batch=said.batchId,
            input_rows=said.numInputRows,
            rows_per_second=round(said.processedRowsPerSecond or 0.0, 1),
            positions=positions,
        )
        self._note(str(said.id), str(said.runId), said.name, change)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802 - Spark's name
        """Nothing: it is where it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802 - Spark's name
        """Note that a query ended, and why."""
        error = None if event.exception is None else shortened(event.exception)
        self._note(str(event.id), str(event.runId), None, partial(attrs.evolve, ended=True, error=error))


def positions_of(offset: str | None) -> Mapping[str, str]:
    """Return the cuts that a source's offset is made of; none for that of another source than ours."""
    try:
        found = json.loads(offset or "null")
        if not isinstance(found, dict):
            return {}
        for name, text in found.items():
            StreamCut.parse(text, name)
    except (EventprocError, TypeError, ValueError, AttributeError):
        return {}
    return found


def shortened(error: str) -> str:
    """Return the first line that says something, of at most ERROR_CHARS_MAX characters."""
    lines = [line.strip() for line in error.splitlines() if line.strip()]
    return (lines or [""])[0][:ERROR_CHARS_MAX]


def _publish(fresh: list[SparkQuery], tx: Tx) -> None:
    for said in fresh:
        positions = known_positions(tx, said.positions)
        publish_query(tx, attrs.evolve(said, positions=positions, said_ms=tx.now_ms))
