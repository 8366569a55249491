"""Chunk files: a file holds what a reader reads; its row, its holds and its removal follow the rules."""

from __future__ import annotations

import errno
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.chunks import ingest
from eventproc.store.chunks.chunk_file import ChunkReader
from eventproc.store.chunks.export import PART_BYTES_MIN, PARTS_MAX, ChunkExporter
from eventproc.store.chunks.index import (
    ChunkFile,
    LocatedRange,
    drop_missing,
    drop_unused,
    due_files,
    find_missing,
    locate_range,
    mark_unused,
    register_chunks,
)
from eventproc.store.chunks.ingest import SinkBatch, record_routed_batch
from eventproc.store.database import Database, Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.file_store import CountedFile, LocalFiles
from eventproc.store.model.errors import CorruptRecord, Truncated
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.records import RecordKind, keys
from eventproc.store.segments import delete_segments, free_step, truncate_segments
from eventproc.store.segments.holds import HOLD_MS, HeldRange, end_holds, find_held_plan, place_hold
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
    read_runs,
    rows,
    state_of,
)

T = TypeVar("T")

EVENTS = st.builds(
    SampleEvent,
    payload=st.binary(max_size=40) | st.integers(1000, 3000).map(lambda size: b"x" * size),
    key=st.none() | st.sampled_from(["", "k", "schlüssel", "鍵"]),
    event_time=st.none() | st.sampled_from([0, 1_700_000_000_000, -(2**62)]),
    headers=st.none() | st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2),
)


async def export(
    db: Database,
    folder: Path,
    ranges: Sequence[HeldRange],
    *,
    nonce: str = "n",
    part_bytes_min: int = PART_BYTES_MIN,
) -> list[ChunkFile]:
    """Export ranges without registering them."""
    token = anyio.lowlevel.current_token()

    def read(fn: Callable[[Tx], T]) -> T:
        return anyio.from_thread.run(db.read, fn, token=token)

    def run() -> list[ChunkFile]:
        job = ChunkExporter(
            files=LocalFiles(folder),
            stream=STREAM,
            stream_id=STREAM_ID,
            instance=nonce,
            sync=False,
            part_bytes_min=part_bytes_min,
        )
        return [each for some in job.run(read, ranges) for each in some]

    return await anyio.to_thread.run_sync(run)


async def export_and_register(
    db: Database, folder: Path, ranges: Sequence[HeldRange], *, part_bytes_min: int = PART_BYTES_MIN
) -> list[ChunkFile]:
    written = await export(db, folder, ranges, part_bytes_min=part_bytes_min)
    await db.write(partial(register_chunks, written=written))
    return written


def read_chunk(folder: Path, chunk: ChunkFile, start: int, end: int) -> list[dict[str, object]]:
    """Return the events of a chunk in [start, end), with what follows from their places."""
    found: list[dict[str, object]] = []
    with ChunkReader(LocalFiles(folder), chunk.path) as reader:
        for part_ in reader.rows(offset=chunk.start, number=chunk.first_number, start=start, end=end):
            places = zip(part_.offsets().tolist(), part_.numbers().tolist(), strict=True)
            table = pa.Table.from_batches([part_.batch])
            for name in ("timestamp", "event_time"):  # as Python's datetime they would end with the year 9999
                table = table.set_column(
                    table.schema.get_field_index(name), name, table[name].cast(pa.int64())
                )
            for row, (offset, number) in zip(table.to_pylist(), places, strict=True):
                headers = dict(row["headers"] or {})
                found.append({**row, "headers": headers, "offset": offset, "number": number})
    return found


async def expected(db: Database, segment: SegmentId, start: int, end: int) -> list[dict[str, object]]:
    runs = await db.read(partial(read_runs, segment=segment, offset=start, limit=end))
    return [
        {
            "payload": event.payload,
            "key": event.key,
            "timestamp": event.timestamp,
            "event_time": event.event_time,
            "headers": dict(event.headers),
            "offset": event.offset,
            "number": event.number,
        }
        for run in runs
        for event in run.events("s/t")
    ]


@given(
    appends=st.lists(
        st.tuples(st.lists(EVENTS, min_size=1, max_size=4), st.lists(EVENTS, max_size=2)), max_size=8
    ),
    bounds=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    joined=st.booleans(),
    part_bytes_min=st.sampled_from([1, 100, 3000, PART_BYTES_MIN]),
)
def test_a_chunk_holds_what_a_reader_reads_between_any_two_events(
    tmp_path_factory: pytest.TempPathFactory,
    appends: list[tuple[list[SampleEvent], list[SampleEvent]]],
    bounds: tuple[float, float],
    joined: bool,
    part_bytes_min: int,
) -> None:
    folder = tmp_path_factory.mktemp("chunks")
    anyio.run(_compare, folder, appends, bounds, joined, part_bytes_min, backend="trio")


