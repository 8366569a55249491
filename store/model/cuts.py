"""Stream cuts: one offset per segment, which divide the read events from the unread; their validity and order.

The rules look at one point of the key space at a time. At one point the segments of the history follow each other, and
their ids grow. For that point a cut names the segment to be read next, and the offset in it. Earlier segments at that
point are behind the cut, later ones are after it. Offset -1 (`NOT_REACHED`) means that the segment was not opened,
because some of its predecessors were read to their ends and others were not.

A cut is valid if
1. every point has exactly one segment with an offset, or else a segment that is not reached;
2. a segment that is behind the cut at one point is behind it at all its points: none is read in part of its range;
3. a segment that is not reached is next at some of its points and not at all of them: -1 never replaces 0.
So each position has one form, and equal positions are equal values. The valid cuts are exactly the states of a reader
that opens a segment only after all its predecessors.

Source: reference pravega.md 1.7, with intended differences. Pravega's walk through gaps accepts cuts that break rule 2
where offsets cover the key space. It has no defined result for unknown ids and for cuts without an offset, which are
invalid here. Its pairwise comparison returns "overlapping" if one cut merely waits for a segment that both contain.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from functools import cached_property
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Final, TypeAlias

import attrs

from eventproc.store.model.argument_checks import INT_MAX, check_instance, check_int, check_mapping, check_str
from eventproc.store.model.epochs import Epoch, Segment
from eventproc.store.model.errors import InvalidArgument, InvalidCut, NotFound
from eventproc.store.model.history import History, get_segment, segments_during
from eventproc.store.model.ids import SegmentId, as_segment, epoch_of, format_segment, parse_segment
from eventproc.store.model.ranges import KEY_SPACE, KeyRange
from eventproc.store.model.short_repr import short_repr_of_fields

NOT_REACHED: Final = -1
"""Offset of a segment that will be read from its beginning after all its predecessors were read."""

_Place: TypeAlias = tuple[SegmentId, int]
"""The segment to be read next at one point, and the offset in it: places at one point are ordered."""

_MEANT: Final = "it must be a mapping of segment ids to offsets"
_TEXT: Final = re.compile(r"([0-9]{1,19}):(.*)", re.ASCII | re.DOTALL)
_ENTRY: Final = re.compile(r"([0-9.]+)=(-1|[0-9]{1,19})", re.ASCII)


def _sorted_offsets(offsets: Mapping[SegmentId, int]) -> Mapping[SegmentId, int]:
    entries = check_mapping("offsets of a cut", offsets, _MEANT).items()
    if not all(type(each) is int for entry in entries for each in entry):
        entries = {as_segment(segment): check_int("offset", offset) for segment, offset in entries}.items()
    return MappingProxyType(dict(sorted(entries)))


def _pairs(offsets: Mapping[SegmentId, int]) -> tuple[tuple[SegmentId, int], ...]:
    return tuple(offsets.items())


@attrs.frozen
class StreamCut:
    """A position in a stream: one offset per segment. Immutable, hashable, can be pickled.

    `str(cut)` returns its text, and `StreamCut.parse` reads it. The constructor accepts any offsets; the operation that
    uses the cut checks them against the history of the stream.

    Args:
        stream: full name, "scope/stream".
        stream_id: id of the stream; a stream that was deleted and created again has another id.
        offsets: from segment id to offset, bytes from the beginning of the segment, or -1 for a segment
            that begins after the cut.

    Raises:
        InvalidArgument: an argument has the wrong type.
    """

    __repr__ = short_repr_of_fields

    stream: str
    stream_id: int
    offsets: Mapping[SegmentId, int] = attrs.field(converter=_sorted_offsets, eq=_pairs)

    def __attrs_post_init__(self) -> None:
        check_str("stream of a cut", self.stream)
        check_int("stream id of a cut", self.stream_id)

    @classmethod
    def parse(cls, text: str, stream: str) -> StreamCut:
        """Return the cut of `stream` with this text.

        Args:
            text: stream id, then offsets by segment, such as "7:0.0=120,2.1=-1".
            stream: full name, "scope/stream".

        Raises:
            InvalidCut: the text has another form.
        """
        if not (match := _TEXT.fullmatch(check_str("cut", text))):
            raise InvalidCut(stream=stream, cut=text, reason="it must look like 7:0.0=120,2.1=-1")
        offsets: dict[SegmentId, int] = {}
        for part in match[2].split(","):
            if not (entry := _ENTRY.fullmatch(part)):
                raise InvalidCut(stream=stream, cut=text, reason=f"{part!r} does not look like 0.0=120")
            try:
                identifier = parse_segment(entry[1])
            except InvalidArgument as why:
                raise InvalidCut(stream=stream, cut=text, reason=str(why)) from None
            if identifier in offsets:
                raise InvalidCut(stream=stream, cut=text, reason=f"segment {entry[1]} is named twice")
            offsets[identifier] = int(entry[2])
        stream_id = int(match[1])
        if max(stream_id, *offsets.values()) > INT_MAX:
            raise InvalidCut(stream=stream, cut=text, reason=f"its numbers are at most {INT_MAX}")
        return cls(stream=stream, stream_id=stream_id, offsets=offsets)

    def __str__(self) -> str:
        entries = (f"{format_segment(identifier)}={offset}" for identifier, offset in self.offsets.items())
        return f"{self.stream_id}:{','.join(entries)}"

    def __reduce__(self) -> tuple[type[StreamCut], tuple[str, int, dict[SegmentId, int]]]:
        # A mapping proxy does not pickle, and cuts travel to other processes.
        return StreamCut, (self.stream, self.stream_id, dict(self.offsets))


def as_cut(value: object, what: str) -> StreamCut:
    """Return `value` if it is a cut. Raises InvalidArgument, whose text names methods that return cuts."""
    reason = "it must be a stream cut, such as the stream's tail() or a reader's cut()"
    return check_instance(StreamCut, what, value, reason)


@attrs.frozen
class CutRange:
    """A range of keys for which a cut has one segment as the next to be read."""

    range: KeyRange
    id: SegmentId
    offset: int


@attrs.frozen
class DividedCut:
    """A cut as a function of the key space: its ranges are in order and tile [0, 1)."""

    ranges: tuple[CutRange, ...]

    @cached_property
    def _lows(self) -> tuple[float, ...]:
        return tuple(each.range.low for each in self.ranges)

    def over(self, key_range: KeyRange) -> tuple[CutRange, ...]:
        """Return the ranges that share a point with `key_range`. O(log ranges + found)."""
        first = bisect_right(self._lows, key_range.low) - 1
        return self.ranges[first : bisect_left(self._lows, key_range.high)]

    def is_behind(self, segment: Segment) -> bool:
        """Return whether all of `segment` was read. In a valid cut all points of a segment give the same answer."""
        return self.over(segment.range)[0].id > segment.id

    def reaches(self, other: DividedCut) -> bool:
        """Return whether this cut is earlier than `other` in no part of the key space. Needs no history."""
        return all((own.id, own.offset) >= (it.id, it.offset) for _, own, it in _refine(self, other))

    def later(self, other: DividedCut) -> DividedCut:
        """Return what is, at each point, the later of two valid cuts, as the function `later`. Needs no history."""
        return DividedCut(_chosen(self, other, max))


def divide_cut(cut: StreamCut, history: History) -> DividedCut:
    """Return which segment is next at each point of the key space: rule 1 at the head of this module.

    Raises InvalidCut when a segment is unknown, two offsets share a point, or a point has no segment.
    """
    if cut.stream != history.stream:
        raise _invalid(cut, history, f"it is a cut of {cut.stream}")
    begun, waiting = _segments_of(cut, history)
    for before, after in pairwise(begun):
        if after.range.low < before.range.high:
            raise _invalid(cut, history, f"segments {before} and {after} overlap")
    lows = [segment.range.low for segment in begun]
    key_ranges = [segment.range for segment in (*begun, *waiting)]
    borders = sorted({end for each in (KEY_SPACE, *key_ranges) for end in (each.low, each.high)})
    ranges: list[CutRange] = []
    for low, high in pairwise(borders):
        owner: SegmentId | None
        candidate = bisect_right(lows, low) - 1
        if candidate >= 0 and begun[candidate].range.contains(low):
            owner = begun[candidate].id
        else:  # the oldest segment that is not reached is next here; `waiting` is sorted by id
            owner = next((each.id for each in waiting if each.range.contains(low)), None)
        if owner is None:
            raise _invalid(cut, history, f"no segment of it covers {KeyRange(low, high)}")
        if ranges and ranges[-1].id == owner:
            low = ranges.pop().range.low
        ranges.append(CutRange(range=KeyRange(low, high), id=owner, offset=cut.offsets[owner]))
    return DividedCut(tuple(ranges))


def verify_cut(cut: StreamCut, history: History) -> None:
    """Raise InvalidCut with the reason unless `cut` is valid by the rules at the head of this module.

    The segment store checks what needs the lengths: whether an offset is within its segment, and on the border of an
    event. Cost: reads the epochs from the first in which one of the segments is sealed to the creation of the newest;
    a single epoch if the cut has exactly its segments.
    """
    if _is_one_epoch(cut, history):
        return
    division = divide_cut(cut, history)
    for segment in _perhaps_halved(cut, history):
        behind = {piece.id > segment.id for piece in division.over(segment.range)}
        if len(behind) > 1:
            raise _invalid(
                cut, history, f"segment {segment} is behind it in one part of its range and not in another"
            )
    for identifier, offset in cut.offsets.items():
        if offset != NOT_REACHED:
            continue
        segment = get_segment(history, identifier)
        here = {piece.id == identifier for piece in division.over(segment.range)}
        if True not in here:
            reason = f"segment {segment} cannot have offset -1: none of its predecessors was read to its end"
            raise _invalid(cut, history, reason)
        if False not in here:
            raise _invalid(
                cut, history, f"segment {segment} has no unread predecessor: its offset is 0, not -1"
            )


class CutOrder(StrEnum):
    """The result of `compare_cuts`: how the first cut relates to the second."""

    BEFORE = "before"
    """Earlier in some part of the key space, and later in none."""
    EQUAL_OR_AFTER = "equal_or_after"
    """Earlier in no part of the key space."""
    OVERLAPS = "overlaps"
    """Earlier in one part of the key space, later in another."""


def compare_cuts(a: StreamCut, b: StreamCut, history: History) -> CutOrder:
    """Return how `a` relates to `b`; both are valid. The end of a segment is before the start of its successor.

    Raises InvalidCut as `divide_cut` does.
    """
    earlier = later = False
    for _, left, right in _refine(divide_cut(a, history), divide_cut(b, history)):
        earlier |= (left.id, left.offset) < (right.id, right.offset)
        later |= (left.id, left.offset) > (right.id, right.offset)
    if not earlier:
        return CutOrder.EQUAL_OR_AFTER
    return CutOrder.OVERLAPS if later else CutOrder.BEFORE


def equal_or_after(a: StreamCut, b: StreamCut, history: History) -> bool:
    """Return whether `a` is earlier than `b` in no part of the key space; then the head may move from b to a."""
    return compare_cuts(a, b, history) is CutOrder.EQUAL_OR_AFTER


def earlier(a: StreamCut, b: StreamCut, history: History) -> StreamCut:
    """Return the cut that is, at each point of the key space, the earlier of two valid cuts; it is valid too.

    Raises InvalidCut as `divide_cut` does.
    """
    return _combined(a, b, history, min)


def later(a: StreamCut, b: StreamCut, history: History) -> StreamCut:
    """Return the cut that is, at each point of the key space, the later of two valid cuts; it is valid too."""
    return _combined(a, b, history, max)


def _combined(
    a: StreamCut, b: StreamCut, history: History, choose: Callable[[_Place, _Place], _Place]
) -> StreamCut:
    offsets: dict[SegmentId, int] = {}
    for piece in _chosen(divide_cut(a, history), divide_cut(b, history), choose):
        opened = piece.range == get_segment(history, piece.id).range
        offsets[piece.id] = max(piece.offset, 0) if opened else NOT_REACHED
    return StreamCut(stream=a.stream, stream_id=a.stream_id, offsets=offsets)


def _chosen(a: DividedCut, b: DividedCut, choose: Callable[[_Place, _Place], _Place]) -> tuple[CutRange, ...]:
    pieces: list[CutRange] = []
    for key_range, left, right in _refine(a, b):
        identifier, offset = choose((left.id, left.offset), (right.id, right.offset))
        if pieces and pieces[-1].id == identifier:
            key_range = KeyRange(pieces.pop().range.low, key_range.high)
        pieces.append(CutRange(range=key_range, id=identifier, offset=offset))
    return tuple(pieces)


def with_ends(
    own: Mapping[SegmentId, int], ends: Mapping[SegmentId, int], history: History
) -> dict[SegmentId, int]:
    """Return the offsets of the cut of a reader that stands at `own`, and at `ends` where it has finished.

    own: offsets of a cut that may leave points without a segment; there the reader has read up to the cut `ends`.
    """
    found = dict(own)
    for segment in ends.keys() - own.keys():
        key_range = get_segment(history, segment).range
        before = [get_segment(history, each).range for each in own if each < segment]
        overlapping = [each for each in before if each.overlaps(key_range)]
        if not overlapping:
            found[segment] = ends[segment]
        elif not _cover(overlapping, key_range):
            found[segment] = NOT_REACHED
    return found


def _cover(ranges: list[KeyRange], whole: KeyRange) -> bool:
    point = whole.low
    for each in sorted(ranges):
        if each.low <= point < each.high:
            point = each.high
    return point >= whole.high


def segments_between(
    history: History,
    from_cut: StreamCut | None,
    to_cut: StreamCut | None,
    *,
    after: SegmentId | None = None,
    limit: int | None = None,
) -> tuple[SegmentId, ...]:
    """Return the segments in either cut or between them, sorted by id; both cuts are valid.

    from_cut: None means the beginning of the oldest epoch kept. to_cut: None means the end of the active epoch.
    after: only segments whose ids are greater. limit: at most that many; None: all.
    Raises InvalidArgument if `to_cut` is not equal to or after `from_cut`.
    Cost: reads the epochs in which the returned segments were created, and those in between.
    """
    start = _whole(history.epoch(history.first), 0) if from_cut is None else divide_cut(from_cut, history)
    end = _whole(history.epoch(history.current), _ENDLESS) if to_cut is None else divide_cut(to_cut, history)
    steps = list(_refine(start, end))
    if any((left.id, left.offset) > (right.id, right.offset) for _, left, right in steps):
        raise InvalidArgument(what="cut", value=str(to_cut), reason=f"it is before {from_cut or 'the head'}")
    lows = [key_range.low for key_range, _, _ in steps]
    oldest, newest = min(left.id for _, left, _ in steps), max(right.id for _, _, right in steps)
    named = {*(from_cut.offsets if from_cut else ()), *(to_cut.offsets if to_cut else ())}
    # A segment after `after` was created in the epoch of `after` or later.
    first = epoch_of(oldest) if after is None else max(epoch_of(oldest), epoch_of(after))
    found = (
        segment.id
        for segment in segments_during(history, first, epoch_of(newest))
        if (after is None or segment.id > after)
        and (
            segment.id in named
            or any(
                left.id <= segment.id <= right.id
                for _, left, right in steps[
                    bisect_right(lows, segment.range.low) - 1 : bisect_left(lows, segment.range.high)
                ]
            )
        )
    )
    return tuple(islice(found, limit))


_ENDLESS: Final = 2**63 - 1


def _invalid(cut: StreamCut, history: History, reason: str) -> InvalidCut:
    return InvalidCut(stream=history.stream, cut=str(cut), reason=reason)


def _segments_of(cut: StreamCut, history: History) -> tuple[list[Segment], list[Segment]]:
    """Return the cut's segments with an offset, sorted by range, and those not reached, sorted by id."""
    begun: list[Segment] = []
    waiting: list[Segment] = []
    for identifier, offset in cut.offsets.items():
        try:
            segment = get_segment(history, identifier)
        except NotFound:
            reason = f"segment {format_segment(identifier)} is not a segment of this stream, or was truncated"
            raise _invalid(cut, history, reason) from None
        if offset < NOT_REACHED:
            raise _invalid(cut, history, f"{offset} is not an offset")
        (waiting if offset == NOT_REACHED else begun).append(segment)
    begun.sort(key=lambda segment: segment.range)
    return begun, waiting


