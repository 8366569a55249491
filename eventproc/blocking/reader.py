"""Readers without `await`: one call of the loop fetches a batch, whose events are handed out on the caller's side."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from eventproc.blocking.loop import Opened
from eventproc.blocking.twins import BlockingTwin, twin_of
from eventproc.groups import GroupReader
from eventproc.groups.reader import ThreadIteration
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.segments import Event
from eventproc.streams import Batch
from eventproc.streams.reader import Iteration, StreamReader


@twin_of(StreamReader)
class BlockingReader(BlockingTwin, Opened):
    """Reads events of one stream, by one thread at a time; made open by `BlockingStream.reader`.

    `close` it, or use it in `with`.
    """

    def __iter__(self) -> Iterator[Event[Any]]:
        """Yield events, waiting for more; ends when the stream is sealed and read to its end.

        A loop may be left at any event; the next one continues there. One call of the loop per batch.
        """
        return self._events(None)

    def until(self, cut: StreamCut) -> Iterator[Event[Any]]:
        """Yield the events before `cut`, and end there. Raises as `StreamReader.until`."""
        return self._events(as_cut(cut, "end of reading"))

    def batches(self, *, until: StreamCut | None = None) -> Iterator[Batch[Any]]:
        """Yield batches of events, as `StreamReader.batches`; each costs one call of the loop, 0.4 ms."""
        iteration = Iteration(self._twin, until)
        while (found := self._loop.call(iteration.advance)) is not None:
            if batch := iteration.batch(found):
                yield batch

    def _events(self, until: StreamCut | None) -> Iterator[Event[Any]]:
        iteration = Iteration(self._twin, until)
        while (found := self._loop.call(iteration.advance)) is not None:
            yield from iteration.events(found)


@twin_of(GroupReader)
class BlockingGroupReader(BlockingTwin, Opened):
    """Reads events of a group, by one thread at a time; made open by `BlockingGroup.reader`.

    See `GroupReader`: asking for the next event finishes the previous one, and leaving its `with` by an exception does
    not finish the one in hand. Opening raises ReaderOnline, NotFound, NotAReaderGroup and GroupStreamReplaced.
    """

    def __iter__(self) -> Iterator[Event[Any]]:
        """Yield events, waiting for more; ends when all streams of the group are sealed and processed.

        A loop may be left at any event. Raises as iterating over a `GroupReader`.
        """
        return self._events(None)

    def until(self, cut: StreamCut | Iterable[StreamCut]) -> Iterator[Event[Any]]:
        """Yield this reader's events before `cut`, and end there. See `GroupReader.until`."""
        return self._events(cut)

    def _events(self, until: StreamCut | Iterable[StreamCut] | None) -> Iterator[Event[Any]]:
        iteration = ThreadIteration(self._twin, until)
        call = partial(self._loop.call, undo=self._twin._take_back)
        while (batch := call(iteration.advance)) is not None:
            yield from batch.events(partial(call, batch.keep_up))
