"""The cold tier: old events move into files and are read as before, and their pages return to the file system."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.chunks.index import ChunkFile, register_chunks
from eventproc.store.chunks.offload import ChunkBatch, OffloadLimits, move_step, next_cold_run
from eventproc.store.database import Tx
from eventproc.store.faults import WRITE_COMMIT, WRITE_COMMITTED, Step
from eventproc.store.model.errors import CorruptRecord, NotSupported, StreamReplaced
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.segments import Event
from eventproc.store.segments.holds import HeldRange, held_from
from eventproc.store.segments.inline_extents import join_step
from eventproc.store.segments.offsets import boundary_before, number_at, offset_after
from eventproc.store.segments.reaper import free_step
from eventproc.streams import Stream
from eventproc.streams.offload import OffloadResult, offload
from eventproc.testing import check
from eventproc.testing.faults import Deaths, run_until_death
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.memory import stored_ep as stored_ep  # a fixture: ep
from tests.support.reading import events_of

T = TypeVar("T")

SMALL = OffloadLimits(
    run_bytes_min=100, run_bytes_max=20_000, step_bytes=3_000, batch_bytes=1_000, batch_events_max=7
)
"""Files, record batches and steps that are small enough for the tests' streams."""


async def offload_small(ep: Eventproc, stream: Stream) -> OffloadResult:
    return await offload(ep.db, stream.name, stream.stream_id, ep.db.clock.wall_ms(), limits=SMALL)


async def write(stream: Stream, dice: random.Random, count: int) -> None:
    """Write events of all kinds: in small and large sends, with and without transactions."""
    if dice.random() < 0.3:
        async with stream.transaction() as txn:
            for index in range(count):
                await txn.write(b"%d" % index * dice.randint(0, 300), key=f"k{index % 5}")
        return
    async with stream.writer() as writer:
        for index in range(count):
            await writer.post(
                b"%d" % index * dice.choice([1, 30, 300]),
                key=dice.choice([None, "", "k", "schlüssel"]),
                event_time=dice.choice([None, -1, 2**50]),
                headers=dice.choice([None, {}, {"a": "ß", "b": ""}]),
            )
            if dice.random() < 0.1:
                await writer.flush()


async def sorted_events(stream: Stream) -> list[Event]:
    """Return all events, by segment and in order."""
    return sorted(await events_of(stream), key=lambda event: (event.segment, event.offset))


@pytest.mark.hunt(seeds=8)
async def test_no_reader_notices_what_was_moved(seed: int, ep: Eventproc, stream: Stream) -> None:
    dice = random.Random(seed)
    known: list[Event] = []
    for _ in range(8):
        await write(stream, dice, dice.choice([1, 5, 100]))
        if dice.random() < 0.3:
            await stream.split((await stream.segments())[0].id)
        known = await sorted_events(stream)
        match dice.randrange(4):
            case 0:
                middle = dice.choice(known)
                await stream.truncate(await stream.cut_at(middle.timestamp))
                known = await sorted_events(stream)
            case 1:
                for segment in await stream.segments():
                    await ep.db.write(
                        partial(join_step, stream_id=stream.stream_id, segment=segment.id, offset=0)
                    )
            case _:
                await offload_small(ep, stream)
        assert await sorted_events(stream) == known
    await offload_small(ep, stream)
    assert await sorted_events(stream) == known
    for event in dice.sample(known, min(len(known), 20)):
        end = event.offset + FRAME_BYTES + len(event.payload)
        found = await ep.db.read(partial(_borders, stream_id=stream.stream_id, event=event, end=end))
        assert found == (event.number, end, event.offset)
    await check(ep.db)


async def test_what_is_moved_gives_its_pages_back_and_what_is_young_stays(
    ep: Eventproc, stream: Stream
) -> None:
    async with stream.writer() as writer:
        for index in range(4000):
            await writer.post(b"x" * 1000, key=f"k{index % 10}")
    known = await sorted_events(stream)
    assert await stream.offload(older_than_ms=3_600_000) == OffloadResult()
    assert await stream.offload() == OffloadResult(events=4000, bytes=4000 * 1008, files=2)
    assert await stream.offload() == OffloadResult()
    assert await ep.db.read(_bytes_inside) == 0
    used, free = await ep.db.read(_pages)
    assert (used - free) * 16384 < 1_500_000  # a page for each empty table and index
    assert await sorted_events(stream) == known


