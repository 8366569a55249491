"""The sweep of the long-term store: what nothing needs goes, and what was left behind; nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from itertools import count
from pathlib import Path

import anyio
import pytest

from eventproc.base.clock import new_id
from eventproc.cluster.sweeper import sweep_chunks, walk_chunks
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.chunks.index import (
    ABANDONED_MS,
    STEP_CHUNKS_MAX,
    UNUSED_MS,
    ChunkFile,
    chunk_path,
    drop_unused,
    find_chunk,
    register_chunks,
)
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import claim
from eventproc.store.segments.holds import HOLD_MS, HeldRange, place_hold
from eventproc.testing.clock import VirtualClock
from tests.database.support import open_database
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture

SEGMENT, STREAM_ID = SegmentId(0), 7


@pytest.fixture
async def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def db(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Database]:
    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS, clock=clock) as db:
        yield db


def _folder(db: Database) -> Path:
    assert db.path is not None
    return db.path / "chunks"


async def _chunk(db: Database, start: int, end: int) -> Path:
    """Make a chunk file with its row; return its path."""
    path = chunk_path(STREAM_ID, SEGMENT, start, db.instance_id, next(_NUMBERS))
    file = _file(db, Path(path).name)
    chunk = ChunkFile(STREAM_ID, SEGMENT, start, end - start, 0, 1, path, 1, 0)
    await db.write(partial(register_chunks, written=[chunk]))
    return file


_NUMBERS = count()


def _file(db: Database, name: str, *, under: str = f"{STREAM_ID}/0.0") -> Path:
    path = _folder(db) / under / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x")
    return path


async def _sweep(db: Database, clock: VirtualClock) -> None:
    """Sweep, and once more for what was put aside."""
    owner = await db.write(lambda tx: claim(tx, "controller", db.instance_id))
    await sweep_chunks(db, owner)
    await walk_chunks(db, owner)
    clock.advance(UNUSED_MS)
    await sweep_chunks(db, owner)


async def test_held_chunk_files_are_kept_and_others_deleted(db: Database, clock: VirtualClock) -> None:
    held, free = await _chunk(db, 0, 50), await _chunk(db, 50, 90)
    await db.write(
        lambda tx: place_hold(
            tx, STREAM_ID, "h", plan="p", ranges=[[HeldRange(SEGMENT, 40, 50)]], until_ms=tx.now_ms + HOLD_MS
        )
    )
    await _sweep(db, clock)
    assert (held.exists(), free.exists()) == (True, False)
    assert list(held.parent.iterdir()) == [held]


async def test_files_without_a_row_of_earlier_versions_are_deleted(db: Database, clock: VirtualClock) -> None:
    left = [_file(db, "0-50.arrow"), _file(db, "0-50.arrow.gone")]
    await _sweep(db, clock)
    assert [each.exists() for each in left] == [False, False]


async def test_exported_files_without_a_row_are_deleted_once_their_instance_is_dead(
    db: Database, clock: VirtualClock
) -> None:
    dead = "01890a5d-ac96-774b-bcce-b302099a8057"
    suffixes = (".arrow", ".arrow.part", ".part")
    alive = [_file(db, f"0-{db.instance_id}-7{suffix}") for suffix in suffixes]
    left = [_file(db, f"0-{dead}-7{suffix}") for suffix in suffixes]
    await _sweep(db, clock)
    assert [each.exists() for each in (*alive, *left)] == [True] * 3 + [False] * 3


async def test_a_file_of_an_instance_that_only_seemed_dead_gets_no_row_before_it_is_deleted(
    db: Database, clock: VirtualClock
) -> None:
    seemed_dead = "01890a5d-ac96-774b-bcce-b302099a8057"
    path = chunk_path(STREAM_ID, SEGMENT, 0, seemed_dead, 7)
    file = _file(db, Path(path).name)
    owner = await db.write(lambda tx: claim(tx, "controller", db.instance_id))
    await walk_chunks(db, owner)
    chunk = ChunkFile(STREAM_ID, SEGMENT, 0, 50, 0, 1, path, 1, 0)
    await db.write(partial(register_chunks, written=[chunk]))
    assert await db.read(partial(find_chunk, like=chunk)) is None, "no row names a file that will be gone"
    clock.advance(UNUSED_MS)
    await sweep_chunks(db, owner)
    assert not file.exists()


async def test_files_that_eventproc_does_not_write_are_kept(db: Database, clock: VirtualClock) -> None:
    strange = [_file(db, "notes.txt"), _file(db, "0-1.parquet"), _file(db, "1.arrow", under="mine/0.0")]
    await _sweep(db, clock)
    assert all(each.exists() for each in strange)


async def test_file_that_cannot_be_deleted_does_not_keep_the_others(
    db: Database, clock: VirtualClock
) -> None:
    strange = _folder(db) / f"{STREAM_ID}/0.0/0-1.arrow"
    strange.mkdir(parents=True)
    left = _file(db, "0-2.arrow")
    with pytest.raises(OSError, match=r"0-1\.arrow"):
        await _sweep(db, clock)
    assert (strange.exists(), left.exists()) == (True, False)


async def test_a_sweep_deletes_all_files_that_are_due(db: Database, clock: VirtualClock) -> None:
    left = [_file(db, f"0-{number}.arrow") for number in range(2 * STEP_CHUNKS_MAX + 1)]
    await _sweep(db, clock)
    assert sum(each.exists() for each in left) == 0


async def test_a_file_that_cannot_be_deleted_does_not_keep_others_from_being_marked(
    db: Database, clock: VirtualClock
) -> None:
    (_folder(db) / f"{STREAM_ID}/0.0/0-1.arrow").mkdir(parents=True)
    with pytest.raises(OSError, match=r"0-1\.arrow"):
        await _sweep(db, clock)
    free = await _chunk(db, 50, 90)
    for _ in range(2):
        with pytest.raises(OSError, match=r"0-1\.arrow"):
            await _sweep(db, clock)
        clock.advance(UNUSED_MS)
    assert not free.exists()


async def test_unused_file_stays_for_a_minute_across_sweeps(db: Database, clock: VirtualClock) -> None:
    left = _file(db, "0-50.arrow")
    owner = await db.write(lambda tx: claim(tx, "controller", db.instance_id))
    await walk_chunks(db, owner)
    clock.advance(UNUSED_MS - 1_000)
    for _ in range(2):
        await sweep_chunks(db, owner)
        await walk_chunks(db, owner)
    assert left.exists()
    clock.advance(1_000)
    await sweep_chunks(db, owner)
    assert not left.parent.exists()


async def test_files_of_sink_tasks_are_kept_for_a_day(db: Database, clock: VirtualClock) -> None:
    old = _file(db, f"{new_id(clock)}.arrow", under="sink/run")
    clock.advance(ABANDONED_MS)
    waiting = [
        _file(db, f"{new_id(clock)}{suffix}", under="sink/run") for suffix in (".arrow", ".arrow.part")
    ]
    clock.advance(1)
    await _sweep(db, clock)
    assert (old.exists(), [each.exists() for each in waiting]) == (False, [True, True])


async def test_files_that_blobs_use_cost_no_sweep_transaction(
    db: Database, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lived_in = await _chunk(db, 0, 50)

    def fill(tx: Tx) -> None:
        tx.execute(
            "INSERT INTO blob (stream_id, format, chunk, ends, data) SELECT 1, 2, id, x'', x'' FROM chunk"
        )
        place_hold(tx, STREAM_ID, "h", plan="p", ranges=[], until_ms=tx.now_ms + HOLD_MS)

    await db.write(fill)
    looked_at: list[int] = []

    def drop(tx: Tx, after: int) -> int | None:
        looked_at.append(after)
        return drop_unused(tx, after)

    monkeypatch.setattr("eventproc.cluster.sweeper.drop_unused", drop)
    await _sweep(db, clock)
    assert looked_at == []
    others = [await _chunk(db, start, start + 1) for start in (50, 51)]
    await _sweep(db, clock)
    assert looked_at == [1]
    assert (lived_in.exists(), [each.exists() for each in others]) == (True, [False, False])


async def test_expired_holds_are_deleted(db: Database, clock: VirtualClock) -> None:
    await _chunk(db, 0, 50)
    await db.write(lambda tx: place_hold(tx, STREAM_ID, "h", plan="p", ranges=[], until_ms=tx.now_ms - 1))
    await _sweep(db, clock)
    assert await db.read(lambda tx: tx.execute("SELECT count(*) FROM hold").fetchone()) == (0,)


async def test_sweep_beside_exports_keeps_files_with_a_row(db: Database, clock: VirtualClock) -> None:
    def are_kept(tx: Tx) -> bool:
        rows = tx.execute("SELECT path FROM chunk").fetchall()
        return all((_folder(db) / path).exists() for (path,) in rows)

    async def export() -> None:
        for _ in range(20):
            await _chunk(db, 0, 50)
            # Inside one transaction: the sweep may drop the row, and then the file, behind a read.
            assert await db.write(are_kept)

    async def sweep() -> None:
        for _ in range(20):
            await _sweep(db, clock)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(export)
        tasks.start_soon(sweep)
    assert await db.read(are_kept)
