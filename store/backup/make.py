"""Making a backup: one snapshot of the database and the chunk files that it names, while all processes go on."""

from __future__ import annotations

import glob
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import anyio
import anyio.to_thread

from eventproc.base.clock import Clock, new_id
from eventproc.base.tasks import BackgroundTasks, run_uninterrupted
from eventproc.store.backup.contents import (
    BackupManifest,
    check_copied,
    checksum_of,
    close_as,
    copy_file,
    forget_outside_readers,
    sync_folders,
)
from eventproc.store.backup.results import BackupPlan, BackupResult
from eventproc.store.database import Database, FileWork, Tx, instances
from eventproc.store.database.files import DATABASE, translate_file_errors
from eventproc.store.database.standalone import Advance, change_file, copy_snapshot, read_file
from eventproc.store.faults import BACKUP_COPIED, BACKUP_NAMED, BACKUP_WRITTEN
from eventproc.store.file_store import FileStore, LocalFiles, sync_file
from eventproc.store.ingestion.pointers import TABLES_FOLDER, has_tables, pointers
from eventproc.store.ingestion.table_access import OneSnapshot, on_tables
from eventproc.store.inspection.database_file import (
    DataFile,
    check_all_pages,
    database_bytes,
    database_versions,
    directory_identity,
    event_files,
)
from eventproc.store.model.errors import (
    AlreadyExists,
    Closed,
    CorruptRecord,
    EventprocError,
    Retryable,
    StoreUnusable,
)
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER, PLACE, chunk_files
from eventproc.store.segments.holds import (
    HOLD_MS,
    RENEW_MS,
    end_directory_hold,
    hold_directory,
    renew_directory,
)
from eventproc.store.task_queue import BACKUP, cancel_tasks_of
from eventproc.store.thread_work import ThreadWork, WorkStopped

if TYPE_CHECKING:
    from eventproc.store.ingestion.iceberg import StoreTables

LOG = logging.getLogger(__name__)

T = TypeVar("T")

PART: Final = ".part"
"""Suffix of the folder of an unfinished backup: `.<name>.<instance>.part`, beside the destination."""


async def plan_backup(db: Database, to: Path) -> BackupPlan:
    """Return what a backup would copy, after the checks of `make_backup`. Raises the same refusals."""
    directory, to = await anyio.to_thread.run_sync(_check_target, db, to)
    of_tables: list[int] = []
    if await db.read(has_tables):
        with _missing_is_corrupt(directory):
            of_tables = await on_tables(db, _sizes_of_tables)

    def look(tx: Tx) -> BackupPlan:
        sizes = [*(each.bytes for each in event_files(tx)), *of_tables]
        with translate_file_errors(to):
            free_bytes = shutil.disk_usage(to.parent).free
        return BackupPlan(to, database_bytes(tx), len(sizes), sum(sizes), free_bytes)

    return await db.read(look)


async def make_backup(db: Database, to: Path, advance: Advance = lambda _done, _total: None) -> BackupResult:
    """Make a backup in the new folder `to`; all processes may go on writing meanwhile.

    advance: called from a thread with the bytes done and all bytes.

    Raises NotSupported (in memory), AlreadyExists, StoreUnusable (a folder that is missing or cannot be written),
    DiskFull, CorruptRecord (the database or a file is damaged), LockHeld, Closed (it was closed meanwhile).
    After an error nothing is left.
    """
    directory, to = await anyio.to_thread.run_sync(_check_target, db, to)
    name = f"backup-{new_id(db.clock)}"
    part = to.with_name(f".{to.name}.{db.instance_id}{PART}")

    async def renew() -> None:
        while True:
            await anyio.sleep(RENEW_MS / 1000)
            try:
                await db.write(lambda tx: renew_directory(tx, name, until_ms=tx.now_ms + HOLD_MS))
            except Retryable as why:  # such as a full disk; the hold lasts for two more renewals
                LOG.warning("the hold of a backup of %s is renewed later: %s", db.path, why)

    if await db.read(has_tables):
        await on_tables(db, lambda _: None)  # it may be refused; and tables of before get their metadata
    running = ThreadWork("the backup", db.handles)
    try:
        await db.write(lambda tx: hold_directory(tx, name, until_ms=tx.now_ms + HOLD_MS))
        async with BackgroundTasks() as tasks:
            tasks.start_soon(renew)
            chunks = await db.read(chunk_files)
            return await running.run(partial(_make, db, directory, chunks, part, to, advance, running.check))
    except WorkStopped:
        raise Closed(what="the directory") from None
    finally:
        try:
            await run_uninterrupted(partial(_release, db, name))
        finally:  # closing the directory waits for it
            await run_uninterrupted(running.end)