async def test_offloaded_files_are_synced_even_with_durability_os(
    ep: Eventproc, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()

    def fsync(descriptor: int) -> None:
        synced.add(os.fstat(descriptor).st_ino)

    assert ep.path is not None
    monkeypatch.setattr(os, "fsync", fsync)
    await write_large(stream)
    await stream.offload()
    found = list((ep.path / "chunks").rglob("*"))
    assert {each.suffix for each in found} >= {".arrow"}
    assert [each for each in found if each.stat().st_ino not in synced] == []


async def test_nothing_leaves_the_database_for_a_file_that_is_not_what_was_written(
    ep: Eventproc, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ep.path is not None
    chunks = ep.path / "chunks"

    def register(tx: Tx, written: Sequence[ChunkFile]) -> None:
        register_chunks(tx, written)
        file = chunks / written[0].path
        found = bytearray(file.read_bytes())
        found[len(found) // 2] ^= 1
        file.write_bytes(found)

    await write_large(stream)
    known = await sorted_events(stream)
    monkeypatch.setattr("eventproc.streams.offload.register_chunks", register)
    with pytest.raises(CorruptRecord):
        await stream.offload()
    assert await sorted_events(stream) == known


async def test_events_moved_before_are_skipped_outside_of_the_write_lock(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write_large(stream)
    await stream.offload()
    passed = max((await stream.tail()).offsets.values())
    await write_large(stream)
    asked: list[int] = []

    def find(tx: Tx, *, offset: int, **options: Any) -> HeldRange | None:
        asked.append(offset)
        return next_cold_run(tx, offset=offset, **options)

    monkeypatch.setattr("eventproc.streams.offload.next_cold_run", find)
    assert (await stream.offload()).events == 400
    assert asked.count(0) == 2, "once a segment, to find the first run"
    assert asked.count(passed) == 1, "in the transaction that holds it"


async def write_large(stream: Stream) -> None:
    """Write what is worth a file."""
    async with stream.writer() as writer:
        for _ in range(400):
            await writer.post(b"x" * 1000, key="k")


async def test_an_offload_that_is_cancelled_as_it_begins_holds_nothing_up(
    ep: Eventproc, stream: Stream
) -> None:
    await write_large(stream)

    async def hold(fn: Callable[[Tx], T], *, step: Step) -> T:
        await ep.db.write(fn, step=step)
        raise asyncio.CancelledError  # as by `asyncio.timeout` during the commit

    with pytest.raises(asyncio.CancelledError):
        await offload(ep.db, stream.name, stream.stream_id, ep.db.clock.wall_ms(), limits=SMALL, write=hold)
    assert await ep.db.read(partial(held_from, stream_id=stream.stream_id)) == {}


async def test_a_short_run_stays_in_the_database(stream: Stream) -> None:
    async with stream.writer() as writer:
        await writer.write(b"few")
    assert await stream.offload() == OffloadResult()


async def test_small_extents_share_a_file_and_move_in_short_transactions(
    ep: Eventproc, stream: Stream
) -> None:
    async with stream.writer() as writer:
        for index in range(80):
            await writer.write(b"%03d" % index, key="k")
    known = await sorted_events(stream)
    steps: list[Step] = []

    async def write_counted(fn: Callable[[Tx], T], *, step: Step) -> T:
        steps.append(step)
        return await ep.db.write(fn, step=step)

    limits = OffloadLimits(run_bytes_min=40 * 11, extents_max=5)
    until_ms = ep.db.clock.wall_ms()
    moved = await offload(ep.db, stream.name, stream.stream_id, until_ms, limits=limits, write=write_counted)
    assert moved == OffloadResult(events=80, bytes=80 * 11, files=2)
    assert len(steps) >= 80 / 5
    assert await sorted_events(stream) == known


async def test_a_moved_extent_ends_at_the_time_of_its_last_event(ep: Eventproc, stream: Stream) -> None:
    async with stream.writer() as writer:
        for index in range(2):
            await writer.write(b"%03d" % index, key="k")
    segment = (await sorted_events(stream))[0].segment

    def move(tx: Tx) -> list[tuple[int, int]]:
        tx.execute("UPDATE extent SET first_time = 100 + start, last_time = 100 + start")
        _chunk_row(tx)
        moved = [ChunkBatch(0, 22, 0, 2, 100, 111, b"")]
        move_step(tx, stream.stream_id, segment, "p", moved, 0)
        return tx.execute(
            "SELECT first_time, last_time FROM extent WHERE stream_id = ?", (stream.stream_id,)
        ).fetchall()

    def undo(tx: Tx) -> None:
        raise Undone(move(tx))

    with pytest.raises(Undone) as found:
        await ep.db.write(undo)
    assert found.value.args == ([(100, 111)],)


class Undone(Exception):
    """Ends a transaction with what it saw."""


async def test_extents_joined_during_an_offload_are_left_for_the_next_one(
    ep: Eventproc, stream: Stream
) -> None:
    async with stream.writer() as writer:
        for index in range(80):
            await writer.write(b"%03d" % index, key="k")
    known = await sorted_events(stream)
    segment = known[0].segment
    before = await ep.db.read(_places)
    await ep.db.write(partial(join_step, stream_id=stream.stream_id, segment=segment, offset=0))
    after = await ep.db.read(_places)
    assert len(after) < len(before)
    second, _ = before[1]
    moved = [ChunkBatch(second, second + 11, 1, 1, 0, 0, b"")]
    await ep.db.write(_chunk_row)
    moving = partial(move_step, stream_id=stream.stream_id, segment=segment, path="p", moved=moved)
    assert await ep.db.write(partial(moving, start=second)) is None
    assert await ep.db.read(_places) == after
    await ep.db.write(lambda tx: tx.execute("DELETE FROM chunk"))
    assert (await offload_small(ep, stream)).events == 80
    assert await sorted_events(stream) == known


async def test_the_file_of_truncated_events_is_dropped_with_the_last_of_them(
    ep: Eventproc, stream: Stream
) -> None:
    await write(stream, random.Random(1), 200)
    await offload_small(ep, stream)
    await stream.truncate(await stream.tail())
    for _ in range(20):
        await ep.db.write(partial(free_step, stream_id=stream.stream_id, deleted=False))
    assert await ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM blob").fetchone()) == (0,)


@pytest.mark.parametrize("point", [WRITE_COMMIT, WRITE_COMMITTED])
@pytest.mark.parametrize("nth", range(1, 8))
async def test_death_at_any_step_leaves_every_event_in_one_place(
    tmp_path: Path, point: str, nth: int
) -> None:
    deaths = Deaths()

    async def live() -> None:
        async with eventproc.open(tmp_path / "data", durability="os", faults=deaths) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            await write(stream, random.Random(5), 60)
            known.extend(await sorted_events(stream))
            deaths.die_at(point, nth)
            await offload_small(ep, stream)

    known: list[Event] = []
    await run_until_death(live)
    async with eventproc.open(tmp_path / "data") as ep:
        stream = await ep.stream("s/t")
        assert await sorted_events(stream) == known
        await check(ep.db)
        await offload_small(ep, stream)
        assert await sorted_events(stream) == known
        await check(ep.db)


async def test_the_handle_of_a_deleted_stream_is_refused_when_the_name_is_reused(
    ep: Eventproc, stream: Stream
) -> None:
    await stream.seal()
    await stream.delete()
    with pytest.raises(StreamReplaced):
        await stream.offload()
    await ep.create_stream(stream.name)
    with pytest.raises(StreamReplaced):
        await stream.offload()


async def test_a_stream_in_memory_has_no_files_to_go_to() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        with pytest.raises(NotSupported):
            await (await ep.create_stream("s/t")).offload()


def _borders(tx: Tx, stream_id: int, event: Event, end: int) -> tuple[int, int, int]:
    """Return its number, the border after it, and the border before its last byte."""
    return (
        number_at(tx, stream_id, event.segment, event.offset),
        offset_after(tx, stream_id, event.segment, event.offset, 1),
        boundary_before(tx, stream_id, event.segment, end - 1),
    )


def _places(tx: Tx) -> list[tuple[int, int | None]]:
    return tx.execute("SELECT start, place FROM extent WHERE stream_id > 3 ORDER BY start").fetchall()


def _chunk_row(tx: Tx) -> None:
    tx.execute(
        "INSERT INTO chunk (stream_id, start, length, first_number, count, path, bytes, checksum)"
        " VALUES (4, 0, 1, 0, 1, 'p', 1, 0)"
    )


def _bytes_inside(tx: Tx) -> int:
    row = tx.execute("SELECT coalesce(sum(length(data)), 0) FROM blob WHERE chunk IS NULL").fetchone()
    return int(row[0])


def _pages(tx: Tx) -> tuple[int, int]:
    """Return how many pages the database has, and how many of them are free."""
    return tuple(tx.execute(f"PRAGMA {each}").fetchone()[0] for each in ("page_count", "freelist_count"))
