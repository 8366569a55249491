"""Reading on in the owned segments of a processor, and handing out what was read."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from itertools import islice, repeat
from types import TracebackType
from typing import Final

from eventproc.groups import SegmentKey
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.owned_segment import OwnedSegment
from eventproc.processors.engine.work import PUT_EVENTS, Work
from eventproc.processors.options import OnTruncated
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import EventRun, SegmentState, segment_state
from eventproc.streams.fetch import Fetched, Limit, StreamFetcher, watch_stream


class ReadAhead:
    """Runs of one cell, in order; used by its feed alone. The last one begun is a chunk of the cell."""

    def __init__(self, cell: OwnedSegment, runs: Iterable[EventRun]) -> None:
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


LOG = logging.getLogger("eventproc.processors")

FEED_BYTES_MAX: Final = 16 * 2**20
"""Bytes of events, as stored, that all cells of a processor hold unfinished before it reads on. One read brings
up to 4 MiB more. Where calls are stuck in so many segments that they hold all of it, those that hold nothing are read
on nevertheless while workers have nothing to do: 4 MiB at most for each that gets stuck too."""


class SegmentFetcher:
    """What was read and not handed out yet; used in `with`, by one task.

    truncated: events that were gone before they could be read. is_short: at the last `fill` some cell had no room, for
    more to be read or for what was read.
    """

    def __init__(
        self,
        db: Database,
        cells: Mapping[SegmentKey, OwnedSegment],
        on_truncated: OnTruncated,
        work: Work,
    ) -> None:
        """cells: those to read; the caller adds and removes. work: what is handed out goes there."""
        self._db = db
        self._cells = cells
        self._on_truncated = on_truncated
        self._work = work
        self._open = ExitStack()
        self._pullers: dict[int, StreamFetcher] = {}
        self._handouts: dict[OwnedSegment, ReadAhead] = {}
        self.changes = db.subscribe()
        self.truncated = 0
        self.is_short = False

    def __enter__(self) -> SegmentFetcher:
        self._open.enter_context(self.changes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def wake(self) -> None:
        """Let `changes.wait()` return."""
        self.changes.notify("processor")

    def take(self, events_max: int) -> list[Item] | None:
        """Hand out what comes next, at most so many events; perhaps none, if what comes next is finished already.

        None when all that was read is handed out, but in segments that have no room.
        """
        taken: list[Item] | None = None
        for cell, handout in list(self._handouts.items()):
            if not cell.closing:
                if self._work.is_crowded and handout.unfinished >= PUT_EVENTS:
                    continue
                taken = taken or []
                taken += handout.take(events_max - len(taken))
            if cell.closing or handout.is_over:
                del self._handouts[cell]
            if taken is not None and len(taken) == events_max:
                break
        return taken

    async def fill(self) -> bool:
        """Read on, once, where all that was read is handed out; return whether there was anything: events, or an end.

        Raises NotFound and StreamReplaced when a stream was deleted, Truncated when the feed is told to.
        """
        found = False
        for stream_id, cells in self._by_stream().items():
            wanted: dict[SegmentId, Limit] = {cell.key[1]: (cell.offset, None) for cell in cells.values()}
            name = next(iter(cells.values())).assigned.stream
            try:
                fetched = await self._fetcher(name, stream_id).fetch_next(wanted)
            except Truncated:
                if self._on_truncated == "error":
                    raise
                await self._skip_truncated(stream_id, cells)
                found = True
            else:
                self._take_in(cells, fetched)
                found = found or bool(fetched.runs or fetched.ended)
        return found

    def _by_stream(self) -> dict[int, dict[SegmentId, OwnedSegment]]:
        """Return the cells that may be read on, those first that hold least."""
        only_empty = sum(map(self._held_bytes, self._cells.values())) >= FEED_BYTES_MAX
        self.is_short = only_empty or bool(self._handouts)
        if only_empty and not self._work.is_wanting:
            return {}
        streams: dict[int, dict[SegmentId, OwnedSegment]] = {}
        for cell in sorted(self._cells.values(), key=self._held_bytes):
            if cell.closing or cell.end is not None or cell in self._handouts:
                continue
            if cell.has_room and not (only_empty and cell.waiting_bytes):
                stream_id, segment = cell.key
                streams.setdefault(stream_id, {})[segment] = cell
            else:
                self.is_short = True
        return streams

    def _held_bytes(self, cell: OwnedSegment) -> int:
        handout = self._handouts.get(cell)
        return cell.waiting_bytes + (0 if handout is None else handout.bytes_left)

    def _fetcher(self, name: str, stream_id: int) -> StreamFetcher:
        if (found := self._pullers.get(stream_id)) is None:
            self.changes.add(watch_stream(stream_id))
            found = self._open.enter_context(StreamFetcher(self._db, name, stream_id))
            self._pullers[stream_id] = found
        return found

    def _take_in(self, cells: Mapping[SegmentId, OwnedSegment], fetched: Fetched) -> None:
        ends = {segment: cell.offset for segment, cell in cells.items()}
        by_segment: dict[SegmentId, list[EventRun]] = {}
        for run in fetched.runs:
            by_segment.setdefault(run.segment, []).append(run)
            ends[run.segment] = run.end
        for segment, runs in by_segment.items():
            self._handouts[cells[segment]] = ReadAhead(cells[segment], runs)
        for segment in fetched.ended:
            cells[segment].end = ends[segment]

    async def _skip_truncated(self, stream_id: int, cells: Mapping[SegmentId, OwnedSegment]) -> None:
        def look(tx: Tx) -> dict[SegmentId, SegmentState | None]:
            return {segment: segment_state(tx, stream_id, segment) for segment in cells}

        for segment, state in (await self._db.read(look)).items():
            cell = cells[segment]
            if state is None:
                LOG.warning("%r: its segment was truncated as a whole; it counts as finished", cell)
                cell.end = cell.offset
            elif state.sealed and cell.offset >= state.tail:
                cell.end = cell.offset  # only what took over from it is not known any more
            elif cell.offset < state.head:
                latest = self._on_truncated == "latest"
                number, offset = (
                    (state.tail_number, state.tail) if latest else (state.head_number, state.head)
                )
                lost = cell.begun.unfinished(cell.number, number)
                self.truncated += lost
                LOG.warning("%r: %d events were truncated before they were handled", cell, lost)
                cell.skip(number, offset)