async def _compare(
    folder: Path,
    appends: list[tuple[list[SampleEvent], list[SampleEvent]]],
    bounds: tuple[float, float],
    joined: bool,
    part_bytes_min: int,
) -> None:
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as db:
        await make_segments(db)
        for one, two in appends:
            await db.write(appending(*[part(*each) for each in ((ONE, one), (TWO, two)) if each[1]]))
        if joined:
            await db.write(partial(join_step, stream_id=STREAM_ID, segment=ONE, offset=0))
        events = [event for one, _ in appends for event in one]
        borders = [sum(event.size_bytes for event in events[:count]) for count in range(len(events) + 1)]
        start, end = sorted(borders[round(bound * len(events))] for bound in bounds)
        tail = (await state_of(db, TWO)).tail
        ranges = [
            each for each in (HeldRange(ONE, start, end), HeldRange(TWO, 0, tail)) if each.start < each.end
        ]
        chunks = await export_and_register(db, folder, ranges, part_bytes_min=part_bytes_min)
        for each in ranges:
            pieces = await db.read(partial(locate_range, stream_id=STREAM_ID, held=each))
            assert all(piece.chunk in chunks for piece in pieces)
            assert len(pieces) <= (1 if part_bytes_min == PART_BYTES_MIN else PARTS_MAX)
        assert sum(chunk.length for chunk in chunks) == sum(each.end - each.start for each in ranges)
        for chunk in chunks:
            found = read_chunk(folder, chunk, chunk.start, chunk.end)
            assert found == await expected(db, chunk.segment, chunk.start, chunk.end)
            assert (folder / chunk.path).stat().st_size == chunk.bytes
            assert zlib.crc32((folder / chunk.path).read_bytes()) == chunk.checksum


async def _ten(db: Database) -> list[int]:
    """Write ten events of two bytes, each an append; return their borders."""
    await make_segments(db)
    for index in range(10):
        await db.write(appending(payloads(f"{index:02}")))
    return [10 * index for index in range(11)]


async def test_part_of_a_chunk_is_read_by_offset(db: Database, tmp_path: Path) -> None:
    borders = await _ten(db)
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 20, 90)])
    for first, start in enumerate(borders[2:10], 2):
        for last, end in enumerate(borders[first:10], first):
            found = read_chunk(tmp_path, chunk, start, end)
            assert [(row["payload"], row["number"]) for row in found] == [
                (f"{index:02}".encode(), index) for index in range(first, last)
            ]


async def test_a_range_lies_in_chunks_where_there_are_some_and_in_extents_elsewhere(
    db: Database, tmp_path: Path
) -> None:
    await _ten(db)
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 20, 50)])
    found = await db.read(partial(locate_range, stream_id=STREAM_ID, held=HeldRange(ONE, 10, 80)))
    assert found == [LocatedRange(10, 20), LocatedRange(20, 50, chunk), LocatedRange(50, 80)]


async def test_parts_that_are_exported_together_follow_each_other(db: Database, tmp_path: Path) -> None:
    await _ten(db)
    chunks = await export_and_register(db, tmp_path, [HeldRange(ONE, 10, 90)], part_bytes_min=1)
    found = await db.read(partial(locate_range, stream_id=STREAM_ID, held=HeldRange(ONE, 0, 100)))
    assert [(each.start, each.end) for each in found] == [
        *((0, 10), (10, 30), (30, 50), (50, 70), (70, 90), (90, 100)),
    ]
    assert [each.chunk for each in found[1:-1]] == sorted(chunks, key=lambda chunk: chunk.start)


async def test_when_a_part_fails_no_file_stays_unfinished(db: Database, tmp_path: Path) -> None:
    await make_segments(db)
    large = [SampleEvent(b"x" * 3000)]
    for _ in range(8):
        await db.write(appending(part(ONE, large), part(TWO, large)))
    folder = LocalFiles(tmp_path / "files")
    folder.create(f"{STREAM_ID}/{format_segment(TWO)}").finish()  # where the folder of that segment should be
    tails = [(await state_of(db, each)).tail for each in (ONE, TWO)]
    ranges = [HeldRange(each, 0, tail) for each, tail in zip((ONE, TWO), tails, strict=True)]
    with pytest.raises(OSError, match=format_segment(TWO)):
        await export(db, tmp_path / "files", ranges, part_bytes_min=1)
    assert list(folder.paths()) == []


