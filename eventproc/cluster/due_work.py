"""What the host does when it is due: it appends delayed events to their streams, and writes marks of time.

It sleeps until the next time of each kind of work, or until a commit stores an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

import anyio
import attrs

from eventproc.cluster.background_steps import STOPPED, attempt
from eventproc.store.database import Database, Subscription, Tx, Watch
from eventproc.store.delayed_events import DUE_BYTES_A_STEP, WATCH, first_due_ms
from eventproc.store.due_looks import DUE_LOOKS, first_look_ms
from eventproc.store.faults import Step
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.ownership import Owner

LOG = logging.getLogger("eventproc.host")

LOOK_MS: Final = 10_000
"""Longest sleep while an event waits, in ms: wall clocks may jump. Higher: after a jump, events are later."""

FAILED_MS: Final = 1_000
"""Pause after a failure, in ms, such as a full disk."""


@attrs.frozen(kw_only=True)
class DueWork:
    """Work of the host that has a time.

    what: names it in the log. watch: notices that its next time is another one. first_ms: that time, wall clock; None
    without any. work: does a part of what is due, of `size_bytes` at most. step: for faults.
    """

    what: str
    watch: Watch
    first_ms: Callable[[Tx], int | None]
    work: Callable[[Tx], object]
    step: Step
    size_bytes: int = 0


def _write_marks(tx: Tx) -> None:
    from eventproc.store.marks import write_due_marks  # few programs need it

    for stream, why in write_due_marks(tx).items():
        tx.after(partial(LOG.error, "the marks of time of %s are not written: %s", stream, why))


def _append_delayed(tx: Tx) -> None:
    from eventproc.streams.delayed_events import append_due  # few programs need it

    append_due(tx)


DUE_WORK: Final = (
    DueWork(
        what="delayed events",
        watch=WATCH,
        first_ms=first_due_ms,
        work=_append_delayed,
        step=Step.DELAYED_DELIVERY,
        size_bytes=DUE_BYTES_A_STEP,
    ),
    DueWork(
        what="marks of time",
        watch=DUE_LOOKS,
        first_ms=first_look_ms,
        work=_write_marks,
        step=Step.HOST_SWEEP,
    ),
)


async def do_when_due(db: Database, owner: Owner, due: DueWork) -> None:
    """Do work of one kind whenever it is due, until cancelled. Raises OwnerFenced, DatabaseStopped.

    A failure, such as a record that cannot be decoded, is logged, and stops no other work of the host.
    """
    with db.subscribe([due.watch]) as changes:
        step = partial(_wait_and_do, db, owner.fencing(due.work), due, changes)
        failure, fatal = f"{due.what} will be written later", (OwnerFenced, *STOPPED)
        while True:
            if not await attempt(step, LOG, failure, fatal=fatal):
                await anyio.sleep(FAILED_MS / 1000)


async def _wait_and_do(
    db: Database, work: Callable[[Tx], object], due: DueWork, changes: Subscription
) -> None:
    at_ms, now_ms = await db.read(lambda tx: (due.first_ms(tx), tx.now_ms))
    if at_ms is None:
        await changes.wait()
    elif at_ms > now_ms:
        await changes.wait(min(at_ms - now_ms, LOOK_MS))
    else:
        await db.write(work, size_bytes=due.size_bytes, step=due.step)
