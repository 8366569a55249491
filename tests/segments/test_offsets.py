"""Borders of events: found by number and by byte, in rows and in blobs, without reading an event."""

from __future__ import annotations

from functools import partial

from eventproc.store.database import Database
from eventproc.store.segments.offsets import boundary_before, number_at, offset_after, offset_of_number
from tests.segments.support import ONE, STREAM_ID, TWO, SampleEvent, appending, make_segments, part

SIZES = [0, 1, 40, 3000, 7, 0, 2, 2500, 2500, 3]


async def _write(db: Database) -> list[int]:
    """Write events in rows and in blobs that both segments share, three at a time; return their borders."""
    await make_segments(db)
    events = [SampleEvent(b"x" * size) for size in SIZES]
    for index in range(0, len(events), 3):
        await db.write(appending(part(ONE, events[index : index + 3]), part(TWO, [SampleEvent(b"other")])))
        await db.write(appending(part(TWO, [SampleEvent(b"other" * 900)])))
    borders = [0]
    for event in events:
        borders.append(borders[-1] + event.size_bytes)
    return borders


async def test_a_border_has_the_number_at_the_events_before_it(db: Database) -> None:
    for number, offset in enumerate(await _write(db)):
        found = await db.read(partial(number_at, stream_id=STREAM_ID, segment=ONE, offset=offset))
        assert found == number


async def test_an_event_begins_at_the_border_of_its_number(db: Database) -> None:
    borders = await _write(db)
    for number, offset in enumerate(borders):
        found = await db.read(partial(offset_of_number, stream_id=STREAM_ID, segment=ONE, number=number))
        assert found == offset
    beyond = partial(offset_of_number, stream_id=STREAM_ID, segment=ONE, number=len(borders) + 5)
    assert await db.read(beyond) == borders[-1]


async def test_so_many_events_later_is_that_border_or_the_tail(db: Database) -> None:
    borders = await _write(db)
    for first, offset in enumerate(borders):
        for count in range(len(borders) + 2):
            after = partial(offset_after, stream_id=STREAM_ID, segment=ONE, offset=offset, count=count)
            assert await db.read(after) == borders[min(first + count, len(SIZES))], f"{count} after {offset}"


async def test_a_byte_lies_behind_the_last_border_before_it(db: Database) -> None:
    borders = await _write(db)
    for offset in {each + by for each in borders for by in (-1, 0, 1)} | {1500, 4000}:
        if 0 <= offset <= borders[-1]:
            before = partial(boundary_before, stream_id=STREAM_ID, segment=ONE, offset=offset)
            assert await db.read(before) == max(each for each in borders if each <= offset)
