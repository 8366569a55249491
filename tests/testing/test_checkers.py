"""The checkers find what is broken: each kind of damage, made with SQL, is named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from functools import partial

import pytest

import eventproc
from eventproc.testing import check, order_violations, violations
from tests.support.sqlite import sqlite_of

DAMAGE = {
    "UPDATE extent SET start = start + 1 WHERE stream_id = 4 AND start > 0": "does not follow",
    "UPDATE extent SET count = count + 1 WHERE stream_id = 4": "",
    "DELETE FROM blob WHERE stream_id = 4": "no blob",
    "DELETE FROM extent WHERE stream_id = 4 AND place IS NOT NULL": "nothing refers to it",
    "DELETE FROM segment WHERE stream_id = 4": "have no row",
    "UPDATE segment SET head = 1000000 WHERE stream_id = 4": "beyond its tail",
    "UPDATE segment SET sealed_length = 1 WHERE stream_id = 4": "is sealed in state active",
    "UPDATE extent SET first_time = 1, last_time = 1 WHERE stream_id = 4 AND start > 0": "back in time",
    "UPDATE epoch SET body = CAST(replace(body, '\"high\":1.0', '\"high\":0.9') AS BLOB)": "tile",
    "DELETE FROM record WHERE kind = 'stream' AND key = 's/t'": "was deleted and is not being reaped",
    "INSERT INTO request VALUES ('x', 's/t', 'seal', '', 'pending', NULL, 1, NULL)": "no event will run it",
    "DELETE FROM epoch WHERE stream_id = 4": "its row is missing",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damage_is_found(damage: str) -> None:
    async with eventproc.open_memory(host=True) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for _ in range(3):
                await writer.write(b"x" * 5000, key="a")
                await writer.write(b"y", key="a")
        await check(ep.db)
        if "request" in damage:
            columns = "id, target, kind, body, status, error, created_ms, finished_ms"
            damage = damage.replace("request VALUES", f"request ({columns}) VALUES")
        await ep.db.write(lambda tx: tx.execute(damage))
        found = await ep.db.read(violations)
        assert found
        assert any(DAMAGE.get(damage, "") in line for line in found), found


async def write(ep: eventproc.Eventproc, events: int, *, segments: int) -> None:
    """Write events to a stream, a quarter of them one by one, so that they lie in the rows of their extents."""
    await ep.create_scope("s")
    stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(segments))
    async with stream.writer() as writer:
        for number in range(events // 4):
            await writer.write(b"%0500d" % number, key=f"k{number}")
        for first in range(0, events * 3 // 4, 100):
            await writer.write_many((b"%0500d" % each, f"k{each}") for each in range(first, first + 100))


def peak_bytes(look: Callable[[], list[str]]) -> int:
    """Return what a check that finds nothing holds at most."""
    assert look() == []  # what is made once
    tracemalloc.start()
    try:
        assert look() == []
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def test_check_of_eight_times_as_many_events_holds_no_more_of_them() -> None:
    peaks = []
    for events in (2400, 8 * 2400):
        async with eventproc.open_memory() as ep:
            await write(ep, events, segments=2)
            peaks.append(await ep.db.read(lambda tx: peak_bytes(partial(violations, tx))))
    assert peaks[1] < 1.5 * peaks[0], peaks


async def loads_of_check(segments: int) -> int:
    """Return how many blobs the check of a stream with so many segments loads."""
    async with eventproc.open_memory() as ep:
        await write(ep, 2000, segments=segments)
        statements: list[str] = []
        await ep.db.read(lambda tx: sqlite_of(tx.connection).set_trace_callback(statements.append))
        assert await ep.db.read(violations) == []
    return sum(" FROM blob WHERE id = " in each for each in statements)


async def test_check_loads_a_blob_of_many_segments_no_more_often_than_one_of_a_single_segment() -> None:
    assert 0 < await loads_of_check(8) <= 1.5 * await loads_of_check(1)


def test_order_per_key_is_checked() -> None:
    assert order_violations([("a", 0), ("b", 0), ("a", 1)], {"a": 2, "b": 1}) == []
    assert order_violations([("a", 1), ("a", 0)], {"a": 2}) == ["key 'a': out of order; read 2 of 2"]
    assert order_violations([("a", 0), ("a", 0)], {"a": 2}) == ["key 'a': lost [1], 1 doubled; read 2 of 2"]
    assert order_violations([], {"a": 1}) == ["key 'a': lost [0], 0 doubled; read 0 of 1"]