def _perhaps_halved(cut: StreamCut, history: History) -> list[Segment]:
    """Return each segment that may be behind the cut at one point and not at another, the oldest first.

    At the other point it is the cut's own segment, or began after that was sealed.
    """
    segments = [get_segment(history, identifier) for identifier in cut.offsets]
    sealed = [epoch for each in cut.offsets if (epoch := history.sealed_in(each)) is not None]
    if sealed:
        for number in range(min(sealed), epoch_of(max(cut.offsets)) + 1):
            segments.extend(each for each in history.epoch(number).opened if each.id not in cut.offsets)
    return segments


def _is_one_epoch(cut: StreamCut, history: History) -> bool:
    # The common case: a tail, or a position between two scales. An epoch tiles the key space by itself.
    if cut.stream != history.stream or not cut.offsets or min(cut.offsets.values()) < 0:
        return False
    number = max(epoch_of(max(cut.offsets)), history.first)
    return number <= history.current and history.epoch(number).by_id.keys() == cut.offsets.keys()


def _whole(epoch: Epoch, offset: int) -> DividedCut:
    return DividedCut(tuple(CutRange(range=each.range, id=each.id, offset=offset) for each in epoch.segments))


def _refine(a: DividedCut, b: DividedCut) -> Iterator[tuple[KeyRange, CutRange, CutRange]]:
    """Yield the ranges within which neither division changes, in order, with the piece of each."""
    lefts, rights = iter(a.ranges), iter(b.ranges)
    left, right = next(lefts), next(rights)
    low = KEY_SPACE.low
    while True:
        high = min(left.range.high, right.range.high)
        yield KeyRange(low, high), left, right
        if high == KEY_SPACE.high:
            return
        if left.range.high == high:
            left = next(lefts)
        if right.range.high == high:
            right = next(rights)
        low = high
