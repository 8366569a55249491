"""A database in a directory that processes share: opens it, closes it, and connects its parts.

Opening has this order: check the directory; take `format.lock` (shared, or exclusive while the schema is created or
migrated); guard the file; open the writer's connection; register the instance; open the readers; start the listener.
Closing has the reverse order. Source: architecture.md section 1.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

import anyio
import anyio.to_thread
import attrs

from eventproc.base.clock import Clock, SystemClock
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.database.checkpoint import LOG_BYTES, Checkpointer, LogRoom
from eventproc.store.database.commit_batch import BatchCommitter, SqliteWriter
from eventproc.store.database.connections import (
    READERS_COUNT,
    C,
    LoopCallbacks,
    ReaderPool,
    ThreadConnection,
    connect,
    open_reader,
    prepare_file,
    prepare_writer,
    snapshot,
    use_wal,
)
from eventproc.store.database.database import Database, DatabaseTimeouts, Durability
from eventproc.store.database.files import (
    DATABASE,
    LOCKED,
    check_directory,
    remove_created_on_error,
    translate_error,
    translate_opening_errors,
)
from eventproc.store.database.guard import (
    FileGuard,
    LogRecorder,
    LogRecordFile,
    ReplacedFileDetector,
    check_files,
    check_log,
)
from eventproc.store.database.instances import FilePeers, Instance, remove_dead
from eventproc.store.database.locks import FormatLock, ProcessBound, WriteLock
from eventproc.store.database.migrate import (
    Migration,
    check_numbers,
    is_current,
    migrate,
    read_format,
    stored_durability,
    verify_format,
)
from eventproc.store.database.threaded_database import ThreadedDatabase
from eventproc.store.database.tx import SharedState
from eventproc.store.database.wake_ups import CommitNotifier, FifoListener
from eventproc.store.database.writer import FileWriter
from eventproc.store.faults import LAST_CLOSE, NO_FAULTS, Died, Faults
from eventproc.store.model.errors import Closed, EventprocError, NotSupported, StoreUnusable

LOG = logging.getLogger(__name__)

T = TypeVar("T")

GUARD_POLL_MS: Final = 10
"""Pause between two attempts to guard the database; closing a database takes about as long."""

TIMEOUTS = DatabaseTimeouts()
"""Defaults of `start_database`."""


async def start_database(
    path: Path,
    *,
    migrations: Sequence[Migration],
    durability: Durability | None = None,
    create: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
    timeouts: DatabaseTimeouts | None = None,
) -> Database:
    """Open the database in the directory `path` until `close`; asyncio only.

    migrations: all migrations, numbered from 1.
    durability: of a new directory, FSYNC by default. For an existing directory it must equal the stored one.
    create: create the directory and the database if missing.
    timeouts: None (default): TIMEOUTS.

    A cancellation while it opens is raised after that has ended, and leaves nothing open.
    Raises StoreMissing, StoreUnusable (network file system, read-only, not ours, newer, other durability), DiskFull,
    DirectoryInUse (a migration is due while other processes have it open), NotSupported (on trio).
    """
    verify_asyncio("a directory")
    check_numbers(migrations)
    with translate_opening_errors(path):
        # Absolute, because the program may change its current directory later. `absolute` fails if it was deleted.
        path = Path(await anyio.Path(path).absolute())
    clock = SystemClock() if clock is None else clock
    timeouts = TIMEOUTS if timeouts is None else timeouts
    open_files = partial(_open_files, path, migrations, durability, create, clock, timeouts)
    start = partial(FileDatabase.start, path, open_files, clock=clock, faults=faults, timeouts=timeouts)
    return await run_uninterrupted(start, undo=FileDatabase.close)


def verify_asyncio(what: str) -> None:
    """Raise NotSupported if another event loop runs. what: is opened."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        remedy = "open it on asyncio, or use open_memory, which runs on both"
        raise NotSupported(what=f"{what} on trio", remedy=remedy) from None


