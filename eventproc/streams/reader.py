"""Reading a stream: all of it, across its splits and merges, or chosen segments.

A reader opens a segment only when all its predecessors were read to their ends, so events of one key come in the order
in which they were written, across any number of scales (invariant 3). It stores no state in the stream: its position is
its `cut()`, at which another reader can start.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Generic

import anyio
import attrs
from typing_extensions import TypeVar

from eventproc.store.database import Database, Tx
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.errors import Closed, IllegalTransition, InvalidCut, StreamReplaced
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.ids import SegmentId, printable
from eventproc.store.openable import Openable
from eventproc.store.segments import Event, EventRun
from eventproc.streams.fetch import Fetched, Limit, StreamFetcher, limits_of, watch_stream

P = TypeVar("P", default=bytes)


class Batch(Generic[P]):
    """Events that were read together, as columns per segment. Iterating yields `Event`s; `len()` is free.

    Within a segment, and from a segment to its successors, the order is that of the stream; between parallel segments
    there is no order.
    """

    __slots__ = ("_count", "_decode", "_runs")

    def __init__(self, runs: list[tuple[str, EventRun]], decode: Callable[[bytes], P] | None = None) -> None:
        """runs: with the names of their streams."""
        self._runs = runs
        self._decode = decode
        self._count = sum([len(run) for _, run in runs])

    def __repr__(self) -> str:
        return f"Batch({len(self)} events, {self.size_bytes} bytes)"

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event[P]]:
        return chain.from_iterable(run.events(stream, self._decode) for stream, run in self._runs)

    @property
    def size_bytes(self) -> int:
        """Bytes that the events take in their segments."""
        return sum(run.end - run.start for _, run in self._runs)


@attrs.define(eq=False)
class _RunInFlight:
    """A run whose events are being handed out one by one; `count` of them were handed out."""

    run: EventRun
    count: int = 0


class StreamReader(Openable, Generic[P]):
    """Reads events of one stream, by one task at a time. Made by `Stream.reader`.

    Open it with `async with`, or with `await` and `close`. If another task closes it, an iteration that waits raises
    Closed.
    """

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
        """start: returns where to begin; called on entering.
        chosen: read those segments only, not their successors.
        decode: converts bytes to payloads; None: payloads are bytes.
        """
        super().__init__(f"the reader of {stream}", db.handles)
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._find_start = start
        self._frontier = Frontier({}, {})
        self._ended: set[SegmentId] = set()  # held, read to the end, and nothing follows
        self._chosen = chosen
        self._decode = decode
        self._fetcher = StreamFetcher(db, stream, stream_id)
        self._in_flight: _RunInFlight | None = None
        self._newest: Iteration[P] | None = None
        self._resources = ExitStack()

    def __repr__(self) -> str:
        return f"StreamReader({self._stream!r}, {self._state})"

    async def _start(self) -> None:
        self._frontier = await self._db.read(self._find_start)
        with ExitStack() as stack:
            self._changes = stack.enter_context(self._db.subscribe([watch_stream(self._stream_id)]))
            stack.enter_context(self._fetcher)
            self._resources = stack.pop_all()

    async def _finish(self, why: BaseException | None) -> None:
        self._resources.close()
        await anyio.lowlevel.cancel_shielded_checkpoint()

    def cut(self) -> StreamCut:
        """Return the reader's position: events that were handed out are before it, all others after it.

        An event counts as handed out when iteration yields it; a batch when `batches` yields it. After the block,
        it is where reading ended.

        Raises:
            IllegalTransition: the reader has not been opened.
        """
        self._verify_opened("cut")
        return StreamCut(
            stream=self._stream, stream_id=self._stream_id, offsets=self._frontier_now().offsets()
        )

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """The segments being read, each with the offset of its next event.

        Raises:
            IllegalTransition: the reader has not been opened.
        """
        self._verify_opened("offsets")
        return {printable(segment): offset for segment, offset in self._frontier_now().held.items()}

    def __aiter__(self) -> AsyncGenerator[Event[P], None]:
        """Yield events, waiting for more; ends when the stream is sealed and read to its end.

        If you leave a loop early, wrap the iterator in `contextlib.aclosing`, as trio requires for every async
        generator. The next iteration continues with the first event that was not handed out.

        Raises:
            StreamReplaced: the stream was deleted and created again.
            Truncated: the stream was truncated beyond the reader.
            IllegalTransition: a later iteration of this reader has begun.
        """
        return self._events(None)

    def until(self, cut: StreamCut) -> AsyncGenerator[Event[P], None]:
        """Yield the events before `cut`, and end there.

        Args:
            cut: where to end. Events at or after it that were read already are not given back.

        Raises:
            InvalidCut: the cut is one of another stream, or lies inside an event.
            StreamReplaced: the stream was deleted and created again.
            Truncated: the stream was truncated beyond the reader.
            IllegalTransition: a later iteration of this reader has begun.
        """
        return self._events(as_cut(cut, "end of reading"))

    async def batches(self, *, until: StreamCut | None = None) -> AsyncGenerator[Batch[P], None]:
        """Yield batches of events, waiting for more; ends as iterating or `until` does.

        Args:
            until: a cut at which to end. None (default): the end of a sealed stream.

        Raises:
            InvalidCut: the cut is one of another stream, or lies inside an event.
            StreamReplaced: the stream was deleted and created again.
            Truncated: the stream was truncated beyond the reader.
            IllegalTransition: a later iteration of this reader has begun.

        Cost:
            A few calls per batch, whatever its size; about 0.25 us per event when it is iterated.
        """
        iteration = Iteration(self, until)
        while (found := await iteration.advance()) is not None:
            # No await from here to the yield: if the reader is cancelled, position and batch agree.
            if batch := iteration.batch(found):
                yield batch

    async def _events(self, until: StreamCut | None) -> AsyncGenerator[Event[P], None]:
        iteration = Iteration(self, until)
        while (found := await iteration.advance()) is not None:
            for event in iteration.events(found):
                yield event

    def _pass_handed_out(self) -> None:
        """Move the frontier behind the events of a run that were handed out, if that was not done yet."""
        if (in_flight := self._in_flight) is not None:
            self._in_flight = None
            self._frontier.advance(in_flight.run.segment, in_flight.run.end_of(in_flight.count))

    def _frontier_now(self) -> Frontier:
        if self._in_flight is None:
            return self._frontier
        run, count = self._in_flight.run, self._in_flight.count
        return Frontier({**self._frontier.held, run.segment: run.end_of(count)}, self._frontier.waiting)


class Iteration(Generic[P]):
    """One iteration over a reader, in rounds: `advance` fetches a round, `events` or `batch` hands it out.

    `advance` runs on the event loop. `events` and `batch` await nothing, so they may run in the thread of a caller that
    waits for every `advance`. The first `advance` ends the earlier iterations of the reader: continuing one raises
    IllegalTransition, so that no event is handed out twice.
    """

    def __init__(self, reader: StreamReader[P], until: StreamCut | None) -> None:
        """until: where to stop; None: at the end of a sealed stream."""
        self._reader = reader
        self._until = until
        self._begun = False
        self._limits: Mapping[SegmentId, int] = {}  # where to stop in each segment

    async def advance(self) -> Fetched | None:
        """Return the next round, waiting for it; None at the end."""
        reader = self._reader
        if self._begun:
            self._verify_newest()
            self._verify_open()
        else:
            await self._begin()
        while not self._finished():
            await anyio.lowlevel.checkpoint()
            found = await reader._fetcher.fetch_next(self._wanted())
            if found.runs or found.ended:
                return found
            self._verify_open()  # it may have been closed during the fetch
            await reader._changes.wait()
            self._verify_open()
        return None

    def events(self, found: Fetched) -> Iterator[Event[P]]:
        """Yield the events of a round; events that are not yielded come again."""
        reader = self._reader
        for run in found.runs:
            in_flight = reader._in_flight = _RunInFlight(run)
            for part in run.without_removed():
                in_flight.count = part.first_number - run.first_number
                for event in part.events(reader._stream, reader._decode):
                    in_flight.count += 1
                    yield event
                    if reader._in_flight is not in_flight:
                        self._verify_newest()
            in_flight.count = len(run)
            reader._pass_handed_out()
        self._end(found)

    def batch(self, found: Fetched) -> Batch[P]:
        """Return the events of a round, perhaps none; all count as handed out."""
        for run in found.runs:
            self._reader._frontier.advance(run.segment, run.end)
        self._end(found)
        stream, decode = self._reader._stream, self._reader._decode
        return Batch([(stream, part) for run in found.runs for part in run.without_removed()], decode)

    async def _begin(self) -> None:
        """Continue behind an earlier iteration; find out where to stop in each segment."""
        reader, until = self._reader, self._until
        self._verify_open()
        if until is not None:
            self._verify_cut(as_cut(until, "end of reading"))
            stream, held = reader._stream, reader._frontier_now().held
            self._limits = await reader._db.read(lambda tx: limits_of(tx, stream, until, held))
        reader._pass_handed_out()
        self._begun, reader._newest = True, self

    def _verify_cut(self, until: StreamCut) -> None:
        stream, stream_id = self._reader._stream, self._reader._stream_id
        if until.stream != stream:
            reason = f"it is a cut of {until.stream}"
            raise InvalidCut(stream=stream, cut=str(until), reason=reason)
        if until.stream_id != stream_id:
            raise StreamReplaced(stream=until.stream, stream_id=until.stream_id, current_id=stream_id)

    def _verify_newest(self) -> None:
        if self._reader._newest is not self:
            state = "ended by a later one; go on with that, or begin another"
            name = self._reader._what
            raise IllegalTransition(name=name, event="going on with this iteration", state=state)

    def _verify_open(self) -> None:
        self._reader._verify_opened("reading")
        if self._reader.closed:
            raise Closed(what=self._reader._what)

    def _wanted(self) -> dict[SegmentId, Limit]:
        """Return the segments to continue in, {segment: (offset, limit)}."""
        reader, limits = self._reader, self._limits
        return {
            segment: (offset, limits.get(segment))
            for segment, offset in reader._frontier.held.items()
            if segment not in reader._ended and (segment not in limits or offset < limits[segment])
        }

    def _end(self, found: Fetched) -> None:
        """Continue with the successors of segments that were read to their ends; without successors, stay there."""
        for segment, successors in found.ended.items():
            if successors and not self._reader._chosen:
                self._reader._frontier.complete(segment, successors)
            else:
                self._reader._ended.add(segment)

    def _finished(self) -> bool:
        reader, limits = self._reader, self._limits
        return all(
            segment in reader._ended or (segment in limits and offset >= limits[segment])
            for segment, offset in reader._frontier.held.items()
        )