@pytest.mark.parametrize("writes", range(12))
async def test_when_a_write_fails_no_file_stays_unfinished(
    writes: int, db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, left = CountedFile.write, iter(range(writes))

    def write(file: CountedFile, data: bytes | memoryview) -> int:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "no space left on device")
        return writing(file, data)

    borders = await _ten(db)
    monkeypatch.setattr(CountedFile, "write", write)
    with pytest.raises(OSError, match="no space"):
        await export(db, tmp_path / "files", [HeldRange(ONE, 0, borders[-1])])
    assert list(LocalFiles(tmp_path / "files").paths()) == []


async def test_second_export_of_a_range_keeps_the_file_of_the_first(db: Database, tmp_path: Path) -> None:
    await _ten(db)
    ours = await export(db, tmp_path, [HeldRange(ONE, 0, 50)], nonce="a")
    theirs = await export(db, tmp_path, [HeldRange(ONE, 0, 50)], nonce="b")
    await db.write(partial(register_chunks, written=theirs))
    before = (tmp_path / theirs[0].path).stat().st_ino
    await db.write(partial(register_chunks, written=ours))
    assert await rows(db, "chunk") == 1
    assert (tmp_path / theirs[0].path).stat().st_ino == before
    assert await db.read(partial(due_files, unused_ms=0)) == [ours[0].path]


async def test_a_registration_that_is_run_again_finds_its_file_in_place(db: Database, tmp_path: Path) -> None:
    await _ten(db)
    written = await export(db, tmp_path, [HeldRange(ONE, 0, 50)])

    def fails(tx: Tx) -> None:
        register_chunks(tx, written)
        raise Truncated(stream=STREAM, segment="0.0", offset=0, head=0)

    with pytest.raises(Truncated):
        await db.write(fails)
    assert await rows(db, "chunk") == 0
    await db.write(partial(register_chunks, written=written))
    assert len(read_chunk(tmp_path, written[0], 0, 50)) == 5


async def test_two_exports_of_a_range_in_one_process_use_different_files(
    db: Database, tmp_path: Path
) -> None:
    await _ten(db)
    (ours,) = await export(db, tmp_path, [HeldRange(ONE, 0, 50)])
    (theirs,) = await export(db, tmp_path, [HeldRange(ONE, 0, 50)])
    assert ours.path != theirs.path


@pytest.mark.parametrize("left", [None, b"half"])
async def test_a_file_that_was_lost_although_it_has_a_row_is_replaced(
    db: Database, tmp_path: Path, left: bytes | None
) -> None:
    await _ten(db)
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 0, 50)])
    file = tmp_path / chunk.path
    file.unlink() if left is None else file.write_bytes(left)
    missing = find_missing(LocalFiles(tmp_path), [chunk])
    await db.write(partial(drop_missing, chunks=missing))
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 0, 50)])
    assert await rows(db, "chunk") == 1
    assert len(read_chunk(tmp_path, chunk, 0, 50)) == 5


async def test_a_lost_file_in_which_events_lie_is_not_replaced(db: Database, tmp_path: Path) -> None:
    await _ten(db)
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 0, 50)])
    await db.write(
        lambda tx: tx.execute(
            "INSERT INTO blob (stream_id, format, chunk, ends, data) SELECT 1, 2, id, x'', x'' FROM chunk"
        )
    )
    with pytest.raises(CorruptRecord):
        await db.write(partial(drop_missing, chunks=[chunk]))


async def _truncate(db: Database, offset: int) -> None:
    """Move the head there, and free all that can be freed now."""
    await db.write(
        lambda tx: truncate_segments(tx, STREAM, STREAM_ID, {ONE: offset}, passed=()),
    )
    for _ in range(3):
        await db.write(partial(free_step, stream_id=STREAM_ID, deleted=False))


async def test_truncation_moves_the_head_at_once_and_frees_nothing_that_is_held(
    db: Database, tmp_path: Path
) -> None:
    await _ten(db)
    await _hold(db, HeldRange(ONE, 30, 60))
    await _truncate(db, 80)
    assert (await state_of(db)).head == 80
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 30, 60)])
    assert len(read_chunk(tmp_path, chunk, 30, 60)) == 3
    lost = await db.read(partial(locate_range, stream_id=STREAM_ID, held=HeldRange(ONE, 20, 60)))
    assert lost == [LocatedRange(20, 30, lost=True), LocatedRange(30, 60, chunk)]


