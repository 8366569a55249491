"""Folding a log into a state: a bounded step of it for reads, all of it within a transaction, and what is kept.

What must be true: a state is that of its revision, whoever folded it; a revision that was truncated away is
gone on from at the newest snapshot, which is never behind the head; what is kept in memory is durable.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import partial
from typing import Any, Final, Generic, TypeVar

import attrs

from eventproc.store.database import PendingSlot, SharedSlot, Tx
from eventproc.store.model.errors import CorruptRecord, NotFound
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.replicated.kinds import ReplicatedType, SnapshotEntry
from eventproc.store.replicated.log import SEGMENT, LogId, get_log, log_name, tail
from eventproc.store.segments import READ_BYTES_MAX, flush_appends, read

S = TypeVar("S")
U = TypeVar("U")

FOLD_BYTES: Final = READ_BYTES_MAX
"""Bytes of entries folded in one step. An update of 100 bytes takes about 10 us; compaction keeps logs far below."""

STATES_CACHED_MAX: Final = 1024
"""States kept for all logs of a process. More saves reading from the newest snapshot on for who works on many
by turns; it is memory, as much as the states are large."""


@attrs.frozen
class FoldedState(Generic[S]):
    """A state, and what it follows from: all entries before `revision`.

    snapshot: offset at which the newest of the snapshots among them begins. base: the offset behind it.
    snapshot < base <= revision.
    """

    revision: int
    state: S
    snapshot: int
    base: int

    @property
    def since_bytes(self) -> int:
        """Bytes of updates since the newest snapshot."""
        return self.revision - self.base

    @property
    def snapshot_bytes(self) -> int:
        """Size of the newest snapshot, framed."""
        return self.base - self.snapshot


class StateCache:
    """Durable states by (log, kind), the newest of each; whoever changed least recently goes first.

    Changed on the event loop only, and in the order of the commits.
    """

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[LogId, object], FoldedState[Any]] = OrderedDict()

    def find(self, log: LogId, kind: ReplicatedType[S, U]) -> FoldedState[S] | None:
        """Return a state of the log, perhaps not its last. Also called on the writer's thread: one look-up."""
        return self._states.get((log, kind))

    def add(self, states: dict[tuple[LogId, object], FoldedState[Any]]) -> None:
        """Keep states that are durable now."""
        for key, state in states.items():
            self._states[key] = state
            self._states.move_to_end(key)
        while len(self._states) > STATES_CACHED_MAX:
            self._states.popitem(last=False)


STATE_CACHE: Final = SharedSlot(StateCache)


class UncommittedStates:
    """States that the functions of one group commit found or made; kept beyond it once they are durable.

    A group that is rolled back drops it, and with it every state that never was.
    """

    def __init__(self) -> None:
        self._states: dict[tuple[LogId, object], FoldedState[Any]] = {}

    @staticmethod
    def of(tx: Tx) -> UncommittedStates:
        """Return the one of this group."""
        return tx.pending[_UNCOMMITTED_STATES]

    def find(self, log: LogId, kind: ReplicatedType[S, U]) -> FoldedState[S] | None:
        """Return the newest state that this group knows of the log."""
        return self._states.get((log, kind))

    def put(self, log: LogId, kind: ReplicatedType[S, U], folded: FoldedState[S]) -> None:
        """Note the newest state of the log."""
        self._states[log, kind] = folded

    def flush(self, tx: Tx) -> None:
        """Keep the states, if this group becomes durable; the entries are written by others."""
        tx.after(partial(tx.shared[STATE_CACHE].add, self._states))


_UNCOMMITTED_STATES: Final = PendingSlot(UncommittedStates)


def newest(state: FoldedState[S], other: FoldedState[S] | None) -> FoldedState[S]:
    """Return the one with the later revision."""
    return state if other is None or other.revision <= state.revision else other


def fold_tail(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], *, known: FoldedState[S] | None = None
) -> FoldedState[S] | None:
    """Return the state after every entry of the log, this transaction's own included; None before `initialize`.

    known: a state to go on from, if it is the newest at hand. Raises NotFound (no such log), CorruptRecord.
    Cost in `db.write`: one look-up, as an append's, while nobody else has appended since this process did;
    else a read of the tail since. In `db.read`: from `known` on, else from the newest snapshot on.
    """
    end = tail(tx, log)
    group = UncommittedStates.of(tx)
    found = group.find(log, kind) or tx.shared[STATE_CACHE].find(log, kind)
    if known is not None:
        found = newest(known, found)
    if found is None or found.revision < end:
        flush_appends(tx, log)
        while end and (found is None or found.revision < end):
            found, _ = fold_step(tx, log, kind, found)
        if found is not None:
            group.put(log, kind, found)
    assert found is None or found.revision == end, f"log {log} ends at {end}, its state is of {found}"
    return found


def fold_step(
    tx: Tx, log: LogId, kind: ReplicatedType[S, U], since: FoldedState[S] | None
) -> tuple[FoldedState[S] | None, int]:
    """Fold at most FOLD_BYTES, give or take an extent, behind `since`, or from the newest snapshot on.

    Also from there when `since` was truncated away. Returns the state, None while there is none, and where the
    log ends. Raises NotFound, CorruptRecord.
    """
    begin = get_log(tx, log).value.snapshot if since is None else since.revision
    found = read(tx, log, {SEGMENT: (begin, None)}, bytes_max=FOLD_BYTES)
    state = found.states.get(SEGMENT)
    if state is None:
        raise NotFound(kind="log", name=str(log))
    if begin < state.head:
        if since is None:
            raise CorruptRecord(key=log_name(log), reason=f"its snapshot at {begin} was truncated")
        return fold_step(tx, log, kind, None)
    folded = since
    for run in found.runs:
        offset = run.start
        for payload in run.payloads:
            end = offset + FRAME_BYTES + len(payload)
            folded = _follow(kind, folded, log, offset, end, payload)
            offset = end
    return folded, state.tail


def _follow(
    kind: ReplicatedType[S, U],
    before: FoldedState[S] | None,
    log: LogId,
    offset: int,
    end: int,
    payload: bytes,
) -> FoldedState[S]:
    place = f"{log_name(log)} at {offset}"
    entry = kind.decode(place, payload)
    if isinstance(entry, SnapshotEntry):
        return FoldedState(end, entry.state, offset, end)
    if before is None:
        raise CorruptRecord(key=place, reason="it follows no snapshot")
    return attrs.evolve(before, revision=end, state=kind.fold_all(before.state, entry.updates))


def require(folded: FoldedState[S] | None, log: LogId) -> FoldedState[S]:
    """Return `folded`. Raises NotFound when the log was not initialized."""
    if folded is None:
        raise NotFound(kind="initial state of log", name=str(log))
    return folded
