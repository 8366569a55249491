"""The host's sweep of chunk files: deletes unused rows first, and their files once that is durable."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final

import anyio.to_thread

from eventproc.store.chunks.index import (
    ARROW_SUFFIX,
    PART_SUFFIX,
    SINK_FOLDER,
    drop_unused,
    next_unused,
    put_aside,
)
from eventproc.store.database import Database, SharedSlot, Tx, instances
from eventproc.store.ownership import Owner
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER, GONE_SUFFIX
from eventproc.store.segments.holds import forget_expired_holds, has_expired_holds

ABANDONED_MS: Final = 24 * 3_600_000
"""Age at which an unfinished file counts as abandoned. A Spark job may take this long to write one file."""

ASIDE_MAX: Final = 64
"""Files renamed in one transaction, which holds the write lock."""

ASIDE_MS: Final = 60_000
"""How long a file that was put aside stays readable for readers with an older snapshot. A snapshot lasts for
milliseconds, or for as long as its process is suspended. A higher value keeps unused bytes on disk for longer."""

_EXPORTED: Final = re.compile(r"[0-9]+-([0-9a-f-]{36})-[0-9]+" + re.escape(PART_SUFFIX))
"""Name of a file that an instance is exporting."""


async def sweep_chunks(db: Database, owner: Owner) -> None:
    """Delete the rows of unused chunk files and put the files aside. Raises OwnerFenced, Retryable.

    A later sweep, ASIDE_MS after, unlinks the files that were put aside: until then a reader may see them in its
    snapshot. Cost: only reads, 0.5 us per file, while all files are in use; a write per STEP_CHUNKS_MAX held files.
    """
    if db.path is None:
        return
    aside = db.shared[PUT_ASIDE_FILES]
    await anyio.to_thread.run_sync(_unlink_files, aside.take(db.clock.monotonic_ms() - ASIDE_MS))
    if await db.read(has_expired_holds):
        await db.write(partial(_forget, owner))
    after: int | None = 0
    while after is not None and (first := await db.read(partial(next_unused, after=after))):
        after, paths = await db.write(partial(_drop, owner, first - 1))
        aside.add(await _put_aside(db, owner, paths), db.clock.monotonic_ms())


async def walk_chunks(db: Database, owner: Owner) -> None:
    """Find files without a row and files that were never finished. Raises OwnerFenced, Retryable."""
    if db.path is None:
        return
    folder = db.path / CHUNKS_FOLDER
    before_ms = db.clock.wall_ms() - ABANDONED_MS
    named, gone = await anyio.to_thread.run_sync(_clear, db.path, folder, before_ms)
    aside = db.shared[PUT_ASIDE_FILES]
    aside.find(gone, db.clock.monotonic_ms())
    aside.add(await _put_aside(db, owner, named), db.clock.monotonic_ms())


class PutAsideFiles:
    """Files that were put aside and will be unlinked. After a crash, the walk of the folder finds them again."""

    def __init__(self) -> None:
        self._since_ms: dict[Path, int] = {}

    def add(self, files: Iterable[Path], now_ms: int) -> None:
        """Note files that were put aside now."""
        self._since_ms |= dict.fromkeys(files, now_ms)

    def find(self, files: Iterable[Path], now_ms: int) -> None:
        """Note files that were found put aside; the time of those already known stays."""
        self._since_ms = dict.fromkeys(files, now_ms) | self._since_ms

    def take(self, before_ms: int) -> list[Path]:
        """Remove and return the files that were put aside at or before that time."""
        files = [file for file, since_ms in self._since_ms.items() if since_ms <= before_ms]
        for file in files:
            del self._since_ms[file]
        return files


PUT_ASIDE_FILES: Final = SharedSlot(PutAsideFiles)


def _forget(owner: Owner, tx: Tx) -> None:
    owner.check(tx)
    forget_expired_holds(tx)


def _drop(owner: Owner, after: int, tx: Tx) -> tuple[int | None, list[str]]:
    owner.check(tx)
    return drop_unused(tx, after)


async def _put_aside(db: Database, owner: Owner, paths: list[str]) -> list[Path]:
    assert db.path is not None, "in memory there are no files"
    folder = db.path / CHUNKS_FOLDER
    aside: list[Path] = []
    for begin in range(0, len(paths), ASIDE_MAX):
        aside += await db.write(partial(_rename, owner, folder, paths[begin : begin + ASIDE_MAX]))
    return aside


def _rename(owner: Owner, folder: Path, paths: list[str], tx: Tx) -> list[Path]:
    owner.check(tx)
    return put_aside(tx, folder, paths)


def _unlink_files(files: Iterable[Path]) -> None:
    for file in files:
        file.unlink(missing_ok=True)


def _clear(directory: Path, folder: Path, before_ms: int) -> tuple[list[str], list[Path]]:
    """Unlink abandoned unfinished files; return all finished files, and those that were put aside.

    Leaves out young files of Spark's sink: their tasks may be about to commit.
    """
    named: list[str] = []
    gone: list[Path] = []
    for file in sorted(folder.glob("*/*/*")):
        path = file.relative_to(folder)
        if file.name.endswith(ARROW_SUFFIX):
            if path.parts[0] != SINK_FOLDER or _modified_ms(file) < before_ms:
                named.append(str(path))
        elif file.name.endswith(GONE_SUFFIX):
            gone.append(file)
        elif file.name.endswith(PART_SUFFIX) and _is_abandoned(directory, file, before_ms):
            file.unlink(missing_ok=True)
    return named, gone


def _is_abandoned(directory: Path, file: Path, before_ms: int) -> bool:
    """Return whether an unfinished file is abandoned: its exporting instance is dead, or it is too old."""
    if exported := _EXPORTED.fullmatch(file.name):
        return not instances.is_alive(directory, exported[1])
    return _modified_ms(file) < before_ms


def _modified_ms(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        return 0
