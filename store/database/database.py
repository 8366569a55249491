"""The interface of a database: calls with a function of a transaction, and subscriptions to what they change.

`write` and `read` take a plain function of a `Tx`, which runs from start to end without awaiting. A transaction made of
awaits on a shared connection would see and commit the rows of other callers. The form in a file and the form in memory
keep the same promises.

A subscription waits for changes of a *channel*, which is any hashable value (a stream's tail, a request's outcome). A
commit of this process names the channels that it changes and wakes their subscriptions directly. A commit of another
process only sends a notification. One read then runs all *probes*, and each channel whose probe returns another value
than before is woken. A wake-up may come without a change. Every change causes a wake-up if the caller first subscribes,
then reads the state, then waits. Source: architecture.md section 1.
"""

from __future__ import annotations

import enum
import logging
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

import anyio
import attrs

from eventproc.base.clock import Clock
from eventproc.store.database.commit_batch import CommitBatch, Streams
from eventproc.store.database.instances import Peers
from eventproc.store.database.locks import FORMAT_WAIT_MS_MAX
from eventproc.store.database.tx import SharedState, SqlParameters, SqlValue, Tx
from eventproc.store.faults import Faults, Moment, Step, point_of
from eventproc.store.model.argument_checks import check_str, invalid_argument
from eventproc.store.model.errors import DatabaseStopped, DirectoryInUse, NotSupported
from eventproc.store.openable import OpenObjects

LOG = logging.getLogger(__name__)

UNKNOWN: Final = object()
"""The value of a probe that did not run yet, or failed. It differs from every other value."""


@attrs.frozen
class Watch:
    """A channel, and the query that detects a change of it by another process."""

    channel: Hashable
    probe: Callable[[Tx], Hashable]
    """Runs in a read; must be cheap (one indexed lookup). A value that differs from the last one means a change."""


class Subscriptions:
    """All subscriptions of one database. Used on the event loop only."""

    def __init__(self) -> None:
        # An order of its own, so that the same run wakes tasks in the same order.
        self._subscriptions: dict[Hashable, dict[Subscription, None]] = {}
        self._last: dict[Watch, object] = {}
        self.refusal: Callable[[], BaseException] | None = None
        """Makes the error that every wait raises; None while the database is usable."""

    def stop(self, refusal: Callable[[], BaseException]) -> None:
        """Wake every waiting task; its wait, and every later one, raises what `refusal` returns."""
        self.refusal = refusal
        for channel, subscriptions in self._subscriptions.items():
            for subscription in subscriptions:
                subscription.notify(channel)

    @property
    def watches(self) -> tuple[Watch, ...]:
        """Every watch of an active subscription."""
        return tuple(self._last)

    def wake(self, channels: Iterable[Hashable]) -> None:
        """Wake the subscriptions on `channels`."""
        if self._subscriptions:
            for channel in channels:
                for subscription in self._subscriptions.get(channel, ()):
                    subscription.notify(channel)

    def compare(self, values: dict[Watch, Hashable]) -> None:
        """Wake the channels whose probes returned other values than last time."""
        for watch, value in values.items():
            if watch not in self._last:  # its last subscription has ended
                continue
            last, self._last[watch] = self._last[watch], value
            if last is UNKNOWN or value is UNKNOWN or last != value:
                self.wake((watch.channel,))

    def add(self, subscription: Subscription, watch: Watch) -> None:
        """Wake `subscription` on changes of `watch`."""
        self._subscriptions.setdefault(watch.channel, {})[subscription] = None
        self._last.setdefault(watch, UNKNOWN)

    def discard(self, subscription: Subscription, watch: Watch) -> None:
        """Undo `add`."""
        waiting = self._subscriptions.get(watch.channel, {})
        waiting.pop(subscription, None)
        if not any(watch in other.watches for other in waiting):
            self._last.pop(watch, None)
        if not waiting:
            self._subscriptions.pop(watch.channel, None)


