"""Reading a stream without `await`: events one by one, taken from batches that are fetched on the loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic

from typing_extensions import TypeVar

from eventproc.blocking.block import Block
from eventproc.blocking.loop import Loop
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import Event
from eventproc.streams import Batch, StreamReader

P = TypeVar("P", default=bytes)


class BlockingReader(Block, Generic[P]):
    """Reads events of one stream; made by `BlockingStream.reader`, used in one `with`, by one thread at a time."""

    def __init__(self, loop: Loop, reader: StreamReader[P]) -> None:
        super().__init__(loop, reader)
        self._reader = reader

    def cut(self) -> StreamCut:
        """Return where the reader stands: everything before it was handed out, in batches."""
        return self._reader.cut()

    @property
    def offsets(self) -> Mapping[SegmentId, int]:
        """The segments being read, each with the offset of its next event."""
        return self._reader.offsets

    def __iter__(self) -> Iterator[Event[P]]:
        """Yield events, waiting for more; ends when the stream is sealed and read to its end."""
        for batch in self.batches():
            yield from batch

    def until(self, cut: StreamCut) -> Iterator[Event[P]]:
        """Yield the events before `cut`, and end there. Raises StreamReplaced as `StreamReader.until`."""
        for batch in self.batches(until=cut):
            yield from batch

    def batches(self, *, until: StreamCut | None = None) -> Iterator[Batch[P]]:
        """Yield batches of events, as `StreamReader.batches`; each costs one hand-over, 0.4 ms."""
        batches = self._reader.batches(until=until)

        async def advance() -> Batch[P] | None:
            return await anext(batches, None)

        while (batch := self._loop.call(advance)) is not None:
            yield batch
