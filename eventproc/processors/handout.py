"""What was read of a cell and is not handed out yet.

Events are made as they are handed out: each costs more than its part of the columns that were read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice, repeat

from eventproc.processors.cell import Cell
from eventproc.processors.lanes import Item
from eventproc.store.segments import EventRun


class Handout:
    """Runs of one cell, in order; used by its feed alone. The last one begun is a chunk of the cell."""

    def __init__(self, cell: Cell, runs: Iterable[EventRun]) -> None:
        self._cell = cell
        self._runs = deque(runs)
        self._end = self._runs[-1].end
        self._items: Iterator[Item] = iter(())
        self._begun = 0  # events of that chunk that are to be handed out

    @property
    def is_over(self) -> bool:
        """Whether all of it was handed out."""
        return not self._runs and not self._begun

    @property
    def bytes_left(self) -> int:
        """Bytes, as stored, of the runs that are not begun."""
        return self._end - self._cell.offset

    @property
    def unfinished(self) -> int:
        """Events of the cell that were handed out and are not finished. O(chunks)."""
        return self._cell.unfinished - self._begun

    def take(self, events_max: int) -> list[Item]:
        """Hand out what comes next, at most so many events; none that are finished already."""
        taken: list[Item] = []
        while True:
            before = len(taken)
            taken += islice(self._items, events_max - before)
            self._begun -= len(taken) - before
            if len(taken) == events_max or not self._runs:
                return taken
            self._begin(self._runs.popleft())

    def _begin(self, run: EventRun) -> None:
        chunk = self._cell.add(run)
        self._begun = chunk.remaining
        self._items = zip(run.events(), repeat(chunk), strict=False)
        if chunk.remaining < chunk.count:
            self._items = iter([item for item in self._items if not chunk.is_finished(item[0].number)])
