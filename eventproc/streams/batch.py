"""A batch: events of one or more segments, in order per segment, made into objects only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Generic

from typing_extensions import TypeVar

from eventproc.store.segments import Event, EventRun

P = TypeVar("P", default=bytes)


class Batch(Generic[P]):
    """Events that were read together, as columns per segment; iterate to get `Event`s.

    Within a segment, and from a segment to its successors, the order is that of the stream; between
    segments side by side there is none. `len()` is the number of events and costs nothing.
    """

    __slots__ = ("_count", "_decode", "runs")

    def __init__(self, runs: list[EventRun], decode: Callable[[bytes], P] | None = None) -> None:
        self.runs = runs
        self._decode = decode
        self._count = sum(map(len, runs))

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Event[P]]:
        return chain.from_iterable(run.events(self._decode) for run in self.runs)

    @property
    def size_bytes(self) -> int:
        """Bytes that the events take in their segments."""
        return sum(run.end - run.start for run in self.runs)
