"""One member's view of a shared object: read it, change it by optimistic updates, wait for changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

import anyio

from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.replicated.change import append, append_entry, compact, initialize
from eventproc.store.replicated.fold import (
    FOLD_BYTES,
    STATE_CACHE,
    FoldedState,
    fold_step,
    fold_tail,
    newest,
    require,
)
from eventproc.store.replicated.kinds import ReplicatedType
from eventproc.store.replicated.log import LogId, watch_log

S = TypeVar("S")
U = TypeVar("U")
R = TypeVar("R")

OPTIMISTIC_ATTEMPTS_MAX: Final = 3
"""Runs of a generator on the event loop before it runs inside the transaction, where it cannot lose a race.

Without this limit two processes that update as fast as they can take the write lock in turns, and one of them loses
each time: 64 losses in a row were seen. Higher: more lost writes under contention. Lower: the generator holds the
write lock after fewer lost races."""


class StateSynchronizer(Generic[S, U]):
    """A member's copy of an object that several processes share. Made by `Eventproc.synchronizer`.

    The object's state is what `fold` makes of all updates in its log, so all members see the same states in the same
    order. A member that does nothing keeps the state it has and costs nothing. Several tasks may use one
    synchronizer; its updates wait for each other.

        stock = await ep.synchronizer("shop/stock", STOCK, initial=Stock())
        await stock.update(lambda state: [Sold("apple")] if state.count("apple") else [])
    """

    # Source: reference pravega.md 6.2.

    def __init__(
        self, db: Database, log: LogId, kind: ReplicatedType[S, U], *, fold_bytes: int = FOLD_BYTES
    ) -> None:
        """Make a member that has read nothing yet.

        log: made by `create_log`. kind: the same for all members. fold_bytes: bytes of entries folded in one read.
        """
        self._db = db
        self._log = log
        self._kind = kind
        self._fold_bytes = fold_bytes
        self._folded: FoldedState[S] | None = None
        self._updating = anyio.Lock()

    def __repr__(self) -> str:
        return f"StateSynchronizer({self._kind.name!r}, revision={self.revision})"

    @property
    def state(self) -> S:
        """The newest state that this member has read. Costs nothing; `fetch` reads newer updates.

        Raises:
            NotFound: the object has no state yet, or this member has not read one.
        """
        return require(self._folded, self._log).state

    @property
    def revision(self) -> int:
        """The offset in the log up to which `state` includes all updates; it only grows. 0: nothing was read."""
        return 0 if self._folded is None else self._folded.revision

    async def fetch(self) -> S:
        """Read all updates up to the end that the log has now, and return the state after them.

        Returns:
            The state, which is also in `state` afterwards.

        Raises:
            NotFound: the object was deleted, or has no first state.
            CorruptRecord: the log holds bytes that are no entry.

        Cost:
            One read, of the updates since `revision`. A member that has read nothing, or that missed two
            compactions, begins at the newest snapshot.
        """
        await self._read_on()
        return self.state

    async def wait_change(self) -> S:
        """Wait until the log has updates behind `revision`, and return the newest state.

        Returns immediately if there are such updates already.

        Raises:
            NotFound: the object was deleted, before or while this waits.

        Cost:
            Nothing while waiting.
        """
        before = self.revision
        with self._db.subscribe([watch_log(self._log)]) as changes:
            while True:
                await self._read_on()
                if self._folded is not None and self._folded.revision > before:
                    return self._folded.state
                await changes.wait()

    async def initialize(self, initial: S) -> S:
        """Give an empty log its first state. `Eventproc.synchronizer` does this already.

        Args:
            initial: the first state; ignored if the log has one.

        Returns:
            The first state, or the newest one if another member was first.

        Raises:
            NotFound: the object was deleted.
            InvalidArgument: the state is larger than 8 MiB, or is none of the type's.
        """
        write = partial(initialize, log=self._log, kind=self._kind, initial=initial)
        self._adopt(await self._db.write(write, step=Step.STATE_UPDATE))
        return self.state

    async def update(self, generate: Callable[[S], Sequence[U]]) -> S:
        """Append the updates that `generate` returns for the newest state, and return the state after them.

        All updates of one call are appended together, or none. Another member's update in between is a lost race:
        `generate` runs again on the state after it. After 3 lost races it runs inside the write transaction, on
        another thread, where no race is possible.

        Args:
            generate: called with a state, returns the updates to append; an empty sequence appends nothing. It must
                not have side effects, because it may run several times. The first run sees the newest state that
                this process has; call `fetch` before if it must see the newest of all.

        Returns:
            The state after the updates.

        Raises:
            NotFound: the object was deleted.
            InvalidArgument: the updates are larger than 8 MiB, or are none of the type's.
            Exception: whatever `generate` and `fold` raise. Nothing was appended then.

        Cost:
            One write for each attempt.
        """
        _, state = await self._update(lambda state: (generate(state), None))
        return state

    async def update_returning(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> R:
        """Do as `update` does, and return a result that `generate` computes.

        Args:
            generate: as for `update`, but returns (updates, result).

        Returns:
            The result of the last run of `generate`, the one whose updates were appended.

        Raises:
            NotFound: the object was deleted.
            InvalidArgument: the updates are larger than 8 MiB, or are none of the type's.
            Exception: whatever `generate` and `fold` raise. Nothing was appended then.
        """
        result, _ = await self._update(generate)
        return result

    async def compact(self) -> S:
        """Write a snapshot now. `update` writes one by itself after 64 KiB of updates, so this is seldom needed.

        Does nothing if no update came since the last snapshot.

        Returns:
            The state.

        Raises:
            NotFound: the object was deleted.
            InvalidArgument: the state is larger than 8 MiB.
        """
        self._adopt(
            await self._db.write(partial(compact, log=self._log, kind=self._kind), step=Step.STATE_COMPACT)
        )
        return self.state

    async def _update(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> tuple[R, S]:
        async with self._updating:
            self._adopt_cached()
            if self._folded is None:
                await self.fetch()
            for _ in range(OPTIMISTIC_ATTEMPTS_MAX):
                before = require(self._folded, self._log)
                generated, result = generate(before.state)
                if not (updates := tuple(generated or ())):  # it may be a generator, or None
                    return result, before.state
                appended, after = await self._append_at(before, updates)
                if appended:
                    return result, after.state
            return await self._update_within(generate)

    async def _append_at(self, before: FoldedState[S], updates: Sequence[U]) -> tuple[bool, FoldedState[S]]:
        """Append the updates if `before` is still the last state; return whether they were, and the last state."""
        entry = self._kind.encode_updates(updates)
        state = self._kind.fold_all(before.state, self._kind.read_updates(entry))

        def append_or_learn(tx: Tx) -> tuple[bool, FoldedState[S]]:
            last = require(fold_tail(tx, self._log, self._kind, known=before), self._log)
            if last.revision != before.revision:
                return (
                    False,
                    last,
                )  # the write that lost the race returns the newer state: no extra read is needed
            return True, append_entry(tx, self._log, self._kind, before, entry, state)

        appended, after = await self._db.write(append_or_learn, size_bytes=len(entry), step=Step.STATE_UPDATE)
        self._adopt(after)
        return appended, after

    async def _update_within(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> tuple[R, S]:
        known = self._folded

        def decide(tx: Tx) -> tuple[R, FoldedState[S]]:
            last = require(fold_tail(tx, self._log, self._kind, known=known), self._log)
            updates, result = generate(last.state)
            return result, append(tx, self._log, self._kind, tuple(updates or ()))

        result, after = await self._db.write(decide, step=Step.STATE_UPDATE)
        self._adopt(after)
        return result, after.state

    async def _read_on(self) -> None:
        self._adopt_cached()
        goal: int | None = None
        while goal is None or self.revision < goal:
            step = partial(
                fold_step, log=self._log, kind=self._kind, since=self._folded, bytes_max=self._fold_bytes
            )
            found, end = await self._db.read(step)
            goal = end if goal is None else goal
            self._adopt(found)

    def _adopt_cached(self) -> None:
        self._adopt(self._db.shared[STATE_CACHE].find((self._log, self._kind)))

    def _adopt(self, found: FoldedState[S] | None) -> None:
        """Keep `found` unless a newer state is known: a slower task must not move the state back."""
        if found is not None:
            self._folded = newest(found, self._folded)
