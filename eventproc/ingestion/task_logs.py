"""The logs of tasks, for those who read them: a page of lines, or all that come until the task has ended."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Final

import attrs

from eventproc.store.database import Database, Tx
from eventproc.store.ingestion import WATCH_INGESTION, find_task
from eventproc.store.ingestion.logs import IngestLogLine, read_log
from eventproc.store.model.errors import NotFound

LOOK_MS: Final = 1_000
"""Pause between two looks at a log that is followed. Higher: lines show later; lower: more reads."""


@attrs.frozen
class TaskLines:
    """Some lines of a task, and whether the task has ended."""

    lines: list[IngestLogLine]
    has_ended: bool


def read_lines(tx: Tx, task: str, after: int, limit: int | None = None) -> TaskLines:
    """Return the lines behind the line `after`. Raises NotFound for a task that is not listed."""
    found = find_task(tx, task)
    if found is None:
        raise NotFound(kind="ingestion task", name=task)
    return TaskLines(read_log(tx, task, after=after, limit=limit), not found.state.live)


async def follow_lines(db: Database, task: str, after: int) -> AsyncIterator[IngestLogLine]:
    """Yield the lines behind the line `after`, until the task has ended. Raises NotFound."""
    while True:
        found = await db.read(partial(read_lines, task=task, after=after))
        for line in found.lines:
            after = line.id
            yield line
        if found.has_ended:
            return
        with db.subscribe([WATCH_INGESTION]) as changes:
            await changes.wait(LOOK_MS)
