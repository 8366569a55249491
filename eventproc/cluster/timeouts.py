"""The host's timers: transactions whose lease ended, or whose process died, are aborted.

Once a second the host looks at all open transactions and arms the wheel with what it saw: deadline and version. A
timer that fires decides by that version: whoever pinged or decided meanwhile made it stale, and it does nothing. So
nothing has to be told to the host, and the next host knows as much as this one did.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import anyio

from eventproc.cluster.wheel import TimerWheel
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.database.instances import is_alive
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner
from eventproc.store.transactions import OPENED, OpenLease, open_leases
from eventproc.workflows.abort import Timer, time_out

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 1_000
"""Pause between two looks at what is open: no lease is shorter. Each look reads the open transactions, 2 us each."""

TIMERS_A_STEP: Final = 100
"""Timers decided in one transaction of the database."""

LEASE_ENDED: Final = "its lease ended"
PROCESS_DIED: Final = "its process ended"


async def watch_leases(db: Database, owner: Owner) -> None:
    """Abort transactions whose time is over, until cancelled. Raises OwnerFenced, DatabaseStopped."""
    wheel: TimerWheel[tuple[int, str], Timer] = TimerWheel(db.clock.monotonic_ms())
    looked_ms: int | None = None
    with db.subscribe([Watch(OPENED, first_open)]) as changes:
        while True:
            now_ms = db.clock.monotonic_ms()
            try:
                if looked_ms is None or now_ms - looked_ms >= LOOK_MS:
                    arm(wheel, await db.read(open_leases), db.clock.boot_id, now_ms, partial(_is_alive, db))
                    looked_ms = now_ms
                due = iter([timer for _, timer in wheel.take_due(db.clock.monotonic_ms())])
                while step := list(islice(due, TIMERS_A_STEP)):
                    await db.write(partial(time_out, timers=step, owner=owner))
            except Retryable as why:
                LOG.warning("transactions will be timed out later: %s", why)
                looked_ms = None
                await anyio.sleep(LOOK_MS / 1000)
            if len(wheel) or await db.read(first_open) is not None:
                await anyio.sleep(wheel.pause_ms(db.clock.monotonic_ms(), LOOK_MS) / 1000)
            else:
                await changes.wait()
                # Most are over by then; and no lease is.
                await anyio.sleep(LOOK_MS / 2000)
                looked_ms = None


def arm(
    wheel: TimerWheel[tuple[int, str], Timer],
    leases: Iterable[OpenLease],
    boot_id: str,
    now_ms: int,
    alive: Callable[[str], bool],
) -> None:
    """Let the wheel hold exactly the timers of these open transactions."""
    armed: set[tuple[int, str]] = set()
    for due_ms, timer in _timers(leases, boot_id, now_ms, alive):
        key = timer.stream_id, timer.txn
        armed.add(key)
        wheel.arm(key, due_ms, timer)
    wheel.keep(armed)


def _timers(
    leases: Iterable[OpenLease], boot_id: str, now_ms: int, alive: Callable[[str], bool]
) -> Iterator[tuple[int, Timer]]:
    """Yield when each of these open transactions is over, and the timer that then ends it; not those without end."""
    instances: dict[str, bool] = {}
    for lease in leases:
        if lease.until_ms is None:
            if lease.instance not in instances:
                instances[lease.instance] = alive(lease.instance)
            if instances[lease.instance]:
                continue
            due_ms, reason = now_ms, PROCESS_DIED
        else:
            due_ms, reason = lease.until_ms if lease.boot_id == boot_id else now_ms, LEASE_ENDED
        yield due_ms, Timer(lease.stream_id, lease.txn, lease.version, reason)


def has_overdue(tx: Tx, db: Database) -> bool:
    """Return whether a transaction is open whose lease ended, or whose process died. It reads every unfinished one."""
    now_ms = tx.monotonic_ms
    timers = _timers(open_leases(tx), db.clock.boot_id, now_ms, partial(_is_alive, db))
    return any(due_ms <= now_ms for due_ms, _ in timers)


def first_open(tx: Tx) -> tuple[int, str] | None:
    """Return which transaction is the first of those that are open, None if none is.

    Of those that begin after the last one ended, the first is another one: who watches this misses no beginning.
    """
    return next(((lease.stream_id, lease.txn) for lease in open_leases(tx, limit=1)), None)


def _is_alive(db: Database, instance: str) -> bool:
    # A database in memory ends with its one process.
    return db.path is None or is_alive(db.path, instance)
