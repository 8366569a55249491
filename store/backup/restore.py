"""Restoring: makes a directory of its own from a backup, in a new or empty folder."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Final

from eventproc.base.clock import SystemClock, new_id
from eventproc.store.backup.contents import (
    check_copied,
    close_as,
    copy_file,
    read_manifest,
    sync_folders,
)
from eventproc.store.backup.results import RestoreResult
from eventproc.store.database.files import (
    DATABASE,
    RESTORE_PART,
    check_directory,
    remove_created_on_error,
    translate_file_errors,
)
from eventproc.store.database.locks import close_private, is_locked, open_private
from eventproc.store.database.standalone import Advance, change_file, read_file
from eventproc.store.faults import NO_FAULTS, RESTORE_COPIED, RESTORE_MOVED, Faults
from eventproc.store.file_store import LocalFiles, sync_file
from eventproc.store.ingestion.pointers import TABLES_FOLDER
from eventproc.store.inspection.database_file import DataFile, event_files
from eventproc.store.model.errors import AlreadyExists, StoreUnusable
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER

_FOLDERS: Final = (CHUNKS_FOLDER, TABLES_FOLDER)
_LOCK: Final = "lock"
_UNFINISHED: Final = f"{DATABASE}.part"
"""The database's name until it is complete: a folder of unfinished files does not open."""


def restore_backup(
    backup: str | PathLike[str],
    to: str | PathLike[str],
    *,
    advance: Advance = lambda _done, _total: None,
    faults: Faults = NO_FAULTS,
    dry_run: bool = False,
) -> RestoreResult:
    """Make the directory `to`, which must be missing or empty, from a backup. Blocks: on an event loop, use a thread.

    Every file is compared with its checksum. The database is moved into place last: until then `to` does not open, and
    another restore to it removes what this one left.

    Args:
        backup: the folder that `Eventproc.backup` has made.
        to: the new directory.
        advance: called with the bytes done and all bytes; it may raise. Default: nothing.
        faults: for tests.
        dry_run: only check; change nothing. Default: False.

    Raises:
        StoreUnusable: there is no complete backup, or a folder cannot be used.
        AlreadyExists: `to` is not empty.
        CorruptRecord: a file of the backup is damaged.
        DiskFull: there is no space left.
    """
    backup, to, clock = Path(backup).absolute(), Path(to).absolute(), SystemClock()
    manifest = read_manifest(backup)
    result = RestoreResult(to, new_id(clock), manifest.created_ms, manifest.bytes, manifest.files_beside)
    with translate_file_errors(to):
        interrupted = _check_target(to)
        if dry_run:
            return result
        if interrupted:
            _remove_interrupted(to)
        with remove_created_on_error(to):
            is_new = not to.exists()
            check_directory(to, create=True)
            if is_new:
                close_as(to, backup)
            with _unfinished(to) as part:
                done = 0

                def on_block(size: int) -> None:
                    nonlocal done
                    done += size
                    advance(min(done, manifest.bytes), manifest.bytes)

                expected = (manifest.database_bytes, manifest.database_checksum)
                found = _copy(backup / DATABASE, part / _UNFINISHED, on_block)
                check_copied(backup / DATABASE, found, expected)
                with read_file(part / _UNFINISHED, clock) as tx:
                    events = event_files(tx)
                _copy_files(backup / CHUNKS_FOLDER, part / CHUNKS_FOLDER, events, on_block)
                _copy_files(backup / TABLES_FOLDER, part / TABLES_FOLDER, manifest.tables, on_block)
                with change_file(part / _UNFINISHED, clock) as tx:
                    replace = "INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)"
                    tx.execute(replace, ("directory", result.directory))
                    tx.execute(replace, ("restored_ms", tx.now_ms))
                sync_file(part / _UNFINISHED)
                faults.reach(RESTORE_COPIED)
                for name in _FOLDERS:
                    if (part / name).exists():
                        (part / name).rename(to / name)
                sync_file(to)
                faults.reach(RESTORE_MOVED)
                (part / _UNFINISHED).rename(to / DATABASE)
                sync_file(to)
                sync_file(to.parent)  # its entry: the folder may be new
    return result


def _check_target(to: Path) -> bool:
    """Refuse a folder with content. Return whether it holds only what an interrupted restore left."""
    try:
        names = {each.name for each in to.iterdir()}
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise AlreadyExists(kind="file", name=str(to), remedy="name a new or empty directory") from None
    if RESTORE_PART in names and DATABASE not in names:
        return True
    if names - {"lost+found"}:
        raise AlreadyExists(
            kind="directory", name=str(to), remedy="it is not empty; name a new or empty directory"
        )
    return False


def _remove_interrupted(to: Path) -> None:
    if is_locked(to / RESTORE_PART / _LOCK):
        reason = "another process is restoring a backup into it; wait for its end"
        raise StoreUnusable(path=str(to), reason=reason)
    if not _check_target(to):  # it has been removed meanwhile; if it has ended, this raises
        return
    # In this order: without the folder of unfinished files, the others would count as somebody else's.
    for name in _FOLDERS:
        shutil.rmtree(to / name, ignore_errors=True)
    shutil.rmtree(to / RESTORE_PART)


@contextmanager
def _unfinished(to: Path) -> Iterator[Path]:
    """Yield the folder for unfinished files, locked. Remove it at the end; after an error, what was moved too."""
    part = to / RESTORE_PART
    part.mkdir()
    descriptor = open_private(part / _LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield part
    except BaseException:
        if not (to / DATABASE).exists():
            for name in _FOLDERS:
                shutil.rmtree(to / name, ignore_errors=True)
        raise
    finally:
        close_private(descriptor)
        shutil.rmtree(part, ignore_errors=True)


def _copy(source: Path, target: Path, on_block: Callable[[int], None]) -> tuple[int, int]:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        return copy_file(LocalFiles(source.parent), source.name, target, on_block)
    except FileNotFoundError as why:
        reason = f"{source} is missing in it; use another backup"
        raise StoreUnusable(path=str(source.parent), reason=reason) from why


def _copy_files(
    source: Path, target: Path, files: Iterable[DataFile], on_block: Callable[[int], None]
) -> None:
    for each in files:
        found = _copy(source / each.path, target / each.path, on_block)
        check_copied(source / each.path, found, (each.bytes, each.checksum))
    sync_folders(target)
