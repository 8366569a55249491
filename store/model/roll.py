"""Rolling: how a transaction whose segments were sealed is committed without routing its events again.

Events that a foreign client staged belong to the key range of a segment (`stage(bound=True)`), because the protocol
carries no keys. If a scale has replaced that segment, two epochs are opened around the commit. In the first, segments
with the ranges of the sealed ones take the place of the active segments above them, and the events are appended there.
In the second, the former ranges are restored. So the events of every key keep their order, and neither the scale nor
the transaction waits for the other. Source: docs/design/endpoints.md, "Transactions".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from eventproc.store.model.epochs import Epoch, next_epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ranges import KeyRange, canonical


@attrs.frozen
class RollPlan:
    """The two epochs of a roll.

    seal: active segments that give way. ranges: of the segments that take their place: those of the sealed segments
    in the order of `parents`, then what is left of the ranges of `seal`.
    restored: ranges of the second epoch, which seals what the first one opened.
    """

    parents: tuple[SegmentId, ...]
    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]
    restored: tuple[KeyRange, ...]

    def first(self, current: Epoch, *, stream: str, now_ms: int) -> Epoch:
        """Return the epoch in which the events are appended."""
        return _following(current, stream, self.seal, self.ranges, now_ms)

    def targets(self, first: Epoch) -> Mapping[SegmentId, SegmentId]:
        """Return the segment of the first epoch that takes the events of each sealed one."""
        by_range = {segment.range: segment.id for segment in first.opened}
        return {
            parent: by_range[key_range]
            for parent, key_range in zip(self.parents, self.ranges, strict=False)  # the rest has no parent
        }

    def second(self, first: Epoch, *, stream: str, now_ms: int) -> Epoch:
        """Return the epoch that has the ranges of before."""
        opened = [segment.id for segment in first.opened]
        return _following(first, stream, opened, self.restored, now_ms)


def plan_roll(current: Epoch, parents: Mapping[SegmentId, KeyRange]) -> RollPlan:
    """Return the plan for events that belong to these sealed segments; their ranges do not overlap."""
    seal = [
        segment
        for segment in current.segments
        if any(segment.range.overlaps(key_range) for key_range in parents.values())
    ]
    restored = tuple(segment.range for segment in seal)
    left = _without(canonical(restored), parents.values())
    return RollPlan(
        parents=tuple(parents),
        seal=tuple(segment.id for segment in seal),
        ranges=(*parents.values(), *left),
        restored=restored,
    )


def _following(
    current: Epoch, stream: str, seal: Iterable[SegmentId], ranges: Iterable[KeyRange], now_ms: int
) -> Epoch:
    return next_epoch(
        current,
        stream=stream,
        seal=tuple(seal),
        ranges=tuple(ranges),
        now_ms=now_ms,
        segments_min=1,  # the stream's own minimum holds again in the same transaction
        request_id=None,
    )


def _without(covered: Iterable[KeyRange], taken: Iterable[KeyRange]) -> Iterator[KeyRange]:
    """Yield the parts of `covered` that none of `taken` covers."""
    ordered = sorted(taken)
    for whole in covered:
        low = whole.low
        for each in ordered:
            if not each.overlaps(whole):
                continue
            if low < each.low:
                yield KeyRange(low, each.low)
            low = max(low, each.high)
        if low < whole.high:
            yield KeyRange(low, whole.high)
