"""A store on a PostgreSQL server that processes of several machines share: opens it, closes it, connects its parts.

Opening has this order: check the server; create or migrate the schema; register the opening and take its lock; open the
writer and the readers. Closing has the reverse order. Source: docs/design/postgresql.md.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Final

import anyio
import anyio.to_thread
import psycopg
from psycopg import errors

from eventproc.base.clock import Clock, SystemClock, new_id
from eventproc.base.tasks import run_uninterrupted
from eventproc.store.database import Durability, Migration, SharedState
from eventproc.store.database.commit_batch import BatchCommitter
from eventproc.store.database.connections import READERS_COUNT, LoopCallbacks, ReaderPool, ThreadConnection
from eventproc.store.database.file_database import keep_open, verify_asyncio
from eventproc.store.database.locks import ProcessBound
from eventproc.store.database.migrate import check_numbers
from eventproc.store.database.threaded_database import ThreadedDatabase
from eventproc.store.database.wake_ups import CommitListener
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import Closed, StoreUnusable
from eventproc.store.postgres.address import COMMIT, FORMAT, ServerAddress
from eventproc.store.postgres.clock import ServerClock
from eventproc.store.postgres.connection import (
    PostgresConnection,
    Raw,
    SnapshotReader,
    is_lost,
    one_line,
    translate,
)
from eventproc.store.postgres.peers import PeerThread, ServerPeers
from eventproc.store.postgres.schema import StoreFacts, make_current
from eventproc.store.postgres.writer import PostgresWriter, ServerWriter

VERSION_MIN: Final = 14
"""Oldest major version of PostgreSQL that works and that its makers still mend."""


async def start_server_database(
    address: ServerAddress,
    *,
    migrations: Sequence[Migration],
    durability: Durability | None = None,
    create: bool = True,
    clock: Clock | None = None,
    faults: Faults = NO_FAULTS,
) -> ServerDatabase:
    """Open the store at an address until `close`; asyncio only.

    Parameters as for `start_database`. clock: of this machine; it measures what passes between two looks at the
    server's clock.

    A cancellation while it opens is raised after that has ended, and leaves nothing open.
    Raises StoreMissing, StoreUnusable (the server refuses, is too old, a standby, or its settings break the promise),
    Unreachable, DirectoryInUse (a migration is due while others have it open), NotSupported (on trio).
    """
    verify_asyncio("a store on a server")
    check_numbers(migrations)
    opening = _Opening(address, migrations, durability, create, SystemClock() if clock is None else clock)
    return await run_uninterrupted(partial(ServerDatabase.start, opening, faults), undo=ServerDatabase.close)


class _Opening:
    """What the connections of one opening have in common. Its methods block; they run on threads."""

    def __init__(
        self,
        address: ServerAddress,
        migrations: Sequence[Migration],
        durability: Durability | None,
        create: bool,
        machine: Clock,
    ) -> None:
        self.address = address
        self.id = new_id(machine)
        self.closing = threading.Event()
        self._migrations = migrations
        self._durability = durability
        self._create = create
        self.machine = machine
        self._facts: StoreFacts | None = None
        self._pids: set[int] = set()

    def make_current(self) -> StoreFacts:
        """Check the server, and create or migrate the store."""
        connection = PostgresConnection(self.address, lambda _: None)
        try:
            connect(connection)
            check_server(connection.raw, self.address.name)
            facts = make_current(
                connection,
                migrations=self._migrations,
                durability=self._durability,
                create=self._create,
                clock=self.machine,
                commit_key=self.address.lock_key(COMMIT),
                format_key=self.address.lock_key(FORMAT),
            )
        except psycopg.Error as why:
            raise _opening_failed(why, self.address.name) from why
        finally:
            connection.close()
        self._facts = facts
        return facts

    def connection(self, prepare: Callable[[Raw], None] = lambda _: None) -> PostgresConnection:
        """Return an open connection. prepare: called with each new one."""
        connection = PostgresConnection(self.address, partial(self._prepare, prepare))
        connect(connection)
        pid = connection.execute("SELECT pg_backend_pid()").fetchone()[0]
        if pid in self._pids:
            connection.close()
            reason = (
                "a pooler in transaction mode stands before the server: locks and notifications need sessions; connect"
                " to the server itself, or let the pooler work in session mode"
            )
            raise StoreUnusable(path=self.address.name, reason=reason)
        self._pids.add(pid)
        return connection

    def _prepare(self, prepare: Callable[[Raw], None], raw: Raw) -> None:
        check_server(raw, self.address.name)
        facts = self._facts
        assert facts is not None, "the store was made current first"
        if facts.durability is Durability.FSYNC:
            check_synced(raw, self.address.name)
        prepare(raw)
        found: dict[str, str] = dict(raw.execute("SELECT key, value FROM meta").fetchall())
        if (found["store"], found["schema"]) != (facts.id, str(facts.schema)):
            reason = "another store is there, or a newer version of eventproc has migrated it; open it again"
            raise StoreUnusable(path=self.address.name, reason=reason)


def connect(connection: PostgresConnection) -> None:
    """Connect for the first time. Raises StoreUnusable, Unreachable and InvalidArgument."""
    try:
        connection.connect()
    except (psycopg.OperationalError, errors.ReadOnlySqlTransaction) as why:
        raise _opening_failed(why, connection.address.name) from why
    except psycopg.ProgrammingError as why:
        if why.sqlstate is not None:
            raise
        reason = "libpq does not accept it: look at the names and values of its options, and write % as %25"
        raise invalid_argument(
            "address", connection.address.name, reason
        ) from None  # it may quote the password


def _opening_failed(why: psycopg.Error, name: str) -> Exception:
    if isinstance(why, (psycopg.OperationalError, errors.ReadOnlySqlTransaction)) and not is_lost(why):
        return StoreUnusable(path=name, reason=f"the server refuses: {one_line(why)}")
    return translate(why, name)


def check_server(raw: Raw, name: str) -> None:
    """Raise StoreUnusable for a server that is too old or read-only, or has another encoding than UTF-8.

    Raises ReadOnlySqlTransaction for a standby.
    """
    version = raw.info.server_version // 10_000
    if version < VERSION_MIN:
        reason = f"the server is PostgreSQL {version}; version {VERSION_MIN} is the oldest that works"
        raise StoreUnusable(path=name, reason=reason)
    standby, read_only, encoding = raw.execute(
        "SELECT pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on',"
        " current_setting('server_encoding')"
    ).fetchone() or (False, False, "")
    if standby:  # an opening that has lost its server waits until the standby is promoted
        raise errors.ReadOnlySqlTransaction(
            "the server is a standby, which cannot be written; name the primary, or all hosts with commas between"
        )
    if read_only:
        reason = "default_transaction_read_only is on for this role or database; set it off"
        raise StoreUnusable(path=name, reason=reason)
    if encoding != "UTF8":
        reason = (
            f"the encoding of the database is {encoding}; create one with ENCODING 'UTF8' TEMPLATE template0"
        )
        raise StoreUnusable(path=name, reason=reason)


def check_synced(raw: Raw, name: str) -> None:
    """Raise StoreUnusable if an acknowledged commit would not survive a loss of power."""
    for setting in ("fsync", "synchronous_commit"):
        (value,) = raw.execute("SELECT current_setting($1)", (setting,)).fetchone() or ("",)
        if value == "off":
            reason = (
                f"{setting} is off on the server, but the store promises durability 'fsync'; set it on, or create a"
                " store with durability 'os'"
            )
            raise StoreUnusable(path=name, reason=reason)


def commit_unsynced(raw: Raw) -> None:
    """Let the commits of a connection be acknowledged before they are synced."""
    raw.execute("SET synchronous_commit = off")


class ServerDatabase(ThreadedDatabase[PostgresConnection, ServerWriter]):
    """See `start_server_database`. While the server cannot be reached, writes and reads wait; see Unreachable."""

    def __init__(
        self,
        opening: _Opening,
        facts: StoreFacts,
        clock: ServerClock,
        peers: PeerThread,
        writer_connection: ThreadConnection[PostgresConnection],
        readers: ReaderPool[PostgresConnection],
        callbacks: LoopCallbacks,
        faults: Faults,
    ) -> None:
        super().__init__(
            path=None,
            name=opening.address.name,
            clock=clock,
            faults=faults,
            durability=facts.durability,
            instance_id=opening.id,
            peers=ServerPeers(peers, opening.id, clock),
            shared=readers.shared,
        )
        self._closing = opening.closing
        self._peer_thread = peers
        self._connection, self._readers, self._callbacks = writer_connection, readers, callbacks
        self._closed = False
        self._origin = ProcessBound()
        self._listener = CommitListener(subscriptions=self._subscriptions, readers=readers)
        writer = PostgresWriter(
            writer_connection.raw,
            opening_id=opening.id,
            clock=clock,
            closing=opening.closing,
        )

        def notify() -> None:
            peers.notify(writer.commits_count, others=writer.has_others)

        self._writer = ServerWriter(
            writer_connection,
            BatchCommitter(writer, clock=clock, faults=faults, shared=self.shared),
            clock=clock,
            callbacks=callbacks,
            publish=self._publish,
            notify=notify,
            closing=opening.closing,
        )

    @classmethod
    async def start(cls, opening: _Opening, faults: Faults) -> ServerDatabase:
        """Open the connections and start their threads. It must not be interrupted."""
        facts = await anyio.to_thread.run_sync(opening.make_current)
        clock = ServerClock(opening.machine, facts.id)
        async with AsyncExitStack() as undo:
            callbacks = LoopCallbacks()
            undo.callback(callbacks.close)
            peers = PeerThread(
                opening.address,
                opening_id=opening.id,
                clock=clock,
                call=callbacks.call,
            )
            undo.callback(peers.end)
            undo.callback(opening.closing.set)
            await anyio.to_thread.run_sync(
                partial(peers.register, partial(opening.connection, peers.prepare))
            )
            connector = opening.connection
            if facts.durability is Durability.OS:
                connector = partial(opening.connection, commit_unsynced)
            writer_connection = await keep_open(ThreadConnection.start(connector), undo)
            connections = [
                await keep_open(ThreadConnection.start(opening.connection), undo)
                for _ in range(READERS_COUNT)
            ]
            readers = ReaderPool(
                connections,
                SnapshotReader(opening.closing),
                clock=clock,
                callbacks=callbacks,
                translate=partial(translate, name=opening.address.name),
                shared=SharedState(),
                forks_wait=False,  # a read may wait for the server for long, and a child never uses its connection
            )
            database = cls(opening, facts, clock, peers, writer_connection, readers, callbacks, faults)
            peers.on_commit, peers.on_failure = database._listener.notice, database.fail
            undo.pop_all()
        peers.start()
        return database

    async def shorten(self) -> bool:
        """See `Database.shorten`. The server keeps its files itself."""
        self._check_usable()
        await anyio.lowlevel.checkpoint()
        return True

    async def close(self) -> None:
        """See `Database.close`."""
        if self._closed or self._origin.forked:
            return
        self._closed = True
        self._refuse(partial(Closed, what="the database"))
        self._listener.stop()
        self._closing.set()
        await self._readers.close()
        await self._connection.close()
        await anyio.to_thread.run_sync(self._peer_thread.end)
        self._callbacks.close()
        self._writer.close()
