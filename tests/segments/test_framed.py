"""Framed events of foreign writers, and segments read as bytes."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, strategies as st

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import InvalidArgument, WriterFenced
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import (
    AppendResult,
    SegmentEvents,
    WriterSequence,
    append,
    join_step,
    last_sequence,
)
from eventproc.store.segments.framed import from_frames
from eventproc.store.segments.read_bytes import read_bytes
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
)


def framed(*payloads: bytes) -> bytes:
    return b"".join(len(each).to_bytes(FRAME_BYTES, "big") + each for each in payloads)


def append_framed(
    tx: Tx, data: bytes, *, writer: str = "w", after: int, count: int
) -> tuple[AppendResult, ...]:
    identity = WriterSequence(writer, after + count, after=after)
    return append(tx, STREAM, STREAM_ID, [SegmentEvents(ONE, from_frames(data, count))], identity=identity)


@given(st.lists(st.binary(max_size=40), min_size=1))
def test_frames_become_the_columns_that_a_writer_makes_of_the_same_events(events: list[bytes]) -> None:
    made, ours = from_frames(framed(*events), len(events)), part(ONE, map(SampleEvent, events)).events
    assert (made.data, made.lengths, made.keys) == (ours.data, ours.lengths, ours.keys)
    assert list(made.block.payloads) == events
    assert [made.block.payloads[number] for number in range(len(events))] == events
    assert (made.block.payloads[1:], len(made.block)) == (events[1:], len(events))


@pytest.mark.parametrize(
    "data, count",
    [
        (b"", 0),
        (framed(b"a"), 2),
        (framed(b"a")[:-1], 1),
        (framed(b"a") + b"\0" * 7, 1),
        (b"\0\0\0\1" + framed(b"a")[4:], 1),
        (b"\0\0\0\0\xff\xff\xff\xff", 1),
    ],
)
def test_incomplete_frames_and_wrong_counts_are_refused(data: bytes, count: int) -> None:
    with pytest.raises(InvalidArgument, match="framed events"):
        from_frames(data, count)


async def test_framed_events_come_back_as_events_and_as_bytes(db: Database) -> None:
    await make_segments(db)
    data = framed(b"", b"one", b"x" * 3000)
    await db.write(partial(append_framed, data=data, after=0, count=3))
    assert await read_all(db) == [SampleEvent(b""), SampleEvent(b"one"), SampleEvent(b"x" * 3000)]
    assert (
        await db.read(partial(read_bytes, stream_id=STREAM_ID, segment=ONE, offset=0, bytes_max=9999)) == data
    )


async def test_a_delayed_block_of_an_old_connection_makes_no_duplicate(db: Database) -> None:
    """The new connection cuts its blocks differently, so the late block is neither old nor next."""
    await make_segments(db)
    seven = [b"%d" % number for number in range(7)]
    looked = await db.write(partial(last_sequence, stream_id=STREAM_ID, writer="w"))
    await db.write(partial(append_framed, data=framed(*seven[:5]), after=looked, count=5))
    with pytest.raises(WriterFenced):
        await db.write(partial(append_framed, data=framed(*seven[:7]), after=looked, count=7))
    looked = await db.write(partial(last_sequence, stream_id=STREAM_ID, writer="w"))
    await db.write(partial(append_framed, data=framed(*seven[looked:]), after=looked, count=7 - looked))
    assert [event.payload for event in await read_all(db)] == seven


async def test_a_block_must_follow_the_one_before_in_the_same_group_commit(db: Database) -> None:
    await make_segments(db)

    def write(tx: Tx) -> None:
        append_framed(tx, framed(b"a"), after=0, count=1)
        append_framed(tx, framed(b"b"), after=1, count=1)
        append_framed(tx, framed(b"other"), writer="v", after=0, count=1)
        with pytest.raises(WriterFenced):
            append_framed(tx, framed(b"b"), after=1, count=1)

    await db.write(write)
    assert [event.payload for event in await read_all(db)] == [b"a", b"b", b"other"]


async def test_a_blob_with_the_id_of_a_deleted_one_is_read_anew(db: Database) -> None:
    await make_segments(db)
    get = partial(read_bytes, stream_id=STREAM_ID, segment=ONE, offset=0, bytes_max=2**20)
    await db.write(appending(payloads("x" * 4000)))
    assert await db.read(get) == framed(b"x" * 4000)

    def replace(tx: Tx) -> None:
        tx.execute("DELETE FROM extent WHERE stream_id = ?", (STREAM_ID,))
        tx.execute("DELETE FROM blob WHERE stream_id = ?", (STREAM_ID,))

    await db.write(replace)
    await db.write(appending(payloads("y" * 4000, segment=TWO)))
    (ids,) = {tuple(row) for row in await db.read(lambda tx: tx.execute("SELECT id FROM blob").fetchall())}
    assert ids == (1,)
    other = partial(read_bytes, stream_id=STREAM_ID, segment=TWO, offset=0, bytes_max=2**20)
    assert await db.read(other) == framed(b"y" * 4000)


async def test_any_range_of_bytes_can_be_read_of_inline_joined_and_shared_blobs(db: Database) -> None:
    await make_segments(db)
    for number in range(300):  # inline extents, enough to be joined
        await db.write(appending(payloads(f"event {number}")))
    await db.write(partial(join_step, stream_id=STREAM_ID, segment=ONE, offset=0))
    await db.write(appending(payloads("x" * 4000), payloads("y" * 4000, segment=TWO)))
    await db.write(appending(payloads("last")))
    expected = framed(*[event.payload for event in await read_all(db)])
    get = partial(read_bytes, stream_id=STREAM_ID, segment=ONE)

    def read(tx: Tx) -> None:
        assert get(tx, offset=0, bytes_max=2**20) == expected
        for offset in range(0, len(expected), 211):
            for most in (1, 8, 1000):
                assert get(tx, offset=offset, bytes_max=most) == expected[offset : offset + most]
        assert get(tx, offset=len(expected), bytes_max=8) == b""

    await db.read(read)
