"""Events on their way to their segments: sorted by segment as they are posted, sent together.

Pure: no I/O. A lane collects the events of one active segment in order, so that nothing has to be sorted
when a batch leaves. After a scale the lanes of the old epoch are poured into those of the new one; the
order of a key holds, because all its events are in one lane.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.routing import position
from eventproc.store.segments import EventBlock, Headers, SegmentEvents

KEYS_KNOWN_MAX: Final = 100_000
"""Routing keys whose lane is remembered. A hash costs three look-ups; more only pays when keys recur."""

_NO_POSITION: Final = float("nan")


@attrs.define(eq=False)
class Lane:
    """Events for one segment, one list per column; the last two are None until an event needs them."""

    segment: SegmentId
    payloads: list[bytes] = attrs.field(factory=list)
    keys: list[str | None] = attrs.field(factory=list)
    event_times: list[int | None] | None = None
    headers: list[Headers | None] | None = None

    def add_extra(self, event_time: int | None, headers: Headers | None) -> None:
        """Note what the event added last has besides payload and key."""
        before = len(self.payloads) - 1
        if self.event_times is None and event_time is not None:
            absent_times: list[int | None] = [None] * before
            self.event_times = absent_times
        if self.event_times is not None:
            self.event_times.append(event_time)
        if self.headers is None and headers is not None:
            absent: list[Headers | None] = [None] * before
            self.headers = absent
        if self.headers is not None:
            self.headers.append(headers)

    def take(self) -> Lane:
        """Return a lane with this one's events, and leave this one empty."""
        taken = Lane(self.segment, self.payloads, self.keys, self.event_times, self.headers)
        self.payloads, self.keys, self.event_times, self.headers = [], [], None, None
        return taken

    @property
    def has_extra(self) -> bool:
        """Whether some event has more than payload and key."""
        return self.event_times is not None or self.headers is not None


class Lanes:
    """The lanes of one epoch."""

    def __init__(self, epoch: Epoch, spread: int) -> None:
        """spread: any number; decides which active segment takes the events without a key."""
        self._epoch = epoch
        self._positions: dict[str | None, float] = {None: _NO_POSITION}
        self._by_segment = {segment: Lane(segment) for segment in epoch.ids}
        self._by_key: dict[str | None, Lane] = {}
        self._keyless = epoch.ids[spread % len(epoch.ids)]
        self.find = self._by_key.get  # the lane of a key met before; a look-up without a call of ours

    def open(self, key: str | None) -> Lane:
        """Return the lane of a key, and remember it. Raises InvalidArgument for a key that cannot route."""
        if len(self._by_key) >= KEYS_KNOWN_MAX:
            self._by_key.clear()
            self._positions = {None: _NO_POSITION}
        if key is None:
            lane = self._by_segment[self._keyless]
        else:
            self._positions[key] = where = position(key)
            lane = self._by_segment[self._epoch.find(where).id]
        self._by_key[key] = lane
        return lane

    def take(self) -> list[Lane]:
        """Return what the lanes hold, and leave them empty."""
        return [lane.take() for lane in self._by_segment.values() if lane.payloads]

    def parts(self, lanes: Iterable[Lane]) -> list[SegmentEvents]:
        """Return the lanes' events encoded for their segments."""
        positions = self._positions
        parts = []
        for lane in lanes:
            keyed = lane.keys.count(None) < len(lane.keys)
            where = (
                [positions[key] if key in positions else _position(key) for key in lane.keys]
                if keyed
                else None
            )
            keys = lane.keys if keyed else None
            parts.append(
                SegmentEvents(
                    lane.segment,
                    EventBlock(lane.payloads, keys, where, lane.event_times, lane.headers).encode(),
                )
            )
        return parts

    def pour(self, lanes: Iterable[Lane]) -> None:
        """Add events of an older epoch's lanes, in their order, to those of this one."""
        for lane in lanes:
            times = lane.event_times or [None] * len(lane.keys)
            headers = lane.headers or [None] * len(lane.keys)
            for payload, key, event_time, header in zip(
                lane.payloads, lane.keys, times, headers, strict=True
            ):
                into = self.find(key) or self.open(key)
                into.payloads.append(payload)
                into.keys.append(key)
                if event_time is not None or header is not None or into.has_extra:
                    into.add_extra(event_time, header)


def _position(key: str | None) -> float:
    return _NO_POSITION if key is None else position(key)
