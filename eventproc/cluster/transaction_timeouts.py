"""The host's timers: aborts transactions whose lease ended or whose process died.

The deadlines lie in the database, under an index. The host sleeps until the first one, at most LOOK_MS, and aborts
what has expired, by the version that it saw: a ping or a decision in the meantime wins. So pings need not reach the
host, the next host has the same knowledge, and a look costs the same for any number of open transactions. A transaction
that cannot be aborted, for instance because its record is damaged, is put aside for FAILED_MS, without the others.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final, TypeAlias

import anyio

from eventproc.cluster.background_steps import STOPPED
from eventproc.store.database import Database, Tx, Watch
from eventproc.store.faults import Step
from eventproc.store.model.errors import OwnerFenced, Retryable
from eventproc.store.ownership import Owner
from eventproc.store.transactions import (
    TXN_OPENED,
    ExpiredTxn,
    expired_txns,
    first_open,
    next_lease_end_ms,
)
from eventproc.workflows.abort_transactions import AbortTimer, time_out

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 1_000
"""Longest pause between two looks: no lease is shorter. Higher: transactions of dead processes stay open for longer."""

PAUSE_MS_MIN: Final = 100
"""Shortest pause: how late a transaction may be aborted, so that those that end together are aborted together."""

TIMERS_A_STEP: Final = 100
"""Transactions aborted in one database transaction."""

FAILED_MS: Final = 30_000
"""Pause until a transaction that could not be aborted is tried again."""

_Aside: TypeAlias = dict[tuple[int, str], int]
"""Transactions that could not be aborted, and when each is tried again, in monotonic ms."""

LEASE_ENDED: Final = "its lease ended"
PROCESS_DIED: Final = "its process ended"


async def watch_leases(db: Database, owner: Owner) -> None:
    """Abort expired transactions until cancelled. Raises OwnerFenced, DatabaseStopped."""
    aside: _Aside = {}
    with db.subscribe([Watch(TXN_OPENED, first_open)]) as changes:
        while True:
            _forget_past(aside, db.clock.monotonic_ms())  # tried again now, or ended by a person
            try:
                while expired := await db.read(partial(_due, db, aside)):
                    await _time_out(db, owner, expired, aside)
            except Retryable as why:
                LOG.warning("expired transactions will be aborted later: %s", why)
                await anyio.sleep(LOOK_MS / 1000)
            any_open, end_ms = await db.read(lambda tx: (first_open(tx), next_lease_end_ms(tx)))
            if any_open is not None:
                left_ms = LOOK_MS if end_ms is None or aside else end_ms - db.clock.monotonic_ms()
                await anyio.sleep(min(max(left_ms, PAUSE_MS_MIN), LOOK_MS) / 1000)
            else:
                await changes.wait()
                # By then most transactions have ended, and no lease has.
                await anyio.sleep(LOOK_MS / 2000)


async def _time_out(db: Database, owner: Owner, expired: list[ExpiredTxn], aside: _Aside) -> None:
    """Abort transactions, together if each can be aborted. Those that cannot be are logged and put aside."""
    step = partial(time_out, timers=[_timer(each) for each in expired], owner=owner)
    try:
        await db.write(step, step=Step.TRANSACTION_TIMEOUT)
    except (OwnerFenced, Retryable, *STOPPED):
        raise
    except Exception as why:
        if len(expired) > 1:
            for each in expired:
                await _time_out(db, owner, [each], aside)
            return
        (failed,) = expired
        LOG.error("transaction %s has expired, and is aborted later: %s", failed.txn, why)
        aside[failed.stream_id, failed.txn] = db.clock.monotonic_ms() + FAILED_MS


def _forget_past(aside: _Aside, now_ms: int) -> None:
    for key in [key for key, at_ms in aside.items() if at_ms <= now_ms]:
        del aside[key]


def _due(db: Database, aside: _Aside, tx: Tx) -> list[ExpiredTxn]:
    """Return what has expired, without what is aside."""
    found = _expired(db, tx, limit=TIMERS_A_STEP + len(aside))
    return [each for each in found if (each.stream_id, each.txn) not in aside]


def has_overdue(tx: Tx, db: Database) -> bool:
    """Return whether an open transaction has expired: its lease ended or its process died."""
    return bool(_expired(db, tx, limit=1))


def _expired(db: Database, tx: Tx, limit: int) -> list[ExpiredTxn]:
    return expired_txns(tx, db.peers.is_alive, limit=limit)


def _timer(expired: ExpiredTxn) -> AbortTimer:
    reason = LEASE_ENDED if expired.has_lease else PROCESS_DIED
    return AbortTimer(expired.stream_id, expired.txn, expired.version, reason)
