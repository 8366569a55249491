"""The rate of writing to a stream is that of the last minute, and reads few rows of its index."""

from __future__ import annotations

from typing import Any

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.segments import write_rate
from eventproc.store.segments.write_rate import EXTENTS_MAX, RATE_MS
from tests.segments.support import ONE, STREAM_ID, TWO, SampleEvent, appending, make_segments, part


async def _rate(db: Database, after_ms: int = 0) -> float:
    """Return the rate as it will be after that time."""

    def read(tx: Tx) -> float:
        tx.now_ms += after_ms
        return write_rate(tx, STREAM_ID)

    return await db.read(read)


async def _append(db: Database, count: int) -> None:
    events = [SampleEvent(b"x")] * count
    await db.write(appending(part(ONE, events), part(TWO, events)))


async def test_rate_is_that_of_all_segments_in_the_last_minute(db: Database) -> None:
    await make_segments(db)
    assert await _rate(db) == 0
    await _append(db, 300)
    assert await _rate(db) == pytest.approx(600 * 1000 / RATE_MS)
    assert await _rate(db, RATE_MS // 2) == pytest.approx(600 * 1000 / RATE_MS)


async def test_rate_of_a_stream_that_rests_is_zero(db: Database) -> None:
    await make_segments(db)
    await _append(db, 300)
    assert await _rate(db, 2 * RATE_MS) == 0


async def test_rate_of_many_appends_is_that_of_the_newest_ones(db: Database) -> None:
    await make_segments(db)
    for _ in range(EXTENTS_MAX + 8):
        await _append(db, 1)
    # A second at least, so that a burst of some ms does not look like millions of events per second.
    assert 0 < await _rate(db) <= 2 * EXTENTS_MAX
    assert await _rate(db, 10_000) == pytest.approx(2 * EXTENTS_MAX / 10, rel=0.2)


async def test_rate_of_a_stream_that_rests_costs_one_look_up_per_segment(db: Database) -> None:
    await make_segments(db)
    for _ in range(EXTENTS_MAX):
        await _append(db, 1)
    statements: list[str] = []

    def read(tx: Tx) -> float:
        execute = tx.execute

        def counted(statement: str, *arguments: Any) -> Any:
            statements.append(statement)
            return execute(statement, *arguments)

        tx.execute = counted
        tx.now_ms += 2 * RATE_MS
        return write_rate(tx, STREAM_ID)

    assert await db.read(read) == 0
    assert len([each for each in statements if "FROM extent" in each]) == 2
