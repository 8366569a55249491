"""The checks of content that `doctor` and `verify` share: pages, invariants, files with events, orphans."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread
import attrs

from eventproc.base.clock import SystemClock
from eventproc.base.tasks import run_uninterrupted
from eventproc.groups.inspection import violations, violations_beside_streams
from eventproc.store.backup.contents import (
    checksum_of,
    file_problem,
    find_orphans,
    finished_files,
    read_manifest,
)
from eventproc.store.database import Database, Tx
from eventproc.store.database.files import BACKUP_MANIFEST, DATABASE
from eventproc.store.database.standalone import read_beside, read_file
from eventproc.store.file_store import FileStore, LocalFiles
from eventproc.store.ingestion.pointers import TABLES_FOLDER, has_tables
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.inspection import stream_violations, streams_to_check
from eventproc.store.inspection.database_file import (
    check_all_pages,
    database_bytes,
    event_files,
    read_all_texts,
)
from eventproc.store.inspection.schema_check import differences, expected_tables, found_tables
from eventproc.store.model.errors import Closed, CorruptRecord, NotSupported, Unreachable
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER, find_chunk_files
from eventproc.store.thread_work import ThreadWork, WorkStopped

if TYPE_CHECKING:
    from eventproc.store.ingestion.iceberg import StoreTables


@attrs.define
class IntegrityReport:
    """What `verify` found. kind: "directory", "server" or "backup". orphans: chunk files that no row names."""

    kind: str
    bytes: int = 0
    files: int = 0
    orphans: list[str] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)

    def row(self) -> dict[str, object]:
        """Return the report as one object with stable names."""
        return {"kind": self.kind, "healthy": not self.problems, **attrs.asdict(self)}


async def list_orphans(db: Database, chunks: FileStore) -> list[str]:
    """Return the finished chunk files that no row names. No snapshot is open while the files are listed."""
    finished = await anyio.to_thread.run_sync(finished_files, chunks)
    return await db.read(partial(find_orphans, finished=finished))


async def list_lost(
    files: FileStore, named: Callable[[], Awaitable[Sequence[tuple[str, int | None]]]]
) -> list[str]:
    """Return the files that are missing, or have another size than was written.

    named: returns the files that must exist, with their sizes; None if that is not noted. No snapshot is open while the
    sizes are asked for, so it is called again for what is missing: that may have been freed meanwhile.
    """

    def missing(listed: Sequence[tuple[str, int | None]]) -> list[tuple[str, int | None]]:
        return [
            (path, size)
            for path, size in listed
            if (found := files.size(path)) is None or size not in (None, found)
        ]

    lost = await anyio.to_thread.run_sync(missing, await named())
    still = set(await named()) if lost else set()
    return [path for path, size in lost if (path, size) in still]


def attempt(what: str, check: Callable[[], Iterable[str]]) -> list[str]:
    """Return the problems that a check finds. If damaged bytes break the check itself, that is the problem."""
    found: list[str] = []
    try:
        found.extend(check())
    except Exception as why:
        said = f"{type(why).__name__}: {why}" if str(why) else type(why).__name__
        found.append(f"{what} cannot be read completely ({said}); restore a backup")
    return found


def page_problems(tx: Tx) -> list[str]:
    """Return what SQLite's integrity check finds."""
    return _problems(
        "the pages of the database", lambda: check_all_pages(tx), prefix="the database is damaged: "
    )


def invariant_problems(tx: Tx) -> list[str]:
    """Return the texts that cannot be read; if all can be read, the invariants that do not hold."""
    return text_problems(tx) or _broken(lambda: violations(tx))


def text_problems(tx: Tx) -> list[str]:
    """Return the tables and columns with texts that cannot be read."""
    return _problems("the texts of the database", lambda: read_all_texts(tx))


def _broken(check: Callable[[], Iterable[str]]) -> list[str]:
    found = attempt("the rows of the database", check)
    return [
        each if each.endswith("restore a backup") else f"an invariant does not hold: {each}" for each in found
    ]


def _problems(what: str, check: Callable[[], Iterable[str]], prefix: str = "") -> list[str]:
    return [
        each if each.endswith("restore a backup") else f"{prefix}{each}; restore a backup"
        for each in attempt(what, check)
    ]


def _no_progress(done: int, total: int) -> None:
    """Report nothing."""


