"""The other openings of a store on a server: which live, which hold a lock, and the wake-ups between them.

One connection does this for an opening, on a thread of its own. It holds an advisory lock of the session as long as the
opening lives: when the process dies, or its machine is gone, the server releases the lock. It listens for the commits
of others, and tells them of ours (a NOTIFY inside of a transaction would serialize its commit with all others). Once a
second it reads which live, and the heartbeats. Calls of `ServerPeers` answer from what was read last, and never wait.

An opening counts as dead when three looks in a row did not show its lock: one whose connection broke has taken its lock
again by then, and one that is new has been seen. So a death is noticed two to three seconds later.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Final

import attrs
import psycopg

from eventproc.store.database.instances import Heartbeat, PeerHeartbeat, PeerLock, Peers
from eventproc.store.postgres.address import COMMIT, FORMAT, ServerAddress
from eventproc.store.postgres.clock import NOW_MS, ServerClock
from eventproc.store.postgres.connection import PostgresConnection, Raw, one_line
from eventproc.store.postgres.writer import verify_counts

LOG = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
"""Pause between two looks at the openings and their heartbeats. Higher: deaths show later; lower: more queries."""

MISSED_LOOKS: Final = 3
"""Looks in a row that did not show its lock after which an opening is dead. Higher: deaths show later; lower: one whose
connection broke counts as dead before it has another one (RECONNECT_S_MAX)."""

MISSED_MAX: Final = 10_000
"""Openings without a row that are remembered as missed. If more were asked for, all are forgotten, and those that are
asked for again count as alive for MISSED_LOOKS. Higher: more memory, 0.2 kB each; lower: deaths show later."""

FORGET_MS: Final = 24 * 3_600_000
"""How long the row of a dead opening is kept, in ms: an opening that cannot reach the server for longer cannot learn
the outcome of its last commit, and stops."""

RENEW_MS: Final = 3_600_000
"""How old the time in the row of a live opening may become, in ms. Higher: nearer to FORGET_MS, so that the row of one
that is connecting again could be removed; lower: more writes."""


@attrs.frozen
class View:
    """What one look has shown, by the id of the opening. pids: of all.

    live: those whose locks are held, or were held less than MISSED_LOOKS ago. missed: how many looks in a row have not
    shown the lock. commits: how often each other one has committed. beats: by name.
    """

    number: int
    live: frozenset[str]
    missed: Mapping[str, int]
    pids: Mapping[str, int]
    beats: Mapping[str, Heartbeat]
    commits: Mapping[str, int]


_NOTHING: Final = View(
    0, frozenset(), MappingProxyType({}), MappingProxyType({}), MappingProxyType({}), MappingProxyType({})
)

_LOOK: Final = f"""
SELECT o.id, o.pid, o.batch, o.at_ms, l.objid IS NOT NULL, {NOW_MS}
FROM opening o LEFT JOIN pg_locks l ON l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND ((l.classid::bigint << 32) | l.objid::bigint) = o.lock_key
"""


class PeerThread(threading.Thread):
    """The thread and the connection; see the module."""

    def __init__(
        self,
        address: ServerAddress,
        *,
        opening_id: str,
        clock: ServerClock,
        call: Callable[[Callable[[], None]], None],
    ) -> None:
        """call: calls a function on the event loop."""
        super().__init__(name="eventproc peers", daemon=True)
        self.view = _NOTHING
        self.held: set[str] = set()
        """Names of the locks that this opening holds. Only the thread changes it."""
        self._address = address
        self._opening_id = opening_id
        self._clock = clock
        self.on_commit: Callable[[], None] = lambda: None
        """Called on the event loop when another opening has committed."""
        self.on_failure: Callable[[BaseException], None] = lambda _: None
        """Called on the event loop when the thread ends by an error."""
        self._call = call
        self._ended = threading.Event()
        self._due_ms = 0  # of the next look, on this machine's clock
        self._channel = f"{address.schema}_commits"
        self._own_key: Final = address.lock_key(f"opening/{opening_id}")
        self._connection: PostgresConnection | None = None
        self._lock = threading.Lock()
        self._notify = False
        self._count = 0  # of the commits of this opening
        self._noticed = False
        self._beats: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._released: set[str] = set()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    # --- called from any thread ------------------------------------------------------------------

    def notify(self, count: int, *, others: bool) -> None:
        """Tell the other openings, if there are any, that this one has committed. count: how often by now."""
        self._count = count
        if others:
            self._notify = True
            self.wake()

    def want(self, name: str) -> None:
        """Try once to take a lock, soon."""
        with self._lock:
            self._released.discard(name)
            self._wanted.add(name)
        self.wake()

    def holds(self, name: str) -> bool:
        """Return whether this opening holds a lock, and will not release it soon."""
        with self._lock:
            return name in self.held and name not in self._released

    def release(self, name: str) -> None:
        """Release a lock, soon."""
        with self._lock:
            self._wanted.discard(name)
            self._released.add(name)
        self.wake()

    def beat(self, name: str, owner_epoch: int) -> None:
        """Write a heartbeat, soon."""
        with self._lock:
            self._beats[name] = owner_epoch
        self.wake()

    def wake(self) -> None:
        """Let the thread look at what is to be done."""
        with suppress(BlockingIOError, OSError):
            self._waker.send(b"\0")

    # --- on the thread -------------------------------------------------------------------------------

    def prepare(self, raw: Raw) -> None:
        """Prepare a new connection: it takes the lock of this opening, and listens.

        Until the server has noticed that an older connection is gone, that one holds the lock.
        """
        raw.add_notify_handler(self._on_notification)
        raw.execute(
            "SET synchronous_commit = off;"  # heartbeats and rows of openings need no sync
            f"SELECT pg_advisory_lock_shared({self._address.lock_key(FORMAT)});"
            f"SELECT pg_try_advisory_lock({self._own_key}); LISTEN {self._channel}".encode()
        )

    @property
    def _pg(self) -> PostgresConnection:
        assert self._connection is not None, "register() comes first"
        return self._connection

    def register(self, connect: Callable[[], PostgresConnection]) -> None:
        """Connect, insert the row of this opening, forget old ones, and look for the first time."""
        self._connection = connect()
        (now_ms,) = self._pg.execute(f"SELECT {NOW_MS}").fetchone()
        self._clock.measure(now_ms)
        self._pg.execute(
            "INSERT INTO opening (id, lock_key, pid, machine, at_ms) VALUES (?, ?, ?, ?, ?)",
            (self._opening_id, self._own_key, os.getpid(), socket.gethostname(), now_ms),
        )
        self._look()
        self._pg.run(f"BEGIN; SELECT pg_advisory_xact_lock({self._address.lock_key(COMMIT)})")
        for each in self.view.missed:
            self._pg.execute("DELETE FROM opening WHERE id = ? AND at_ms < ?", (each, now_ms - FORGET_MS))
            self._pg.execute("DELETE FROM beat WHERE name = ?", (f"instances/{each}",))
        self._pg.run("COMMIT")

    def run(self) -> None:
        """Do what is asked, and look each LOOK_MS, until the end."""
        try:
            while not self._ended.is_set():
                try:
                    self._do_turn()
                except (psycopg.Error, OSError) as why:
                    # The session may still hold locks; only its end releases all of them.
                    self.held = set()
                    if not self._ended.is_set():
                        self._connect_again(why)
        except BaseException as why:
            LOG.exception("%s: the thread of the peers stopped", self._address.name)
            self._pg.close()  # others see that this opening does not live
            self._call(partial(self.on_failure, why))

    def _do_turn(self) -> None:
        self._wait(max(self._due_ms - self._clock.machine.monotonic_ms(), 0))
        self._listen()
        self._do_asked()
        if self._clock.machine.monotonic_ms() >= self._due_ms:
            self._due_ms = self._clock.machine.monotonic_ms() + LOOK_MS
            before = self.view.commits
            self._look()
            # A notification may have been lost with a connection.
            self._noticed = self._noticed or self.view.commits != before
        if self._noticed:
            self._noticed = False
            self._call(self.on_commit)

    def _connect_again(self, why: Exception) -> None:
        LOG.warning("%s: the connection was lost (%s); connecting again", self._address.name, one_line(why))
        try:
            self._pg.connect_until(self._ended)
        except Exception as refused:
            LOG.error("%s: other openings take this one for dead (%s)", self._address.name, one_line(refused))
            self._ended.wait(LOOK_MS / 1000)

    def end(self) -> None:
        """End the thread if it was started, and leave the store: nothing of this opening commits any more."""
        self._ended.set()
        self.wake()
        if self.is_alive():
            self.join()
        self._leave()

    def _leave(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._pg.execute("DELETE FROM beat WHERE name = ?", (f"instances/{self._opening_id}",))
                self._pg.execute("DELETE FROM opening WHERE id = ?", (self._opening_id,))
            self._pg.close()
        self._woken.close()
        self._waker.close()

    def _wait(self, timeout_ms: int) -> None:
        if not self._notify:
            poll = select.poll()  # `select` refuses the descriptors of a process that has many
            for each in (self._pg.raw.fileno(), self._woken.fileno()):
                poll.register(each, select.POLLIN)
            poll.poll(timeout_ms)
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _listen(self) -> None:
        raw = self._pg.raw.pgconn
        raw.consume_input()
        while (found := raw.notifies()) is not None:
            self._note(found.extra.decode())

    def _on_notification(self, found: psycopg.Notify) -> None:
        """Receive a notification that came with the answer to a statement."""
        self._note(found.payload)

    def _note(self, opening_id: str) -> None:
        self._noticed = self._noticed or opening_id != self._opening_id

    def _do_asked(self) -> None:
        if self._notify:
            self._notify = False
            self._pg.run(f"NOTIFY {self._channel}, '{self._opening_id}'")
        with self._lock:
            wanted, self._wanted = self._wanted, set()
            released, self._released = self.held & self._released, set()
            self.held -= released
            beats, self._beats = self._beats, {}
        for name in sorted(released):
            self._pg.execute("SELECT pg_advisory_unlock(?)", (self._address.lock_key(f"lock/{name}"),))
        for name in sorted(wanted - self.held):
            (taken,) = self._pg.execute(
                "SELECT pg_try_advisory_lock(?)", (self._address.lock_key(f"lock/{name}"),)
            ).fetchone()
            if taken:
                self.held.add(name)
        now_ms = self._clock.monotonic_ms()
        for name, owner_epoch in beats.items():
            self._pg.execute(
                "INSERT INTO beat (name, owner_epoch, at_ms) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE SET"
                " owner_epoch = excluded.owner_epoch, at_ms = excluded.at_ms",
                (name, owner_epoch, now_ms),
            )

    def _look(self) -> None:
        before = self.view
        least = {**before.commits, self._opening_id: self._count}
        rows: list[tuple[str, int, int, int, bool, int]] = self._pg.execute(_LOOK).fetchall()
        beats: list[tuple[str, int, int]] = self._pg.execute(
            "SELECT name, owner_epoch, at_ms FROM beat"
        ).fetchall()
        verify_counts(least, {row[0]: row[2] for row in rows}, self._address.name)
        held = {row[0] for row in rows if row[4]}
        missed = {row[0]: before.missed.get(row[0], 0) + 1 for row in rows if not row[4]}
        still = {each for each in before.live if missed.get(each, MISSED_LOOKS) < MISSED_LOOKS}
        self.view = View(
            number=before.number + 1,
            live=frozenset(held | still),
            missed=MappingProxyType(missed),
            pids=MappingProxyType({row[0]: row[1] for row in rows}),
            beats=MappingProxyType(
                {name: Heartbeat(epoch, at_ms, self._clock.boot_id) for name, epoch, at_ms in beats}
            ),
            commits=MappingProxyType({row[0]: row[2] for row in rows if row[0] != self._opening_id}),
        )
        for opening_id, _, _, at_ms, _, now_ms in rows:
            if opening_id == self._opening_id:
                self._clock.measure(now_ms)
                self._keep_row(now_ms, at_ms)

    def _keep_row(self, now_ms: int, at_ms: int) -> None:
        """Take the lock of this opening if the session of a broken connection held it, and renew the row's time."""
        if self._opening_id in self.view.missed:
            self._pg.execute("SELECT pg_try_advisory_lock(?)", (self._own_key,))
        if now_ms - at_ms > RENEW_MS:
            self._pg.execute("UPDATE opening SET at_ms = ? WHERE id = ?", (now_ms, self._opening_id))


