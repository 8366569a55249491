"""What a writer sends together, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import anyio
import attrs

from eventproc.store.model.errors import EventprocError
from eventproc.store.segments import Landed
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
    that nobody awaits them and a failure must be kept. landed: where they lie, empty when they had been
    appended before.
    """

    lanes: Sequence[Lane] = ()
    size_bytes: int = 0
    sequence: int | None = None
    posted: bool = False
    settled: bool = False
    error: EventprocError | None = None
    landed: tuple[Landed, ...] = ()
    _awaited: anyio.Event | None = None  # made when somebody waits

    def settle(self, error: EventprocError | None) -> None:
        """Tell who waits: durable when `error` is None. Once; a second time changes nothing."""
        if not self.settled:
            self.settled = True
            self.error = error
            if self._awaited is not None:
                self._awaited.set()

    async def ended(self) -> None:
        """Return when the send is settled, whatever became of it."""
        if self.settled:
            await anyio.lowlevel.checkpoint()
            return
        if self._awaited is None:
            self._awaited = anyio.Event()
        await self._awaited.wait()

    async def wait(self) -> None:
        """Return when the events are durable. Raises what they failed for."""
        await self.ended()
        if self.error is not None:
            raise self.error
