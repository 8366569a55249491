"""Sample events for the tests of segments, and calls on two segments of one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import nan
from typing import Any

import attrs

from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.routing import point
from eventproc.store.segments import (
    AppendResult,
    EventBlock,
    EventRun,
    SegmentEvents,
    SegmentState,
    append,
    create_segments,
    read,
    segment_state,
)

STREAM, STREAM_ID = "s/t", 77
ONE, TWO = SegmentId(0), SegmentId(1)


@attrs.frozen
class SampleEvent:
    """An event as its writer sees it."""

    payload: bytes
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] | None = None

    @property
    def size_bytes(self) -> int:
        return FRAME_BYTES + len(self.payload)


def part(segment: SegmentId, events: Iterable[SampleEvent]) -> SegmentEvents:
    """Encode events as a writer does: a column that no event uses is absent."""
    events = list(events)
    keys = [event.key for event in events]
    times = [event.event_time for event in events]
    headers = [event.headers for event in events]
    keyed = any(key is not None for key in keys)
    return SegmentEvents(
        segment,
        EventBlock(
            [event.payload for event in events],
            keys if keyed else None,
            [nan if key is None else point(key) for key in keys] if keyed else None,
            times if any(time is not None for time in times) else None,
            headers if any(header is not None for header in headers) else None,
        ).encode(),
    )


def payloads(*texts: str, segment: SegmentId = ONE) -> SegmentEvents:
    return part(segment, (SampleEvent(text.encode()) for text in texts))


async def make_segments(db: Database, *segments: SegmentId) -> None:
    await db.write(partial(create_segments, stream_id=STREAM_ID, segments=segments or (ONE, TWO)))


def appending(*parts: SegmentEvents, **options: Any) -> Callable[[Tx], tuple[AppendResult, ...]]:
    """Return an append of the parts, as a function of a transaction."""
    return partial(append, stream=STREAM, stream_id=STREAM_ID, parts=parts, **options)


def read_runs(
    tx: Tx,
    segment: SegmentId = ONE,
    offset: int = 0,
    limit: int | None = None,
    bytes_max: int = 2**30,
) -> list[EventRun]:
    return read(tx, STREAM_ID, {segment: (offset, limit)}, bytes_max=bytes_max).runs


def written(runs: Iterable[EventRun]) -> list[SampleEvent]:
    """Return what a reader saw, as its writer wrote it."""
    return [
        SampleEvent(event.payload, event.key, event.event_time, dict(event.headers) or None)
        for run in runs
        for event in run.events(STREAM)
    ]


async def read_all(db: Database, segment: SegmentId = ONE) -> list[SampleEvent]:
    return written(await db.read(partial(read_runs, segment=segment)))


async def texts(db: Database, segment: SegmentId = ONE) -> list[str]:
    return [event.payload.decode() for event in await read_all(db, segment)]


async def state_of(db: Database, segment: SegmentId = ONE) -> SegmentState:
    found = await db.read(lambda tx: segment_state(tx, STREAM_ID, segment))
    assert found is not None, f"segment {segment} does not exist"
    return found


async def rows(db: Database, table: str) -> int:
    def count(tx: Tx) -> int:
        row = tx.execute(f"SELECT count(*) FROM {table} WHERE stream_id = ?", (STREAM_ID,)).fetchone()
        return int(row[0])

    return await db.read(count)
