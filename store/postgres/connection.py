"""A connection to PostgreSQL with the calls of a transaction, which is opened again after it was lost.

Errors of the server become errors of this library where there is one. A lost connection is no error of a statement: the
writer and the readers open another one, and run again what the lost one did not commit
(see `writer` and `SnapshotReader`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeAlias, TypeVar

import psycopg
from psycopg import errors, pq
from psycopg.conninfo import conninfo_to_dict
from tenacity import RetryError, Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential
from tenacity.nap import sleep_using_event

from eventproc.base.clock import Clock
from eventproc.store.database.commit_batch import Trouble
from eventproc.store.database.database import WRITE_WAIT_MS_MAX
from eventproc.store.database.tx import Cursor, ReadState, SharedState, SqlParameters, Tx
from eventproc.store.model.errors import InvalidArgument, NotSupported, StoreUnusable, Unreachable
from eventproc.store.postgres.address import ServerAddress
from eventproc.store.postgres.health import application_name
from eventproc.store.postgres.statements import register_types, send_typed, send_untyped, translated

Raw: TypeAlias = psycopg.Connection[tuple[Any, ...]]

CONNECT_S: Final = 10
"""How long one attempt to connect may take, in s. Higher: a server behind a cut network is noticed later; lower: one
that is busy or far away is never reached."""

SILENCE_MS: Final = 8_000
"""After how long without an answer of the network a connection counts as lost, on both sides, in ms. Higher: the locks
of a machine that was cut off stay longer, and others take over later; lower: a short outage costs a reconnection."""

PREPARED_MAX: Final = 512
"""Statements that a connection keeps prepared; more than the library uses."""

RECONNECT_S_MAX: Final = 0.5
"""Longest pause between two attempts to connect, in s. Higher: a server that is back is noticed later, perhaps after
others took this opening for dead (MISSED_LOOKS); lower: more attempts of all clients while it starts."""

_NO_LIMITS: Final = (
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('statement_timeout', 'lock_timeout',"
    " 'transaction_timeout', 'idle_session_timeout', 'idle_in_transaction_session_timeout');"
    "SET tcp_keepalives_idle = 2; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;"
    f"SET tcp_user_timeout = {SILENCE_MS}"
)
"""Settings of each session: calls have deadlines of their own, and the server must notice a machine that is gone."""


class PostgresConnection:
    """One connection, for use by one thread at a time. See `store.database.tx.Connection`."""

    def __init__(self, address: ServerAddress, prepare: Callable[[Raw], None]) -> None:
        """prepare: called with each new connection, before its first use; its error means that it cannot be used."""
        self.total_changes = 0
        self.address = address
        self._is_restricted = False
        self._queued: list[tuple[bytes, list[Any]]] = []  # what goes with the next statement
        self._lacks_rows = False  # some that were queued could not be sent
        self._prepare = prepare
        self._raw: Raw | None = None

    @property
    def raw(self) -> Raw:
        """The connection of psycopg."""
        assert self._raw is not None, "connect() comes first"
        return self._raw

    def connect(self) -> None:
        """Open it, or open it again. Raises errors of psycopg and of `prepare`."""
        self.close()
        self._forget_queued()
        raw = psycopg.connect(
            self.address.conninfo,
            autocommit=True,  # only this library begins and ends transactions
            cursor_factory=psycopg.RawCursor,
            **_options(self.address),
        )
        try:
            raw.prepared_max = PREPARED_MAX
            register_types(raw)
            raw.execute(f"SET search_path = {search_path(self.address.schema)}; {_NO_LIMITS}".encode())
            self._prepare(raw)
        except BaseException:
            raw.close()
            raise
        self._raw = raw

    def connect_until(self, stop: threading.Event, give_up: Callable[[], bool] = lambda: False) -> bool:
        """Open it again, with pauses between the attempts, until it is open. Return False if that was given up.

        stop: ends the attempts. give_up: asked after each attempt. Raises what does not end by waiting.
        """
        attempts = Retrying(
            retry=retry_if_exception(lambda why: is_lost(why, writing=True) and not give_up()),
            stop=stop_when_event_set(stop),
            wait=wait_random_exponential(multiplier=0.05, max=RECONNECT_S_MAX),
            sleep=sleep_using_event(stop),
        )
        try:
            attempts(self.connect)
        except RetryError:
            return False
        except psycopg.Error as why:
            if not is_lost(why, writing=True):
                raise
            return False
        return True

    def close(self) -> None:
        """Close it. A second call does nothing."""
        if self._raw is not None:
            with suppress(psycopg.Error):
                self._raw.close()

    def execute(self, sql: str, parameters: SqlParameters = (), /) -> Cursor:
        """See `Connection.execute`. An error counts as a change, because the transaction has failed."""
        if self._is_restricted:
            check_first_word(sql)
        if sql.startswith("ROLLBACK"):
            self._forget_queued()
        statement = translated(sql)
        cursor = self.raw.cursor()
        with self._counting_failure(), self._trip():
            cursor.execute(statement.sql, statement.ordered(parameters), binary=True)
        if statement.changes:
            self.total_changes += max(cursor.rowcount, 0) if _counts_rows(cursor) else 1
        return cursor

    def executemany(self, sql: str, parameters: Iterable[SqlParameters], /) -> Cursor:
        """See `Connection.executemany`. It goes with the next statement, whose error may be its own.

        That of a user goes at once, and tells how many rows it changed.
        """
        statement = translated(sql)
        rows = [statement.ordered(each) for each in parameters]
        cursor = self.raw.cursor()
        if not self._is_restricted:
            if rows:
                self._queued.append((statement.sql, rows))
                self.total_changes += len(rows)
            return cursor
        check_first_word(sql)
        with self._counting_failure(), self._trip():
            cursor.executemany(statement.sql, rows)
        self.total_changes += max(cursor.rowcount, 0)
        return cursor

    @contextmanager
    def _trip(self, *, joined: bool = False) -> Iterator[None]:
        """Send what is queued, and what the block sends, without waiting for answers in between.

        joined: the block sends several statements.
        """
        if not (self._queued or joined):
            yield
            return
        queued, self._queued = self._queued, []
        with self.raw.pipeline(), self.raw.cursor() as cursor:
            self._lacks_rows = True
            for sql, rows in queued:
                cursor.executemany(sql, rows)
            self._lacks_rows = False
            yield

    def _forget_queued(self) -> None:
        self._queued.clear()
        self._lacks_rows = False

    @contextmanager
    def _counting_failure(self) -> Iterator[None]:
        """Count an error as a change. For a parameter that the driver cannot send, raises TypeError to a user's SQL.

        To ours it raises InvalidArgument: it is a text with NUL, from a caller.
        """
        try:
            yield
        except psycopg.Error as why:
            self.total_changes += 1
            if why.sqlstate is None and isinstance(why, psycopg.DataError | psycopg.ProgrammingError):
                if self._is_restricted:
                    raise TypeError(one_line(why)) from why
                raise InvalidArgument(what="text", value="with NUL", reason=one_line(why)) from why
            raise

    @contextmanager
    def restricted(self) -> Iterator[None]:
        """Check how statements begin, and send values as they come, inside of the block.

        It counts as a change: a SELECT may call a function that changes rows.
        """
        self._is_restricted = True
        self.total_changes += 1
        send_untyped(self.raw)
        try:
            yield
        finally:
            self._is_restricted = False
            send_typed(self.raw)

    def run(self, script: str) -> list[Any]:
        """Run statements without parameters in one trip; return the first row of each that has rows."""
        with self._trip():
            pass
        cursor = self.raw.execute(script.encode())
        rows = []
        while True:
            if cursor.description is not None:
                rows.append(cursor.fetchone())
            if not cursor.nextset():
                return rows

    def commit(self, sql: str, parameters: Sequence[object]) -> None:
        """Run a last statement, and COMMIT, in one trip."""
        with self._trip(joined=True), self.raw.cursor() as cursor:
            cursor.execute(sql.encode(), parameters)
            cursor.execute(b"COMMIT")

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is open, or has failed and must be rolled back."""
        return self._status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR)

    @property
    def is_failed(self) -> bool:
        """Whether the transaction can only be rolled back, to a savepoint or to its beginning."""
        return self._lacks_rows or self._status is pq.TransactionStatus.INERROR

    @property
    def _status(self) -> pq.TransactionStatus:
        return self.raw.info.transaction_status


