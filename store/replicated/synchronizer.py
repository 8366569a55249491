"""A replicated object as a member sees it: read it, change it by optimistic updates, wait for its changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import anyio

from eventproc.store.database import Database, Tx
from eventproc.store.replicated.change import append, append_entry, compact, initialize
from eventproc.store.replicated.fold import STATE_CACHE, FoldedState, fold_step, fold_tail, newest, require
from eventproc.store.replicated.kinds import ReplicatedType
from eventproc.store.replicated.log import LogId, watch_log

S = TypeVar("S")
U = TypeVar("U")
R = TypeVar("R")

OPTIMISTIC_ATTEMPTS_MAX: Final = 3
"""Runs of a generator on the event loop before it is run within the transaction, where it cannot lose.

Without that end two processes that update as fast as they can take the write lock by turns, and one of them loses
each time: 64 losses in a row were seen. Higher: more lost writes under contention; lower: the first decision that
meets another's holds the lock of all writers while it is made."""


class StateSynchronizer(Generic[S, U]):
    """One member's copy of a replicated object. Any number of members, of any processes, share a log.

    The object's state is the fold of all updates in its log, so that everybody sees the same states in the same
    order. A member that does nothing keeps its state and costs nothing. Several tasks may use one synchronizer;
    its updates wait for each other. Source: reference pravega.md 6.2.

        accounts = StateSynchronizer(db, log, ACCOUNTS)
        await accounts.initialize(Accounts())
        await accounts.update(lambda state: [] if "a" in state.names else [Open("a")])
    """

    def __init__(self, db: Database, log: LogId, kind: ReplicatedType[S, U]) -> None:
        """Make a member that has read nothing yet. log: made by `create_log`. kind: the same for all members."""
        self._db = db
        self._log = log
        self._kind = kind
        self._folded: FoldedState[S] | None = None
        self._updating = anyio.Lock()

    @property
    def state(self) -> S | None:
        """The state as this member knows it; None before the first `fetch`, `initialize` or `update`."""
        return None if self._folded is None else self._folded.state

    @property
    def revision(self) -> int:
        """How much of the log `state` follows from, as an offset in it; it only grows. 0: nothing."""
        return 0 if self._folded is None else self._folded.revision

    async def fetch(self) -> S | None:
        """Read on to where the log ends at the time of the call, and return the state; None: not initialized.

        Raises NotFound (no such log), CorruptRecord. Cost: a read, of the entries since `revision` only; from
        the newest snapshot on if this member never read, or was left behind by two compactions.
        """
        self._adopt_cached()
        goal: int | None = None
        while True:
            step = partial(fold_step, log=self._log, kind=self._kind, since=self._folded)
            found, end = await self._db.read(step)
            goal = end if goal is None else goal
            self._adopt(found)
            if self.revision >= goal:
                return self.state

    async def wait_change(self) -> S:
        """Return once the log has gone beyond `revision`, with the newest state; at once if it has already.

        Raises NotFound, also when the log is deleted meanwhile. Cost while waiting: none.
        """
        before = self.revision
        with self._db.subscribe([watch_log(self._log)]) as changes:
            while True:
                await self.fetch()
                if self._folded is not None and self._folded.revision > before:
                    return self._folded.state
                await changes.wait()

    async def initialize(self, initial: S) -> S:
        """Give an empty log its first state; return the state, which is another's if that came first.

        Raises NotFound (no such log), InvalidArgument (too large).
        """
        write = partial(initialize, log=self._log, kind=self._kind, initial=initial)
        self._adopt(await self._db.write(write))
        return require(self._folded, self._log).state

    async def update(self, generate: Callable[[S], Sequence[U]]) -> S:
        """Append what `generate` returns for the newest state, and return the state after it.

        generate: pure, for it may run several times, each time on a newer state: first on the newest that this
        process knows (fetch before, to begin with the newest of all), then, if somebody was faster, on the one behind
        that; after OPTIMISTIC_ATTEMPTS_MAX losses within a transaction, on another thread, where nobody is faster.
        Empty: there is nothing to do for that state; nothing is written. All it returns is appended, or nothing.

        Raises what `generate` and `fold` raise, NotFound (no such log, or not initialized), InvalidArgument (too
        large); then nothing was appended. What `Database.write` raises is not tried again. Cost: one write an attempt.
        """
        _, state = await self._update(lambda state: (generate(state), None))
        return state

    async def update_returning(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> R:
        """Do as `update` does with the updates of (updates, result), and return the result of the last run."""
        result, _ = await self._update(generate)
        return result

    async def compact(self) -> S:
        """Write a snapshot now, and return the state. `update` does it by itself when it is worth it.

        Nothing happens if no update came since the last one. Raises NotFound (no such log, or not initialized).
        """
        self._adopt(await self._db.write(partial(compact, log=self._log, kind=self._kind)))
        return require(self._folded, self._log).state

    async def _update(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> tuple[R, S]:
        async with self._updating:
            self._adopt_cached()
            if self._folded is None:
                await self.fetch()
            for _ in range(OPTIMISTIC_ATTEMPTS_MAX):
                before = require(self._folded, self._log)
                updates, result = generate(before.state)
                if not updates:
                    return result, before.state
                appended, after = await self._append_at(before, updates)
                if appended:
                    return result, after.state
            return await self._update_within(generate)

    async def _append_at(self, before: FoldedState[S], updates: Sequence[U]) -> tuple[bool, FoldedState[S]]:
        """Append the updates if `before` is still the last state. Return whether, and what the last state is then."""
        entry = self._kind.encode_updates(updates)
        state = self._kind.fold_all(before.state, updates)

        def append_or_learn(tx: Tx) -> tuple[bool, FoldedState[S]]:
            last = require(fold_tail(tx, self._log, self._kind, known=before), self._log)
            if last.revision != before.revision:
                return False, last  # the loser learns here what it lost to: no second crossing for a read
            return True, append_entry(tx, self._log, self._kind, before, entry, state)

        appended, after = await self._db.write(append_or_learn, size_bytes=len(entry))
        self._adopt(after)
        return appended, after

    async def _update_within(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> tuple[R, S]:
        known = self._folded

        def decide(tx: Tx) -> tuple[R, FoldedState[S]]:
            last = require(fold_tail(tx, self._log, self._kind, known=known), self._log)
            updates, result = generate(last.state)
            return result, append(tx, self._log, self._kind, updates)

        result, after = await self._db.write(decide)
        self._adopt(after)
        return result, after.state

    def _adopt_cached(self) -> None:
        self._adopt(self._db.shared[STATE_CACHE].find(self._log, self._kind))

    def _adopt(self, found: FoldedState[S] | None) -> None:
        """Know `found`, unless something newer is known: a slower task must not take the state back."""
        if found is not None:
            self._folded = newest(found, self._folded)