async def _release(db: Database, name: str) -> None:
    """End the hold. If that fails, as on a full disk, it ends by itself within an hour, and the backup is as it is."""
    try:
        await db.write(lambda tx: end_directory_hold(tx, name))
    except EventprocError as why:
        LOG.warning(
            "the hold of a backup of %s could not be ended (%s); it ends within an hour", db.path, why
        )


def _check_target(db: Database, to: Path) -> tuple[Path, Path]:
    """Return the directory and the absolute destination, which must not exist."""
    directory = db.directory_for(FileWork.BACKUP)
    with translate_file_errors(to):
        to = to.absolute()
        if os.path.lexists(to):
            raise AlreadyExists(kind="backup", name=str(to), remedy="name a new folder")
        if not to.parent.is_dir():
            raise StoreUnusable(
                path=str(to), reason=f"the folder {to.parent} does not exist; create it first"
            )
        if to.resolve().is_relative_to(directory.resolve()):
            reason = "lies in the directory itself; name a folder outside of it, best on another disk"
            raise StoreUnusable(path=str(to), reason=reason)
    return directory, to


def _make(
    db: Database,
    directory: Path,
    chunks: FileStore,
    part: Path,
    to: Path,
    advance: Advance,
    check: Callable[[], None],
) -> BackupResult:
    """Write the backup and rename it into place. Runs in a thread."""
    with translate_file_errors(to):
        _remove_abandoned(directory, to)
        part.mkdir()
        try:
            close_as(part, directory)
            manifest = _write(db, directory, chunks, part, advance, check)
            db.faults.reach(BACKUP_WRITTEN)
            check()
            if os.path.lexists(to):  # another backup was made there meanwhile
                raise AlreadyExists(kind="backup", name=str(to), remedy="name a new folder")
            part.rename(to)
            db.faults.reach(BACKUP_NAMED)
            sync_file(to.parent)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return BackupResult(to, manifest.created_ms, manifest.bytes, manifest.files_beside)


def _write(
    db: Database,
    directory: Path,
    chunks: FileStore,
    part: Path,
    advance: Advance,
    check: Callable[[], None],
) -> BackupManifest:
    done, total = 0, 0

    def copied(database_done: int, database_total: int) -> None:
        check()
        nonlocal done, total
        done, total = database_done, database_total + file_bytes
        advance(done, total)

    def on_block(size: int) -> None:
        check()
        nonlocal done
        done += size
        advance(min(done, total), total)

    source, unfinished = directory / DATABASE, part / f"{DATABASE}{PART}"
    file_bytes = 0
    copy_snapshot(source, unfinished, copied)
    identity, schema = _prepare(db, source, unfinished)
    with read_file(unfinished, db.clock) as tx:
        files, of_tables = event_files(tx), _table_files(tx, directory, db.clock)
    file_bytes = sum(each.bytes for each in files)
    total = done + file_bytes + sum(size or 0 for _, size in of_tables)
    _copy_files(chunks, part / CHUNKS_FOLDER, files, on_block)
    tables = _copy_tables(LocalFiles(directory / TABLES_FOLDER), part / TABLES_FOLDER, of_tables, on_block)
    sync_file(unfinished)
    size, checksum = checksum_of(unfinished, lambda _: check())
    db.faults.reach(BACKUP_COPIED)
    unfinished.rename(part / DATABASE)
    manifest = BackupManifest(
        created_ms=db.clock.wall_ms(),
        directory=identity,
        schema=schema,
        database_bytes=size,
        database_checksum=checksum,
        files=len(files),
        file_bytes=file_bytes,
        tables=tuple(tables),
    )
    manifest.write(part)
    sync_file(part)
    return manifest


