"""The host's sweeps: immediately when there are bytes to free, and every 30 s.

That of chunk files marks unused files in the database, and deletes them once that is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import anyio
import anyio.to_thread

from eventproc.cluster.background_steps import STOPPED, attempt
from eventproc.cluster.internal_processors import INTERNAL_PROCESSORS
from eventproc.store.chunks.index import (
    delete_files,
    drop_unused,
    due_files,
    forget_deleted,
    is_orphan,
    mark_unused,
    next_unused,
)
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.faults import Step
from eventproc.store.file_store import FileStore
from eventproc.store.model.errors import Corrupt, OwnerFenced, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.segments.file_blobs import find_chunk_files
from eventproc.store.segments.free_pages import count_surplus
from eventproc.store.segments.holds import forget_expired_holds, has_expired_holds, is_directory_held
from eventproc.store.segments.reaper import count_reapings
from eventproc.store.tables import drop_entries, has_deleted_tables
from eventproc.store.transactions import notify_failed_commits
from eventproc.workflows.sweeps import forget, free_due, postpone_reap, shrink, truncate_internal

LOG = logging.getLogger("eventproc.host")

SWEEP_MS: Final = 30_000
"""Pause between two sweeps without a trigger: the longest time that sweepable state stays behind."""

WALK_MS: Final = 3_600_000
"""Pause between two walks through the chunk folder, which find files that a crash left without a row."""


async def sweep(db: Database, owner: Owner) -> None:
    """Sweep until cancelled. Raises OwnerFenced, DatabaseStopped.

    A failure, such as a record that cannot be decoded, is logged. It stops neither the other steps nor other streams.
    """
    tidy_at_ms, walk_at_ms = 0, 0
    walk_pause_ms = (
        SWEEP_MS  # on a server the first walk only asks which instances live, and all count as alive
    )
    with db.subscribe([Watch("reap", count_reapings)]) as changes:
        while True:
            done = await _try("to free bytes", partial(_reap, db, owner))
            if db.clock.monotonic_ms() >= tidy_at_ms:
                await _tidy(db, owner)
                tidy_at_ms = db.clock.monotonic_ms() + SWEEP_MS
            done = await _try("to shrink the file", partial(_shrink, db, owner)) and done
            done = await _try("to sweep chunk files", partial(sweep_chunks, db, owner)) and done
            if db.clock.monotonic_ms() >= walk_at_ms and await _try(
                "to walk through the chunk files", partial(walk_chunks, db, owner)
            ):
                walk_at_ms = db.clock.monotonic_ms() + walk_pause_ms
                walk_pause_ms = WALK_MS
            await changes.wait(max(tidy_at_ms - db.clock.monotonic_ms(), 0) if done else SWEEP_MS)


async def _try(what: str, step: Callable[[], Awaitable[object]]) -> bool:
    failure = f"the host failed {what}, and will try again"
    return await attempt(step, LOG, failure, expected=(Retryable, OSError), fatal=(OwnerFenced, *STOPPED))


async def _repeat(db: Database, step: Callable[[Tx], bool]) -> None:
    """Run a step in a transaction of its own until there is no more to do."""
    while await db.write(step, step=Step.HOST_SWEEP):
        await anyio.lowlevel.checkpoint()


async def _reap(db: Database, owner: Owner) -> None:
    """Free the bytes of all streams that are due. One with a record that cannot be decoded is tried again later."""
    while True:
        try:
            await _repeat(db, owner.fencing(free_due))
        except STOPPED:
            raise
        except Corrupt as why:
            name = await db.write(owner.fencing(postpone_reap), step=Step.HOST_SWEEP)
            if name is None:
                raise
            LOG.error("the bytes of stream %s cannot be freed: %s; look into `eventproc doctor`", name, why)
        else:
            return


async def _shrink(db: Database, owner: Owner) -> None:
    """Return free pages to the file system. Takes no lock of the writers while there are few."""
    if db.path is None:
        return
    if await db.read(count_surplus):
        await _repeat(db, owner.fencing(shrink))
    await db.shorten()  # what a reader has prevented, or a death


async def _free_tables(db: Database, owner: Owner) -> None:
    """Free the entries of deleted tables. Takes no lock of the writers while there are none."""
    if await db.read(has_deleted_tables):
        await _repeat(db, owner.fencing(drop_entries))


async def _tidy(db: Database, owner: Owner) -> None:
    """Forget old rows, truncate the internal streams, post failed commits again, and free deleted tables."""
    await _try("to forget old rows", partial(_repeat, db, owner.fencing(forget)))
    for each in INTERNAL_PROCESSORS:
        truncate = owner.fencing(partial(truncate_internal, stream=each.stream))
        await _try(f"to truncate {each.stream.name}", partial(db.write, truncate, step=Step.HOST_SWEEP))
    post = owner.fencing(notify_failed_commits)
    await _try("to post failed commits", partial(db.write, post, step=Step.HOST_SWEEP))
    await _try("to free deleted tables", partial(_free_tables, db, owner))


MARKED_MAX: Final = 64
"""Files marked in one transaction, which holds the write lock."""


async def sweep_chunks(db: Database, owner: Owner) -> None:
    """Mark unused chunk files, and delete those that were marked a minute ago. Raises OwnerFenced, Retryable, OSError.

    Until then a reader may see them in its snapshot. It deletes for SWEEP_MS at most, and leaves the rest to the next
    sweep. Cost: only reads, 0.5 us per file, while all files are in use; a write per STEP_CHUNKS_MAX held or due files.
    """
    if (files := await db.read(find_chunk_files)) is None:
        return
    if await db.read(has_expired_holds):
        await db.write(owner.fencing(forget_expired_holds))
    after: int | None = 0
    while after is not None and (first := await db.read(partial(next_unused, after=after))):
        after = await db.write(owner.fencing(partial(drop_unused, after=first - 1)))
    end_ms = db.clock.monotonic_ms() + SWEEP_MS
    while db.clock.monotonic_ms() < end_ms and (due := await db.read(due_files)):
        deleted, failure = await anyio.to_thread.run_sync(delete_files, files, due)
        await db.write(owner.fencing(partial(forget_deleted, paths=deleted)))
        if failure is not None and not deleted:  # files behind one that cannot be deleted do not wait for it
            raise failure


async def walk_chunks(db: Database, owner: Owner) -> None:
    """Find files that were left behind, and mark them. Raises OwnerFenced, Retryable, OSError.

    Marks none while a backup holds the directory: its snapshot may name a file that lost its row since.
    Objects cost a request per 1,000 files.
    """
    if (files := await db.read(find_chunk_files)) is None:
        return
    orphans = await anyio.to_thread.run_sync(_find_orphans, files, db.clock.wall_ms(), db.peers.is_alive)
    for begin in range(0, len(orphans), MARKED_MAX):
        await db.write(owner.fencing(partial(_mark, paths=orphans[begin : begin + MARKED_MAX])))


def _find_orphans(files: FileStore, now_ms: int, is_alive: Callable[[str], bool]) -> list[str]:
    """Return what is left behind unless a row names it."""
    return [path for path in files.paths() if is_orphan(path, now_ms, is_alive)]


def _mark(tx: Tx, paths: list[str]) -> None:
    if not is_directory_held(tx):
        mark_unused(tx, paths)
