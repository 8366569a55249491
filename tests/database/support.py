"""A database in each of its forms, with injected failures, for tests of the promises of both."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import attrs
import psycopg
import pytest

from eventproc.base.clock import SystemClock
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.database import (
    Database,
    DatabaseTimeouts,
    Migration,
    Tx,
    start_database,
)
from eventproc.store.database.locks import WriteLock
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.faults import Died, Faults
from eventproc.store.postgres.address import COMMIT, ServerAddress
from eventproc.store.postgres.server_database import start_server_database
from tests.support.postgres import Server
from tests.support.virtual_time import virtual_time

FORMS = ("memory on asyncio", "memory on trio", "file")

SERVER_FORM = pytest.param("server", marks=pytest.mark.subprocess)

FORMS_AND_SERVER = (*FORMS, SERVER_FORM)

on_sqlite = pytest.mark.parametrize("form", FORMS, indirect=True)
on_server = pytest.mark.parametrize("form", [SERVER_FORM], indirect=True)
"""For tests whose statements only one engine understands."""


MIGRATIONS = (Migration(1, lambda tx: create_table(tx)),)


def create_table(tx: Tx) -> None:
    tx.execute("CREATE TABLE item (name TEXT PRIMARY KEY)")


def add_color(tx: Tx) -> None:
    """Change a table, fill it, and make an index: what a migration does."""
    tx.execute("ALTER TABLE item ADD COLUMN color TEXT")
    tx.execute("UPDATE item SET color = 'red'")
    tx.execute("CREATE INDEX item_color ON item (color)")


NEWER = (*MIGRATIONS, Migration(2, add_color))

READER = """
    import sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None)
    connection.execute("BEGIN")
    connection.execute("SELECT count(*) FROM item").fetchone()
    print("reading", flush=True)
    sys.stdin.readline()
"""
"""A program that knows nothing of eventproc, in the midst of a long read."""


def insert(name: str) -> Callable[[Tx], str]:
    """Return a function that inserts one row and returns its name."""

    def fn(tx: Tx) -> str:
        tx.execute("INSERT INTO item VALUES (?)", (name,))
        return name

    return fn


def insert_then_raise(name: str) -> Callable[[Tx], str]:
    def fn(tx: Tx) -> str:
        insert(name)(tx)
        raise Refused(name)

    return fn


def names(tx: Tx) -> list[str]:
    return [name for (name,) in tx.execute("SELECT name FROM item ORDER BY name")]


class LaterClock(SystemClock):
    """A clock that is one hour ahead, so that every change of a directory counts as old."""

    def wall_ms(self) -> int:
        return super().wall_ms() + 3_600_000


@contextmanager
def files_at_most(count: int) -> Iterator[None]:
    """Limit the descriptors of this process to numbers below `count`."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Refused(Exception):
    """The error that functions under test raise on purpose."""


class Failing(Faults):
    """Records the reached points and fails once at a chosen one."""

    def __init__(self) -> None:
        self.reached: list[str] = []
        self._errors: dict[str, BaseException] = {}

    def fail_at(self, point: str, error: BaseException | None = None) -> None:
        self._errors[point] = Died() if error is None else error

    def reach(self, point: str) -> None:
        self.reached.append(point)
        if point in self._errors:
            raise self._errors.pop(point)


def nothing_to_hold() -> AbstractContextManager[object]:
    """Hold no lock: the form in memory needs none."""
    return nullcontext()


@contextmanager
def file_held(directory: Path) -> Iterator[None]:
    """Hold the lock of the writers of a directory."""
    lock = WriteLock(directory / "write.lock", SystemClock())
    lock.acquire()
    try:
        yield
    finally:
        lock.close()


@contextmanager
def server_held(address: ServerAddress) -> Iterator[None]:
    """Hold the lock of the writers of a store on a server."""
    with psycopg.connect(address.conninfo, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(%s)", (address.lock_key(COMMIT),))
        yield


@attrs.frozen
class World:
    """An open database, with methods that put several writes into one batch."""

    db: Database
    faults: Failing
    writer_held: Callable[[], AbstractContextManager[object]] = nothing_to_hold
    """Makes writes wait until its block ends."""

    async def write_together(self, *fns: Callable[[Tx], object]) -> list[object]:
        """Write all in one batch; return the result or the error of each caller."""
        outcomes: list[object] = [None] * len(fns)

        async def write(index: int) -> None:
            try:
                outcomes[index] = await self.db.write(fns[index])
            except (Exception, Died) as why:
                outcomes[index] = why

        async with anyio.create_task_group() as tasks:
            with self.writer_held():
                for index in range(len(fns)):
                    tasks.start_soon(write, index)
                    # Trio starts tasks in any order, but these must be queued in the given order.
                    if self.has_threads:
                        await anyio.wait_all_tasks_blocked()
        return outcomes

    @property
    def has_threads(self) -> bool:
        """Whether a thread runs the writes."""
        return self.writer_held is not nothing_to_hold

    async def names(self) -> list[str]:
        return await self.db.read(names)


def backend_of(form: str) -> tuple[str, dict[str, object]]:
    """Return the event loop for a form; trio runs in virtual time."""
    if form == "memory on trio":
        return virtual_time()
    return "asyncio", {}


@asynccontextmanager
async def open_database(directory: Path, **options: Any) -> AsyncIterator[Database]:
    """Do as `start_database` does, until the end of the block."""
    database = await start_database(directory, **options)
    try:
        yield database
    finally:
        await run_uninterrupted(database.close)


@asynccontextmanager
async def open_world(
    form: str,
    directory: Path,
    migrations: Sequence[Migration] = MIGRATIONS,
    timeouts: DatabaseTimeouts | None = None,
    server: Server | None = None,
) -> AsyncIterator[World]:
    """Open an empty database. server: for the form on a server."""
    faults = Failing()
    if form == "file":
        async with open_database(directory, migrations=migrations, faults=faults, timeouts=timeouts) as db:
            yield World(db, faults, partial(file_held, directory))
    elif form == "server":
        assert server is not None, "the form on a server needs one"
        address = ServerAddress.parse(server.store(server.new_schema()))
        db = await start_server_database(address, migrations=migrations, faults=faults)
        try:
            yield World(db, faults, partial(server_held, address))
        finally:
            await run_uninterrupted(db.close)
    else:
        async with open_memory_database(migrations=migrations, faults=faults) as db:
            yield World(db, faults)
