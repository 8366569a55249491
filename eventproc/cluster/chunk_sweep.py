"""The host's sweep of chunk files: marks unused files in the database, and deletes them once that is durable."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import anyio.to_thread

from eventproc.store.chunks.index import (
    delete_files,
    drop_unused,
    due_files,
    forget_deleted,
    is_orphan,
    mark_unused,
    next_unused,
)
from eventproc.store.database import Database, Tx
from eventproc.store.file_store import FileStore
from eventproc.store.ownership import Owner
from eventproc.store.segments.file_blobs import find_chunk_files
from eventproc.store.segments.holds import forget_expired_holds, has_expired_holds

MARKED_MAX: Final = 64
"""Files marked in one transaction, which holds the write lock."""


async def sweep_chunks(db: Database, owner: Owner) -> None:
    """Mark unused chunk files, and delete those that were marked a minute ago. Raises OwnerFenced, Retryable, OSError.

    Until then a reader may see them in its snapshot. Cost: only reads, 0.5 us per file, while all files are in use; a
    write per STEP_CHUNKS_MAX held files.
    """
    if (files := await db.read(find_chunk_files)) is None:
        return
    if due := await db.read(due_files):
        deleted, failure = await anyio.to_thread.run_sync(delete_files, files, due)
        await db.write(partial(_forget_deleted, owner, deleted))
        if failure is not None:
            raise failure
    if await db.read(has_expired_holds):
        await db.write(partial(_forget_holds, owner))
    after: int | None = 0
    while after is not None and (first := await db.read(partial(next_unused, after=after))):
        after = await db.write(partial(_drop, owner, first - 1))


async def walk_chunks(db: Database, owner: Owner) -> None:
    """Find files that were left behind, and mark them. Raises OwnerFenced, Retryable, OSError.

    Objects cost a request per 1,000 files.
    """
    if (files := await db.read(find_chunk_files)) is None:
        return
    orphans = await anyio.to_thread.run_sync(_find_orphans, files, db.clock.wall_ms(), db.peers.is_alive)
    for begin in range(0, len(orphans), MARKED_MAX):
        await db.write(partial(_mark, owner, orphans[begin : begin + MARKED_MAX]))


def _find_orphans(files: FileStore, now_ms: int, is_alive: Callable[[str], bool]) -> list[str]:
    """Return what is left behind unless a row names it."""
    return [path for path in files.paths() if is_orphan(path, now_ms, is_alive)]


def _forget_deleted(owner: Owner, paths: list[str], tx: Tx) -> None:
    owner.check(tx)
    forget_deleted(tx, paths)


def _forget_holds(owner: Owner, tx: Tx) -> None:
    owner.check(tx)
    forget_expired_holds(tx)


def _drop(owner: Owner, after: int, tx: Tx) -> int | None:
    owner.check(tx)
    return drop_unused(tx, after)


def _mark(owner: Owner, paths: list[str], tx: Tx) -> None:
    owner.check(tx)
    mark_unused(tx, paths)