def _options(address: ServerAddress) -> dict[str, Any]:
    """Return libpq's options that the address does not set: a silent network must end a connection."""
    given = conninfo_to_dict(address.conninfo)
    options = {
        "application_name": application_name(address.schema, os.getpid()),
        "client_encoding": "utf8",
        "connect_timeout": CONNECT_S,
        "keepalives_idle": 2,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": SILENCE_MS,
        "target_session_attrs": "read-write" if "," in str(given.get("host", "")) else None,
    }
    return {key: value for key, value in options.items() if value is not None and key not in given}


def _counts_rows(cursor: psycopg.Cursor[Any]) -> bool:
    return (cursor.statusmessage or "").startswith(("INSERT", "UPDATE", "DELETE", "MERGE", "SELECT"))


def is_lost(why: BaseException, *, writing: bool = False) -> bool:
    """Return whether an error tells that the connection was lost, or that the server cannot be reached now.

    writing: a server that cannot be written is a standby now, and there is another primary.
    """
    if not isinstance(why, psycopg.Error):
        return False
    if why.diag.severity_nonlocalized in ("FATAL", "PANIC"):  # the server has ended the session
        return True
    if isinstance(why, errors.ReadOnlySqlTransaction):
        return writing
    return isinstance(why, psycopg.OperationalError) and why.sqlstate is None and not _is_refused(why)


