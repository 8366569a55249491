"""The host's failover sweeps: what dead instances held of groups and share groups is free again, also if nobody looks.

Members of a group look at each other, and a consumer of a share group waits for the locks of the others. If all of them
died, nobody is left to look. So the host looks once a second at the instances that hold something, also at those that
lived for less than that, and sweeps what a dead one held. Each step is a transaction of one group, and repeatable: a
second run finds nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias

import anyio

from eventproc.groups.liveness import dead_instances_of_groups, deadline_left_ms, expire_silent
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import GROUP, SHARE, delete_member, lock_instances, online_members
from eventproc.store.model.errors import DatabaseStopped, EventprocError, Fenced, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.records import find

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 1_000
"""Pause between two looks at what instances hold: one read of two queries, and about 10 us for each instance. Higher:
what a dead one held stays longer."""

_Sweep: TypeAlias = Callable[[Tx], "int | None"]
"""One step. It returns in how many ms the group is to be swept again; None if there is nothing left."""


async def sweep_dead_instances(db: Database, owner: Owner) -> None:
    """Sweep now, and after each death, until cancelled. Raises OwnerFenced, DatabaseStopped.

    It writes only if a dead instance holds something. A dead static member keeps its segments until its time is over,
    so a group is swept again only then, or when another instance of it has died.
    """
    swept: dict[str, frozenset[str]] = {}
    due: dict[str, int] = {}
    while True:
        try:
            held, locked = await db.read(partial(_held_by_dead, db=db))
            for group, dead in held.items():
                if swept.get(group) != dead:
                    await _sweep_group(db, owner, group, due)
            swept = held
            for group in locked:
                await _sweep_share_group(db, owner, group)
            now_ms = db.clock.monotonic_ms()
            for group in [name for name, at_ms in due.items() if at_ms <= now_ms]:
                await _sweep_group(db, owner, group, due)
        except Retryable as why:
            LOG.warning("what dead instances held will be freed later: %s", why)
        await anyio.sleep(LOOK_MS / 1000)


def _held_by_dead(tx: Tx, db: Database) -> tuple[dict[str, frozenset[str]], list[str]]:
    """Return the groups with dead members and their instances, and the share groups with locks of dead instances."""
    return dead_instances_of_groups(tx, db), _groups_with_dead_locks(tx, db)


async def _sweep_group(db: Database, owner: Owner, group: str, due: dict[str, int]) -> None:
    """Expire the dead members of a group. due: gets the monotonic time at which a static member ends."""
    left_ms = await _run(db, group, partial(_expire, db=db, owner=owner, group=group))
    due.pop(group, None)
    if left_ms is not None:
        due[group] = db.clock.monotonic_ms() + max(left_ms, LOOK_MS)


def _expire(tx: Tx, db: Database, owner: Owner, group: str) -> int | None:
    owner.check(tx)
    found = find(tx, GROUP, group)
    if found is None:
        return None
    if found.value.kind == SHARE:  # of a worker, whose processes own nothing
        for reader, instance, _, _ in online_members(tx, group):
            if not db.peers.is_alive(instance):
                delete_member(tx, group, reader)
        return None
    state = expire_silent(tx, db, group)
    return deadline_left_ms(state, found.value.options, tx.monotonic_ms)


async def _sweep_share_group(db: Database, owner: Owner, group: str) -> None:
    """End the locks of dead consumers of a share group: their events are delivered again, or archived."""
    while await _run(db, group, partial(_end_locks, db=db, owner=owner, group=group)) is not None:
        await anyio.lowlevel.checkpoint()


def _groups_with_dead_locks(tx: Tx, db: Database) -> list[str]:
    """Return the share groups of which a dead instance holds locks, sorted. One query, 7 us for each instance."""
    locks = lock_instances(tx)
    dead = {each for each in {instance for _, instance in locks} if not db.peers.is_alive(each)}
    return sorted({group for group, instance in locks if instance in dead})


def _end_locks(tx: Tx, db: Database, owner: Owner, group: str) -> int | None:
    from eventproc.shares.delivery import (
        end_dead_locks,
    )  # a directory without share groups does not pay for it

    owner.check(tx)
    return 0 if end_dead_locks(tx, db, group) else None


async def _run(db: Database, group: str, step: _Sweep) -> int | None:
    """Run a step. A group that cannot be swept is logged, and must not keep the host from the others."""
    try:
        return await db.write(step, step=Step.HOST_FAILOVER)
    except (Fenced, DatabaseStopped, Retryable):
        raise
    except EventprocError as why:
        LOG.warning("%s: what dead instances held is not free yet: %s", group, why)
        return None
