"""A group reader's events for a thread beside the event loop: one hand-over a run of events, not one an event.

Everything that holds for iterating a reader holds here: asking for the next event finishes the previous one, and what
is in hand is never given away. The thread counts what it hands out in `InFlight`, whose `count` is ahead of `done` from
the first event to the last, so that whoever looks from the loop never finds the reader idle between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from typing_extensions import TypeVar

from eventproc.groups.cursors import InFlight
from eventproc.groups.limits import StopOffsets
from eventproc.groups.reader import GroupReader
from eventproc.groups.session import SAVE_EVENTS, ReaderSession
from eventproc.store.model.cuts import StreamCut
from eventproc.store.segments import Event

P = TypeVar("P", default=bytes)


class ThreadBatch(Generic[P]):
    """A run in the hands of a thread. Made by `ThreadIteration.advance`, its first event being handed out."""

    def __init__(
        self, session: ReaderSession, in_flight: InFlight, decode: Callable[[bytes], P] | None
    ) -> None:
        self._session = session
        self._in_flight = in_flight
        self._decode = decode
        self._saved = 0

    def events(self, keep_up: Callable[[], bool]) -> Iterator[Event[P]]:
        """Yield the events; on the thread. keep_up: runs the method of that name on the loop."""
        in_flight = self._in_flight
        last = len(in_flight.run)
        for count, event in enumerate(in_flight.run.events(self._decode), start=1):
            yield event
            if count == last or self._must_keep_up(count):
                in_flight.done = count
                if count == last or not keep_up():
                    return
            else:
                in_flight.count = count + 1
                in_flight.done = count

    def _must_keep_up(self, count: int) -> bool:
        # Read from beside the loop, which is as good as having asked a moment earlier. What is finished already, by a
        # checkpoint, may have been given away since, or may be at this moment.
        session, is_idle = self._session, self._in_flight.done == count
        must_save = not session.is_marked or count - self._saved >= SAVE_EVENTS
        return is_idle or must_save or session.must_follow()

    async def keep_up(self) -> bool:
        """Follow the group and save between two events; on the loop. Return whether the next one is still due here."""
        session, in_flight = self._session, self._in_flight
        async with session.turn:
            in_flight.settle()
            session.mark()
            if session.stale:
                await session.follow()
            elif in_flight.done - self._saved >= SAVE_EVENTS:
                await session.save(complete=False)
                self._saved = in_flight.done
            if in_flight not in session.in_flight:  # its segment was lost, or given away
                return False
            in_flight.count += 1
            return True


class ThreadIteration(Generic[P]):
    """One iteration over a group reader that ends in another thread; its methods run on the loop."""

    def __init__(self, reader: GroupReader[P], until: StreamCut | Iterable[StreamCut] | None) -> None:
        self._reader = reader
        self._until = until
        self._begun = False
        self._limits: StopOffsets | None = None

    async def advance(self) -> ThreadBatch[P] | None:
        """Finish the run before, and return the next one, waiting for it; None at the end. Raises as iterating does."""
        reader = self._reader
        if self._begun:
            reader._open.finish()
        else:
            self._limits = await reader._begin(self._until)
            self._begun = True
        if not await reader._advance(self._limits):
            return None
        session = reader._open
        in_flight = session.waiting.popleft()
        in_flight.count = 1
        session.in_flight = [in_flight]
        return ThreadBatch(session, in_flight, reader._decode)