@attrs.frozen
class _OpenFiles:
    """Files and locks that an open database uses and finally closes."""

    connection: sqlite3.Connection
    durability: Durability
    format_lock: FormatLock
    write_lock: WriteLock
    guard: FileGuard
    alarm: ReplacedFileDetector
    instance: Instance
    log: LogRecorder

    def committer(self, path: str, shared: SharedState, clock: Clock, faults: Faults) -> BatchCommitter:
        """Return what commits on the writer's connection."""
        writer = SqliteWriter(self.connection, path, self.log.continues)
        return BatchCommitter(writer, clock=clock, faults=faults, shared=shared, check=self.alarm.check)

    def empty_log(self, faults: Faults) -> None:
        """Copy the log into the file if no other handle has the directory open. Runs on the writer's thread.

        Until `close`, no other process can open the directory. A failure is not reported: the log keeps everything,
        and the next process that leaves the directory tries it again.
        """
        try:
            if self.format_lock.try_exclusive() and self.write_lock.acquire_nowait():
                try:
                    self.alarm.check()
                    faults.reach(LAST_CLOSE)
                    self.log.empty_log(faults)
                finally:
                    self.write_lock.release()
        except (sqlite3.Error, OSError, EventprocError, Died) as why:
            LOG.debug("%s: the log was not emptied (%s)", self.log.file.path.parent, why)

    def close(self) -> None:
        """Release everything. Call it after the last connection was closed."""
        self.guard.release()
        self.instance.close()
        self.write_lock.close()
        self.log.file.close()
        self.format_lock.close()


def _open_files(
    path: Path,
    migrations: Sequence[Migration],
    durability: Durability | None,
    create: bool,
    clock: Clock,
    timeouts: DatabaseTimeouts,
) -> _OpenFiles:
    """Do the blocking part of opening. If it raises, nothing stays open."""
    db_path = path / DATABASE
    with translate_opening_errors(path), remove_created_on_error(path), ExitStack() as undo:
        fresh = check_directory(path, create=create)
        format_lock = FormatLock(path / "format.lock")
        undo.callback(format_lock.close)
        first = format_lock.try_exclusive()
        connection, log_needed = _open_current(
            db_path, format_lock, fresh, first, migrations, durability, clock, timeouts.format_wait_ms, undo
        )
        stored = stored_durability(connection, path=str(path), asked=durability)
        record = LogRecordFile(path)
        undo.callback(record.close)
        guard = _guard(db_path, connection, timeouts.guard_wait_ms)
        undo.callback(guard.release)
        if log_needed:
            check_log(db_path, record, guard.shm_fd)
        # A new connection: until the guard was held, another closer could leave the first one with an outdated log.
        connection = connect(db_path)
        undo.callback(connection.close)
        _verify_current(connection, str(path), migrations)
        prepare_writer(connection, stored)
        alarm = ReplacedFileDetector(db_path, clock)
        write_lock = WriteLock(path / "write.lock", clock)
        undo.callback(write_lock.close)
        remove_dead(path)
        instance = Instance.create(path, clock)
        undo.pop_all()
    return _OpenFiles(
        connection=connection,
        durability=stored,
        format_lock=format_lock,
        write_lock=write_lock,
        guard=guard,
        alarm=alarm,
        instance=instance,
        log=LogRecorder(connection, record, guard.shm_fd, clock),
    )


def _open_current(
    db_path: Path,
    format_lock: FormatLock,
    fresh: bool,
    first: bool,
    migrations: Sequence[Migration],
    durability: Durability | None,
    clock: Clock,
    wait_ms: int,
    undo: ExitStack,
) -> tuple[sqlite3.Connection, bool]:
    """Return a connection to a database of the current schema, and whether to check its log. `format.lock` is shared.

    first: no other process has the directory open, and `format.lock` is held exclusively.
    """
    path = str(db_path.parent)
    if fresh:
        format_lock.acquire_exclusive(wait_ms)
    elif not first:
        format_lock.acquire_shared(wait_ms)
    created = undo.enter_context(_CreatedFiles(db_path, format_lock))
    log_needed = first and not fresh and check_files(db_path, clock)
    connection = connect(db_path)
    undo.callback(connection.close)
    found = read_format(connection)
    verify_format(found, path=path, migrations=migrations)
    if not is_current(found, migrations):
        if not fresh:
            format_lock.acquire_exclusive(wait_ms)
        if read_format(connection).empty:  # checked again: another process may have migrated it first
            created.active = fresh
            prepare_file(connection)
        migrate(
            connection,
            path=path,
            migrations=migrations,
            durability=durability if durability is not None else Durability.FSYNC,
            clock=clock,
        )
    created.foreign = False
    use_wal(connection)
    created.active = False
    # This never waits, but a waiting migration of a newer version may run first. Hence the last check.
    format_lock.downgrade()
    verify_format(read_format(connection), path=path, migrations=migrations)
    return connection, log_needed


