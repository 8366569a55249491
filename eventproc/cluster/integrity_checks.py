"""The checks of content that `doctor` and `verify` share: pages, invariants, files with events, orphans."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import anyio.to_thread
import attrs

from eventproc.cli.schema_check import differences, expected_tables, found_tables
from eventproc.runtime import Eventproc
from eventproc.store.backup.contents import checksum_of, file_problem, find_orphans, read_manifest
from eventproc.store.clock import SystemClock
from eventproc.store.database import Tx
from eventproc.store.database.filesystem import DATABASE
from eventproc.store.database.standalone import read_file
from eventproc.store.ingestion.published import TABLES_FOLDER, table_files
from eventproc.store.inspection.database_file import (
    check_all_pages,
    database_bytes,
    event_files,
    read_all_texts,
)
from eventproc.store.segments.file_blobs import CHUNKS_FOLDER
from eventproc.testing.checkers import violations


@attrs.define
class IntegrityReport:
    """What `verify` found. kind: "directory" or "backup". orphans: chunk files that no row names."""

    kind: str
    bytes: int = 0
    files: int = 0
    orphans: list[str] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)

    def row(self) -> dict[str, object]:
        """Return the report as one object with stable names."""
        return {"kind": self.kind, "healthy": not self.problems, **attrs.asdict(self)}


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
    found = attempt("the pages of the database", lambda: check_all_pages(tx))
    return [
        each if each.endswith("restore a backup") else f"the database is damaged: {each}; restore a backup"
        for each in found
    ]


def invariant_problems(tx: Tx) -> list[str]:
    """Return the texts that cannot be read, and the invariants that do not hold."""
    if damaged := attempt("the texts of the database", lambda: read_all_texts(tx)):
        return [
            each if each.endswith("restore a backup") else f"{each}; restore a backup" for each in damaged
        ]
    found = attempt("the rows of the database", lambda: violations(tx))
    return [
        each if each.endswith("restore a backup") else f"an invariant does not hold: {each}" for each in found
    ]


async def verify_directory(ep: Eventproc, report: IntegrityReport) -> None:
    """Check an open directory. Each check has a snapshot of its own, so that the log can be used again in between."""
    assert ep.path is not None, "a directory"
    folder = ep.path / CHUNKS_FOLDER
    report.bytes = await ep.db.read(database_bytes)
    if wrong := differences(await expected_tables(), await ep.db.read(found_tables)):
        report.problems.append(f"{'; '.join(wrong)}; restore a backup, or use the version that created it")
    report.problems += await ep.db.read(page_problems)
    report.problems += await ep.db.read(invariant_problems)
    for file in await ep.db.read(event_files):
        report.files += 1
        report.bytes += file.bytes
        problem = await anyio.to_thread.run_sync(file_problem, folder, file, "events")
        # It may have been freed meanwhile: then it need not exist.
        if problem is not None and file in await ep.db.read(event_files):
            report.problems.append(problem)
    for path, size in await ep.db.read(table_files):
        report.files += 1
        report.bytes += size
        problem = await anyio.to_thread.run_sync(_table_problem, ep.path / TABLES_FOLDER / path, size)
        if problem is not None and (path, size) in await ep.db.read(table_files):
            report.problems.append(problem)
    report.orphans = await ep.db.read(lambda tx: find_orphans(tx, folder))


def _table_problem(file: Path, size: int) -> str | None:
    """Return a line if a published file is missing or has another size; its content has no checksum here."""
    try:
        found = file.stat().st_size
    except OSError as why:
        return f"the file with rows of a table {file} cannot be read ({why.strerror}); restore a backup"
    if found == size:
        return None
    return (
        f"the file with rows of a table {file} has {found} bytes, but {size} were written; restore a backup"
    )


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
        chunks = folder / CHUNKS_FOLDER
        with read_file(database, SystemClock()) as tx:
            problems = page_problems(tx) + invariant_problems(tx)
            files = event_files(tx)
            found = [file_problem(chunks, each, "events") for each in files]
            found += [file_problem(folder / TABLES_FOLDER, each, "rows") for each in manifest.tables]
            problems += [each for each in found if each is not None]
            if len(files) != manifest.files:
                problems.append(
                    f"the database names {len(files)} files with events, the backup {manifest.files}"
                )
            report.orphans = find_orphans(tx, chunks)
            return problems

    report.problems += attempt(str(database), read)
    return report
