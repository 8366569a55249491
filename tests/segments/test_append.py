"""Appending: whole or not at all, conditional, deduplicated, merged with neighbours and not hurt by them."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import NotFound, OffsetConflict, SegmentSealed
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import EVENT_BYTES_MAX, FRAME_BYTES
from eventproc.store.segments import (
    AppendResult,
    WriterSequence,
    append,
    last_sequence,
    seal_segments,
)
from eventproc.store.segments.extents import INLINE_BYTES_MAX
from tests.database.support import Refused, World
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
)


async def test_offsets_count_framed_bytes_and_numbers_count_events(db: Database) -> None:
    await make_segments(db)
    first = await db.write(appending(payloads("a", "bb")))
    second = await db.write(appending(payloads("c"), payloads("dd", "e", segment=TWO)))
    assert first == (AppendResult(ONE, 0, 0, 2),)
    assert second == (AppendResult(ONE, 2 * FRAME_BYTES + 3, 2, 1), AppendResult(TWO, 0, 0, 2))
    state = await state_of(db)
    assert (state.head, state.tail, state.tail_number, state.sealed) == (0, 3 * FRAME_BYTES + 4, 3, False)
    events = [event for run in await db.read(read_runs) for event in run.events(STREAM)]
    assert [(event.offset, event.number) for event in events] == [(0, 0), (9, 1), (19, 2)]


@pytest.mark.parametrize("size", [INLINE_BYTES_MAX - FRAME_BYTES, INLINE_BYTES_MAX - FRAME_BYTES + 1])
async def test_up_to_a_limit_columns_lie_in_the_row_and_beyond_it_in_a_blob(db: Database, size: int) -> None:
    await make_segments(db)
    await db.write(appending(part(ONE, [SampleEvent(b"x" * size, "k")])))
    assert await rows(db, "blob") == int(size + FRAME_BYTES > INLINE_BYTES_MAX)
    assert await read_all(db) == [SampleEvent(b"x" * size, "k")]


async def test_the_biggest_event_fits(db: Database) -> None:
    await make_segments(db)
    biggest = bytes(EVENT_BYTES_MAX)
    await db.write(appending(part(ONE, [SampleEvent(biggest, "k")])), size_bytes=EVENT_BYTES_MAX)
    await db.write(appending(payloads("after")))
    assert await read_all(db) == [SampleEvent(biggest, "k"), SampleEvent(b"after")]


async def test_conditional_append_succeeds_only_at_its_offset(db: Database) -> None:
    await make_segments(db)
    await db.write(appending(payloads("a"), expected_offset=0))
    with pytest.raises(OffsetConflict) as caught:
        await db.write(appending(payloads("b"), expected_offset=0))
    assert (caught.value.expected, caught.value.actual) == (0, 9)
    await db.write(appending(payloads("c"), expected_offset=9))
    assert await texts(db) == ["a", "c"]


async def test_of_conditional_appends_in_one_group_one_wins(world: World) -> None:
    await make_segments(world.db)
    outcomes = await world.write_together(
        *(appending(payloads(name), expected_offset=0) for name in ("a", "b", "c"))
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == [
        "OffsetConflict",
        "OffsetConflict",
        "tuple",
    ]
    assert len(await texts(world.db)) == 1


@pytest.mark.parametrize("size", [10, 5000])
async def test_a_repeated_sequence_changes_nothing_in_the_same_group_and_later(
    world: World, size: int
) -> None:
    db = world.db
    await make_segments(db)
    event = part(ONE, [SampleEvent(b"x" * size)])
    outcomes = await world.write_together(
        *(appending(event, identity=WriterSequence("w", each)) for each in (1, 1, 2, 1))
    )
    assert sorted(len(outcome) for outcome in outcomes if isinstance(outcome, tuple)) in (
        [0, 0, 1, 1],
        [0, 0, 0, 1],
    )
    before = await state_of(db)
    assert await db.write(appending(event, identity=WriterSequence("w", 2))) == ()
    assert await state_of(db) == before
    assert await db.write(appending(event, identity=WriterSequence("other", 1))) != ()
    assert await db.write(appending(event, identity=WriterSequence("w", 3))) != ()


async def test_a_repeated_sequence_is_recognised_on_another_segment(db: Database) -> None:
    await make_segments(db)
    identity = WriterSequence("w", 1)
    await db.write(appending(payloads("a"), identity=identity))
    assert await db.write(appending(payloads("a", segment=TWO), identity=identity)) == ()
    assert (await texts(db), await texts(db, TWO)) == (["a"], [])


async def test_appends_of_one_group_become_one_extent_a_segment(world: World) -> None:
    await make_segments(world.db)
    outcomes = await world.write_together(
        *(
            appending(
                part(ONE, [SampleEvent(f"{name}1".encode() * 800, name)]),
                part(TWO, [SampleEvent(f"{name}2".encode() * 800, name, headers={"h": name})]),
                identity=WriterSequence(name, 1),
            )
            for name in ("a", "b", "c")
        )
    )
    appended = {item for outcome in outcomes if isinstance(outcome, tuple) for item in outcome}
    assert {item.number for item in appended if item.segment == ONE} == {0, 1, 2}
    assert (await rows(world.db, "extent"), await rows(world.db, "blob")) == (2, 1)
    order = [event.key for event in await read_all(world.db)]
    assert sorted(order, key=str) == ["a", "b", "c"]
    assert [event.key for event in await read_all(world.db, TWO)] == order
    assert await read_all(world.db, TWO) == [
        SampleEvent(f"{key}2".encode() * 800, key, headers={"h": str(key)}) for key in order
    ]
    for name in ("a", "b", "c"):
        assert await world.db.read(partial(last_sequence, stream_id=STREAM_ID, writer=name)) == 1


@pytest.mark.parametrize("size", [10, 3000])
async def test_a_refused_neighbour_takes_nothing_with_it_and_leaves_nothing_behind(
    world: World, size: int
) -> None:
    await make_segments(world.db)

    def append_then_raise(tx: Tx) -> None:
        append(
            tx, STREAM, STREAM_ID, [part(ONE, [SampleEvent(b"no" * size)])], identity=WriterSequence("bad", 1)
        )
        raise Refused("bad")

    good = [part(ONE, [SampleEvent(name.encode() * size)]) for name in ("g", "h")]
    outcomes = await world.write_together(
        appending(good[0], identity=WriterSequence("g", 1)),
        append_then_raise,
        appending(payloads("x", segment=SegmentId(99))),
        appending(good[1], identity=WriterSequence("h", 1)),
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NotFound", "Refused", "tuple", "tuple"]
    assert sorted(event.payload[:1] for event in await read_all(world.db)) == [b"g", b"h"]
    assert await world.db.read(lambda tx: last_sequence(tx, STREAM_ID, "bad")) == 0
    state = await state_of(world.db)
    assert (state.tail, state.tail_number) == (2 * (size + FRAME_BYTES), 2)


async def test_append_to_several_segments_takes_effect_in_all_or_none(db: Database) -> None:
    await make_segments(db)
    await db.write(lambda tx: seal_segments(tx, STREAM, STREAM_ID, [TWO], sealed_epoch=1))
    with pytest.raises(SegmentSealed):
        await db.write(appending(payloads("a"), payloads("b", segment=TWO)))
    with pytest.raises(NotFound):
        await db.write(appending(payloads("a"), payloads("b", segment=SegmentId(5))))
    assert await texts(db) == []


async def test_a_segment_sealed_in_the_group_takes_what_came_before_and_nothing_after(world: World) -> None:
    await make_segments(world.db)
    outcomes = await world.write_together(
        appending(payloads("a")),
        lambda tx: seal_segments(tx, STREAM, STREAM_ID, [ONE], sealed_epoch=1),
        appending(payloads("b")),
        appending(payloads("c", segment=TWO)),
    )
    accepted = sum(isinstance(outcome, tuple) for outcome in outcomes[0::2])
    assert all(isinstance(outcome, (tuple, SegmentSealed)) for outcome in outcomes[0::2])
    assert len(await texts(world.db)) == accepted
    assert await texts(world.db, TWO) == ["c"]
    state = await state_of(world.db)
    assert (state.sealed, state.tail) == (True, 9 * accepted)
    with pytest.raises(SegmentSealed):
        await world.db.write(appending(payloads("d")))
