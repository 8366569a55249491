"""Compaction of a directory: what the host does in the background, now and completely."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeAlias

import anyio
import attrs

from eventproc.store.database import Database, FileWork, Tx
from eventproc.store.database.files import DATABASE
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments.free_pages import count_surplus, free_space, vacuum_step
from eventproc.workflows.sweeps import free_due

CHECKPOINTS_MAX: Final = 50
"""How often a compaction tries to cut the file while a read needs the rest. Higher: a long read delays its end; lower:
the host cuts the file later more often."""

CHECKPOINT_PAUSE_S: Final = 0.1
"""Pause between two attempts to cut the file."""

REMEDY: Final = (
    "freed bytes stay in this file for the next events; to change that, close the directory everywhere and run"
    " `sqlite3 eventproc.db 'PRAGMA auto_vacuum = 2; VACUUM'` in it"
)

StepWrite: TypeAlias = Callable[[Callable[[Tx], int]], Awaitable[int]]
"""Runs a function in a transaction, as `Database.write`."""


@attrs.frozen
class CompactResult:
    """What a compaction did to the database file.

    bytes_before, bytes: size of the file before and after it. free_bytes: what holds nothing of the latter. A read that
    goes on for seconds keeps the file long until a later checkpoint, and others may free pages meanwhile.
    """

    __repr__ = short_repr_of_fields

    bytes_before: int
    bytes: int
    free_bytes: int


async def compact(
    db: Database,
    *,
    write: StepWrite | None = None,
    advance: Callable[[int, int], None] = lambda _done, _total: None,
) -> CompactResult:
    """Free the bytes of truncated and deleted events, and return all free pages to the file system.

    Each step is a transaction of some ms, so that writers go on. A death between two costs nothing: what is left is
    in the database. Bytes that are read outside of it stay.

    write: runs each step; that of `db` unless given. advance: called with the bytes returned, and all free ones, which
    grow while the first are freed.

    Raises NotSupported (no directory, or a file that cannot shrink), CorruptRecord, DiskFull, LockHeld.
    """
    directory = db.directory_for(FileWork.COMPACTION)
    found = await db.read(free_space)
    if not found.can_shrink:
        raise NotSupported(what="compacting a database that was made without auto_vacuum", remedy=REMEDY)
    run, file = write or db.write, anyio.Path(directory / DATABASE)
    bytes_before = (await file.stat()).st_size
    while await run(free_due):
        advance(0, (await db.read(free_space)).free_bytes)
    total = left = await db.read(partial(count_surplus, all_pages=True))
    for _ in range(total):  # at most, because others may free pages all the time
        advance((total - left) * found.page_bytes, total * found.page_bytes)
        if (left := min(await run(partial(vacuum_step, all_pages=True)), total)) == 0:
            break
    advance((total - left) * found.page_bytes, total * found.page_bytes)
    for _ in range(CHECKPOINTS_MAX):
        if await db.shorten():
            break
        await anyio.sleep(CHECKPOINT_PAUSE_S)
    found, size = await db.read(free_space), (await file.stat()).st_size
    # Pages of the latest commits may be in the log only.
    return CompactResult(bytes_before, size, max(size - found.bytes, 0) + found.free_bytes)
