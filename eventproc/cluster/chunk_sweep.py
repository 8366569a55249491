"""The host's sweep of the long-term store: rows that nothing needs go first, their files after that is durable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from eventproc.store.database import Database, Tx, instances
from eventproc.store.ownership import Owner
from eventproc.store.segments import chunks
from eventproc.store.segments.holds import forget_holds

ABANDONED_MS: Final = 24 * 3_600_000
"""Age at which a file that is still being written counts as left behind. A job may take that long over one."""

ASIDE_MAX: Final = 64
"""Files put aside in one transaction: a rename each, under the write lock."""

_EXPORTED: Final = re.compile(r"[0-9]+-([0-9a-f-]{36})" + re.escape(chunks.PART))
"""Name of a file that an instance exports into."""


async def sweep_chunks(db: Database, owner: Owner) -> None:
    """Drop what nothing needs any more. One read when there is nothing of the kind. Raises OwnerFenced, Retryable."""
    if db.path is None or not await db.read(_any):
        return
    after: int | None = 0
    while after is not None:
        after, paths = await db.write(partial(_drop, owner, after))
        await _unlink(db, owner, paths)


async def walk_chunks(db: Database, owner: Owner) -> None:
    """Look for files that no row names, and for those that were never finished. Raises OwnerFenced, Retryable."""
    if db.path is None:
        return
    folder = db.path / chunks.FOLDER
    before_ms = db.clock.wall_ms() - ABANDONED_MS
    found = await anyio.to_thread.run_sync(_clear, db.path, folder, before_ms)
    for begin in range(0, len(found), ASIDE_MAX):
        await _unlink(db, owner, found[begin : begin + ASIDE_MAX])


def _any(tx: Tx) -> bool:
    row = tx.execute("SELECT EXISTS (SELECT 1 FROM chunk) OR EXISTS (SELECT 1 FROM hold)").fetchone()
    return bool(row[0])


def _drop(owner: Owner, after: int, tx: Tx) -> tuple[int | None, list[str]]:
    owner.check(tx)
    forget_holds(tx)
    return chunks.drop_unused(tx, after)


async def _unlink(db: Database, owner: Owner, paths: list[str]) -> None:
    assert db.path is not None, "in memory there are no files"
    folder = db.path / chunks.FOLDER
    for begin in range(0, len(paths), ASIDE_MAX):
        some = paths[begin : begin + ASIDE_MAX]
        aside = await db.write(partial(_put_aside, owner, folder, some))
        await anyio.to_thread.run_sync(_unlink_files, aside)


def _put_aside(owner: Owner, folder: Path, paths: list[str], tx: Tx) -> list[Path]:
    owner.check(tx)
    return chunks.put_aside(tx, folder, paths)


def _unlink_files(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _clear(directory: Path, folder: Path, before_ms: int) -> list[str]:
    """Unlink what was put aside, or left unfinished before then; return the paths of all files that have a name."""
    named: list[str] = []
    for file in sorted(folder.glob("*/*/*")):
        if file.name.endswith(chunks.SUFFIX):
            named.append(str(file.relative_to(folder)))
        elif file.name.endswith(chunks.GONE) or (
            file.name.endswith(chunks.PART) and _is_left_behind(directory, file, before_ms)
        ):
            file.unlink(missing_ok=True)
    return named


def _is_left_behind(directory: Path, file: Path, before_ms: int) -> bool:
    """Whether nobody writes that file any more: an export of an instance that is dead, or of old age."""
    if exported := _EXPORTED.fullmatch(file.name):
        return not instances.is_alive(directory, exported[1])
    return _modified_ms(file) < before_ms


def _modified_ms(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