def run_probes(watches: Iterable[Watch], tx: Tx) -> dict[Watch, Hashable]:
    """Run every probe in one snapshot. A failing probe counts as a change, so that its waiter meets the error."""
    values: dict[Watch, Hashable] = {}
    for watch in watches:
        try:
            values[watch] = watch.probe(tx)
        except Exception:
            if tx.on_server and not tx.connection.in_transaction:
                raise  # the connection was lost, and the read begins again on another one
            LOG.warning("the probe of %r failed", watch.channel, exc_info=True)
            values[watch] = UNKNOWN
    return values


class Subscription:
    """Waits for changes of its channels, from this process and others. Active inside its `with` block."""

    def __init__(self, subscriptions: Subscriptions, watches: Iterable[Watch]) -> None:
        self.watches: dict[Watch, None] = dict.fromkeys(watches)
        self._subscriptions = subscriptions
        self._changed: set[Hashable] = set()
        self._event: anyio.Event | None = None
        self._active = False

    def __enter__(self) -> Subscription:
        assert not self._active, "the subscription is active already"
        self._active = True
        for watch in self.watches:
            self._subscriptions.add(self, watch)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._active = False
        watches, self.watches = self.watches, {}
        for watch in watches:
            self._subscriptions.discard(self, watch)
        if self._event is not None:  # another task waits: a handle is being closed under it
            self._event.set()

    def add(self, watch: Watch) -> None:
        """Also wait for `watch`."""
        self.watches[watch] = None
        if self._active:
            self._subscriptions.add(self, watch)

    def discard(self, channel: Hashable) -> None:
        """Stop waiting for `channel`, if the subscription waits for it."""
        self._changed.discard(channel)
        for watch in [watch for watch in self.watches if watch.channel == channel]:
            del self.watches[watch]
            if self._active:
                self._subscriptions.discard(self, watch)

    def notify(self, channel: Hashable) -> None:
        """Record a change of `channel` and wake the waiting task. Called by `Subscriptions`."""
        self._changed.add(channel)
        if self._event is not None:
            self._event.set()

    async def wait(self, timeout_ms: int | None = None) -> frozenset[Hashable]:
        """Return the channels that changed since the previous wait; an empty set after `timeout_ms` without a change.

        Only one task at a time may wait on a subscription. A call always reaches a scheduling point. It returns too
        when the subscription ends. Raises Closed and DatabaseStopped.
        """
        assert self._active, "wait() belongs inside the subscription's `with` block"
        assert self._event is None, "another task waits on this subscription"
        if self._changed or self._subscriptions.refusal is not None:
            await anyio.lowlevel.checkpoint()
        else:
            self._event = anyio.Event()
            try:
                with anyio.move_on_after(None if timeout_ms is None else timeout_ms / 1000):
                    await self._event.wait()
            finally:
                self._event = None
        if (refusal := self._subscriptions.refusal) is not None:
            raise refusal()
        changed, self._changed = frozenset(self._changed), set()
        return changed


T = TypeVar("T")

WRITE_WAIT_MS_MAX: Final = 30_000
"""Default time that a write waits until it starts. A higher value reports a stopped process that holds the lock later;
a lower one makes writes fail during a long checkpoint on a slow disk."""


@attrs.frozen(kw_only=True)
class DatabaseTimeouts:
    """Times in ms of a database in a directory. Tests lower them."""

    format_wait_ms: int = FORMAT_WAIT_MS_MAX
    """How long opening waits for format.lock."""
    guard_wait_ms: int = 5_000
    """How long opening tries to guard a database that another program opens and closes all the time."""
    close_wait_ms: int = 5_000
    """How long closing waits for a writer that a stopped process blocks. After that a thread finishes the closing."""
    lock_warn_ms: int = 1_000
    """Waiting time for write.lock after which a warning names its holder."""
    poll_ms: int = 1_000
    """Pause between two reads of data_version. A higher value delays waiters longer after a lost notification; a lower
    one uses CPU while idle."""


class Durability(enum.StrEnum):
    """What an acknowledged write survives. A property of the directory, chosen when it is created."""

    FSYNC = "fsync"
    """Survives power loss: the log is synced before the acknowledgement."""
    OS = "os"
    """Survives the death of the process. After a power loss a consistent prefix remains."""


class FileWork(enum.Enum):
    """What needs the files of a directory."""

    BACKUP = "a backup", "use the server's tools, such as pg_dump"
    COMPACTION = "compaction", "the server's autovacuum does it"

    def __init__(self, what: str, on_server: str) -> None:
        """what: for messages. on_server: what to do instead there."""
        self.what = what
        self.on_server = on_server


