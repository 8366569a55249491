"""History of a stream: its epochs in order, and the questions that readers and workflows ask about them.

Epochs are immutable, so an implementation may cache them. Epochs that are completely before the head may have been
compacted; the functions never look before `History.first`. Each function reads `current` when it needs it: pass a
history of one snapshot if a scale may run meanwhile.
Source: reference pravega.md 1.4 and 1.6.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

from eventproc.store.model.epochs import Epoch, Segment
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId, epoch_of, format_segment
from eventproc.store.model.metadata_errors import HistoryCompacted


class History(Protocol):
    """The epochs of one stream, `first` to `current`, without a gap."""

    @property
    @abstractmethod
    def stream(self) -> str:
        """The stream's full name, `scope/stream`."""

    @property
    @abstractmethod
    def first(self) -> int:
        """Number of the oldest epoch kept: earlier ones were compacted."""

    @property
    @abstractmethod
    def current(self) -> int:
        """Number of the active epoch."""

    @abstractmethod
    def epoch(self, number: int) -> Epoch:
        """Return that epoch. Raises NotFound outside [first, current]."""

    @abstractmethod
    def sealed_in(self, identifier: SegmentId) -> int | None:
        """Return the first epoch that no longer contains the segment, None while it is active.

        Raises NotFound as `get_segment` does.
        """

    @abstractmethod
    def number_at(self, time_ms: int) -> int:
        """Return the number of the last epoch created at or before `time_ms`; `first` if there is none."""


def get_segment(history: History, identifier: SegmentId) -> Segment:
    """Return the segment of that id, active or sealed. One epoch is read.

    Raises NotFound if the stream never had it, and HistoryCompacted if it was sealed before the oldest epoch kept.
    """
    number = max(epoch_of(identifier), history.first)
    if number > history.current:
        raise NotFound(kind=f"segment of {history.stream}", name=format_segment(identifier))
    try:
        return history.epoch(number).segment(identifier, stream=history.stream)
    except NotFound:
        if epoch_of(identifier) >= history.first:
            raise
        name, first = format_segment(identifier), history.first
        raise HistoryCompacted(kind="segment", name=name, stream=history.stream, first_epoch=first) from None


def find_segment(history: History, identifier: SegmentId) -> Segment | None:
    """Return the segment, or None if `get_segment` would raise NotFound."""
    try:
        return get_segment(history, identifier)
    except NotFound:
        return None


def successors(history: History, identifier: SegmentId) -> dict[SegmentId, tuple[SegmentId, ...]]:
    """Return the successors of a segment in the order of their ranges, each with all its predecessors.

    Empty for an active segment. A reader may open a successor after it has read all those predecessors to
    their ends. Raises NotFound as `get_segment` does, also for an id that never existed.
    """
    sealed = history.sealed_in(identifier)
    if sealed is None:
        return {}
    before, after = history.epoch(sealed - 1), history.epoch(sealed)
    return {
        successor.id: tuple(segment.id for segment in before.overlapping(successor.range))
        for successor in after.overlapping(before.segment(identifier, stream=history.stream).range)
    }


def predecessors(history: History, identifier: SegmentId) -> tuple[SegmentId, ...]:
    """Return the predecessors of a segment in the order of their ranges.

    Empty if it was created with the stream or with the oldest epoch kept: then its predecessors are before the head.
    Raises NotFound as `get_segment` does.
    """
    segment = get_segment(history, identifier)
    created = epoch_of(identifier)
    if created <= history.first:
        return ()
    return tuple(each.id for each in history.epoch(created - 1).overlapping(segment.range))


def epoch_at(history: History, time_ms: int) -> Epoch:
    """Return the epoch that was active at `time_ms`: the last one created at or before it.

    For a time before the oldest epoch kept, return that one.
    """
    return history.epoch(history.number_at(time_ms))


def segments_during(history: History, first: int, last: int) -> Iterator[Segment]:
    """Yield each segment that was active in one of the epochs first to last, once, sorted by id.

    `first` is raised to the oldest epoch kept. One epoch is read at a time.
    """
    first = max(first, history.first)
    yield from sorted(history.epoch(first).segments, key=_id)
    for number in range(first + 1, last + 1):
        yield from sorted(history.epoch(number).opened, key=_id)


def _id(segment: Segment) -> SegmentId:
    return segment.id
