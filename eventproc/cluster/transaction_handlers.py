"""The handlers of the commit stream and of the abort stream."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import anyio

from eventproc.processors.retry import retry_transient
from eventproc.store.catalog import ABORT_STREAM, COMMIT_STREAM, SystemStream, post_event
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import DatabaseStopped, Fenced
from eventproc.store.model.limits import ROUND_TRANSACTIONS
from eventproc.store.ownership import Owner
from eventproc.store.progress import EventRef, finish_event
from eventproc.store.segments import Event
from eventproc.store.transactions import (
    TXN_STEP_LIMITS,
    TxnNotice,
    TxnRecord,
    apply_preparation,
    count_preparation,
)
from eventproc.workflows import abort_transactions, commit_transactions

T = TypeVar("T")

LOG = logging.getLogger("eventproc.host")

ABORTS_IN_FLIGHT_MAX: Final = 20
"""Aborts in flight. Their steps share commits. Each costs a task."""

COMMITS_IN_FLIGHT_MAX: Final = 20
"""Streams whose commits run simultaneously; those of one stream run in order. Higher: more large commits until others
wait; lower: less memory, as each one that is being prepared holds about 3 MiB."""

FAILED_PAUSE_MS: Final = 1_000
"""Pause after an abort that failed unexpectedly: prevents a busy loop when the failure persists."""


async def run_commit(db: Database, owner: Owner, event: Event) -> None:
    """Commit the decided transactions of the stream that the notice names. Raises OwnerFenced, DatabaseStopped.

    After an unexpected error the transactions are committed one by one, up to the one that fails. The commits of that
    stream stop there; other streams are not affected. The sweep posts the notice again every 30 s, and
    `txn abort --force` gives the failing transaction up.
    """
    notice, ref = _heard(event, COMMIT_STREAM)
    try:
        await _commit(db, owner, notice, ref, ROUND_TRANSACTIONS)
    except (Fenced, DatabaseStopped):
        raise
    except Exception:
        try:
            await _commit(db, owner, notice, ref, 1)
        except (Fenced, DatabaseStopped):
            raise
        except Exception as error:
            aside = partial(
                commit_transactions.set_aside, notice=notice, event=ref, owner=owner, reason=repr(error)
            )
            if await _write(db, f"the commit of {notice.stream}", aside):
                LOG.exception(
                    "%s: a decided transaction cannot be committed, and the transactions after it wait. The commit is"
                    " retried every 30 s; `eventproc txn abort --force` gives the transaction up",
                    notice.stream,
                )


async def run_abort(db: Database, owner: Owner, event: Event) -> None:
    """Abort the transactions that the notice names. Raises OwnerFenced, DatabaseStopped."""
    notice, ref = _heard(event, ABORT_STREAM)
    try:
        await _abort(db, owner, notice, ref)
    except (Fenced, DatabaseStopped):
        raise
    except Exception:
        # It must neither block the other aborts nor be forgotten: its notice goes to the end of the queue.
        LOG.exception("an abort of %s failed and will be retried", notice.stream)
        await _write(db, "posting the notice again", partial(_ring_again, notice, ref, owner))
        await anyio.sleep(FAILED_PAUSE_MS / 1000)


def _heard(event: Event, stream: SystemStream) -> tuple[TxnNotice, EventRef]:
    return TxnNotice.decode(event.payload), EventRef.of(event, group=stream.name, stream_id=stream.stream_id)


async def _write(db: Database, what: str, step: Callable[[Tx], T], *, size_bytes: int = 0) -> T:
    """Run a step in a transaction, again while its error may pass. what: names it in the log."""
    write = partial(db.write, step, size_bytes=size_bytes, step=Step.HOST_PROGRESS)
    return await retry_transient(write, what, db.clock, LOG)


async def _commit(
    db: Database, owner: Owner, notice: TxnNotice, ref: EventRef, transactions_max: int
) -> None:
    run = partial(
        commit_transactions.run_round,
        notice=notice,
        event=ref,
        owner=owner,
        transactions_max=transactions_max,
    )
    while (done := await _write(db, f"the commit of {notice.stream}", run)).unprepared is not None:
        await _prepare(db, owner, done.unprepared, pack=done.pack)


async def _prepare(db: Database, owner: Owner, txn: TxnRecord, *, pack: bool) -> None:
    """Split and pack the staged events of a transaction for the current epoch, unless it was given up."""
    what = f"the preparation of transaction {txn.id}"
    if not await _write(db, what, owner.fencing(partial(count_preparation, txn=txn))):
        return
    next_seq: int | None = 0
    rows_max = db.shared[TXN_STEP_LIMITS].preparation_rows
    while next_seq is not None:
        planned = await db.read(
            partial(commit_transactions.plan_step, txn=txn, first_seq=next_seq, pack=pack, rows_max=rows_max)
        )
        if planned.replaced or planned.moved:
            take = owner.fencing(partial(apply_preparation, txn=txn, planned=planned))
            await _write(db, what, take, size_bytes=planned.size_bytes)
        next_seq = planned.next_seq


async def _abort(db: Database, owner: Owner, notice: TxnNotice, ref: EventRef) -> None:
    run = partial(abort_transactions.run_step, notice=notice, event=ref, owner=owner)
    while not await _write(db, f"an abort of {notice.stream}", run):
        pass


def _ring_again(notice: TxnNotice, ref: EventRef, owner: Owner, tx: Tx) -> None:
    owner.check(tx)
    post_event(tx, ABORT_STREAM, notice.stream, notice.encode())
    finish_event(tx, ref)
