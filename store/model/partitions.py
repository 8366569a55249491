"""Partitions: the segments of a topic, which is a stream that grows and never splits a segment that holds events.

The key space has SLOTS slots of equal width. Partition p is segment number p and owns the slot [p/SLOTS, (p+1)/SLOTS).
The *reserve* segment owns the slots behind the last partition. It never holds an event. Growth seals it and opens new
partitions, and a smaller reserve, over its range.

Invariants of a topic's epoch, asserted by `check_partitions`:
- its segments are the partitions 0 to n-1, each over its slot, and then the reserve over the rest;
- n is 1 to PARTITIONS_MAX, so the reserve is never empty.

A keyed event is stored with a point inside its partition's slot, whichever strategy chose the partition. So cuts,
preparation and growth treat a topic as any other stream.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

from eventproc.base.counts import counted
from eventproc.store.model.epochs import Epoch, Segment, first_epoch
from eventproc.store.model.errors import InvalidArgument, ScaleRefused
from eventproc.store.model.ids import SegmentId, number_of, segment_id
from eventproc.store.model.limits import PARTITIONS_MAX, SEGMENT_PART_BITS
from eventproc.store.model.policies import Partitioning, ScalingKind, StreamConfig
from eventproc.store.model.ranges import KEY_SPACE, KeyRange

SLOTS: Final = PARTITIONS_MAX + 1
"""Slots of the key space: one for each possible partition, and the last for the reserve. A power of two, so that all
borders are exact."""

RESERVE_NUMBER: Final = (1 << SEGMENT_PART_BITS) - 1
"""Segment number of the reserve: the highest that an id holds, so no partition ever gets it."""

_INSIDE_SLOT: Final = 1.0 - 2.0**-42
"""Factor of a key's point within its slot. A sum of a partition and a point just below 1 would round up to the
next partition: a double has 43 bits behind the point for the highest partitions."""

assert SLOTS & (SLOTS - 1) == 0, "the borders of slots are exact"


def is_reserve(segment: SegmentId) -> bool:
    """Return whether the segment is a topic's reserve, which never holds an event."""
    return number_of(segment) == RESERVE_NUMBER


def reserve_of(epoch: Epoch) -> SegmentId | None:
    """Return the reserve of a topic's epoch; None for the epoch of another stream."""
    last = epoch.segments[-1].id
    return last if is_reserve(last) else None


def partition_ids(epoch: Epoch) -> tuple[SegmentId, ...]:
    """Return the segments that take events: the partitions of a topic by number, all segments of another stream."""
    return epoch.ids if reserve_of(epoch) is None else epoch.ids[:-1]


def stored_point(partition: int, point: float) -> float:
    """Return the point that an event of a topic is stored with: inside the slot of its partition.

    point: that of its key; NaN, for an event without a key, stays NaN.
    """
    return (partition + point * _INSIDE_SLOT) / SLOTS


def opening_epoch(config: StreamConfig, *, created_ms: int) -> Epoch:
    """Return epoch 0 of a new stream or topic. Raises InvalidArgument."""
    count = config.scaling.segments_min
    if config.scaling.kind is not ScalingKind.PARTITIONS:
        return first_epoch(count, created_ms=created_ms)
    _check_count(count)
    segments = tuple([Segment(segment_id(number, 0), _slot(number)) for number in range(count)])
    reserve = Segment(segment_id(RESERVE_NUMBER, 0), _rest(count))
    return Epoch(number=0, segments=(*segments, reserve), created_ms=created_ms)


def growth(epoch: Epoch, count: int) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
    """Return (seal, ranges) for the scale that adds `count` partitions to a topic.

    0 replaces the reserve only, which makes all writers read the topic's configuration again. Raises InvalidArgument.
    """
    reserve = reserve_of(epoch)
    assert reserve is not None, f"epoch {epoch.number} is not one of a topic"
    before = len(epoch.segments) - 1
    after = before + count
    if count < 0 or after > PARTITIONS_MAX:
        reason = f"the topic has {before}, and at most {PARTITIONS_MAX:,} are possible"
        raise InvalidArgument(what="partitions to add", value=str(count), reason=reason)
    return (reserve,), (*map(_slot, range(before, after)), _rest(after))


def grow(
    epoch: Epoch,
    *,
    topic: str,
    seal: Collection[SegmentId],
    ranges: Sequence[KeyRange],
    now_ms: int,
    request_id: str | None,
) -> Epoch:
    """Return the epoch after `epoch` for a scale that adds partitions. topic: its name, for errors.

    Raises ScaleRefused if the scale is anything else than `growth` of this epoch.
    """
    verify_growth(epoch, topic=topic, seal=seal, ranges=ranges)
    number = epoch.number + 1
    before = len(epoch.segments) - 1
    opened = [
        Segment(segment_id(before + index, number), key_range) for index, key_range in enumerate(ranges[:-1])
    ]
    reserve = Segment(segment_id(RESERVE_NUMBER, number), ranges[-1])
    return Epoch(
        number=number,
        segments=(*epoch.segments[:-1], *opened, reserve),
        created_ms=max(now_ms, epoch.created_ms + 1),
        splits=epoch.splits + bool(opened),
        merges=epoch.merges,
        request_id=request_id,
    )