def _is_refused(why: psycopg.OperationalError) -> bool:
    """Return whether the server, or its name, refuses the connection in a way that waiting does not change."""
    text = str(why)
    return any(each in text for each in _REFUSALS)


_REFUSALS: Final = (
    "authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf entry",
    "pg_hba.conf rejects",
    "is not permitted to log in",
    "permission denied for database",
)
"""How a server says so; libpq does not tell the SQLSTATE of a connection that failed."""


def trouble_of(why: BaseException) -> Trouble | None:
    """See `WriterConnection.trouble_of`."""
    if not isinstance(why, psycopg.Error):
        return None
    # An administrator cancels one statement. What it was part of runs again as after a lost connection.
    if is_lost(why, writing=True) or isinstance(why, errors.QueryCanceled):
        return Trouble.LOST
    if isinstance(why, errors.DiskFull):
        return Trouble.FULL
    if isinstance(why, errors.DeadlockDetected | errors.SerializationFailure | errors.LockNotAvailable):
        return Trouble.BUSY
    return Trouble.OTHER


def translate(why: Exception, name: str) -> Exception:
    """Return the library's error for an error of PostgreSQL, or the error itself if there is none."""
    if not isinstance(why, psycopg.Error):
        return why
    if isinstance(why, errors.InsufficientPrivilege):
        return StoreUnusable(path=name, reason=f"{one_line(why)}; let the owner of the schema grant that")
    if is_lost(why) or isinstance(why, errors.QueryCanceled):
        return Unreachable(place=name, reason=one_line(why))
    return why


def one_line(why: BaseException) -> str:
    """Return the text of an error of libpq in one line, without what repeats."""
    lines = [line.strip() for line in str(why).splitlines() if line.strip()]
    return lines[0] if lines else type(why).__name__


FIRST_WORDS: Final = frozenset(
    {
        "SELECT",
        "WITH",
        "VALUES",
        "INSERT",
        "UPDATE",
        "DELETE",
        "MERGE",
        "CREATE",
        "DROP",
        "ALTER",
        "TABLE",
        "EXPLAIN",
    }
)
"""How a statement of a user may begin. Others control transactions, roles and settings, or run code. The protocol runs
one statement at a time."""


def check_first_word(sql: str) -> None:
    """Raise NotSupported for a statement that a user's function may not run."""
    found = _FIRST_WORD.match(_COMMENT.sub(" ", sql))
    if found is not None and found[1].upper() not in FIRST_WORDS:
        raise _not_allowed(f"it begins with {found[1]}")


