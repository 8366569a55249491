"""The host: the one instance that runs the internal processors of a directory.

Authority is the row `owner('controller')`: who acts as the host compares its owner epoch in the
transaction of the act. `controller.lock` only decides who tries: every instance does, every 50 ms, and the
kernel frees the lock the moment its holder dies. A holder that is stopped, not dead, keeps the lock; when
its beat is older than BEAT_AGE_MS_MAX and requests or decided transactions wait, another instance raises the
owner epoch without the lock, and the sleeper wakes up fenced, gives the lock back and becomes a candidate.

It runs in the background of somebody's program and never ends it. What goes wrong while it serves is looked at
with the owner row at hand: a replaced host was fenced, however that showed (a sleeper finds the request stream
truncated behind it); any other failure costs it its place, and it tries again.

What dies where: before the claim, nothing happened. Between two steps of a workflow, the event is still
beyond the progress and the next host runs it; a step that was published is recognised by its request.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import anyio

from eventproc.cluster.beat import BeatFile
from eventproc.cluster.internal import serve_internal
from eventproc.cluster.sweeper import sweep
from eventproc.cluster.timeouts import has_overdue, watch_leases
from eventproc.store.database import Database, Tx
from eventproc.store.database.locks import TryLock
from eventproc.store.model.errors import Closed, DatabaseStopped, ForkedError, OwnerFenced, Retryable
from eventproc.store.ownership import Owner, claim, owner_epoch
from eventproc.store.requests import pending_requests
from eventproc.store.transactions import has_undone

LOG = logging.getLogger("eventproc.host")

CONTROLLER: Final = "controller"
"""Name of what the host owns."""

TRY_MS: Final = 50
"""Pause between two tries of the lock: the time without a host after one died. One system call a try."""

BEAT_MS: Final = 1_000
"""Pause between two signs of life, and between two looks at somebody else's."""

BEAT_AGE_MS_MAX: Final = 5_000
"""Age of a beat at which its host counts as stopped. Lower takes work from hosts that are merely slow,
which costs them their place and nobody anything else; higher lets requests wait."""

FAILED_PAUSE_MS: Final = 1_000
"""Pause of a host that failed before it is a candidate again: others come first, and a lasting failure is
not met in a busy loop."""

FENCED_PAUSE_MS: Final = 2 * BEAT_MS
"""Pause of a replaced host before it is a candidate again: its successor, who may serve without the lock,
looks for it once a beat and takes it meanwhile. Without it the place would go back and forth."""

assert BEAT_AGE_MS_MAX >= 3 * BEAT_MS, "a live host may miss two beats"


async def run_host(db: Database) -> None:
    """Be a candidate, and the host whenever it is this instance's turn, until cancelled or the database is gone."""
    reported, usable = "", True
    while usable:
        pause_ms = 0
        try:
            await _take_turn(db)
        except* OwnerFenced as fenced:
            LOG.info("no longer the host: %s", _first(fenced))
            pause_ms = FENCED_PAUSE_MS
        except* (DatabaseStopped, Closed, ForkedError) as gone:
            # Whoever uses this handle is told so by its next call; there is nothing left to host.
            LOG.error("no longer the host: %s", _first(gone))
            usable = False
        except* Exception as failure:
            text, pause_ms = repr(_first(failure)), FAILED_PAUSE_MS
            LOG.error(
                "the host failed and will try again: %s", text, exc_info=failure if text != reported else None
            )
            reported = text
        if pause_ms and usable:
            await anyio.sleep(pause_ms / 1000)


async def _take_turn(db: Database) -> None:
    """Wait for the turn and serve. Ends by an error only, the lock then given back."""
    if db.path is None:
        await _serve(db, None)
        return
    beat = BeatFile(db.path / "controller.beat", db.clock)
    lock = TryLock(db.path / "controller.lock")
    try:
        await _wait_turn(db, lock, beat)
        await _serve(db, partial(_keep_alive, db, lock, beat))
    finally:
        lock.close()


def _first(group: BaseException) -> BaseException:
    """Return the first error of a group of groups."""
    while isinstance(group, BaseExceptionGroup):
        group = group.exceptions[0]
    return group


async def _wait_turn(db: Database, lock: TryLock, beat: BeatFile) -> None:
    """Return when the lock is ours, or its holder is stopped while somebody waits for it."""
    looked_ms = db.clock.monotonic_ms()
    while not lock.try_acquire():
        await anyio.sleep(TRY_MS / 1000)
        now_ms = db.clock.monotonic_ms()
        if now_ms - looked_ms < BEAT_MS:
            continue
        looked_ms = now_ms
        age_ms = beat.age_ms()
        if (age_ms is None or age_ms > BEAT_AGE_MS_MAX) and await db.read(partial(_is_waited_for, db=db)):
            LOG.warning("the host gave no sign of life for %s ms; taking over", age_ms)
            return


def _is_waited_for(tx: Tx, db: Database) -> bool:
    return pending_requests(tx) > 0 or has_undone(tx) or has_overdue(tx, db)


async def _serve(db: Database, keep_alive: Callable[[Owner], Coroutine[Any, Any, None]] | None) -> None:
    """Claim, and run the internal processors until cancelled. Raises OwnerFenced whatever a replaced host met."""
    owner = await _claim(db)
    try:
        async with anyio.create_task_group() as tasks:
            if keep_alive is not None:
                tasks.start_soon(keep_alive, owner)
            tasks.start_soon(serve_internal, db, owner)
            tasks.start_soon(sweep, db, owner)
            tasks.start_soon(watch_leases, db, owner)
    except* Exception:
        await _verify_owner(db, owner)
        raise


async def _verify_owner(db: Database, owner: Owner) -> None:
    current = await db.read(lambda tx: owner_epoch(tx, owner.name))
    if current != owner.owner_epoch:
        raise OwnerFenced(what=owner.name, owner_epoch=owner.owner_epoch, current_epoch=current)


async def _claim(db: Database) -> Owner:
    while True:
        try:
            return await db.write(lambda tx: claim(tx, CONTROLLER, db.instance_id))
        except Retryable as why:
            LOG.warning("cannot become the host yet: %s", why)
            await anyio.sleep(BEAT_MS / 1000)


async def _keep_alive(db: Database, lock: TryLock, beat: BeatFile, owner: Owner) -> None:
    """Beat, unless a newer host does; take the lock when it becomes free, if we serve without it."""
    while True:
        newest = beat.read()
        if newest is not None and newest.owner_epoch > owner.owner_epoch:
            # Perhaps of an older database in this place: the row decides.
            await _verify_owner(db, owner)
        beat.write(owner.owner_epoch)
        lock.try_acquire()
        await anyio.sleep(BEAT_MS / 1000)
