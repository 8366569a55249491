"""Freeing unreadable bytes step by step, and joining inline extents without disturbing readers."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.segments import (
    INLINE_EXTENT_COUNTER,
    WriterSequence,
    delete_segments,
    free_step,
    join_step,
    last_sequence,
    truncate_segments,
)
from eventproc.store.segments.extents import JOIN_EXTENTS_MAX
from eventproc.store.segments.holds import HOLD_MS, HeldRange, end_holds, place_hold
from eventproc.store.segments.inline_extents import JOIN_EXTENTS_MIN
from eventproc.store.segments.reaper import STEP_EXTENTS_MAX
from eventproc.store.segments.state import find_tail
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
    rows,
    state_of,
    texts,
    written,
)


async def _free(db: Database, *, deleted: bool = False) -> int:
    """Free to the end; return the number of steps it took."""
    steps = 1
    while not await db.write(partial(free_step, stream_id=STREAM_ID, deleted=deleted)):
        steps += 1
    return steps


async def _truncate(db: Database, **heads: int) -> None:
    ids = {"one": ONE, "two": TWO}
    offsets = {ids[name]: offset for name, offset in heads.items()}
    await db.write(lambda tx: truncate_segments(tx, STREAM, STREAM_ID, offsets, passed=()))


async def _append_tiny(db: Database, count: int) -> list[str]:
    names = [f"{number:04}" for number in range(count)]
    done = await db.read(lambda tx: last_sequence(tx, STREAM_ID, "w"))
    for number, name in enumerate(names, done + 1):
        event = part(ONE, [SampleEvent(name.encode(), name, number, {"n": name})])
        await db.write(appending(event, identity=WriterSequence("w", number)))
    return names


async def test_a_blob_lives_as_long_as_one_segment_needs_it(db: Database) -> None:
    await make_segments(db)
    await db.write(appending(part(ONE, [SampleEvent(b"1" * 3000)]), part(TWO, [SampleEvent(b"2" * 3000)])))
    await _truncate(db, one=3008)
    await _free(db)
    assert (await rows(db, "extent"), await rows(db, "blob")) == (1, 1)
    assert await read_all(db, TWO) == [SampleEvent(b"2" * 3000)]
    await _truncate(db, two=3008)
    await _free(db)
    assert (await rows(db, "extent"), await rows(db, "blob")) == (0, 0)


async def test_the_time_of_the_last_event_stays_where_everything_was_freed(db: Database) -> None:
    await make_segments(db)
    await db.write(appending(payloads("a", "b")))
    before = await db.read(lambda tx: find_tail(tx, STREAM, STREAM_ID, ONE).time)
    await _truncate(db, one=18)
    await _free(db)
    assert await rows(db, "extent") == 0
    after = await db.read(lambda tx: find_tail(tx, STREAM, STREAM_ID, ONE).time)
    assert after == before > 0, "an append after the clock went back must not come before it"


async def test_an_extent_is_kept_while_a_hold_begins_inside_it(db: Database) -> None:
    await make_segments(db)
    await db.write(appending(payloads("a", "b", "c")))

    def hold(tx: Tx) -> None:
        held = HeldRange(ONE, 9, 18)
        place_hold(tx, STREAM_ID, "h", plan="p", ranges=[[held]], until_ms=tx.now_ms + HOLD_MS)

    await db.write(hold)
    await _truncate(db, one=27)
    assert not await db.write(partial(free_step, stream_id=STREAM_ID, deleted=False))
    assert await rows(db, "extent") == 1
    await db.write(lambda tx: end_holds(tx, [(STREAM_ID, "h")]))
    await _free(db)
    assert await rows(db, "extent") == 0


async def test_a_head_never_moves_back(db: Database) -> None:
    await make_segments(db)
    await db.write(appending(payloads("a", "b", "c")))
    await _truncate(db, one=18)
    await _truncate(db, one=9)
    assert (await state_of(db)).head == 18


async def test_a_deleted_stream_is_freed_in_bounded_steps_and_its_neighbour_is_not(db: Database) -> None:
    await make_segments(db)
    await _append_tiny(db, STEP_EXTENTS_MAX + 10)
    for number in range(1, 21):
        await db.write(appending(part(ONE, [SampleEvent(b"x" * 3000)]), identity=WriterSequence("v", number)))
    await db.write(lambda tx: delete_segments(tx, STREAM, STREAM_ID))
    assert await _free(db, deleted=True) >= 4
    assert [await rows(db, table) for table in ("segment", "extent", "blob", "writer")] == [0, 0, 0, 0]


async def test_joining_changes_nothing_that_a_reader_sees(db: Database) -> None:
    await make_segments(db)
    names = await _append_tiny(db, 100)
    before = await db.read(read_runs)
    assert await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, 0)) == before[-1].end
    after = await db.read(read_runs)
    assert (len(before), len(after), await rows(db, "blob")) == (100, 1, 1)
    assert [e for run in after for e in run.events(STREAM)] == [
        e for run in before for e in run.events(STREAM)
    ]
    for number in (1, 57, 99):
        run = before[number]
        rest = written(await db.read(partial(read_runs, offset=run.start)))
        assert [event.payload.decode() for event in rest] == names[number:]


async def test_joining_ends(db: Database) -> None:
    await make_segments(db)
    await _append_tiny(db, JOIN_EXTENTS_MIN)
    end = await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, 0))
    tail = (await state_of(db)).tail
    assert end == tail
    assert await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, tail)) is None
    assert await db.write(lambda tx: join_step(tx, STREAM_ID, TWO, 0)) is None


async def test_a_short_run_is_passed_and_a_blob_in_between_is_left_alone(db: Database) -> None:
    await make_segments(db)
    await _append_tiny(db, JOIN_EXTENTS_MIN - 1)
    await db.write(appending(part(ONE, [SampleEvent(b"x" * 3000)])))
    middle = (await state_of(db)).tail
    await _append_tiny(db, JOIN_EXTENTS_MIN)
    assert await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, 0)) == middle
    assert await db.write(lambda tx: join_step(tx, STREAM_ID, ONE, middle)) == (await state_of(db)).tail
    assert await rows(db, "extent") == JOIN_EXTENTS_MIN + 1


@pytest.mark.parametrize("size", [10, 3000])
async def test_truncating_forgets_no_sequence_while_the_stream_lives(db: Database, size: int) -> None:
    await make_segments(db)
    event = part(ONE, [SampleEvent(b"x" * size)])
    await db.write(appending(event, identity=WriterSequence("w", 1)))
    await _truncate(db, one=size + 8)
    await _free(db)
    assert await db.write(appending(event, identity=WriterSequence("w", 1))) == ()


async def test_runs_of_tiny_extents_are_noted_once_they_are_long_enough(db: Database) -> None:
    await make_segments(db)
    tiny = db.shared[INLINE_EXTENT_COUNTER]
    await _append_tiny(db, JOIN_EXTENTS_MAX - 1)
    assert tiny.take() == []
    last = (await state_of(db)).tail
    await db.write(appending(payloads("last")))
    assert tiny.take() == [(STREAM_ID, ONE, 0, last)]
    assert tiny.take() == []


async def test_runs_of_tiny_extents_are_counted_in_the_segments_that_grew_last(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.segments.extents.RUNS_COUNTED_MAX", 1)
    await make_segments(db)
    await db.write(appending(part(TWO, [SampleEvent(b"x")])))
    await _append_tiny(db, JOIN_EXTENTS_MAX - 1)
    await db.write(appending(part(TWO, [SampleEvent(b"x")])))
    await db.write(appending(payloads("last")))
    assert db.shared[INLINE_EXTENT_COUNTER].take() == [], "the run of the first segment was forgotten"
    await _append_tiny(db, JOIN_EXTENTS_MAX - 1)
    assert [each[1] for each in db.shared[INLINE_EXTENT_COUNTER].take()] == [ONE]


async def test_reader_in_the_middle_of_a_joined_run_goes_on_in_the_same_commit(
    db: Database,
) -> None:
    await make_segments(db)
    names = await _append_tiny(db, 50)

    def append_join_read(tx: Tx) -> list[str]:
        appending(payloads("same"))(tx)
        join_step(tx, STREAM_ID, ONE, 0)
        return [event.payload.decode() for event in written(read_runs(tx))]

    assert await db.write(append_join_read) == [*names, "same"]
    assert await texts(db) == [*names, "same"]
