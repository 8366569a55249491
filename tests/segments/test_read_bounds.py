"""How much one read returns and loads, however many segments it asks for, and that none of them starves."""

from __future__ import annotations

from functools import partial

from eventproc.store.database import Database
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import ReadResult, read
from eventproc.store.segments.extents import EXTENTS_A_QUERY, INLINE_BYTES_MAX
from eventproc.store.segments.read import FIRST_EXTENTS
from tests.segments.support import ONE, STREAM_ID, TWO, SampleEvent, appending, make_segments, part

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