_COMMENT: Final = re.compile(r"--[^\r\n]*|/\*.*?\*/", re.DOTALL)
_FIRST_WORD: Final = re.compile(r"[\s(]*(\w+|\S)")


def _not_allowed(why: str) -> NotSupported:
    return NotSupported(
        what=f"this SQL in a user's function ({why})",
        remedy="read any table of the store, and change only tables that the role of its users' SQL may change; do not"
        " control transactions, roles or settings",
    )


@contextmanager
def user_sql(connection: PostgresConnection, _prefix: str) -> Iterator[None]:
    """Run statements with the rights of the role of users' SQL, and create tables in its schema.

    Raises NotSupported for a statement that is not allowed, if the role is missing, and if role or durability differ at
    the end. Deferred constraints are checked at the end too: an error of COMMIT would be one of other functions.
    """
    role = user_role(connection.address.schema)
    back = f"RESET ROLE; SET LOCAL search_path = {search_path(connection.address.schema)}"
    try:
        ((durability,),) = connection.run(
            f"SELECT {_DURABILITY};"
            f"SET LOCAL ROLE {quoted(role)}; SET LOCAL search_path = {search_path(role, connection.address.schema)}"
        )
    except (errors.InvalidParameterValue, errors.InsufficientPrivilege) as why:
        remedy = "let a superuser run `eventproc init` once with this address, which creates it and grants its rights"
        raise NotSupported(what=f"SQL of users without the role {role}", remedy=remedy) from why
    try:
        with connection.restricted():
            yield
        (found,) = connection.run(
            f"SET CONSTRAINTS ALL IMMEDIATE; SELECT current_setting('role'), {_DURABILITY}; {back}"
        )
    except BaseException as why:
        if connection.in_transaction and not connection.is_failed:  # a rollback ends what was set
            connection.run(back)
        if isinstance(why, errors.InsufficientPrivilege):
            raise _not_allowed(one_line(why)) from why
        raise
    if found != (role, durability):
        raise _not_allowed("it changed role or synchronous_commit")


_DURABILITY: Final = "current_setting('synchronous_commit')"
"""How the commits of a session are acknowledged, in SQL."""


def quoted(name: str) -> str:
    """Return a name as an identifier in SQL: it may be a reserved word, such as user."""
    return f'"{name}"'


def search_path(*schemas: str) -> str:
    """Return the value of search_path. Temporary tables come last: they hide no table of the store."""
    return ", ".join([*map(quoted, schemas), "public", "pg_temp"])


def user_role(schema: str) -> str:
    """Return the name of the role of users' SQL, and of its schema."""
    return f"{schema}_app"


T = TypeVar("T")


class SnapshotReader:
    """Runs reads. closing: ends waiting for the server."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing

    def __call__(
        self, connection: PostgresConnection, fn: Callable[[Tx], T], clock: Clock, shared: SharedState
    ) -> T:
        """See `ReadOne`. From its first lost connection on, it tries as long as a write waits. Raises Unreachable."""
        lost_ms: int | None = None

        def waited_ms() -> int:
            return 0 if lost_ms is None else clock.monotonic_ms() - lost_ms

        def is_late() -> bool:
            return waited_ms() >= WRITE_WAIT_MS_MAX

        while True:
            try:
                return _read(connection, fn, clock, shared)
            except psycopg.Error as why:
                if not is_lost(why):
                    raise
                lost_ms = clock.monotonic_ms() if lost_ms is None else lost_ms
                # It may connect, and the read ends the connection each time.
                if is_late() or not connection.connect_until(self._closing, is_late):
                    reason = f"{one_line(why)}, for {waited_ms() / 1000:.1f} s"
                    raise Unreachable(place=connection.address.name, reason=reason) from why


def _read(connection: PostgresConnection, fn: Callable[[Tx], T], clock: Clock, shared: SharedState) -> T:
    connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        return fn(Tx(connection, clock, ReadState(shared), snapshot=True, restrict=user_sql))
    finally:
        if connection.in_transaction:  # after ROLLBACK the driver would prepare its statements again
            connection.run("ROLLBACK" if connection.is_failed else "COMMIT")
