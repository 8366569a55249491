"""A history of a stream in memory, for tests of the pure model and of what uses it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

import attrs

from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, epoch_of


@attrs.frozen
class ListHistory:
    """See `History`; `epochs` are consecutive and at least one."""

    stream: str
    epochs: tuple[Epoch, ...] = attrs.field(converter=tuple[Epoch, ...])

    @property
    def first(self) -> int:
        """See `History.first`."""
        return self.epochs[0].number

    @property
    def current(self) -> int:
        """See `History.current`."""
        return self.epochs[-1].number

    def epoch(self, number: int) -> Epoch:
        """See `History.epoch`."""
        if not self.first <= number <= self.current:
            raise NotFound(kind=f"epoch of {self.stream}", name=str(number))
        return self.epochs[number - self.first]

    def sealed_in(self, identifier: SegmentId) -> int | None:
        """See `History.sealed_in`. O(log epochs)."""
        if identifier in self.epochs[-1].by_id:
            return None
        get_segment(self, identifier)
        # A segment is in every epoch from its creation until it is sealed, and in no later one.
        following = range(max(epoch_of(identifier), self.first) + 1, self.current + 1)
        return following[
            bisect_left(following, True, key=lambda number: identifier not in self.epoch(number).by_id)
        ]

    def number_at(self, time_ms: int) -> int:
        """See `History.number_at`. O(log epochs)."""
        later = bisect_right(self.epochs, time_ms, key=lambda epoch: epoch.created_ms)
        return self.first + max(later - 1, 0)
