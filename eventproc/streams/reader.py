"""Reading a stream: whole, across its splits and merges, or chosen segments of it.

A reader of the whole stream opens a segment only when all the segments it took over from were read to
their ends, so that events of one key come in the order in which they were written, across any number of
scales (invariant 3). It keeps no state in the stream: where it stands is its `cut()`, to start from again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final, Generic

import anyio
from typing_extensions import TypeVar

from eventproc.store.database import Database, Tx
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import Closed, StreamReplaced
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import READ_BYTES_MAX, Event, Recent, Run
from eventproc.streams.batch import Batch
from eventproc.streams.fetch import Fetched, fetch, limits_of, watch_stream

P = TypeVar("P", default=bytes)

BATCH_BYTES_MAX: Final = 2**20
"""Bytes of events in a batch taken from memory. Larger batches cost less each and make a consumer that
stops between two of them repeat more."""


class StreamReader(Generic[P]):
    """Reads events of one stream; made by `Stream.reader`, used in `async with`, by one task at a time."""

    def __init__(
        self,
        db: Database,
        stream: str,
        stream_id: int,
        start: Callable[[Tx], Frontier],
        *,
        chosen: bool,
        decode: Callable[[bytes], P] | None = None,
    ) -> None:
        """start: where to begin, asked for on entering. chosen: read those segments only, not what follows.

        decode: from bytes to the payloads that the events carry.
        """
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._start = start
        self._frontier = Frontier({}, {})
        self._ended: set[SegmentId] = set()  # held, read to the end, and nothing follows
        self._chosen = chosen
        self._decode = decode
        self._recent = db.shared.get(Recent)
        self._open: ExitStack | None = None

    async def __aenter__(self) -> StreamReader[P]:
        self._frontier = await self._db.read(self._start)
        with ExitStack() as stack:
            self._changes = stack.enter_context(self._db.subscribe([watch_stream(self._stream_id)]))
            stack.enter_context(self._recent.watching(self._stream_id))
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def cut(self) -> StreamCut:
        """Return where the reader stands: everything before it was handed out."""
        return StreamCut(stream=self._stream, stream_id=self._stream_id, offsets=self._frontier.offsets())

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """The segments being read, each with the offset of its next event."""
        return self._frontier.held

    def __aiter__(self) -> AsyncIterator[Event[P]]:
        """Yield events, waiting for more; ends when the stream is sealed and read to its end."""
        return self._events(None)

    def until(self, cut: StreamCut) -> AsyncIterator[Event[P]]:
        """Yield the events before `cut`, and end there.

        Raises StreamReplaced when it is a cut of another incarnation. Events at or after the cut that
        were read already are not given back.
        """
        return self._events(cut)

    async def batches(self, *, until: StreamCut | None = None) -> AsyncGenerator[Batch[P], None]:
        """Yield batches of events, waiting for more; ends as iterating or `until` does.

        The primitive: a batch costs a few calls whatever its size, an event about 0.25 us. A batch counts
        as handed out when it is yielded. Raises NotFound or StreamReplaced when the stream was deleted,
        Truncated when it was truncated beyond the reader.
        """
        limits: dict[SegmentId, int] = {} if until is None else await self._limits(until)
        while True:
            runs = self._take_recent(limits)
            if runs:
                await anyio.lowlevel.checkpoint()
            else:
                fetched = await self._fetch(limits)
                runs = fetched.runs
                self._advance(runs)
                self._end(fetched.ended)
                if not runs and not fetched.ended:
                    if self._finished(limits, until is not None):
                        return
                    await self._changes.wait()
            if runs:
                yield Batch(runs, self._decode)
            if self._finished(limits, until is not None):
                return

    async def _events(self, until: StreamCut | None) -> AsyncGenerator[Event[P], None]:
        batches = self.batches(until=until)
        try:
            async for batch in batches:
                for event in batch:
                    yield event
        finally:
            await batches.aclose()

    async def _limits(self, cut: StreamCut) -> dict[SegmentId, int]:
        if cut.stream_id != self._stream_id:
            raise StreamReplaced(stream=cut.stream, stream_id=cut.stream_id, current_id=self._stream_id)
        return await self._db.read(lambda tx: limits_of(tx, self._stream, cut, self._frontier.held))

    async def _fetch(self, limits: Mapping[SegmentId, int]) -> Fetched:
        if self._open is None:
            raise Closed(what=f"the reader of {self._stream}")
        wanted = {
            segment: (offset, limits.get(segment))
            for segment, offset in self._frontier.held.items()
            if segment not in self._ended
        }
        return await self._db.read(
            lambda tx: fetch(tx, self._stream, self._stream_id, wanted, READ_BYTES_MAX)
        )

    def _take_recent(self, limits: Mapping[SegmentId, int]) -> list[Run]:
        """Return what this process committed just behind the reader, without a read."""
        runs: list[Run] = []
        share = BATCH_BYTES_MAX // max(len(self._frontier.held), 1)
        for segment, offset in self._frontier.held.items():
            limit = limits.get(segment)
            size_bytes = 0
            while size_bytes < share:
                run = self._recent.find(self._stream_id, segment, offset)
                if run is None or (limit is not None and run.end > limit):
                    break
                runs.append(run)
                size_bytes += run.end - run.start
                offset = run.end
        self._advance(runs)
        return runs

    def _end(self, ended: Mapping[SegmentId, Mapping[SegmentId, tuple[SegmentId, ...]]]) -> None:
        """Go on to what follows segments that were read to their ends; where nothing does, stay there."""
        for segment, successors in ended.items():
            if successors and not self._chosen:
                self._frontier.complete(segment, successors)
            else:
                self._ended.add(segment)

    def _advance(self, runs: list[Run]) -> None:
        for run in runs:
            self._frontier.advance(run.segment, run.end)

    def _finished(self, limits: Mapping[SegmentId, int], bounded: bool) -> bool:
        return all(
            segment in self._ended or (bounded and segment in limits and offset >= limits[segment])
            for segment, offset in self._frontier.held.items()
        )
