"""Moving old events of a stream out of the database, run by run: docs/design/cold-tier.md."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import anyio.from_thread
import anyio.to_thread
import attrs

from eventproc.base.clock import new_id
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.catalog import get_stream
from eventproc.store.chunks.index import (
    ChunkFile,
    drop_missing,
    find_chunk,
    find_missing,
    locate_range,
    register_chunks,
)
from eventproc.store.chunks.offload import DEFAULT_LIMITS, ChunkBatch, OffloadLimits, move_step, next_cold_run
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import segment_ids
from eventproc.store.segments.file_blobs import chunk_files
from eventproc.store.segments.free_pages import vacuum_step
from eventproc.store.segments.holds import HOLD_MS, HeldRange, end_holds, place_hold

if TYPE_CHECKING:
    from eventproc.store.chunks.export import ChunkExporter

T = TypeVar("T")


@attrs.frozen
class OffloadResult:
    """What an offload moved: number of events, their bytes, and the number of files that hold them."""

    events: int = 0
    bytes: int = 0
    files: int = 0


class OffloadWrite(Protocol):
    """Runs a function in a transaction, as `Database.write`."""

    async def __call__(self, fn: Callable[[Tx], T], *, step: Step) -> T:
        """Return what `fn` returns."""
        ...


async def offload(
    db: Database,
    stream: str,
    stream_id: int,
    until_ms: int,
    *,
    limits: OffloadLimits = DEFAULT_LIMITS,
    write: OffloadWrite | None = None,
    advance: Callable[[OffloadResult], None] = lambda _: None,
) -> OffloadResult:
    """Move events that were appended until `until_ms`, in wall ms, into chunk files.

    write: runs each step that begins or moves a run; that of `db` unless given.
    advance: called after each run with what was moved until then.

    Raises StreamReplaced, NotSupported (without pyarrow, or without a place for files), Truncated (the stream was
    deleted meanwhile), CorruptRecord, DiskFull, OSError, Unreachable.
    """
    files = await db.read(chunk_files)
    try:
        from eventproc.store.chunks.export import ChunkExporter
    except ImportError as why:
        remedy = 'pip install "eventproc[arrow]"'
        raise NotSupported(what=f"writing Arrow files without {why.name}", remedy=remedy) from None
    export = ChunkExporter(
        files=files,
        stream=stream,
        stream_id=stream_id,
        instance=db.instance_id,
        sync=False,  # every file is synced later, before events move into it, also one that existed before
        batch_bytes=limits.batch_bytes,
        batch_events_max=limits.batch_events_max,
        parts_max=1,  # reads go through the event loop, from this thread only; nobody waits for it
    )
    total = OffloadResult()
    for segment in await db.read(partial(_segments, stream, stream_id)):
        offset = 0
        while run := await _offload_run(db, write or db.write, export, segment, offset, until_ms, limits):
            offset, done = run
            total = OffloadResult(
                total.events + done.events, total.bytes + done.bytes, total.files + done.files
            )
            advance(total)
    if db.path is not None:
        while await db.write(partial(vacuum_step, all_pages=True)):
            pass  # one transaction each, so that other writers get in between
        await db.shorten()
    return total


def _segments(stream: str, stream_id: int, tx: Tx) -> list[SegmentId]:
    get_stream(tx, stream, stream_id=stream_id)
    return segment_ids(tx, stream_id)


async def _offload_run(
    db: Database,
    write: OffloadWrite,
    export: ChunkExporter,
    segment: SegmentId,
    offset: int,
    until_ms: int,
    limits: OffloadLimits,
) -> tuple[int, OffloadResult] | None:
    """Move the next run of a segment; return where it ends and what was moved, None if there is no such run."""
    stream_id, name = export.stream_id, f"offload-{new_id(db.clock)}"

    find = partial(next_cold_run, stream_id=stream_id, segment=segment, until_ms=until_ms, limits=limits)
    # Passing what was moved before may take long: do that in a read, outside of the write lock.
    if (found := await db.read(partial(find, offset=offset))) is None:
        return None

    def hold(tx: Tx) -> HeldRange | None:
        run = find(tx, offset=found.start)
        if run is not None:
            until_ms = tx.now_ms + HOLD_MS
            place_hold(tx, stream_id, name, plan=name, ranges=[[run]], until_ms=until_ms)
        return run

    try:  # around the hold, too: a cancellation may be raised after its commit
        if (run := await write(hold, step=Step.OFFLOAD)) is None:
            return None
        done = OffloadResult()
        for chunk, moved in await run_uninterrupted(
            lambda: anyio.to_thread.run_sync(_export_run, db, export, run)
        ):
            moving = partial(
                move_step, stream_id=stream_id, segment=segment, path=chunk.path, moved=moved, limits=limits
            )
            at = chunk.start
            while at < chunk.end and (end := await write(partial(moving, start=at), step=Step.OFFLOAD)):
                at = end
            events = sum(each.count for each in moved if each.end <= at)
            done = OffloadResult(done.events + events, done.bytes + at - chunk.start, done.files + 1)
        return run.end, done
    finally:
        await run_uninterrupted(lambda: db.write(lambda tx: end_holds(tx, [(stream_id, name)])))


def _export_run(
    db: Database, export: ChunkExporter, run: HeldRange
) -> list[tuple[ChunkFile, list[ChunkBatch]]]:
    """Write the files of a run, in a thread; return the registered, synced files and their record batches."""
    from eventproc.store.chunks.chunk_file import read_chunk_batches

    def read(fn: Callable[[Tx], T], /) -> T:
        return anyio.from_thread.run(db.read, fn)

    located = read(partial(locate_range, stream_id=export.stream_id, held=run))
    chunks = [each.chunk for each in located if each.chunk is not None]
    missing = find_missing(export.files, chunks)
    if missing:
        anyio.from_thread.run(db.write, partial(drop_missing, chunks=missing))
    if missing or [(each.start, each.end) for each in located] != [(each.start, each.end) for each in chunks]:
        chunks = []  # otherwise an offload that died, or Spark, has exported just this run
        for written in export.run(read, [run]):
            anyio.from_thread.run(db.write, partial(register_chunks, written=written))
            chunks += [read(partial(find_chunk, like=each)) or each for each in written]
    for chunk in chunks:
        # The events were durable in the database, so the file is synced whatever the durability of commits is.
        export.files.sync(chunk.path)
    return [(chunk, read_chunk_batches(export.files, chunk)) for chunk in chunks]
