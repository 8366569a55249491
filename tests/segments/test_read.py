"""Reading: several segments in one call, from any event, up to limits, at any time."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import (
    ReadResult,
    is_event_boundary,
    number_at,
    offset_at_time,
    read,
    segment_states,
    truncate_segments,
)
from eventproc.store.segments.extents import EXTENTS_A_QUERY, INLINE_BYTES_MAX
from eventproc.store.segments.inline_extents import join_step
from eventproc.store.segments.offsets import boundary_before, offset_after, offset_of_number
from eventproc.store.segments.read import FIRST_EXTENTS
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


async def test_a_border_has_the_number_at_the_events_before_it(db: Database) -> None:
    for number, offset in enumerate(await _write_mixed(db)):
        found = await db.read(partial(number_at, stream_id=STREAM_ID, segment=ONE, offset=offset))
        assert found == number


async def test_an_event_begins_at_the_border_of_its_number(db: Database) -> None:
    borders = await _write_mixed(db)
    for number, offset in enumerate(borders):
        found = await db.read(partial(offset_of_number, stream_id=STREAM_ID, segment=ONE, number=number))
        assert found == offset
    beyond = partial(offset_of_number, stream_id=STREAM_ID, segment=ONE, number=len(borders) + 5)
    assert await db.read(beyond) == borders[-1]


async def test_so_many_events_later_is_that_border_or_the_tail(db: Database) -> None:
    borders = await _write_mixed(db)
    for first, offset in enumerate(borders):
        for count in range(len(borders) + 2):
            after = partial(offset_after, stream_id=STREAM_ID, segment=ONE, offset=offset, count=count)
            assert await db.read(after) == borders[min(first + count, len(MIXED))], f"{count} after {offset}"


async def test_a_byte_lies_behind_the_last_border_before_it(db: Database) -> None:
    borders = await _write_mixed(db)
    for offset in {each + by for each in borders for by in (-1, 0, 1)} | {1500, 4000}:
        if 0 <= offset <= borders[-1]:
            before = partial(boundary_before, stream_id=STREAM_ID, segment=ONE, offset=offset)
            assert await db.read(before) == max(each for each in borders if each <= offset)


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


# How much one read returns and loads, however many segments it asks for, and that none of them starves.

EVENT_BYTES = INLINE_BYTES_MAX + 8
SEGMENTS = [SegmentId(number) for number in range(8)]


async def look(db: Database, frontier: Frontier, bytes_max: int) -> ReadResult:
    wanted = {segment: (offset, None) for segment, offset in frontier.held.items()}
    return await db.read(partial(read, stream_id=STREAM_ID, wanted=wanted, bytes_max=bytes_max))


async def test_large_extents_of_many_segments_are_bounded_in_total_and_none_starves(db: Database) -> None:
    await make_segments(db, *SEGMENTS)
    for _ in range(3):
        for segment in SEGMENTS:
            await db.write(appending(part(segment, [SampleEvent(b"x" * INLINE_BYTES_MAX)])))
    frontier = Frontier(dict.fromkeys(SEGMENTS, 0), {})
    for bytes_max, extents in ((1, 1), (2 * EVENT_BYTES, 2), (2 * EVENT_BYTES + 1, 3)):
        found = await look(db, frontier, bytes_max)
        assert sum(run.end - run.start for run in found.runs) == extents * EVENT_BYTES
        assert set(found.states) == set(SEGMENTS)
    for round_ in range(1, 4):
        for _ in range(len(SEGMENTS) // 2):
            for run in (await look(db, frontier, 2 * EVENT_BYTES)).runs:
                frontier.advance(run.segment, run.end)
        assert set(frontier.held.values()) == {round_ * EVENT_BYTES}
    assert (await look(db, frontier, 2**20)).runs == []


async def test_a_read_of_little_out_of_many_blobs_stops_loading_them_and_goes_on(db: Database) -> None:
    await make_segments(db)
    for number in range(10):
        one, two = part(ONE, [SampleEvent(b"%d" % number)]), part(TWO, [SampleEvent(b"x" * INLINE_BYTES_MAX)])
        await db.write(appending(one, two))
    offset, counts, payloads = 0, [], []
    look_up = partial(read, stream_id=STREAM_ID, loaded_bytes_max=4 * EVENT_BYTES)
    while runs := (await db.read(partial(look_up, wanted={ONE: (offset, None)}))).runs:
        offset = runs[-1].end
        counts.append(len(runs))
        payloads += [payload for run in runs for payload in run.payloads]
    assert counts == [4, 4, 2]
    assert payloads == [b"%d" % number for number in range(10)]


async def test_one_read_serves_all_segments_whose_events_lie_in_the_blobs_that_it_loads(db: Database) -> None:
    await make_segments(db, *SEGMENTS)
    for number in range(6):
        together = [
            part(segment, [SampleEvent(b"%d" % number + b"x" * INLINE_BYTES_MAX)]) for segment in SEGMENTS
        ]
        await db.write(appending(*together))
    frontier = Frontier(dict.fromkeys(SEGMENTS, 0), {})
    blob_bytes = len(SEGMENTS) * (EVENT_BYTES + 1)
    for end in (3, 6):
        wanted = {segment: (offset, None) for segment, offset in frontier.held.items()}
        look_up = partial(read, stream_id=STREAM_ID, wanted=wanted, loaded_bytes_max=3 * blob_bytes)
        for run in (await db.read(look_up)).runs:
            frontier.advance(run.segment, run.end)
        assert frontier.held == dict.fromkeys(SEGMENTS, end * (EVENT_BYTES + 1))


async def test_a_read_continues_behind_the_extents_of_its_first_query(db: Database) -> None:
    await make_segments(db)
    count = FIRST_EXTENTS + EXTENTS_A_QUERY + 1
    for number in range(count):
        await db.write(appending(part(ONE, [SampleEvent(b"%d" % number)])))
    runs = (await db.read(partial(read, stream_id=STREAM_ID, wanted={ONE: (0, None)}))).runs
    assert [payload for run in runs for payload in run.payloads] == [
        b"%d" % number for number in range(count)
    ]


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
