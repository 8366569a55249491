"""Reader groups and their readers, without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Generic, overload

from typing_extensions import TypeVar

from eventproc.blocking._generated import ReaderGroupCalls
from eventproc.blocking.loop import Loop, Opened
from eventproc.groups import GroupReader, ReaderGroup, SegmentOwnership
from eventproc.groups.reader import ThreadIteration
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event
from eventproc.streams import Batch, Codec

P = TypeVar("P", default=bytes)
Q = TypeVar("Q")


class BlockingGroupReader(Opened, Generic[P]):
    """Reads events of a group, by one thread at a time; made open by `BlockingReaderGroup.reader`.

    See `GroupReader`: asking for the next event finishes the previous one, and leaving its `with` by an exception does
    not finish the one in hand. Opening raises ReaderOnline, NotFound, NotAReaderGroup and GroupStreamReplaced.
    """

    def __init__(self, loop: Loop, reader: GroupReader[P]) -> None:
        self._loop = loop
        self._twin: GroupReader[P] = reader
        self._reader = reader
        self.reader = reader.reader

    def __repr__(self) -> str:
        return f"Blocking{self._reader!r}"

    @property
    def owned(self) -> tuple[SegmentOwnership, ...]:
        """The segments that are this reader's at this moment; a hand-over."""

        async def owned() -> tuple[SegmentOwnership, ...]:
            return self._reader.owned

        return self._loop.call(owned)

    @property
    def position(self) -> dict[str, dict[SegmentId, int]]:
        """Where the reader stands, {stream: {segment: offset}}: what was handed out lies before it; a hand-over."""

        async def position() -> dict[str, dict[SegmentId, int]]:
            return self._reader.position

        return self._loop.call(position)

    @property
    def stream(self) -> str | None:
        """The full name of the stream that the event in hand is of; None without one, and for a batch."""
        return self._reader.stream

    def commit(self) -> None:
        """Mark every event that was handed out, the last one included, as finished, and make that durable."""
        self._loop.call(self._reader.commit)

    def __iter__(self) -> Iterator[Event[P]]:
        """Yield events, waiting for more; ends when all streams of the group are sealed and processed.

        A loop may be left at any event. Raises as iterating over a `GroupReader`.
        """
        return self._events(None)

    def until(self, cut: StreamCut | Iterable[StreamCut]) -> Iterator[Event[P]]:
        """Yield this reader's events before `cut`, and end there. See `GroupReader.until`."""
        return self._events(cut)

    def batches(self, *, until: StreamCut | Iterable[StreamCut] | None = None) -> Iterator[Batch[P]]:
        """Yield batches of events, as `GroupReader.batches`; each costs one call of the loop, 0.4 ms."""
        batches = self._reader.batches(until=until)

        async def advance() -> Batch[P] | None:
            return await anext(batches, None)

        while (batch := self._loop.call(advance)) is not None:
            yield batch

    def _events(self, until: StreamCut | Iterable[StreamCut] | None) -> Iterator[Event[P]]:
        iteration = ThreadIteration(self._reader, until)
        while (batch := self._loop.call(iteration.advance)) is not None:
            yield from batch.events(partial(self._loop.call, batch.keep_up))


class BlockingReaderGroup(ReaderGroupCalls):
    """The handle of a reader group; made by `create_reader_group` and `reader_group`. See `ReaderGroup`."""

    def __init__(self, loop: Loop, group: ReaderGroup) -> None:
        super().__init__(loop, group)
        self.name = group.name

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"

    @overload
    def reader(self, reader: str) -> BlockingGroupReader[bytes]: ...
    @overload
    def reader(
        self, reader: str, *, payload: type[Q] | None = None, codec: Codec[Q] | None = None
    ) -> BlockingGroupReader[Q]: ...
    def reader(
        self, reader: str, *, payload: type[Any] | None = None, codec: Codec[Any] | None = None
    ) -> BlockingGroupReader[Any]:
        """Join the group and return the open reader, to be closed or used in `with`. See `ReaderGroup.reader`."""
        return BlockingGroupReader(
            self._loop, self._twin.reader(reader, payload=payload, codec=codec)
        )._opened()