class ServerLock(PeerLock):
    """A lock of an opening on a server; see `PeerLock`. It is tried in the background: `held` tells a moment later."""

    def __init__(self, thread: PeerThread, name: str) -> None:
        self._thread = thread
        self._name = name

    @property
    def held(self) -> bool:
        """See `PeerLock.held`. False as soon as the connection is known to be lost."""
        return self._thread.holds(self._name)

    def try_acquire(self) -> bool:
        """See `PeerLock.try_acquire`. The first call returns False; a later one returns whether it was free."""
        if not self.held:
            self._thread.want(self._name)
        return self.held

    def release(self) -> None:
        """See `PeerLock.release`."""
        self._thread.release(self._name)


class ServerHeartbeat(PeerHeartbeat):
    """A heartbeat on a server; see `PeerHeartbeat`. Others see it when they look."""

    def __init__(self, thread: PeerThread, name: str, clock: ServerClock) -> None:
        super().__init__(clock)
        self._thread = thread
        self._name = name

    def write(self, owner_epoch: int) -> None:
        """See `PeerHeartbeat.write`."""
        self._thread.beat(self._name, owner_epoch)

    def read(self) -> Heartbeat | None:
        """See `PeerHeartbeat.read`."""
        return self._thread.view.beats.get(self._name)