async def test_what_was_held_is_freed_once_it_is_released(db: Database) -> None:
    await _ten(db)
    await _hold(db, HeldRange(ONE, 30, 60))
    await _truncate(db, 80)
    waits = await db.read(
        lambda tx: tx.execute("SELECT not_before_ms > ? FROM reap", (tx.now_ms,)).fetchone()
    )
    assert waits == (1,)
    await db.write(lambda tx: end_holds(tx, [(STREAM_ID, "h")]))
    due = await db.read(lambda tx: tx.execute("SELECT not_before_ms FROM reap").fetchone())
    assert due == (0,)
    await _truncate(db, 80)
    assert await db.read(
        lambda tx: tx.execute("SELECT min(start) FROM extent WHERE segment = ?", (ONE,)).fetchone()
    ) == (80,)


async def test_a_hold_past_its_deadline_holds_nothing(db: Database) -> None:
    await _ten(db)
    await _hold(db, HeldRange(ONE, 0, 60), until_ms=0)
    await _truncate(db, 80)
    assert await rows(db, "extent") == 2


async def test_held_ranges_are_found_by_their_plan(db: Database) -> None:
    await _ten(db)
    await _hold(db, HeldRange(ONE, 30, 60))
    assert await db.read(partial(find_held_plan, stream_id=STREAM_ID, plan="p")) == [[HeldRange(ONE, 30, 60)]]
    assert await db.read(partial(find_held_plan, stream_id=STREAM_ID, plan="q")) is None


async def test_a_range_that_is_exported_again_has_another_file_than_the_unused_one(
    db: Database, tmp_path: Path
) -> None:
    await _ten(db)
    (chunk,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 0, 50)])
    await db.write(partial(drop_unused, after=0))
    (again,) = await export_and_register(db, tmp_path, [HeldRange(ONE, 0, 50)])
    assert await db.read(partial(due_files, unused_ms=0)) == [chunk.path]
    assert await db.write(partial(mark_unused, paths=[again.path])) == []


async def test_exporting_from_a_deleted_stream_fails_and_leaves_nothing(db: Database, tmp_path: Path) -> None:
    await _ten(db)
    await _hold(db, HeldRange(ONE, 0, 50))
    await db.write(lambda tx: delete_segments(tx, STREAM, STREAM_ID))
    await db.write(partial(free_step, stream_id=STREAM_ID, deleted=True))
    folder = tmp_path / "chunks"
    with pytest.raises(Truncated):
        await export(db, folder, [HeldRange(ONE, 0, 50)])
    assert _files(folder) == []


def _files(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("*") if each.is_file()]


async def _hold(db: Database, held: HeldRange, *, until_ms: int | None = None) -> None:
    def place(tx: Tx) -> None:
        deadline = tx.now_ms + HOLD_MS if until_ms is None else until_ms
        place_hold(tx, STREAM_ID, "h", plan="p", ranges=[[held]], until_ms=deadline)
        tx.execute(
            "INSERT INTO reap (stream_id, name, deleted) VALUES (?, ?, 0) ON CONFLICT DO NOTHING",
            (STREAM_ID, STREAM),
        )

    await db.write(place)


async def test_a_batch_for_many_streams_looks_once_for_what_sinks_wrote_long_ago(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []

    def look(tx: Tx, kind: RecordKind[object]) -> list[str]:
        looks.append(kind)
        return keys(tx, kind)

    monkeypatch.setattr(ingest, "keys", look)
    streams = {f"s/t{number}": number for number in range(1, 50)}
    assert await db.write(partial(record_routed_batch, batch=SinkBatch("q", "run", 0), streams=streams))
    assert len(looks) == 1


@pytest.mark.subprocess
def test_export_does_not_import_pandas() -> None:
    program = """
import sys
from eventproc.store.chunks.chunk_file import ColumnSlice, to_arrow
from eventproc.store.segments.columns import NO_TIME, Columns
times = (5).to_bytes(8, "little") + NO_TIME.to_bytes(8, "little", signed=True)
ends = (12).to_bytes(4, "little") + (22).to_bytes(4, "little")
columns = Columns(ends, None, None, None, times, None, bytes(22))
batch = to_arrow(ColumnSlice(columns, count=2, first=0, last=2, at=0, time=7))
assert batch.column("event_time").null_count == 1
assert batch.column("event_time").cast("int64").to_pylist() == [5, None]
assert batch.column("timestamp").cast("int64").to_pylist() == [7, 7]
assert "pandas" not in sys.modules, "it takes a second, or a minute on a busy machine"
"""
    subprocess.run([sys.executable, "-c", program], check=True)