async def verify_directory(
    db: Database, report: IntegrityReport, advance: Callable[[int, int], None] = _no_progress
) -> None:
    """Check an open directory, part by part: tables, pages, texts, each stream, the other rows, and each file.

    Each part has a snapshot of its own, so that the log can be used again in between. A cancellation stops the check of
    the pages, and waits for no more than one of the other parts. advance: called with the number of parts that were
    checked, and of all.
    """
    names = await db.read(streams_to_check)
    files, has_tables_too = await db.read(event_files), await db.read(has_tables)
    parts = _Parts(4 + len(names) + len(files) + has_tables_too, advance)
    report.bytes = await db.read(database_bytes)
    if wrong := differences(await expected_tables(), await db.read(found_tables)):
        report.problems.append(f"{'; '.join(wrong)}; restore a backup, or use the version that created it")
    parts.end()
    report.problems += await _check_pages(db)
    parts.end()
    unreadable = await db.read(text_problems)
    report.problems += unreadable
    parts.end()
    for name in names:
        if not unreadable:
            report.problems += await db.read(partial(_stream_problems, name=name))
        parts.end()
    if not unreadable:
        report.problems += await db.read(lambda tx: _broken(lambda: violations_beside_streams(tx)))
    parts.end()
    if (chunks := await db.read(find_chunk_files)) is None:
        return
    for file in files:
        report.files += 1
        report.bytes += file.bytes
        problem = await anyio.to_thread.run_sync(file_problem, chunks, file, "events")
        # It may have been freed meanwhile: then it need not exist.
        if problem is not None and file in await db.read(event_files):
            report.problems.append(problem)
        parts.end()
    if has_tables_too:
        try:
            await on_tables(db, partial(_check_tables, report=report))
        except NotSupported as why:  # no pyiceberg
            report.problems.append(f"the tables were not checked: {why}")
        parts.end()
    report.orphans = await list_orphans(db, chunks)


async def _check_pages(db: Database) -> list[str]:
    """Return what is wrong with the pages. The longest part, so it ends soon after it was cancelled. Raises Closed."""
    if db.path is None:
        return await db.read(page_problems)
    source, running = db.path / DATABASE, ThreadWork("the check of the pages", db.handles)

    def check() -> list[str]:
        with read_beside(source, db.clock, running.is_stopped) as tx:
            found = page_problems(tx)
        running.check()  # what it found may be that it was stopped
        return found

    try:
        return await running.run(check)
    except WorkStopped:
        raise Closed(what="the directory") from None
    finally:
        await run_uninterrupted(running.end)


def _stream_problems(tx: Tx, name: str) -> list[str]:
    return _broken(lambda: stream_violations(tx, name))


@attrs.define
class _Parts:
    """Counts the parts that were checked. total: how many there are. advance: called after each."""

    total: int
    advance: Callable[[int, int], None]
    done: int = 0

    def end(self) -> None:
        self.done += 1
        self.advance(self.done, self.total)


def _check_tables(tables: StoreTables, report: IntegrityReport) -> None:
    """Check that the files of tables exist, and have their size; their content has no checksum here."""
    try:
        found = tables.contents()
    except (OSError, Unreachable) as why:
        report.problems.append(f"metadata of tables cannot be read ({why}); restore a backup")
        return
    except CorruptRecord as why:
        report.problems.append(f"{why.key}: {why.reason}; restore a backup")
        return
    for path, size in found:
        report.files += 1
        report.bytes += size or 0
        if (problem := _table_problem(tables.files, path, size)) is not None and (
            path,
            size,
        ) in tables.contents():
            report.problems.append(problem)


def _table_problem(files: FileStore, path: str, size: int | None) -> str | None:
    file = f"the file of a table {files.show(path)}"
    try:
        found = files.size(path)
    except (OSError, Unreachable) as why:
        return f"{file} cannot be read ({why}); restore a backup"
    if found is None:
        return f"{file} is missing; restore a backup"
    return (
        None
        if size in (None, found)
        else f"{file} has {found} bytes, but {size} were written; restore a backup"
    )


def is_backup(folder: Path) -> bool:
    """Return whether the folder is a backup, rather than a directory."""
    return (folder / BACKUP_MANIFEST).exists()


def verify_backup(folder: Path) -> IntegrityReport:
    """Check a backup, without changing or locking anything. Raises StoreUnusable if it is no complete backup."""
    manifest = read_manifest(folder)
    report = IntegrityReport("backup", bytes=manifest.bytes, files=manifest.files_beside)
    database = folder / DATABASE
    try:
        found = checksum_of(database)
    except OSError as why:
        report.problems.append(f"{database} cannot be read ({why.strerror}); use another backup")
        return report
    if found != (manifest.database_bytes, manifest.database_checksum):
        report.problems.append(f"{database} is not what was written; use another backup")

    def read() -> list[str]:
        chunks = LocalFiles(folder / CHUNKS_FOLDER)
        with read_file(database, SystemClock()) as tx:
            problems = page_problems(tx) + invariant_problems(tx)
            files = event_files(tx)
            found = [file_problem(chunks, each, "events") for each in files]
            found += [
                file_problem(LocalFiles(folder / TABLES_FOLDER), each, "rows") for each in manifest.tables
            ]
            problems += [each for each in found if each is not None]
            if len(files) != manifest.files:
                problems.append(
                    f"the database names {len(files)} files with events, the backup {manifest.files}"
                )
            report.orphans = find_orphans(tx, finished_files(chunks))
            return problems

    report.problems += attempt(str(database), read)
    return report
