"""The host's timers: aborts transactions whose lease ended or whose process died.

Once a second the host reads all open transactions and arms the timer wheel with the deadline and version of each. A
timer that fires acts only if the transaction still has that version: a ping or a decision in the meantime makes the
timer stale. So pings need not reach the host, and the next host starts with the same knowledge.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final

import anyio

from eventproc.cluster.timer_wheel import TimerWheel
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.database.instances import is_alive
from eventproc.store.model.errors import Retryable
from eventproc.store.ownership import Owner
from eventproc.store.transactions import TXN_OPENED, OpenLease, open_leases
from eventproc.workflows.abort_transactions import AbortTimer, time_out

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 1_000
"""Pause between two reads of the open transactions: no lease is shorter. A read costs 2 us per transaction."""

TIMERS_A_STEP: Final = 100
"""Timers handled in one database transaction."""

LEASE_ENDED: Final = "its lease ended"
PROCESS_DIED: Final = "its process ended"


async def watch_leases(db: Database, owner: Owner) -> None:
    """Abort expired transactions until cancelled. Raises OwnerFenced, DatabaseStopped."""
    wheel: TimerWheel[tuple[int, str], AbortTimer] = TimerWheel(db.clock.monotonic_ms())
    looked_ms: int | None = None
    with db.subscribe([Watch(TXN_OPENED, first_open)]) as changes:
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
                LOG.warning("expired transactions will be aborted later: %s", why)
                looked_ms = None
                await anyio.sleep(LOOK_MS / 1000)
            if len(wheel) or await db.read(first_open) is not None:
                await anyio.sleep(wheel.pause_ms(db.clock.monotonic_ms(), LOOK_MS) / 1000)
            else:
                await changes.wait()
                # By then most transactions have ended, and no lease has.
                await anyio.sleep(LOOK_MS / 2000)
                looked_ms = None


def arm(
    wheel: TimerWheel[tuple[int, str], AbortTimer],
    leases: Iterable[OpenLease],
    boot_id: str,
    now_ms: int,
    alive: Callable[[str], bool],
) -> None:
    """Make the wheel hold exactly the timers of these open transactions."""
    armed: set[tuple[int, str]] = set()
    for due_ms, timer in _timers(leases, boot_id, now_ms, alive):
        key = timer.stream_id, timer.txn
        armed.add(key)
        wheel.arm(key, due_ms, timer)
    wheel.keep(armed)


def _timers(
    leases: Iterable[OpenLease], boot_id: str, now_ms: int, alive: Callable[[str], bool]
) -> Iterator[tuple[int, AbortTimer]]:
    """Yield the due time and the timer of each open transaction that has an end."""
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
        yield due_ms, AbortTimer(lease.stream_id, lease.txn, lease.version, reason)


def has_overdue(tx: Tx, db: Database) -> bool:
    """Return whether an open transaction has expired: its lease ended or its process died. Reads all open ones."""
    now_ms = tx.monotonic_ms
    timers = _timers(open_leases(tx), db.clock.boot_id, now_ms, partial(_is_alive, db))
    return any(due_ms <= now_ms for due_ms, _ in timers)


def first_open(tx: Tx) -> tuple[int, str] | None:
    """Return the first open transaction, or None if there is none.

    A transaction that begins after the last one ended has another id, so a watch of this value misses no beginning.
    """
    return next(((lease.stream_id, lease.txn) for lease in open_leases(tx, limit=1)), None)


def _is_alive(db: Database, instance: str) -> bool:
    # A database in memory ends with its one process.
    return db.path is None or is_alive(db.path, instance)
