"""Shared objects without `await`: the methods of `StateSynchronizer`, one hand-over to the event loop each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from eventproc.blocking.loop import Loop
from eventproc.store.replicated import StateSynchronizer

S = TypeVar("S")
U = TypeVar("U")
R = TypeVar("R")


class BlockingStateSynchronizer(Generic[S, U]):
    """A member's copy of a shared object, usable from any thread. Made by `synchronizer`. See `StateSynchronizer`."""

    def __init__(self, loop: Loop, member: StateSynchronizer[S, U]) -> None:
        self._loop = loop
        self._member = member

    def __repr__(self) -> str:
        return f"Blocking{self._member!r}"

    @property
    def state(self) -> S:
        """The newest state that this member has read. See `StateSynchronizer.state`."""
        return self._member.state

    @property
    def revision(self) -> int:
        """The offset in the log up to which `state` includes all updates. See `StateSynchronizer.revision`."""
        return self._member.revision

    def fetch(self) -> S:
        """Read all updates so far, and return the state after them. See `StateSynchronizer.fetch`."""
        return self._loop.call(self._member.fetch)

    def wait_change(self) -> S:
        """Wait until there are updates behind `revision`. See `StateSynchronizer.wait_change`."""
        return self._loop.call(self._member.wait_change)

    def initialize(self, initial: S) -> S:
        """Give an empty log its first state. See `StateSynchronizer.initialize`."""
        return self._loop.call(self._member.initialize, initial)

    def update(self, generate: Callable[[S], Sequence[U]]) -> S:
        """Append the updates that `generate` returns; it runs on the event loop. See `StateSynchronizer.update`."""
        return self._loop.call(self._member.update, generate)

    def update_returning(self, generate: Callable[[S], tuple[Sequence[U], R]]) -> R:
        """Do as `update` does, and return a result. See `StateSynchronizer.update_returning`."""
        return self._loop.call(self._member.update_returning, generate)

    def compact(self) -> S:
        """Write a snapshot now. See `StateSynchronizer.compact`."""
        return self._loop.call(self._member.compact)
