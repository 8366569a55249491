"""A group reader's events for a thread beside the event loop: one hand-over a run of events, not one an event.

Everything that holds for iterating a reader holds here: asking for the next event finishes the previous one, and what
is in hand is never given away. The thread counts what it hands out in `Handing`, whose `count` is ahead of `done` from
the first event to the last, so that whoever looks from the loop never finds the reader idle between two events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic

from typing_extensions import TypeVar

from eventproc.groups.cursors import Handing
from eventproc.groups.follower import SAVE_EVENTS, Follower
from eventproc.groups.limits import Limits
from eventproc.groups.reader import GroupReader
from eventproc.store.model.cuts import StreamCut
from eventproc.store.segments import Event

P = TypeVar("P", default=bytes)


class Lent(Generic[P]):
    """A run in the hands of a thread. Made by `Lending.advance`, its first event being handed out."""

    def __init__(self, follower: Follower, handing: Handing, decode: Callable[[bytes], P] | None) -> None:
        self._follower = follower
        self._handing = handing
        self._decode = decode
        self._saved = 0

    def events(self, keep_up: Callable[[], bool]) -> Iterator[Event[P]]:
        """Yield the events; on the thread. keep_up: runs the method of that name on the loop."""
        handing = self._handing
        last = len(handing.run)
        for count, event in enumerate(handing.run.events(self._decode), start=1):
            yield event
            if count == last or self._must_keep_up(count):
                handing.done = count
                if count == last or not keep_up():
                    return
            else:
                handing.count = count + 1
                handing.done = count

    def _must_keep_up(self, count: int) -> bool:
        # Read from beside the loop, which is as good as having asked a moment earlier. What is finished already, by a
        # checkpoint, may have been given away since, or may be at this moment.
        follower, is_idle = self._follower, self._handing.done == count
        must_save = not follower.is_marked or count - self._saved >= SAVE_EVENTS
        return is_idle or must_save or follower.must_follow()

    async def keep_up(self) -> bool:
        """Follow the group and save between two events; on the loop. Return whether the next one is still due here."""
        follower, handing = self._follower, self._handing
        async with follower.turn:
            handing.settle()
            follower.mark()
            if follower.stale:
                await follower.follow()
            elif handing.done - self._saved >= SAVE_EVENTS:
                await follower.save(complete=False)
                self._saved = handing.done
            if handing not in follower.handing:  # its segment was lost, or given away
                return False
            handing.count += 1
            return True


class Lending(Generic[P]):
    """One iteration over a group reader that ends in another thread; its methods run on the loop."""

    def __init__(self, reader: GroupReader[P], until: StreamCut | Iterable[StreamCut] | None) -> None:
        self._reader = reader
        self._until = until
        self._begun = False
        self._limits: Limits | None = None

    async def advance(self) -> Lent[P] | None:
        """Finish the run before, and return the next one, waiting for it; None at the end. Raises as iterating does."""
        reader = self._reader
        if self._begun:
            reader._open.finish()
        else:
            self._limits = await reader._begin(self._until)
            self._begun = True
        if not await reader._advance(self._limits):
            return None
        follower = reader._open
        handing = follower.waiting.popleft()
        handing.count = 1
        follower.handing = [handing]
        return Lent(follower, handing, reader._decode)
