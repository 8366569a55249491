"""Rolling: how a transaction is committed whose segment was split, without routing its events again.

Events that a foreign client staged belong to the key range of a segment (`stage(bound=True)`), because the protocol
carries no keys. While one active segment contains that range, the events are appended there. If a scale has divided the
range between several active segments, two epochs are opened around the commit. In the first, those segments are merged,
and the events are appended to the merged one. In the second, the former ranges are restored. So the events of every key
keep their order, and neither the scale nor the transaction waits for the other. A roll never needs more segments than
there are, so that no limit refuses it. Source: docs/design/endpoints.md, "Decisions".
"""

from __future__ import annotations

from collections.abc import Iterable

import attrs

from eventproc.store.model.epochs import Epoch, next_epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ranges import KeyRange


@attrs.frozen
class RollPlan:
    """The two epochs of a roll.

    seal: active segments that give way. merged: ranges of the segments that take their place.
    restored: ranges of the second epoch, which seals what the first one opened.
    """

    seal: tuple[SegmentId, ...]
    merged: tuple[KeyRange, ...]
    restored: tuple[KeyRange, ...]

    def first(self, current: Epoch, *, stream: str, now_ms: int) -> Epoch:
        """Return the epoch in which the events are appended."""
        return _following(current, stream, self.seal, self.merged, now_ms)

    def second(self, first: Epoch, *, stream: str, now_ms: int) -> Epoch:
        """Return the epoch that has the ranges of before."""
        opened = [segment.id for segment in first.opened]
        return _following(first, stream, opened, self.restored, now_ms)


def plan_roll(current: Epoch, divided: Iterable[KeyRange]) -> RollPlan:
    """Return the plan for events that belong to these ranges, each divided between several active segments."""
    merged: list[KeyRange] = []
    for key_range in sorted(divided):
        owners = current.overlapping(key_range)
        low, high = owners[0].range.low, owners[-1].range.high
        if merged and low < merged[-1].high:  # they share a segment
            merged[-1] = KeyRange(merged[-1].low, max(merged[-1].high, high))
        else:
            merged.append(KeyRange(low, high))
    giving_way = [segment for key_range in merged for segment in current.overlapping(key_range)]
    return RollPlan(
        seal=tuple([segment.id for segment in giving_way]),
        merged=tuple(merged),
        restored=tuple([segment.range for segment in giving_way]),
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
        segments_min=1,  # the stream's own limits hold again in the same transaction
        request_id=None,
    )