class Database(ABC):
    """All state of one directory, or of one database in memory.

    Open it with `start_database` and others of that kind, or with `open_memory_database` for a block.
    """

    path: Path | None
    """The directory; None for a database in memory or on a server."""
    name: str
    """Names it to people: the directory, the address without a password, or ":memory:"."""
    clock: Clock
    faults: Faults
    durability: Durability
    instance_id: str
    """Identifies this opening among those of all processes."""
    peers: Peers
    """The openings of this database, this one included."""
    shared: SharedState
    """Objects in memory for this opening, by slot."""
    handles: OpenObjects
    """The writers, readers and running apps that are open on this database."""

    def __init__(
        self,
        *,
        path: Path | None,
        name: str | None = None,
        clock: Clock,
        faults: Faults,
        durability: Durability,
        instance_id: str,
        peers: Peers,
        shared: SharedState | None = None,
    ) -> None:
        """name: None (default): that of the path."""
        self.path = path
        self.name = str(path or ":memory:") if name is None else name
        self.clock = clock
        self.faults = faults
        self.durability = durability
        self.instance_id = instance_id
        self.peers = peers
        self.shared = SharedState() if shared is None else shared
        self.handles = OpenObjects()
        self._subscriptions = Subscriptions()
        self._refusal: Callable[[], BaseException] | None = None  # makes the error of every call

    @property
    def in_memory(self) -> bool:
        """Whether nothing of it is durable."""
        return self.name == ":memory:"

    def directory_for(self, work: FileWork) -> Path:
        """Return the directory. Raises NotSupported if there is none."""
        if self.path is not None:
            return self.path
        if self.in_memory:
            raise NotSupported(what=f"{work.what} in memory", remedy="open a directory")
        raise NotSupported(what=f"{work.what} of {self.name}", remedy=work.on_server)

    def verify_alone(self) -> None:
        """Raise DirectoryInUse if there are other openings."""
        if others := [each for each in self.peers.live() if each != self.instance_id]:
            pids = (self.peers.pid_of(each) for each in others)
            raise DirectoryInUse(path=self.name, pids=tuple(each for each in pids if each is not None))

    @abstractmethod
    async def write(
        self,
        fn: Callable[[Tx], T],
        *,
        size_bytes: int = 0,
        timeout_ms: int | None = None,
        brief: bool = False,
        step: Step | None = None,
        streams: Streams | None = None,
    ) -> T:
        """Run `fn` in a transaction, batched with other waiting writes, and return its result once it is durable.

        fn: must be re-runnable, short (a few milliseconds), and without side effects (use `Tx.after`). Its error is
        raised here after the commit of the batch; its changes are undone, those of other functions are kept.
        size_bytes: estimate of what it writes; counts towards the limit of a batch.
        timeout_ms: how long fn may wait until it starts. None (default): WRITE_WAIT_MS_MAX.
        brief: fn takes microseconds, so that it may run on the event loop if it waits alone and a commit need not wait
        for the disk. If it need, the event loop may wait for it, for at most 1 ms, instead of going to sleep.
        step: names the transaction for tests that inject faults. None (default): it has no name.
        streams: names of the streams to whose rows fn keeps (`CONCURRENT_TABLES` of the schema). A server may then
            commit it beside functions of other streams in other processes. None (default): it is committed alone.

        If the caller is cancelled or the time is over while fn waits, fn never runs. Once fn has started, the caller
        always waits for the result. A cancellation by anyio then still returns the result, so `Cancelled` means that
        fn did not run. asyncio's `task.cancel()` is raised after the commit: the result is lost, the effects are not.
        Raises LockHeld (not started in time), DiskFull (nothing changed), DatabaseStopped, Closed, ForkedError.
        Cost: one switch to the writer's thread and back, unless it is brief, and a share of one commit.
        """

    @abstractmethod
    async def read(self, fn: Callable[[Tx], T]) -> T:
        """Run `fn` on a snapshot that contains every write acknowledged before, and return its result.

        fn: cannot write, and must fetch its result completely, because no cursor outlives it.
        Raises what fn raises, Closed, ForkedError. Cost: one switch to a reader's thread and back.
        """

    @abstractmethod
    async def shorten(self) -> bool:
        """Cut the file to the length of the database; return whether it has that length.

        Only a checkpoint cuts it, which a long read may prevent. Call it after pages were returned to the file system,
        and again later if it returns False. Raises Closed, ForkedError, OSError.
        Cost: a switch to the writer's thread and back; a checkpoint if the file is longer.
        """

    @abstractmethod
    async def close(self) -> None:
        """Wait for started calls, then release everything; calls that wait for changes raise Closed.

        It must not be interrupted. A second call, or a call in a forked child, does nothing.
        """

    async def _reach_begun(self, step: Step) -> None:
        """Reach the first point of a step, and wait as the faults ask."""
        point = point_of(step, Moment.BEGUN)
        if delay_ms := self.faults.delay_ms(point):
            await anyio.sleep(delay_ms / 1000)
        self.faults.reach(point)

    async def _delay_result(self, step: Step) -> None:
        """Wait after the commit of a step as the faults ask. It is not interrupted."""
        if delay_ms := self.faults.delay_ms(point_of(step, Moment.COMMITTED)):
            with anyio.CancelScope(shield=True):
                await anyio.sleep(delay_ms / 1000)

    def fail(self, why: BaseException) -> None:
        """Refuse every later call, and end those that wait: a task that this opening depends on has failed."""
        if self._refusal is None:
            self._refuse(partial(self._failed, why))

    def _failed(self, why: BaseException) -> DatabaseStopped:
        error = DatabaseStopped(path=self.name, reason=f"a background task failed ({why!r})")
        error.__cause__ = why
        return error

    def _refuse(self, refusal: Callable[[], BaseException]) -> None:
        self._refusal = refusal
        self._subscriptions.stop(refusal)

    def subscribe(self, watches: Iterable[Watch] = ()) -> Subscription:
        """Return a context manager that waits for changes; see `Subscription`."""
        return Subscription(self._subscriptions, watches)

    def _publish(self, batch: CommitBatch) -> None:
        """Apply the effects of a durable batch and wake the subscriptions on its channels."""
        for effect in batch.tx.effects:
            try:
                effect()
            except Exception:
                LOG.exception("an effect of a committed write failed")
        self._subscriptions.wake(batch.tx.channels)


