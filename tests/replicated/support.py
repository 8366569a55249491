"""A replicated object for the tests: a ledger of lines in the order in which they were written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import attrs

from eventproc.store.database import Database, Tx
from eventproc.store.replicated import (
    LogId,
    ReplicatedType,
    StateSynchronizer,
    append,
    compact,
    create_log,
    fold_tail,
    initialize,
)
from eventproc.store.replicated.fold import FOLD_BYTES
from eventproc.store.replicated.log import SEGMENT
from eventproc.store.segments import SegmentState, segment_state


@attrs.frozen
class Ledger:
    """The lines written so far; `pad` is as long as a test needs a snapshot to be."""

    lines: tuple[str, ...] = ()
    total: int = 0
    pad: str = ""


@attrs.frozen
class Write:
    """Write a line."""

    line: str
    pad: str = ""


@attrs.frozen
class Add:
    """Add to the total."""

    amount: int = 1


def fold(ledger: Ledger, update: Write | Add) -> Ledger:
    match update:
        case Write(line):
            return attrs.evolve(ledger, lines=(*ledger.lines, line))
        case Add(amount):
            return attrs.evolve(ledger, total=ledger.total + amount)


LEDGER = ReplicatedType[Ledger, Write | Add](
    name="ledger", state=Ledger, updates={"write": Write, "add": Add}, fold=fold
)

Member = StateSynchronizer[Ledger, Write | Add]
Generate = Callable[[Ledger], Sequence[Write | Add]]


def member(db: Database, log: LogId, *, fold_bytes: int = FOLD_BYTES) -> Member:
    return StateSynchronizer(db, log, LEDGER, fold_bytes=fold_bytes)


def stranger(db: Database, log: LogId, *, fold_bytes: int = FOLD_BYTES) -> Member:
    """Return a member that shares nothing in memory with the others, as if of another process."""
    return StateSynchronizer(db, log, attrs.evolve(LEDGER), fold_bytes=fold_bytes)


async def make_ledger(db: Database, initial: Ledger = Ledger()) -> LogId:
    def make(tx: Tx) -> LogId:
        log = create_log(tx)
        initialize(tx, log, LEDGER, initial)
        return log

    return await db.write(make)


def writing(*lines: str, pad: str = "") -> Generate:
    """Return a generator that writes the lines whatever the state."""
    return lambda _: [Write(line, pad) for line in lines]


def appending(log: LogId, *updates: Write | Add) -> Callable[[Tx], Ledger]:
    """Return an append, as a function of a transaction."""
    return lambda tx: append(tx, log, LEDGER, updates).state


def compacting(log: LogId) -> Callable[[Tx], object]:
    return partial(compact, log=log, kind=LEDGER)


def last_ledger(tx: Tx, log: LogId) -> Ledger:
    """Return the state within the transaction."""
    folded = fold_tail(tx, log, LEDGER)
    assert folded is not None, f"log {log} was not initialized"
    return folded.state


async def bounds(db: Database, log: LogId) -> tuple[int, int]:
    """Return where the readable part of the log begins and ends."""
    return await bounds_by(db.read, log)


async def bounds_by(
    read: Callable[[Callable[[Tx], SegmentState | None]], Awaitable[SegmentState | None]], log: LogId
) -> tuple[int, int]:
    state = await read(partial(segment_state, stream_id=log, segment=SEGMENT))
    assert state is not None, f"log {log} is gone"
    return state.head, state.tail
