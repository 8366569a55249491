"""Epochs: which segments are active between two scales, and what a scale may do to them.

Invariants of an epoch, asserted by `Epoch.check`:
- its segments are sorted by range, and their ranges tile [0, 1) exactly once;
- each was created by this epoch or an earlier one, and no two share an id;
- epoch 0 created all of its segments.
Between an epoch and the next one: numbers of new segments are greater than all earlier ones of the
stream, and created_ms grows. Source: reference pravega.md 1.3 and 1.10.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import attrs

from eventproc.base.counts import counted
from eventproc.store.model.errors import InvalidArgument, NotFound, ScaleRefused
from eventproc.store.model.ids import SegmentId, epoch_of, format_segment, number_of, printable, segment_id
from eventproc.store.model.limits import SEGMENTS_MAX
from eventproc.store.model.ranges import KeyRange, canonical, initial_ranges, tiles
from eventproc.store.model.short_repr import short_repr_of_fields


@attrs.frozen
class Segment:
    """One segment of a stream: its id, and the range of keys that it owns while it is active."""

    id: SegmentId
    range: KeyRange

    def __str__(self) -> str:
        return f"{format_segment(self.id)} [{self.range}]"


@attrs.frozen
class Epoch:
    """A period between two scales: S active segments, sorted by range, tiling [0, 1) exactly once.

    created_ms: wall clock, forced to grow from epoch to epoch. splits, merges: counted over all epochs up
    to this one. request_id: the scale that opened it, None for the first. sealed_bytes, sealed_events: what is in
    the segments that this epoch and the earlier ones replaced.
    """

    __repr__ = short_repr_of_fields

    number: int
    segments: tuple[Segment, ...]
    created_ms: int
    splits: int = 0
    merges: int = 0
    request_id: str | None = None
    sealed_bytes: int = 0
    sealed_events: int = 0

    @cached_property
    def _lows(self) -> tuple[float, ...]:
        return tuple(segment.range.low for segment in self.segments)

    @cached_property
    def by_id(self) -> Mapping[SegmentId, Segment]:
        """The active segments by their ids, in the order of their ranges."""
        return MappingProxyType({segment.id: segment for segment in self.segments})

    def printable(self) -> Epoch:
        """Return the epoch as callers get it: the ids of its segments print as `2.1`."""
        segments = tuple([attrs.evolve(each, id=printable(each.id)) for each in self.segments])
        return attrs.evolve(self, segments=segments)

    @property
    def ids(self) -> tuple[SegmentId, ...]:
        """Ids of the active segments, in the order of their ranges."""
        return tuple([segment.id for segment in self.segments])

    @property
    def opened(self) -> tuple[Segment, ...]:
        """The segments that this epoch created; the others were active before."""
        return tuple([segment for segment in self.segments if epoch_of(segment.id) == self.number])

    def find(self, point: float) -> Segment:
        """Return the segment that owns `point`, which lies in [0, 1). O(log S)."""
        return self.segments[bisect_right(self._lows, point) - 1]

    def segment(self, identifier: SegmentId, *, stream: str) -> Segment:
        """Return the active segment of that id. Raises NotFound, whose text names `stream`."""
        try:
            return self.by_id[identifier]
        except KeyError:
            kind = f"segment of {stream} in epoch {self.number}"
            raise NotFound(kind=kind, name=format_segment(identifier)) from None

    def overlapping(self, key_range: KeyRange) -> tuple[Segment, ...]:
        """Return the segments that share a point with `key_range`, in order. O(log S + found)."""
        first = max(bisect_right(self._lows, key_range.low) - 1, 0)
        return self.segments[first : bisect_left(self._lows, key_range.high)]

    def check(self) -> None:
        """Assert the invariants at the head of this module."""
        assert tiles([segment.range for segment in self.segments]), (
            f"epoch {self.number} does not tile [0, 1)"
        )
        ids = set(self.ids)
        assert len(ids) == len(self.segments), f"epoch {self.number} repeats a segment"
        newest = epoch_of(max(ids))  # of the highest id, for the epoch is its upper half
        assert newest <= self.number, f"epoch {self.number} has a segment of epoch {newest}"


def first_epoch(count: int, *, created_ms: int) -> Epoch:
    """Return epoch 0 of a new stream: segments 0 to count-1 of equal width. Raises InvalidArgument."""
    segments = tuple(
        Segment(id=segment_id(index, 0), range=key_range)
        for index, key_range in enumerate(initial_ranges(count))
    )
    return Epoch(number=0, segments=segments, created_ms=created_ms)


def next_epoch(
    current: Epoch,
    *,
    stream: str,
    seal: Collection[SegmentId],
    ranges: Sequence[KeyRange],
    now_ms: int,
    segments_min: int,
    request_id: str | None,
    segments_max: int = SEGMENTS_MAX,
) -> Epoch:
    """Return the epoch after `current` for a scale that replaces the segments `seal` by new ones with `ranges`.

    New segments are numbered in the order of `ranges`, from the highest active number on; several merges
    and splits in one scale are possible, and so is a segment replaced by one with the same range. `now_ms` is raised
    to one past the current epoch's time if need be. `stream` is for the errors' texts.
    Raises what `verify_scale` raises.
    """
    verify_scale(
        current,
        stream=stream,
        seal=seal,
        ranges=ranges,
        segments_min=segments_min,
        segments_max=segments_max,
    )
    number = current.number + 1
    first_number = max(map(number_of, current.ids)) + 1
    opened = [
        Segment(id=segment_id(first_number + index, number), range=key_range)
        for index, key_range in enumerate(ranges)
    ]
    sealed = frozenset(seal)
    kept = [segment for segment in current.segments if segment.id not in sealed]
    following = tuple(sorted(kept + opened, key=_borders))
    return Epoch(
        number=number,
        segments=following,
        created_ms=max(now_ms, current.created_ms + 1),
        splits=current.splits + _crossings(current.segments, following),
        merges=current.merges + _crossings(following, current.segments),
        request_id=request_id,
    )


def verify_scale(
    current: Epoch,
    *,
    stream: str,
    seal: Collection[SegmentId],
    ranges: Sequence[KeyRange],
    segments_min: int,
    segments_max: int = SEGMENTS_MAX,
) -> None:
    """Verify that a scale may replace the segments `seal` by new ones with `ranges`. stream: for the errors' texts.

    Raises ScaleRefused if a segment is not active, InvalidArgument if one is named twice or `ranges` do not
    cover exactly what `seal` covers, once; then ScaleRefused if fewer than segments_min, or more than
    segments_max and than now, would remain: in this order, as reference pravega.md 1.10.
    """
    sealed = frozenset(seal)
    giving_way = [segment.range for segment in current.segments if segment.id in sealed]
    if len(giving_way) != len(sealed):
        raise _not_active(current, sealed, stream)
    if len(sealed) != len(seal):
        raise InvalidArgument(
            what="segments to seal",
            value=", ".join(map(format_segment, seal)),
            reason="each may be named only once",
        )
    _verify_ranges(giving_way, ranges)
    remaining = len(current.segments) - len(sealed) + len(ranges)
    most = max(
        segments_max, len(current.segments)
    )  # beyond a maximum that was lowered, a stream may still shrink
    if not segments_min <= remaining <= most:
        raise ScaleRefused(
            stream=stream,
            reason=f"{counted(remaining, 'segment')} would remain, {segments_min:,} to {most:,} are possible",
        )


def split_ranges(
    epoch: Epoch, identifier: SegmentId, into: int, *, stream: str
) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
    """Return (seal, ranges) for a scale that splits one active segment. Raises NotFound, InvalidArgument.

    `stream` is for the errors' texts.
    """
    return (identifier,), epoch.segment(identifier, stream=stream).range.split(into)


def merge_ranges(
    epoch: Epoch, identifiers: Collection[SegmentId], *, stream: str
) -> tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]:
    """Return (seal, ranges) for a scale that merges two or more neighbours, named in any order.

    Raises NotFound for a segment that is not active, InvalidArgument when they are not neighbours.
    `stream` is for the errors' texts.
    """
    segments = sorted((epoch.segment(each, stream=stream) for each in set(identifiers)), key=_borders)
    merged = canonical(segment.range for segment in segments)
    if len(segments) < 2 or len(merged) != 1:
        raise InvalidArgument(
            what="merge",
            value=", ".join(format_segment(segment.id) for segment in segments),
            reason="two or more segments with touching key ranges are needed",
        )
    return tuple(segment.id for segment in segments), merged


def _borders(segment: Segment) -> tuple[float, float]:
    return segment.range.low, segment.range.high


def _not_active(current: Epoch, sealed: frozenset[SegmentId], stream: str) -> ScaleRefused:
    strangers = ", ".join(map(format_segment, sorted(sealed.difference(current.ids))))
    return ScaleRefused(stream=stream, reason=f"not active in epoch {current.number}: {strangers}")


def _verify_ranges(sealed: Collection[KeyRange], opened: Sequence[KeyRange]) -> None:
    # An overlap among the opened ranges survives as an entry of its own, and so differs from any sealed
    # set, which has none. An empty range would vanish when joined, so those are refused first.
    for key_range in opened:
        key_range.verify()
    if not opened:
        raise InvalidArgument(what="new key ranges", value="", reason="a scale needs at least one")
    if (wanted := canonical(sealed)) != canonical(opened):
        raise InvalidArgument(
            what="new key ranges",
            value=", ".join(map(str, opened)),
            reason=f"they must cover exactly what is sealed, once: {', '.join(map(str, wanted)) or 'nothing'}",
        )


def _crossings(one: Sequence[Segment], other: Sequence[Segment]) -> int:
    # Splits are the segments of the earlier epoch that cross more than one of the later; merges the reverse.
    lows = [segment.range.low for segment in other]
    ranges = [segment.range for segment in one]
    return sum([bisect_left(lows, each.high) > bisect_right(lows, each.low) for each in ranges])