def cancellation_returns() -> bool:
    """Return whether a cancellation that was just caught is delivered again at the next scheduling point.

    True for every cancellation by anyio. False for asyncio's `task.cancel()`, which is delivered once: code that
    catches it must raise it again, else the task would never end.
    """
    return anyio.current_effective_deadline() == float("-inf")


INVALID_SQL: Final = frozenset(
    {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}
)
"""SQLite's codes for a statement that is not valid; others tell of the database."""


INVALID_STATES: Final = ("08P01", "22", "25", "42")
"""Classes of SQLSTATE for the same: of a wrong number of parameters, of data, of a read that would write, and of syntax
and names."""


def _is_invalid_sql(why: Exception) -> bool:
    if isinstance(why, sqlite3.Error):
        return getattr(why, "sqlite_errorcode", sqlite3.SQLITE_ERROR) in INVALID_SQL
    # Of an error of PostgreSQL, whose driver is not loaded for a directory.
    state = getattr(why, "sqlstate", None)
    # The last two are of the driver: an int of more than 64 bits, and half of a surrogate pair.
    is_of_driver = isinstance(why, (TypeError, OverflowError, UnicodeEncodeError))
    return is_of_driver or (state or "").startswith(INVALID_STATES)


async def query_app_tables(db: Database, sql: str, parameters: SqlParameters) -> list[tuple[SqlValue, ...]]:
    """Return all rows of a SELECT. Raises InvalidArgument and NotSupported."""
    check_str("SQL", sql)

    def select(tx: Tx) -> list[tuple[SqlValue, ...]]:
        try:
            with tx.user_sql():
                return tx.execute(sql, parameters).fetchall()
        except Exception as why:
            if not _is_invalid_sql(why):
                raise
            raise invalid_argument("SQL", sql, str(why)) from why

    return await db.read(select)
