"""Reading: several segments in one call, from any event, up to limits, at any time."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import (
    is_event_boundary,
    number_at,
    offset_at_time,
    read,
    segment_states,
    truncate_segments,
)
from eventproc.store.segments.inline_extents import join_step
from tests.segments.support import (
    ONE,
    STREAM,
    STREAM_ID,
    TWO,
    SampleEvent,
    appending,
    make_segments,
    part,
    payloads,
    read_all,
    read_runs,
    written,
)

MIXED = [
    SampleEvent(b"x" * size, f"k{size}" if size % 2 else None, size or None)
    for size in (0, 1, 40, 3000, 7, 0, 2)
]


async def _write_mixed(db: Database) -> list[int]:
    """Write events inline and in blobs, two at a time; return the offsets of their borders."""
    await make_segments(db)
    for index in range(0, len(MIXED), 2):
        other = part(TWO, [SampleEvent(b"other" * 600)])
        await db.write(appending(part(ONE, MIXED[index : index + 2]), other))
    borders = [0]
    for event in MIXED:
        borders.append(borders[-1] + event.size_bytes)
    return borders


async def test_reading_begins_at_any_event_and_ends_at_any_other(db: Database) -> None:
    borders = await _write_mixed(db)
    for first, low in enumerate(borders):
        for last, high in enumerate(borders[first:], first):
            runs = await db.read(partial(read_runs, offset=low, limit=high))
            assert written(runs) == MIXED[first:last], f"[{low}, {high})"
            if runs:
                assert (runs[0].start, runs[-1].end, runs[0].first_number) == (low, high, first)


async def test_only_events_are_borders(db: Database) -> None:
    borders = await _write_mixed(db)
    found = [
        offset
        for offset in range(borders[-1] + 2)
        if await db.read(lambda tx, at=offset: is_event_boundary(tx, STREAM_ID, ONE, at))  # type: ignore[misc]
        if offset < 60 or offset > borders[3] - 20
    ]
    assert found == borders


async def test_several_segments_are_read_in_one_snapshot_and_share_the_bytes(db: Database) -> None:
    await _write_mixed(db)
    both = await db.read(partial(read, stream_id=STREAM_ID, wanted={ONE: (0, None), TWO: (0, None)}))
    assert {run.segment for run in both.runs} == {ONE, TWO}
    assert {segment: state.tail_number for segment, state in both.states.items()} == {ONE: 7, TWO: 4}
    for first, last in ((ONE, TWO), (TWO, ONE)):
        little = await db.read(
            partial(read, stream_id=STREAM_ID, wanted={first: (0, None), last: (0, None)}, bytes_max=10)
        )
        assert {run.segment for run in little.runs} == {first}, "the first segment gets something"
        assert set(little.states) == {ONE, TWO}


async def test_what_does_not_exist_has_no_state_and_an_end_gives_nothing(db: Database) -> None:
    borders = await _write_mixed(db)
    wanted = {SegmentId(9): (0, None), ONE: (borders[-1], None), TWO: (10**9, None)}
    found = await db.read(partial(read, stream_id=STREAM_ID, wanted=wanted))
    assert (found.runs, set(found.states)) == ([], {ONE, TWO})


async def test_a_time_finds_the_first_event_appended_at_or_after_it(db: Database) -> None:
    await make_segments(db)
    for number in range(80):
        await db.write(appending(payloads(f"{number:04}", f"{number:04}b")))

    def set_times(tx: Tx) -> None:  # appends are 10 ms apart, whatever the machine did
        tx.execute(
            "UPDATE extent SET first_time = 1000 + first_number * 5, last_time = 1000 + first_number * 5"
        )

    await db.write(set_times)
    for joined in (False, True):
        if joined:
            await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, 0))
        for time_ms, number in (
            (0, 0),
            (1000, 0),
            (1001, 2),
            (1010, 2),
            (1399, 80),
            (1790, 158),
            (1791, 160),
        ):
            offset = await db.read(partial(offset_at_time, stream_id=STREAM_ID, segment=ONE, time_ms=time_ms))
            found = await db.read(partial(number_at, stream_id=STREAM_ID, segment=ONE, offset=offset))
            assert found == number, f"at {time_ms}, joined: {joined}"
    cut = 12 + 13
    await db.write(lambda tx: truncate_segments(tx, STREAM, STREAM_ID, {ONE: cut}, passed=()))
    assert await db.read(lambda tx: offset_at_time(tx, STREAM_ID, ONE, 0)) == cut


async def test_what_can_be_read_is_counted(db: Database) -> None:
    borders = await _write_mixed(db)
    other = 4 * SampleEvent(b"other" * 600).size_bytes
    assert await db.read(_readable) == (11, borders[-1] + other)
    await db.write(lambda tx: truncate_segments(tx, STREAM, STREAM_ID, {ONE: borders[3]}, passed=[TWO]))
    assert await db.read(_readable) == (4, borders[-1] - borders[3])


def _readable(tx: Tx) -> tuple[int, int]:
    states = [state for _, state in segment_states(tx, STREAM_ID)]
    return sum(each.tail_number - each.head_number for each in states), sum(
        each.tail - each.head for each in states
    )


DAMAGE = {
    "DELETE FROM blob": "not found, but an extent refers to it",
    "UPDATE blob SET format = 9": "format 9",
    "DELETE FROM extent WHERE start = 9": "no extent holds",
    "UPDATE extent SET length = length + 1 WHERE place IS NOT NULL AND segment = 0": "do not end where",
    "UPDATE extent SET count = count + 50 WHERE place IS NOT NULL AND segment = 0": "do not end where",
}


@pytest.mark.parametrize("damage", DAMAGE)
async def test_damaged_rows_are_named_not_guessed_at(db: Database, damage: str) -> None:
    await make_segments(db)
    await db.write(appending(payloads("a")))
    await db.write(appending(payloads("b")))
    await db.write(appending(part(ONE, [SampleEvent(b"x" * 3000)])))
    await db.write(
        lambda tx: tx.execute(f"{damage} {'AND' if 'WHERE' in damage else 'WHERE'} stream_id = 77").rowcount
    )
    with pytest.raises(CorruptRecord, match=DAMAGE[damage]):
        await read_all(db)
