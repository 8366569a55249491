"""Runs every ingestion supervisor that has something to do, at the owner of its bucket.

So the instances of a directory share the supervisors, and another one runs those of a dead instance as soon as it owns
their buckets. The epoch of the bucket's owner fences every decision. What a supervisor does then is imported with the
first one, because a directory without supervisors must not pay for it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio

from eventproc.cluster.background_steps import STOPPED, repeat_step
from eventproc.cluster.buckets import OWNED_BUCKETS, OwnedBuckets
from eventproc.store.database import Database, Subscription, Tx
from eventproc.store.model.errors import OwnerFenced, Retryable
from eventproc.store.model.limits import SET_BACK_MS
from eventproc.store.ownership import Owner
from eventproc.store.task_queue import WATCH_INGESTION, has_supervisors

LOG = logging.getLogger("eventproc.ingestion")

LIVENESS_MS: Final = 500
"""Pause between two looks at the workers of running tasks: how long a death goes unnoticed. A look costs some 10 us for
each worker."""

FAILED_MS: Final = 1_000
"""Pause after a failure that may pass, so that a lasting one does not keep a processor busy."""

LOOK_MS: Final = 10_000
"""Longest pause while a run is due later: wall clocks may jump. Higher: after a jump, runs are later."""


class _LastLook:
    """at_ms: when the supervisors were looked at last, wall clock. owners: what this instance owned then."""

    at_ms = 0
    owners: frozenset[Owner] = frozenset()


async def keep_supervisors(db: Database) -> None:
    """Run the supervisors of this instance's buckets until cancelled or closed.

    It never ends the user's program.
    """
    buckets = db.shared[OWNED_BUCKETS]
    with db.subscribe([WATCH_INGESTION]) as changes, buckets.notifying(changes):
        await repeat_step(
            partial(_run_due, db, buckets, changes, _LastLook()),
            partial(changes.wait, FAILED_MS),
            LOG,
            "the supervisors run again later",
            expected=(Retryable, OSError),
        )


async def _run_due(db: Database, buckets: OwnedBuckets, changes: Subscription, last: _LastLook) -> None:
    """Run the supervisors that have something to do, and wait until one has again."""
    if not await db.read(has_supervisors):
        await changes.wait()
        return
    owner_of, owners, now_ms = buckets.owner_of, frozenset(buckets.owned.values()), db.clock.wall_ms()
    is_set_back = now_ms < last.at_ms - SET_BACK_MS
    due = await db.read(partial(_due, db=db, everything=is_set_back, known=last.owners))
    ran = [await _run(db, owner_of, each) for each in due]
    last.at_ms, last.owners = now_ms, owners
    pause_ms = await db.read(partial(_pause_ms, owner_of=owner_of))
    if not all(ran):
        pause_ms = FAILED_MS if pause_ms is None else max(pause_ms, FAILED_MS)
    if pause_ms == 0:
        await anyio.lowlevel.checkpoint()
    else:
        await changes.wait(pause_ms)


async def _run(db: Database, owner_of: Callable[[str], Owner | None], supervisor: str) -> bool:
    """Run a supervisor, unless its bucket has moved; return whether it may run again immediately.

    A supervisor that fails stops no other one.
    """
    from eventproc.ingestion.loop import handle_next

    if (owner := owner_of(bucket_name(supervisor))) is not None:
        try:
            await handle_next(db, owner, supervisor, db.peers.is_alive)
        except OwnerFenced:
            LOG.info("supervisor %s: another instance runs it", supervisor)
            return False
        except (*STOPPED, Retryable, OSError):
            raise
        except Exception:
            LOG.exception("supervisor %s runs again later", supervisor)
            return False
    return True


def bucket_name(supervisor: str) -> str:
    """Return the name by which a supervisor has its bucket. A space is in no stream's name."""
    return f"supervisor {supervisor}"


def _due(tx: Tx, db: Database, *, everything: bool, known: frozenset[Owner]) -> list[str]:
    """Return the own supervisors with something to do: a notice, a time that has come, a worker that died.

    everything: all of the own ones. known: owners of buckets; of other buckets, those that ran later than now are
    returned, too: the clock was set back before this instance owned them.
    """
    from eventproc.store.ingestion.supervisors import last_runs, next_runs, running_workers

    runs = next_runs(tx).items()
    due = {supervisor for supervisor, worker in running_workers(tx) if not db.peers.is_alive(worker)}
    due |= {supervisor for supervisor, at_ms in runs if everything or at_ms <= tx.now_ms}
    owner_of = db.shared[OWNED_BUCKETS].owner_of
    owners = {each: owner for each, _ in runs if (owner := owner_of(bucket_name(each))) is not None}
    if not known.issuperset(owners.values()):
        due |= {each for each, at_ms in last_runs(tx).items() if at_ms > tx.now_ms + SET_BACK_MS}
    return sorted(due & owners.keys())


def _pause_ms(tx: Tx, owner_of: Callable[[str], Owner | None]) -> int | None:
    """Return when to look again: now if a notice waits, because a look handles one notice of each supervisor.

    None: only a change asks for it.
    """
    from eventproc.store.ingestion.supervisors import next_runs, running_workers

    own = {each: at_ms for each, at_ms in next_runs(tx).items() if owner_of(bucket_name(each)) is not None}
    if not own:
        return None
    is_running = not own.keys().isdisjoint(each for each, _ in running_workers(tx))
    return max(min(*own.values(), tx.now_ms + (LIVENESS_MS if is_running else LOOK_MS)) - tx.now_ms, 0)
