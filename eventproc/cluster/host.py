"""The host: the one instance that runs the internal processors of a directory.

Authority is the row `owner('controller')`: every transaction of the host compares its owner epoch with that row.
`controller.lock` only decides which instance tries to become the host. Every instance tries the lock every 50 ms, and
the kernel releases it when its holder dies. A suspended holder keeps the lock. If its heartbeat is older than
`HostTimings.heartbeat_age_ms_max` while requests or decided transactions are pending, or if it exceeded the deadline
of owners (`owner_watch`), another instance raises the owner epoch without the lock. The suspended host is then fenced
when it resumes: it releases the lock and becomes a candidate again.

The host runs in the background of a user's program and never ends that program. After any failure it first compares
the owner row. If the epoch has changed, the host was fenced, whatever error it met (for instance, a request stream
that the new host has truncated). Any other failure ends this turn, and the instance becomes a candidate again.

Crash windows: before the claim nothing has happened. Between two steps of a workflow, the event is still beyond the
progress, so the next host runs it. A step that was committed is recognised by its request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio
import attrs

from eventproc.base.tasks import first_leaf
from eventproc.cluster.buckets import BUCKETS
from eventproc.cluster.due_work import DUE_WORK, do_when_due
from eventproc.cluster.failover import sweep_dead_instances
from eventproc.cluster.internal_processors import run_internal_processors
from eventproc.cluster.owner_watch import OWNER_WATCH, working
from eventproc.cluster.sweeper import sweep
from eventproc.cluster.transaction_timeouts import has_overdue, watch_leases
from eventproc.store.database import Database, Tx
from eventproc.store.database.instances import PeerHeartbeat, PeerLock
from eventproc.store.delayed_events import first_due_ms
from eventproc.store.faults import Step
from eventproc.store.model.errors import Closed, DatabaseStopped, ForkedError, OwnerFenced, Retryable
from eventproc.store.ownership import Owner, claim, find_owner, owner_epoch
from eventproc.store.requests import pending_requests
from eventproc.store.transactions import has_unfinished

LOG = logging.getLogger("eventproc.host")

CONTROLLER: Final = "controller"
"""Name of the owner row that the host claims, and of its lock and its heartbeat."""


@attrs.frozen(kw_only=True)
class HostTimings:
    """The pauses of a candidate and of a host, in ms.

    try_lock_ms: pause between two tries of the lock. It is the time without a host after a death; a try costs one
    system call.
    heartbeat_ms: pause between two heartbeats, and between two looks at another host's heartbeat.
    heartbeat_age_ms_max: age at which the holder of the lock counts as suspended. A lower value replaces hosts that
    are merely slow, which is safe but costs a takeover. A higher value lets requests wait longer.
    failed_pause_ms: pause after a failure. It lets other candidates go first and prevents a busy loop when a failure
    persists.
    fenced_pause_ms: pause after the host was fenced. The successor may serve without the lock and takes it during
    this pause; without the pause two instances would replace each other in turn.
    """

    try_lock_ms: int = 50
    heartbeat_ms: int = 1_000
    heartbeat_age_ms_max: int = 5_000
    failed_pause_ms: int = 1_000
    fenced_pause_ms: int = 2_000


TIMINGS: Final = HostTimings()

assert TIMINGS.heartbeat_age_ms_max >= 3 * TIMINGS.heartbeat_ms, "a live host may miss two heartbeats"
assert TIMINGS.fenced_pause_ms >= 2 * TIMINGS.heartbeat_ms, "the successor tries the lock once per heartbeat"

RunProcessors = Callable[[Database, Owner], Coroutine[Any, Any, None]]


async def run_host(
    db: Database,
    *,
    timings: HostTimings = TIMINGS,
    run_processors: RunProcessors = run_internal_processors,
) -> None:
    """Be a candidate, and the host whenever elected, until cancelled or until the database is closed.

    timings, run_processors: replaced by tests.
    """
    reported, usable = "", True
    while usable:
        pause_ms = 0
        try:
            await _wait_and_serve(db, timings, run_processors)
        except* OwnerFenced as fenced:
            LOG.info("no longer the host: %s", first_leaf(fenced))
            pause_ms = timings.fenced_pause_ms
        except* (DatabaseStopped, Closed, ForkedError) as stopped:
            # The next call on this handle raises the same error to its user. There is nothing left to host.
            LOG.error("no longer the host: %s", first_leaf(stopped))
            usable = False
        except* Exception as failure:
            text, pause_ms = repr(first_leaf(failure)), timings.failed_pause_ms
            LOG.error(
                "the host failed and will try again: %s", text, exc_info=failure if text != reported else None
            )
            reported = text
        if pause_ms and usable:
            await anyio.sleep(pause_ms / 1000)


async def _wait_and_serve(db: Database, timings: HostTimings, run_processors: RunProcessors) -> None:
    """Wait until elected, then serve. Ends only by an error, and releases the lock then."""
    heartbeat, lock = db.peers.beat(CONTROLLER), db.peers.try_lock(CONTROLLER)
    try:
        await _wait_until_elected(db, timings, lock, heartbeat)
        await _serve(db, timings, run_processors, partial(_keep_alive, db, timings, lock, heartbeat))
    finally:
        lock.close()


async def _wait_until_elected(
    db: Database, timings: HostTimings, lock: PeerLock, heartbeat: PeerHeartbeat
) -> None:
    """Return once this instance holds the lock, or once its holder is suspended: soon while work is pending."""
    looked_ms = db.clock.monotonic_ms()
    while not lock.try_acquire():
        await anyio.sleep(timings.try_lock_ms / 1000)
        now_ms = db.clock.monotonic_ms()
        if now_ms - looked_ms < timings.heartbeat_ms:
            continue
        looked_ms = now_ms
        age_ms = heartbeat.age_ms()
        is_old = age_ms is None or age_ms > timings.heartbeat_age_ms_max
        if is_old and await db.read(partial(_may_replace_host, db=db)):
            LOG.warning("the host has written no heartbeat for %s ms; taking over", age_ms)
            return


def _may_replace_host(tx: Tx, db: Database) -> bool:
    """Return whether work waits for the host, or its time is over: what has no deadline, such as sweeps, waits too."""
    host = find_owner(tx, CONTROLLER)
    is_silent = host is not None and db.shared[OWNER_WATCH].is_silent(db.peers, host.instance)
    due_ms = first_due_ms(tx)
    is_due = due_ms is not None and due_ms <= tx.now_ms
    return is_silent or is_due or pending_requests(tx) > 0 or has_unfinished(tx) or has_overdue(tx, db)


async def _serve(
    db: Database,
    timings: HostTimings,
    run_processors: RunProcessors,
    keep_alive: Callable[[Owner], Coroutine[Any, Any, None]],
) -> None:
    """Claim the host's row and run the internal processors until cancelled.

    Raises OwnerFenced if this host was replaced, whatever error it met then.
    """
    owner = await _claim(db, timings)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep_alive, owner)
            tasks.start_soon(run_processors, db, owner)
            tasks.start_soon(sweep, db, owner)
            tasks.start_soon(sweep_dead_instances, db, owner)
            tasks.start_soon(watch_leases, db, owner)
            for each in DUE_WORK:
                tasks.start_soon(do_when_due, db, owner, each)
    except* Exception:
        await _verify_owner(db, owner)
        raise


async def _verify_owner(db: Database, owner: Owner) -> None:
    current = await db.read(lambda tx: owner_epoch(tx, owner.name))
    if current != owner.owner_epoch:
        raise OwnerFenced(what=owner.name, owner_epoch=owner.owner_epoch, current_epoch=current)


async def _claim(db: Database, timings: HostTimings) -> Owner:
    while True:
        try:
            db.shared[OWNER_WATCH].beat(db)
            return await db.write(partial(_become_host, db=db), step=Step.HOST_CLAIM)
        except Retryable as why:
            LOG.warning("cannot become the host yet: %s", why)
            await anyio.sleep(timings.heartbeat_ms / 1000)


def _become_host(tx: Tx, db: Database) -> Owner:
    """Claim the host's row, and take part in the periodic work: a directory with a host has workers."""
    BUCKETS.divide(tx, working(db), joining=db.instance_id)
    return claim(tx, CONTROLLER, db.instance_id)


async def _keep_alive(
    db: Database, timings: HostTimings, lock: PeerLock, heartbeat: PeerHeartbeat, owner: Owner
) -> None:
    """Write heartbeats unless a newer host does. A host that serves without the lock takes it when it is free."""
    while True:
        newest = heartbeat.read()
        if newest is not None and newest.owner_epoch > owner.owner_epoch:
            # The file may be left over from an older database in the same place: the row decides.
            await _verify_owner(db, owner)
        heartbeat.write(owner.owner_epoch)
        lock.try_acquire()
        await anyio.sleep(timings.heartbeat_ms / 1000)