def _guard(db_path: Path, connection: sqlite3.Connection, wait_ms: int) -> FileGuard:
    """Guard a database, and close its connection that was opened before the guard.

    Raises StoreUnusable if another program keeps it locked.
    """
    with closing(connection), suppress(FileNotFoundError, BlockingIOError):
        return FileGuard.hold(db_path)
    # Something in this process released our connection's locks, and another program is closing the database, or has
    # closed it as its last user and removed the log files. After the first connection is closed (all connections of
    # this process share its old files), a new connection creates them again.
    pause = threading.Event()  # never set: a wait on it is a pause of this thread
    for _ in range(wait_ms // GUARD_POLL_MS):
        pause.wait(GUARD_POLL_MS / 1000)
        with closing(connect(db_path)) as pioneer, suppress(FileNotFoundError, BlockingIOError):
            read_format(pioneer)
            return FileGuard.hold(db_path)
    raise StoreUnusable(path=str(db_path.parent), reason=LOCKED)


def _verify_current(connection: sqlite3.Connection, path: str, migrations: Sequence[Migration]) -> None:
    if not is_current(read_format(connection), migrations):
        raise StoreUnusable(
            path=path, reason="another program replaced the database while it was being opened; try again"
        )


class _CreatedFiles:
    """On exit, removes the files that a failed opening created.

    active: the opening is initialising an empty directory. The database is removed; at that point `format.lock` is
    held exclusively and the connection is closed, so no other process has seen it.
    foreign: the database has not been recognised as ours yet. `format.lock` is removed if this opening created it and
    no other process holds it.
    """

    def __init__(self, db_path: Path, format_lock: FormatLock) -> None:
        self.active = False
        self.foreign = format_lock.made
        self._db_path = db_path
        self._format_lock = format_lock

    def __enter__(self) -> _CreatedFiles:
        return self

    def __exit__(self, *failure: object) -> None:
        if self.active:
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(f"{self._db_path}{suffix}").unlink(missing_ok=True)
            self._format_lock.remove()
        elif self.foreign:
            self._format_lock.remove_unused()


async def keep_open(starting: Awaitable[ThreadConnection[C]], undo: AsyncExitStack) -> ThreadConnection[C]:
    """Return the connection once it is open, and register its closing with `undo`."""
    connection = await starting
    undo.push_async_callback(connection.close)
    return connection


class FileDatabase(ThreadedDatabase[sqlite3.Connection, FileWriter]):
    """See `start_database`."""

    def __init__(
        self,
        path: Path,
        opened: _OpenFiles,
        writer_connection: ThreadConnection[sqlite3.Connection],
        readers: ReaderPool[sqlite3.Connection],
        callbacks: LoopCallbacks,
        *,
        clock: Clock,
        faults: Faults,
        timeouts: DatabaseTimeouts,
    ) -> None:
        super().__init__(
            path=path,
            clock=clock,
            faults=faults,
            durability=opened.durability,
            instance_id=opened.instance.id,
            peers=FilePeers(path, clock),
            shared=readers.shared,
        )
        self._opened = opened
        self._connection, self._readers = writer_connection, readers
        self._timeouts, self._callbacks = timeouts, callbacks
        self._notifier = CommitNotifier(path, opened.instance.id, clock)
        self._closed = False
        self._origin = ProcessBound()
        self._listener = FifoListener(
            fifo_fd=opened.instance.fifo_fd,
            subscriptions=self._subscriptions,
            readers=readers,
            poll_ms=timeouts.poll_ms,
        )
        self._writer = FileWriter(
            writer_connection,
            opened.committer(str(path), self.shared, clock, faults),
            lock=opened.write_lock,
            lock_path=path / "write.lock",
            notifier=self._notifier,
            checkpointer=Checkpointer(
                connection=opened.connection,
                lock=opened.write_lock,
                shm_fd=opened.guard.shm_fd,
                faults=faults,
                path=str(path / DATABASE),
                log=opened.log,
            ),
            log=opened.log,
            room=LogRoom(f"{path / DATABASE}-wal", LOG_BYTES),
            clock=clock,
            callbacks=callbacks,
            publish=self._publish,
            lock_warn_ms=timeouts.lock_warn_ms,
            inline=opened.durability is Durability.OS,
        )

    @classmethod
    async def start(
        cls,
        path: Path,
        open_files: Callable[[], _OpenFiles],
        *,
        clock: Clock,
        faults: Faults,
        timeouts: DatabaseTimeouts,
    ) -> FileDatabase:
        """Open the files, start the threads of the connections and the listener. It must not be interrupted."""
        opened = await anyio.to_thread.run_sync(open_files)
        async with AsyncExitStack() as undo:
            undo.callback(opened.close)
            undo.enter_context(translate_opening_errors(path))
            writer_connection = await keep_open(ThreadConnection.start(lambda: opened.connection), undo)
            connections = [await keep_open(open_reader(path / DATABASE), undo) for _ in range(READERS_COUNT)]
            callbacks = LoopCallbacks()
            undo.callback(callbacks.close)
            readers = ReaderPool(
                connections,
                snapshot,
                clock=clock,
                callbacks=callbacks,
                translate=partial(translate_error, path=str(path)),
                shared=SharedState(),
            )
            database = cls(
                path,
                opened,
                writer_connection,
                readers,
                callbacks,
                clock=clock,
                faults=faults,
                timeouts=timeouts,
            )
            undo.pop_all()
        database._listener.start()
        return database

    async def shorten(self) -> bool:
        """See `Database.shorten`."""
        self._check_usable()
        try:
            return await self._connection.call(lambda _: self._writer.shorten())
        except sqlite3.Error as why:
            raise translate_error(why, str(self.path)) from why

    async def close(self) -> None:
        """See `Database.close`."""
        if self._closed or self._origin.forked:
            return
        self._closed = True
        self._writer.stop_inline()
        self._refuse(partial(Closed, what="the database"))
        self._listener.stop()
        await self._readers.close()
        drained = anyio.Event()
        self._connection.post(partial(self._leave, drained))
        with anyio.move_on_after(self._timeouts.close_wait_ms / 1000) as waiting:
            await drained.wait()
        if not waiting.cancelled_caught:
            await self._connection.close()  # lasts as long as the disk needs
            self._callbacks.close()
            self._writer.close()
            self._notifier.close()
            self._opened.close()
            return
        # The writer's thread waits for a lock that a stopped process holds. Its connection, the guard and the pipe for
        # its answer stay open until it gets the lock.
        LOG.warning("%s: closed while a write still waits for write.lock of another process", self.path)
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._close_later, args=(loop,), daemon=True).start()

    def _leave(self, drained: anyio.Event) -> None:
        """Report that no write waits any more, and empty the log. Runs on the writer's thread."""
        self._callbacks.call(drained.set)
        if self._writer.usable:
            self._opened.empty_log(self.faults)

    def _close_later(self, loop: asyncio.AbstractEventLoop) -> None:
        """Release everything after the writer's thread has ended. Runs on its own thread, perhaps after the loop."""
        self._connection.close_without_loop()
        self._notifier.close()
        self._opened.close()
        try:
            loop.call_soon_threadsafe(self._callbacks.close)
        except RuntimeError:  # the loop was closed before
            self._callbacks.abandon()
