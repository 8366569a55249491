"""The other openings of a store on a server: which live, which hold a lock, and the wake-ups between them.

One connection does this for an opening, on a thread of its own. It holds an advisory lock of the session as long as the
opening lives: when the process dies, or its machine is gone, the server releases the lock. It listens for the commits
of others, and tells them of ours (a NOTIFY inside of a transaction would serialize its commit with all others). Once a
second it reads which live, and the heartbeats. Calls of `ServerPeers` answer from what was read last, and never wait.

An opening counts as dead when two views in a row did not show its lock: one whose connection broke has taken its lock
again by then, and one that is new has been seen. A death is so noticed two seconds late, never wrongly while the server
is reached.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

import attrs
import psycopg

from eventproc.store.database.instances import Heartbeat, Peers, age_of
from eventproc.store.postgres.address import COMMIT, FORMAT, ServerAddress
from eventproc.store.postgres.clock import ServerClock
from eventproc.store.postgres.connection import PostgresConnection, is_lost, one_line
from eventproc.store.postgres.writer import NOW_MS

LOG = logging.getLogger(__name__)

LOOK_MS: Final = 1_000
"""Pause between two looks at the openings and their heartbeats. Higher: deaths show later; lower: more queries."""

MISSED_LOOKS: Final = 2
"""Views in a row without its lock after which an opening is dead."""

FORGET_MS: Final = 24 * 3_600_000
"""How long the row of a dead opening is kept, in ms: an opening that cannot reach the server for longer cannot learn
the outcome of its last commit, and stops."""


@attrs.frozen
class View:
    """What one look has shown, by the id of the opening. live: the pids of those whose locks are held.

    pids: of all. commits: how often each other one has committed. beats: by name.
    """

    number: int
    live: Mapping[str, int]
    pids: Mapping[str, int]
    beats: Mapping[str, Heartbeat]
    commits: Mapping[str, int]


_NOTHING: Final = View(
    0, MappingProxyType({}), MappingProxyType({}), MappingProxyType({}), MappingProxyType({})
)

_LOOK: Final = """
SELECT o.id, o.pid, o.batch, l.objid IS NOT NULL
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
        self._call = call
        self._ended = threading.Event()
        self._channel = f"{address.schema}_commits"
        self._own_key: Final = address.lock_key(f"opening/{opening_id}")
        self._connection: PostgresConnection | None = None
        self._lock = threading.Lock()
        self._notify = False
        self._beats: dict[str, int] = {}
        self._wanted: set[str] = set()
        self._released: set[str] = set()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)

    # --- called from any thread ------------------------------------------------------------------

    def notify(self) -> None:
        """Tell the other openings that this one has committed."""
        self._notify = True
        self.wake()

    def want(self, name: str) -> None:
        """Try once to take a lock, soon."""
        with self._lock:
            self._wanted.add(name)
        self.wake()

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

    @property
    def setting(self) -> str:
        """Statements for each new connection: they take the lock of this opening, and listen.

        Until the server has noticed that an older connection is gone, that one holds the lock.
        """
        return (
            "SET synchronous_commit = off;"  # heartbeats and rows of openings need no sync
            f"SELECT pg_advisory_lock_shared({self._address.lock_key(FORMAT)});"
            f"SELECT pg_try_advisory_lock({self._own_key}); LISTEN {self._channel}"
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
        for each in self.view.pids.keys() - self.view.live.keys():
            self._pg.execute("DELETE FROM opening WHERE id = ? AND at_ms < ?", (each, now_ms - FORGET_MS))
            self._pg.execute("DELETE FROM beat WHERE name = ?", (f"instances/{each}",))
        self._pg.run("COMMIT")

    def run(self) -> None:
        """Do what is asked, and look each LOOK_MS, until the end."""
        due_ms = 0
        while not self._ended.is_set():
            try:
                self._wait(max(due_ms - self._clock.monotonic_ms(), 0))
                self._listen()
                self._do_asked()
                if self._clock.monotonic_ms() >= due_ms:
                    due_ms = self._clock.monotonic_ms() + LOOK_MS
                    before = self.view.commits
                    if not self._is_seen:
                        self._pg.execute("SELECT pg_try_advisory_lock(?)", (self._own_key,))
                    self._look()
                    if self.view.commits != before:
                        self._call(self.on_commit)  # a notification may have been lost with a connection
            except (psycopg.Error, OSError, ValueError) as why:
                self.held = set()
                if self._ended.is_set():
                    break
                LOG.warning(
                    "%s: the connection was lost (%s); connecting again", self._address.name, one_line(why)
                )
                if not isinstance(why, psycopg.Error) or is_lost(why) or self._pg.raw.closed:
                    self._connect_again()
        self._leave()

    def _connect_again(self) -> None:
        try:
            self._pg.connect_until(self._ended)
        except Exception as why:
            LOG.error("%s: other openings take this one for dead (%s)", self._address.name, one_line(why))
            self._ended.wait(LOOK_MS / 1000)

    def end(self) -> None:
        """End the thread if it was started, and leave the store: nothing of this opening commits any more."""
        self._ended.set()
        self.wake()
        if self.is_alive():
            self.join()
        else:
            self._leave()

    def _leave(self) -> None:
        if self._connection is not None:
            with suppress(psycopg.Error, OSError):
                self._pg.execute("DELETE FROM beat WHERE name = ?", (f"instances/{self._opening_id}",))
                self._pg.execute("DELETE FROM opening WHERE id = ?", (self._opening_id,))
            self._pg.close()
        self._woken.close()
        self._waker.close()

    @property
    def _is_seen(self) -> bool:
        return self.view.number == 0 or self._opening_id in self.view.live

    def _wait(self, timeout_ms: int) -> None:
        if not self._notify:
            select.select([self._pg.raw.fileno(), self._woken.fileno()], [], [], timeout_ms / 1000)
        with suppress(BlockingIOError):
            self._woken.recv(4096)

    def _listen(self) -> None:
        raw = self._pg.raw.pgconn
        raw.consume_input()
        noticed = False
        while (found := raw.notifies()) is not None:
            noticed = noticed or found.extra.decode() != self._opening_id
        if noticed:
            self._call(self.on_commit)

    def _do_asked(self) -> None:
        if self._notify:
            self._notify = False
            self._pg.run(f"NOTIFY {self._channel}, '{self._opening_id}'")
        with self._lock:
            wanted, self._wanted = self._wanted, set()
            released, self._released = self._released, set()
            beats, self._beats = self._beats, {}
        for name in sorted(released & self.held):
            self._pg.execute("SELECT pg_advisory_unlock(?)", (self._address.lock_key(f"lock/{name}"),))
            self.held.discard(name)
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
        rows: list[tuple[str, int, int, bool]] = self._pg.execute(_LOOK).fetchall()
        beats: list[tuple[str, int, int]] = self._pg.execute(
            "SELECT name, owner_epoch, at_ms FROM beat"
        ).fetchall()
        self.view = View(
            number=self.view.number + 1,
            live=MappingProxyType({each: pid for each, pid, _, held in sorted(rows) if held}),
            pids=MappingProxyType({each: pid for each, pid, _, _ in rows}),
            beats=MappingProxyType(
                {name: Heartbeat(epoch, at_ms, self._clock.boot_id) for name, epoch, at_ms in beats}
            ),
            commits=MappingProxyType({each: n for each, _, n, _ in rows if each != self._opening_id}),
        )


class ServerLock:
    """A lock of an opening on a server; see `PeerLock`. It is tried in the background: `held` tells a moment later."""

    def __init__(self, thread: PeerThread, name: str) -> None:
        self._thread = thread
        self._name = name

    @property
    def held(self) -> bool:
        """See `PeerLock.held`. False as soon as the connection is known to be lost."""
        return self._name in self._thread.held

    def try_acquire(self) -> bool:
        """See `PeerLock.try_acquire`. The first call returns False; a later one returns whether it was free."""
        if not self.held:
            self._thread.want(self._name)
        return self.held

    def release(self) -> None:
        """See `PeerLock.release`."""
        self._thread.release(self._name)

    def close(self) -> None:
        """See `PeerLock.close`."""
        self.release()


class ServerHeartbeat:
    """A heartbeat on a server; see `PeerHeartbeat`. Others see it when they look."""

    def __init__(self, thread: PeerThread, name: str, clock: ServerClock) -> None:
        self._thread = thread
        self._name = name
        self._clock = clock

    def write(self, owner_epoch: int) -> None:
        """See `PeerHeartbeat.write`."""
        self._thread.beat(self._name, owner_epoch)

    def read(self) -> Heartbeat | None:
        """See `PeerHeartbeat.read`."""
        return self._thread.view.beats.get(self._name)

    def age_ms(self) -> int | None:
        """See `PeerHeartbeat.age_ms`."""
        return age_of(self.read(), self._clock)


class ServerPeers(Peers):
    """The openings of a store on a server, on all machines."""

    def __init__(self, thread: PeerThread, opening_id: str, clock: ServerClock) -> None:
        self._thread = thread
        self._opening_id = opening_id
        self._clock = clock
        self._missed: dict[str, int] = {}  # the view in which an opening was first missed

    @property
    def alone(self) -> bool:
        """See `Peers.alone`. Another process may come and go at any time."""
        return False

    def is_alive(self, instance_id: str) -> bool:
        """See `Peers.is_alive`. It answers from what was read last: a dictionary lookup."""
        view = self._thread.view
        if instance_id in view.live or instance_id == self._opening_id:
            self._missed.pop(instance_id, None)
            return True
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

    def beat_of(self, instance_id: str) -> ServerHeartbeat:
        """See `Peers.beat_of`."""
        return self.beat(f"instances/{instance_id}")
