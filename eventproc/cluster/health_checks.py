"""What `eventproc doctor` checks: the directory's files (`check_files`), and the database (`check_database`).

A store on a server has no files; there `check_database` shows what the server says of itself.

`check_files` runs before the database is opened, because opening changes what it reports: every opening removes the
lock files of dead instances. It never opens the database's files, because closing one would release the POSIX locks
that the driver holds on them in this process. A new check is a function here; its SQL lives in `store`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from eventproc._version import __version__
from eventproc.base.clock import SystemClock
from eventproc.base.kernel import file_system_of, lock_holders, mounts
from eventproc.cluster.host import CONTROLLER, TIMINGS
from eventproc.cluster.integrity_checks import invariant_problems, list_lost, list_orphans, page_problems
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Database, Tx, instances
from eventproc.store.database.checkpoint import TRUNCATE_BYTES
from eventproc.store.database.files import DATABASE, check_directory
from eventproc.store.database.instances import HeartbeatFile
from eventproc.store.database.locks import WriteLock
from eventproc.store.ingestion.pointers import has_tables
from eventproc.store.ingestion.table_access import on_tables
from eventproc.store.inspection.database_file import (
    count_blobs,
    database_bytes,
    database_versions,
    directory_identity,
    event_files,
    has_sinks_or_holds,
)
from eventproc.store.inspection.schema_check import differences, expected_tables, found_tables
from eventproc.store.model.errors import CorruptRecord, NotSupported, TransactionPending
from eventproc.store.ownership import find_owner
from eventproc.store.requests import pending_requests
from eventproc.store.segments.file_blobs import find_chunk_files
from eventproc.store.segments.free_pages import free_space
from eventproc.store.segments.reaper import count_reapings
from eventproc.store.transactions import list_failing

if TYPE_CHECKING:
    from eventproc.store.file_store import FileStore

HELD_MS_MAX: Final = 1_000
"""write.lock is held for milliseconds. A process that holds it for a second has been stopped meanwhile."""


@attrs.define
class HealthReport:
    """What the checks found.

    facts: by name, in the order of the report. instances: the processes that use the directory. problems: one
    message each. usable: False if this version cannot work with the database.
    """

    facts: dict[str, object] = attrs.field(factory=dict)
    instances: list[dict[str, object]] = attrs.field(factory=list)
    problems: list[str] = attrs.field(factory=list)
    usable: bool = True

    def problem(self, text: str) -> None:
        """Add a problem."""
        self.problems.append(text)

    def row(self) -> dict[str, object]:
        """Return the report as one object with stable names."""
        return {
            "healthy": not self.problems,
            "usable": self.usable,
            **self.facts,
            "instances": self.instances,
            "problems": self.problems,
        }


def check_files(path: Path, report: HealthReport) -> None:
    """Check the directory without opening its database. Raises StoreMissing, StoreUnusable."""
    check_directory(path, create=False)
    facts = report.facts
    facts["directory"] = str(path.resolve())
    facts["eventproc"] = __version__
    facts["file_system"] = file_system_of(path.resolve(), mounts())
    facts["database_bytes"] = _size(path / DATABASE)
    facts["wal_bytes"] = wal_bytes = _size(path / f"{DATABASE}-wal")
    if wal_bytes > TRUNCATE_BYTES:
        report.problem(
            f"the write-ahead log has {wal_bytes >> 20} MiB: a process keeps one read snapshot open for long; end it"
        )
    report.instances = _instances(path)
    _check_locks(path, report)


def _check_locks(path: Path, report: HealthReport) -> None:
    clock = SystemClock()
    for name in ("write", "format", "controller"):
        lock = path / f"{name}.lock"
        report.facts[f"{name}_lock_pids"] = lock_holders(lock) if lock.exists() else ()
    if (path / "write.lock").exists():
        write_lock = WriteLock(path / "write.lock", clock)
        held = write_lock.holder()
        write_lock.close()
        held_ms = 0 if held is None else clock.monotonic_ms() - held.since_ms
        report.facts["write_lock"] = "free" if held is None else f"process {held.pid}, for {held_ms} ms"
        if held is not None and held_ms > HELD_MS_MAX:
            report.problem(
                f"process {held.pid} has held write.lock for {held_ms / 1000:.1f} s, so no process can write; "
                f"continue it (kill -CONT {held.pid}) or end it"
            )
    age_ms = HeartbeatFile(path / "controller.beat", clock).age_ms()
    hosts = lock_holders(path / "controller.lock") if (path / "controller.lock").exists() else ()
    report.facts["host_beat_age_ms"] = age_ms if hosts else None
    if hosts and (age_ms is None or age_ms > TIMINGS.heartbeat_age_ms_max):
        beat = "has no heartbeat" if age_ms is None else f"had its last heartbeat {age_ms / 1000:.1f} s ago"
        report.problem(f"the host, process {hosts[0]}, {beat}; another process takes over when needed")


def _instances(path: Path) -> list[dict[str, object]]:
    home = path / instances.DIRECTORY
    if not home.is_dir():
        return []
    found = sorted(each.stem for each in home.iterdir() if each.suffix == instances.LOCK)
    return [
        {
            "instance": each,
            "pid": instances.pid_of(path, each),
            "state": "alive" if instances.is_alive(path, each) else "dead",
        }
        for each in found
    ]


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def check_database(
    db: Database, report: HealthReport, *, describe_spark: Callable[[], object], quick: bool = False
) -> None:
    """Check the database: versions, tables, the host, failing commits, stored bytes, pages and invariants.

    If tables are missing, only the pages are checked afterwards.

    describe_spark: called if Spark has used the store; returns what runs it. quick: leave out what reads the complete
    database.
    """
    on_server = db.path is None
    if on_server:
        await db.read(lambda tx: _check_server(db, tx, report))
    report.facts["durability"] = db.durability.value
    report.facts["python"] = sys.version.split()[0]
    if not on_server:
        await db.read(lambda tx: _check_versions(tx, report))
    wrong = differences(await expected_tables(), await db.read(found_tables))
    report.facts["tables"] = "not those of this version" if wrong else "ok"
    if wrong:
        report.usable = False
        report.problem(f"{'; '.join(wrong)}; restore a backup, or use the version that created it")
    else:
        await db.read(lambda tx: _check_host(tx, report))
        await db.read(lambda tx: _check_commits(tx, report))
        await db.read(lambda tx: _check_blobs(tx, report))
        report.facts["streams_to_free"] = await db.read(count_reapings)
        if not on_server:
            await db.read(lambda tx: _check_free_space(tx, report))
        await _check_chunk_files(db, report)
        if await db.read(has_tables):
            await _check_tables(db, report)
        if await db.read(has_sinks_or_holds):
            report.facts["spark"] = describe_spark()
    if not quick:
        await _check_content(db, report)


async def _check_content(db: Database, report: HealthReport) -> None:
    if db.path is not None:  # a server checks its pages itself
        damaged = await db.read(page_problems)
        report.facts["integrity_check"] = "failed" if damaged else "ok"
        report.problems += damaged
    if report.usable:
        broken = await db.read(invariant_problems)
        report.facts["invariants"] = "broken" if broken else "ok"
        report.problems += broken


def _check_versions(tx: Tx, report: HealthReport) -> None:
    facts = report.facts
    versions = database_versions(tx)
    facts["sqlite"] = versions.sqlite
    facts["driver"] = f"aiosqlite {metadata.version('aiosqlite')}"
    facts["identity"] = directory_identity(tx)
    facts["schema"] = versions.schema
    facts["schema_known"] = len(SYSTEM_MIGRATIONS)
    facts["journal_mode"] = versions.journal_mode
    if versions.journal_mode != "wal":
        report.problem(f"the database's journal mode is {versions.journal_mode}, it must be wal")


def _check_server(db: Database, tx: Tx, report: HealthReport) -> None:
    from eventproc.store.postgres.health import server_health, server_openings  # a directory does not need it

    found = server_health(tx)
    facts = report.facts
    facts["store"] = db.name
    facts["eventproc"] = __version__
    facts["driver"] = f"psycopg {metadata.version('psycopg')}"
    facts["server"] = f"PostgreSQL {found.version}"
    facts["clock_ahead_ms"] = found.now_ms - SystemClock().wall_ms()
    facts["settings"] = found.settings
    facts["standbys"] = found.standbys
    facts["connections"] = found.connections
    facts["connections_all"] = found.connections_all
    facts["connections_waiting"] = found.waiting
    facts["sql_role"] = found.sql_role
    facts["identity"] = directory_identity(tx)
    facts["schema"] = found.schema
    facts["schema_known"] = len(SYSTEM_MIGRATIONS)
    facts["database_bytes"] = database_bytes(tx)
    if found.settings["synchronous_standby_names"] and not found.standbys:
        report.problem(
            "no standby is connected, so commits wait: start one, or empty synchronous_standby_names on the server"
        )
    if found.waiting and found.oldest is not None and found.oldest[1] > HELD_MS_MAX:
        name, age_ms = found.oldest
        report.problem(
            f"{found.waiting} connections wait for a lock, and the connection {name!r} has had a transaction for"
            f" {age_ms / 1000:.1f} s; continue or end the process of that number"
        )
    live = db.peers.live()
    report.instances = [
        {
            "instance": each.id,
            "pid": each.pid,
            "machine": each.machine,
            "state": "alive" if each.id in live else "dead",
        }
        for each in server_openings(tx)
        if each.id != db.instance_id
    ]


def _check_host(tx: Tx, report: HealthReport) -> None:
    owner = find_owner(tx, CONTROLLER)
    alive = {each["instance"] for each in report.instances if each["state"] == "alive"}
    present = owner is not None and owner.instance in alive
    report.facts["host"] = owner.instance if owner is not None and present else None
    report.facts["host_owner_epoch"] = 0 if owner is None else owner.owner_epoch
    report.facts["requests_pending"] = pending_requests(tx)


def _check_commits(tx: Tx, report: HealthReport) -> None:
    failing = list_failing(tx)
    report.facts["commits_failing"] = len(failing)
    for txn in failing:
        report.problem(
            str(TransactionPending(stream=txn.stream, txn=txn.id, waited_ms=0, failure=txn.reason))
        )


def _check_blobs(tx: Tx, report: HealthReport) -> None:
    found = count_blobs(tx)
    report.facts["extents"] = found.extents
    report.facts["blobs"] = found.blobs
    for count, rows in (
        (found.extents_without_blob, "extents"),
        (found.staged_without_blob, "runs of open transactions"),
    ):
        if count:
            report.problem(f"{count} {rows} refer to bytes that were not found; restore a backup")
    if found.unused_blobs:
        report.problem(f"{found.unused_blobs} blobs belong to no events: their bytes are never freed")


def _check_free_space(tx: Tx, report: HealthReport) -> None:
    """Show how much of the file is free. The host returns what exceeds a reserve, and `eventproc compact` all of it."""
    found = free_space(tx)
    report.facts["free_bytes"] = found.free_bytes
    report.facts["can_shrink"] = found.can_shrink


async def _check_chunk_files(db: Database, report: HealthReport) -> None:
    """Check that the files with events exist and have their size. Their content is not read."""
    if (chunks := await db.read(find_chunk_files)) is None:
        return

    async def named() -> list[tuple[str, int | None]]:
        return [(each.path, each.bytes) for each in await db.read(event_files)]

    report.facts["files_with_events"] = len(await named())
    _note_lost(report, "events", chunks, await list_lost(chunks, named))
    # Not a problem: files of an export that died. The host removes them.
    report.facts["orphan_files"] = len(await list_orphans(db, chunks))


async def _check_tables(db: Database, report: HealthReport) -> None:
    """Check that the files of tables exist and have their size."""
    try:
        files = await on_tables(db, lambda tables: tables.files)
        lost = await list_lost(files, partial(on_tables, db, lambda tables: tables.contents()))
    except NotSupported as why:  # no pyiceberg
        report.problem(f"the tables were not checked: {why}")
    except FileNotFoundError as why:
        report.problem(f"{why}, but it is part of a table; restore a backup")
    except CorruptRecord as why:
        report.problem(f"{why.key}: {why.reason}; restore a backup")
    else:
        _note_lost(report, "rows of tables", files, lost)


def _note_lost(report: HealthReport, what: str, files: FileStore, lost: Sequence[str]) -> None:
    if lost:
        report.problem(
            f"{len(lost)} files with {what} are missing or have another size than written, such as"
            f" {files.show(lost[0])}; restore a backup"
        )