class ServerPeers(Peers):
    """The openings of a store on a server, on all machines."""

    def __init__(self, thread: PeerThread, opening_id: str, clock: ServerClock) -> None:
        self._thread = thread
        self._opening_id = opening_id
        self._clock = clock
        self._missed: dict[str, int] = {}  # the view in which an opening without a row was first missed

    def is_alive(self, instance_id: str) -> bool:
        """See `Peers.is_alive`. It answers from what was read last: a dictionary lookup."""
        view = self._thread.view
        if instance_id == self._opening_id:
            return True
        if instance_id in view.pids:
            return view.missed.get(instance_id, 0) < MISSED_LOOKS
        if len(self._missed) > MISSED_MAX:
            self._missed.clear()
        return view.number - self._missed.setdefault(instance_id, view.number) < MISSED_LOOKS

    def live(self) -> list[str]:
        """See `Peers.live`."""
        return sorted({*self._thread.view.live, self._opening_id})

    def pid_of(self, instance_id: str) -> int | None:
        """See `Peers.pid_of`."""
        return os.getpid() if instance_id == self._opening_id else self._thread.view.pids.get(instance_id)

    def try_lock(self, name: str) -> ServerLock:
        """See `Peers.try_lock`."""
        return ServerLock(self._thread, name)

    def beat(self, name: str) -> ServerHeartbeat:
        """See `Peers.beat`."""
        return ServerHeartbeat(self._thread, name, self._clock)