def verify_growth(
    epoch: Epoch, *, topic: str, seal: Collection[SegmentId], ranges: Sequence[KeyRange]
) -> None:
    """Verify that a scale only adds partitions to a topic. Raises ScaleRefused."""
    wanted = growth(epoch, max(min(len(ranges) - 1, PARTITIONS_MAX + 1 - len(epoch.segments)), 0))
    if (tuple(seal), tuple(ranges)) == wanted:
        return
    if len(seal) == 1 and all(map(is_reserve, seal)) and tuple(seal) != wanted[0]:
        reason = (
            f"partitions were added meanwhile: it has {counted(len(epoch.segments) - 1, 'partition')} now"
        )
    else:
        reason = "a topic is not scaled by key ranges; add partitions with `topic.add_partitions`"
    raise ScaleRefused(stream=topic, reason=reason)


def check_partitions(epoch: Epoch) -> None:
    """Assert the invariants at the head of this module for the epoch of a topic."""
    epoch.check()
    count = len(epoch.segments) - 1
    assert 1 <= count <= PARTITIONS_MAX, f"epoch {epoch.number} of a topic has {count} partitions"
    for number, segment in enumerate(epoch.segments[:-1]):
        found = number_of(segment.id), segment.range
        assert found == (number, _slot(number)), f"partition {number} is segment {segment}"
    reserve = epoch.segments[-1]
    assert is_reserve(reserve.id), f"the last segment of a topic is {reserve}, not its reserve"
    assert reserve.range == _rest(count), f"the reserve owns {reserve.range}"


class Router:
    """Chooses the segment of each event in one epoch. The only place that knows how keys become partitions.

    epoch: the epoch. segments: those that take events, by key range. partitioning: the topic's strategy.
    reserve: the topic's reserve; None for another stream. A send to a topic verifies that the reserve is active,
    because growth seals no other segment, and later events of a key may already be in another partition.
    rotates: whether events go to the partitions in turn, whatever their keys are.
    needs_keys: whether an event without a key is refused, because the topic is compacted.
    """

    def __init__(
        self, epoch: Epoch, partitioning: Partitioning | None = None, *, needs_keys: bool = False
    ) -> None:
        self.epoch = epoch
        self.reserve = reserve_of(epoch)
        self.segments = partition_ids(epoch)
        self.partitioning = partitioning
        self.needs_keys = needs_keys
        self.rotates = self.reserve is not None and partitioning is Partitioning.ROUND_ROBIN

    def segment(self, point: float) -> SegmentId:
        """Return the segment of a key at `point`. In a topic of n partitions: floor(point * n), in doubles."""
        if self.reserve is None:
            return self.epoch.find(point).id
        return self.segments[int(point * len(self.segments))]

    def partition(self, number: int, *, topic: str) -> SegmentId:
        """Return the segment of partition `number`. topic: for the error's text. Raises InvalidArgument."""
        if self.reserve is None:
            reason = f"{topic} is not a topic, and has no partitions; give a key instead"
            raise InvalidArgument(what="partition", value=repr(number), reason=reason)
        if type(number) is not int or not 0 <= number < len(self.segments):
            reason = f"{topic} has the partitions 0 to {len(self.segments) - 1}"
            raise InvalidArgument(what="partition", value=repr(number), reason=reason)
        return self.segments[number]

    def verify_event(self, partition: int | None, key: str | None, *, topic: str) -> None:
        """Verify that there is such a partition, and that an event may have no key. Raises InvalidArgument.

        topic: for the error's text.
        """
        if partition is not None:
            self.partition(partition, topic=topic)
        if key is None and self.needs_keys:
            reason = f"{topic} is compacted: it keeps the newest event of each key, so every event needs one"
            raise InvalidArgument(what="key", value="None", reason=reason)

    def stored_point(self, segment: SegmentId, point: float) -> float:
        """Return the point that an event of a segment is stored with. point: that of its key."""
        return point if self.reserve is None else stored_point(number_of(segment), point)

    @property
    def key_borders(self) -> list[float]:
        """Where the keys of each segment begin in the key space, those of `segments`; for a vectorized look-up."""
        if self.reserve is None:
            return [segment.range.low for segment in self.epoch.segments]
        return [_first_point(number, len(self.segments)) for number in range(len(self.segments))]


def _first_point(number: int, count: int) -> float:
    """Return the smallest point whose product with `count`, rounded as doubles are, is `number` or more."""
    found = number / count
    while found * count < number:
        found = math.nextafter(found, 1.0)
    while found > 0.0 and (below := math.nextafter(found, 0.0)) * count >= number:
        found = below
    return found


def _check_count(count: int) -> None:
    if not 1 <= count <= PARTITIONS_MAX:
        reason = f"1 to {PARTITIONS_MAX:,} are possible"
        raise InvalidArgument(what="number of partitions", value=str(count), reason=reason)


def _slot(number: int) -> KeyRange:
    return KeyRange(number / SLOTS, (number + 1) / SLOTS)


def _rest(count: int) -> KeyRange:
    return KeyRange(count / SLOTS, KEY_SPACE.high)
