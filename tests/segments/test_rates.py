"""Rates come from the index: over the last minute, or over several windows beside a twin that counts events."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import eventproc
from eventproc.store.database import Database, Tx
from eventproc.store.segments import segment_rates, truncate_segments, write_rate
from eventproc.store.segments.rates import RATE_MS
from eventproc.testing import VirtualClock, run_seeded
from tests.segments.support import ONE, STREAM, STREAM_ID, TWO, SampleEvent, appending, make_segments, part


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


WINDOWS_MS = (2_000, 5_000, 10_000, 20_000)


@settings(max_examples=40, deadline=None)
@given(pauses_ms=st.lists(st.integers(0, 3_000), min_size=1, max_size=30), rest_ms=st.integers(0, 25_000))
def test_rates_over_windows_are_those_of_the_twin(pauses_ms: list[int], rest_ms: int) -> None:
    clock = VirtualClock()

    async def run() -> None:
        async with eventproc.open_memory(clock=clock, host=False) as ep:
            await make_segments(ep.db)
            times: list[int] = []
            for pause_ms in pauses_ms:
                clock.advance(pause_ms)
                await ep.db.write(appending(part(ONE, [SampleEvent(b"xy")])))
                times.append(clock.wall_ms())
            clock.advance(rest_ms)
            now_ms = clock.wall_ms()
            found = await ep.db.read(lambda tx: segment_rates(tx, STREAM_ID, ONE, WINDOWS_MS))
            for window_ms, rate in zip(WINDOWS_MS, found, strict=True):
                events = sum(at_ms >= now_ms - window_ms for at_ms in times)
                assert rate.events == pytest.approx(events * 1000 / window_ms)
                assert rate.bytes == pytest.approx(events * SampleEvent(b"xy").size_bytes * 1000 / window_ms)

    run_seeded(run, seed=0)


async def test_an_extent_that_began_before_a_window_counts_in_part(db: Database) -> None:
    await make_segments(db)
    await _append(db, 100)

    def read(tx: Tx) -> list[float]:
        tx.execute("UPDATE extent SET first_time = ?, last_time = ?", (tx.now_ms - 8_000, tx.now_ms))
        return [rate.events for rate in segment_rates(tx, STREAM_ID, ONE, (2_000, 8_000, 16_000))]

    assert await db.write(read) == pytest.approx([12.5, 12.5, 6.25])


async def test_the_rate_of_a_truncated_window_is_that_of_the_time_since_the_head(db: Database) -> None:
    await make_segments(db)
    for _ in range(2):
        await _append(db, 10)

    def read(tx: Tx) -> float:
        second = tx.execute("SELECT max(start) FROM extent WHERE segment = ?", (ONE,)).fetchone()[0]
        truncate_segments(tx, STREAM, STREAM_ID, {ONE: second}, passed=[])
        tx.execute("UPDATE extent SET first_time = ?, last_time = ?", (tx.now_ms - 5_000, tx.now_ms - 5_000))
        return segment_rates(tx, STREAM_ID, ONE, (20_000,))[0].events

    assert await db.write(read) == pytest.approx(2)


@pytest.mark.parametrize("freed", [False, True])
async def test_what_was_truncated_before_a_window_does_not_shorten_it(db: Database, freed: bool) -> None:
    await make_segments(db)
    await _append(db, 10)

    def truncate(tx: Tx) -> None:
        tail, old_ms = tx.execute("SELECT max(start + length) FROM extent").fetchone()[0], tx.now_ms - 60_000
        truncate_segments(tx, STREAM, STREAM_ID, {ONE: tail}, passed=[])
        tx.execute("UPDATE extent SET first_time = ?, last_time = ?", (old_ms, old_ms))
        if freed:  # as the reaper does
            tx.execute(
                "UPDATE segment SET base_offset = head, base_number = head_number, base_time = ?", (old_ms,)
            )
            tx.execute("DELETE FROM extent WHERE segment = ?", (ONE,))

    await db.write(truncate)
    await _append(db, 10)
    rates = await db.read(lambda tx: segment_rates(tx, STREAM_ID, ONE, (20_000,)))
    assert rates[0].events == pytest.approx(0.5)


async def test_rate_of_a_stream_that_rests_costs_one_look_up_per_segment(db: Database) -> None:
    await make_segments(db)
    for _ in range(8):
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
    assert len([each for each in statements if "extent" in each]) == 2
