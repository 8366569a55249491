"""What a writer sends together, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import anyio
import attrs

from eventproc.store.model.errors import EventprocError
from eventproc.store.segments import AppendResult
from eventproc.streams.lanes import Lane

P = TypeVar("P")


@attrs.frozen
class NewEvent(Generic[P]):
    """An event to be written, for `write_many`."""

    payload: P
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] | None = None


@attrs.define(eq=False)
class Send:
    """Events that leave together, and what became of them.

    sequence: chosen by the caller, None for the writer's own count. posted: some events were posted, so
    that nobody awaits them and a failure must be kept. appended: where they lie, empty when they had been
    appended before.
    """

    lanes: Sequence[Lane] = ()
    size_bytes: int = 0
    sequence: int | None = None
    posted: bool = False
    settled: bool = False
    error: EventprocError | None = None
    appended: tuple[AppendResult, ...] = ()
    _done: anyio.Event | None = None

    def settle(self, error: EventprocError | None) -> None:
        """Tell who waits: durable when `error` is None. Once; a second time changes nothing."""
        if not self.settled:
            self.settled = True
            self.error = error
            if self._done is not None:
                self._done.set()

    def done(self) -> anyio.Event:
        """Return what is set once the send is settled; made when first asked for, for often nobody waits."""
        if self._done is None:
            self._done = anyio.Event()
            if self.settled:
                self._done.set()
        return self._done

    async def wait(self) -> None:
        """Return when the events are durable. Raises what they failed for."""
        await self.done().wait()
        if self.error is not None:
            raise self.error