def _prepare(db: Database, source: Path, copy: Path) -> tuple[str, int]:
    """Make the copy complete in itself, and check its pages; return the identity of the directory, and the schema."""
    with change_file(copy, db.clock) as tx:
        forget_outside_readers(tx)
        # The backup has all files, and what is restored must not delete those of the original.
        tx.execute("DELETE FROM meta WHERE key = ?", (PLACE,))
        # Otherwise what is restored is backed up, perhaps to where this backup was.
        cancel_tasks_of(tx, BACKUP)
    with read_file(copy, db.clock) as tx:
        if found := check_all_pages(tx):
            raise CorruptRecord(key=str(source), reason=f"the database is damaged ({'; '.join(found)})")
        return directory_identity(tx), database_versions(tx).schema


def _copy_files(
    source: FileStore, target: Path, files: list[DataFile], on_block: Callable[[int], None]
) -> None:
    for each in files:
        found = _copy_file(source, target, each.path, "events", on_block)
        check_copied(source.show(each.path), found, (each.bytes, each.checksum))
    sync_folders(target)


def _table_files(tx: Tx, directory: Path, clock: Clock) -> list[tuple[str, int | None]]:
    """Return path and size of the files of tables in a snapshot. Raises CorruptRecord if metadata are missing."""
    if not pointers(tx):
        return []
    from eventproc.store.ingestion.iceberg import StoreTables  # pyiceberg is an extra, and was there before

    files = LocalFiles(directory / TABLES_FOLDER)
    with _missing_is_corrupt(directory):
        return StoreTables(OneSnapshot(tx), files, clock, synced=False).contents()


@contextmanager
def _missing_is_corrupt(directory: Path) -> Iterator[None]:
    """Raise CorruptRecord if metadata of tables are missing."""
    try:
        yield
    except FileNotFoundError as why:
        raise CorruptRecord(key=f"metadata of tables in {directory}", reason=str(why)) from why


def _sizes_of_tables(tables: StoreTables) -> list[int]:
    return [(tables.files.size(path) or 0) if size is None else size for path, size in tables.contents()]


def _copy_tables(
    source: FileStore, target: Path, files: list[tuple[str, int | None]], on_block: Callable[[int], None]
) -> list[DataFile]:
    """Copy the published files of tables; return them with the checksums of what was read."""
    copied: list[DataFile] = []
    for path, size in files:
        found_bytes, checksum = _copy_file(source, target, path, "rows of a table", on_block)
        check_copied(source.show(path), (found_bytes, checksum), (size or found_bytes, checksum))
        copied.append(DataFile(path, found_bytes, checksum))
    sync_folders(target)
    return copied


def _copy_file(
    source: FileStore, target: Path, path: str, what: str, on_block: Callable[[int], None]
) -> tuple[int, int]:
    copy = target / path
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        return copy_file(source, path, copy, on_block)
    except FileNotFoundError as why:
        raise CorruptRecord(
            key=f"file {source.show(path)}", reason=f"file not found, but {what} lie in it"
        ) from why


def _remove_abandoned(directory: Path, to: Path) -> None:
    """Remove what dead instances left of backups to the same place."""
    for found in to.parent.glob(f".{glob.escape(to.name)}.*{PART}"):
        instance = found.name.removeprefix(f".{to.name}.").removesuffix(PART)
        # With a dot it is that of another backup, whose name begins with the name of this one.
        if "." not in instance and not instances.is_alive(directory, instance):
            with suppress(OSError):
                shutil.rmtree(found)
