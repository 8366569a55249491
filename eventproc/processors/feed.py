"""Reading on in the cells of a processor, over any number of streams, as far as there is room."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from eventproc.groups import SegmentKey
from eventproc.processors.cell import Cell
from eventproc.processors.options import OnTruncated
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import Truncated
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Run, SegmentState, segment_state
from eventproc.streams.fetch import Fetched, Limit, watch_stream
from eventproc.streams.pull import Puller

LOG = logging.getLogger("eventproc.processors")

FEED_BYTES_MAX: Final = 16 * 2**20
"""Bytes of events, as stored, that all cells of a processor hold unfinished before it reads on. One read brings
up to 4 MiB more. Where calls are stuck in so many segments that they hold all of it, those that hold nothing are read
on nevertheless while workers have nothing to do: 4 MiB at most for each that gets stuck too."""


class Feed:
    """What was read and not handed out yet; used in `with`, by one task.

    truncated: events that were gone before they could be read. is_short: at the last `fill` some cell had no room.
    """

    def __init__(
        self,
        db: Database,
        cells: Mapping[SegmentKey, Cell],
        on_truncated: OnTruncated,
        wanting: Callable[[], bool],
    ) -> None:
        """cells: those to read; the caller adds and removes. wanting: whether workers have nothing to do."""
        self._db = db
        self._cells = cells
        self._on_truncated = on_truncated
        self._wanting = wanting
        self._open = ExitStack()
        self._pullers: dict[int, Puller] = {}
        self._runs: deque[tuple[Cell, Run]] = deque()
        self.changes = db.subscribe()
        self.truncated = 0
        self.is_short = False

    def __enter__(self) -> Feed:
        self._open.enter_context(self.changes)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def wake(self) -> None:
        """Let `changes.wait()` return."""
        self.changes.notify("processor")

    def take(self, events_max: int | None = None) -> tuple[Cell, Run] | None:
        """Return the next run, at most so many events of it; None when all that was read is handed out."""
        while self._runs:
            cell, run = self._runs.popleft()
            if cell.closing:
                continue
            if events_max is not None and len(run) > events_max:
                run, rest = run.split(run.end_of(events_max))
                self._runs.appendleft((cell, rest))
            return cell, run
        return None

    async def fill(self) -> bool:
        """Read on, once; return whether there was anything: events, or the end of a segment.

        Call it when everything read is handed out. Raises NotFound and StreamReplaced when a stream was deleted,
        Truncated when the feed is told to.
        """
        assert not self._runs, "what was read is not handed out yet"
        found = False
        for stream_id, cells in self._by_stream().items():
            wanted: dict[SegmentId, Limit] = {cell.key[1]: (cell.offset, None) for cell in cells.values()}
            name = next(iter(cells.values())).assigned.stream
            try:
                fetched = await self._puller(name, stream_id).pull(wanted)
            except Truncated:
                if self._on_truncated == "error":
                    raise
                await self._skip_truncated(stream_id, cells)
                found = True
            else:
                self._take_in(cells, fetched)
                found = found or bool(fetched.runs or fetched.ended)
        return found

    def _by_stream(self) -> dict[int, dict[SegmentId, Cell]]:
        """Return the cells that may be read on, those first that hold least."""
        self.is_short = sum(cell.waiting_bytes for cell in self._cells.values()) >= FEED_BYTES_MAX
        only_empty = self.is_short
        if only_empty and not self._wanting():
            return {}
        streams: dict[int, dict[SegmentId, Cell]] = {}
        for cell in sorted(self._cells.values(), key=lambda cell: cell.waiting_bytes):
            if cell.closing or cell.end is not None:
                continue
            if cell.has_room and not (only_empty and cell.waiting_bytes):
                stream_id, segment = cell.key
                streams.setdefault(stream_id, {})[segment] = cell
            else:
                self.is_short = True
        return streams

    def _puller(self, name: str, stream_id: int) -> Puller:
        if (found := self._pullers.get(stream_id)) is None:
            self.changes.add(watch_stream(stream_id))
            found = self._open.enter_context(Puller(self._db, name, stream_id))
            self._pullers[stream_id] = found
        return found

    def _take_in(self, cells: Mapping[SegmentId, Cell], fetched: Fetched) -> None:
        ends = {segment: cell.offset for segment, cell in cells.items()}
        for run in fetched.runs:
            self._runs.append((cells[run.segment], run))
            ends[run.segment] = run.end
        for segment in fetched.ended:
            cells[segment].end = ends[segment]

    async def _skip_truncated(self, stream_id: int, cells: Mapping[SegmentId, Cell]) -> None:
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
                self.truncated += number - cell.number
                LOG.warning(
                    "%r: %d events were truncated before they were handled", cell, number - cell.number
                )
                cell.skip(number, offset)
