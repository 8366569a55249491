"""Assignors: each decides which reader shall own which segment of a group. Pure.

An assignor decides on *targets*: the reader that shall own a segment. Owners follow: an owner drains a segment that has
another target and releases it, and the target acquires it. Targets are decided once, when readers, subscriptions or
segments change, and not again while segments are on their way, so no segment moves twice.

The reserve segment of a topic never holds an event, so it needs no reader, and no assignor sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias, runtime_checkable

import attrs

from eventproc.store.groups import EQUAL, SegmentKey
from eventproc.store.model.ids import SegmentId, number_of
from eventproc.store.model.short_repr import short_repr_of_fields

RANGE: Final = "range"
ROUND_ROBIN: Final = "round_robin"
LAG: Final = "lag"

Targets: TypeAlias = Mapping[SegmentKey, str]
"""The reader that shall own each segment."""


@attrs.frozen
class AssignableSegment:
    """A segment that needs a reader.

    target: the reader that was to own it until now; None for a new segment, or if that reader left.
    owner: the reader that owns it now, which may not be its target.
    unread: events that the group has not finished in it; counted for the assignor "lag" only.
    """

    __repr__ = short_repr_of_fields

    stream: str
    stream_id: int
    segment: SegmentId
    target: str | None = None
    owner: str | None = None
    unread: int = 0

    @property
    def key(self) -> SegmentKey:
        """Identifies the segment within the group: (stream_id, segment)."""
        return self.stream_id, self.segment


@attrs.frozen
class AssignmentInput:
    """What an assignor decides on.

    segments: sorted by key; each has at least one subscriber.
    subscribers: {name of a stream: the readers that subscribe to it, sorted}.
    """

    __repr__ = short_repr_of_fields

    segments: tuple[AssignableSegment, ...]
    subscribers: Mapping[str, tuple[str, ...]]

    @cached_property
    def readers(self) -> tuple[str, ...]:
        """The readers that subscribe to any of the streams, sorted."""
        return tuple(sorted({reader for readers in self.subscribers.values() for reader in readers}))


@runtime_checkable
class Assignor(Protocol):
    """An assignor of your own, for `create_group` by its name, and for the readers that have its code.

    name: stored with the group; not that of a built-in one.
    """

    name: str

    def assign(self, wanted: AssignmentInput) -> Targets:
        """Return the reader of every segment of `wanted`. It must subscribe to the segment's stream.

        Equal arguments must give equal results. Called on the event loop: it must not block.
        """
        ...


def assign_equal(wanted: AssignmentInput) -> Targets:
    """Give every reader an equal share, and move as few segments as possible.

    With equal subscriptions, shares differ by at most one, and no other assignment with such shares changes the target
    of fewer segments. With different ones, no move of one segment would make two shares more equal.
    """
    streams = {each.stream for each in wanted.segments}
    if all(wanted.subscribers[stream] == wanted.readers for stream in streams):
        return share_equally(
            {each.key: each.target for each in wanted.segments},
            wanted.readers,
            {each.key: each.owner for each in wanted.segments},
        )
    return _Levelling(wanted).run()


def assign_ranges(wanted: AssignmentInput) -> Targets:
    """Give each subscriber of a stream a contiguous range of its segments, by number; the first ones get one more.

    Segments with equal numbers of equally divided streams have the same reader, as a join of two topics needs it.
    """
    found: dict[SegmentKey, str] = {}
    by_stream: dict[str, list[AssignableSegment]] = {}
    for each in wanted.segments:
        by_stream.setdefault(each.stream, []).append(each)
    for stream, segments in by_stream.items():
        readers = wanted.subscribers[stream]
        share, extra = divmod(len(segments), len(readers))
        ordered = iter(sorted(segments, key=_by_number))
        for rank, reader in enumerate(readers):
            for _ in range(share + (rank < extra)):
                found[next(ordered).key] = reader
    return found


def assign_in_turn(wanted: AssignmentInput) -> Targets:
    """Deal the segments of all streams to the readers in turn; a reader that does not subscribe is passed over."""
    found: dict[SegmentKey, str] = {}
    turn = 0
    for each in sorted(wanted.segments, key=lambda each: (each.stream, *_by_number(each))):
        subscribers = frozenset(wanted.subscribers[each.stream])
        while wanted.readers[turn % len(wanted.readers)] not in subscribers:
            turn += 1
        found[each.key] = wanted.readers[turn % len(wanted.readers)]
        turn += 1
    return found


def assign_by_lag(wanted: AssignmentInput) -> Targets:
    """Spread the unread events: the segment with most of them goes to the subscriber that has fewest so far, and so on.

    Among readers with equally many, one with fewer segments is preferred, then the present target. So with equal
    subscriptions the unread events of two readers differ by at most those of one segment, and segments without unread
    events spread too. O(segments * readers).
    """
    found: dict[SegmentKey, str] = {}
    unread, counts = dict.fromkeys(wanted.readers, 0), dict.fromkeys(wanted.readers, 0)
    for each in sorted(wanted.segments, key=lambda each: (-each.unread, each.key)):
        reader = min(
            wanted.subscribers[each.stream],
            key=lambda reader: (unread[reader], counts[reader], reader != each.target, reader),
        )
        found[each.key] = reader
        unread[reader] += each.unread
        counts[reader] += 1
    return found


BUILT_IN: Final[Mapping[str, Callable[[AssignmentInput], Targets]]] = MappingProxyType(
    {EQUAL: assign_equal, RANGE: assign_ranges, ROUND_ROBIN: assign_in_turn, LAG: assign_by_lag}
)
"""The assignors that every process has."""


def fault_in(targets: object, wanted: AssignmentInput) -> str | None:
    """Return what is wrong with the result of an own assignor; None if nothing is.

    It must name each segment, no other one, and for each a reader that subscribes to its stream.
    """
    if not isinstance(targets, Mapping):
        return f"it returned {type(targets).__name__}, and not a mapping from segments to readers"
    counted = {each.key: each for each in wanted.segments}
    if missing := sorted(counted.keys() - targets.keys()):
        return f"it left out {len(missing)} segments, {missing[0]} among them"
    if strangers := [key for key in targets if key not in counted]:
        return f"it named {len(strangers)} segments that the group does not have, {strangers[0]} among them"
    for key, each in counted.items():
        if targets[key] not in wanted.subscribers[each.stream]:
            return f"it gave {key} to {targets[key]!r}, which does not subscribe to {each.stream}"
    return None


def share_equally(
    targets: Mapping[SegmentKey, str | None],
    readers: Collection[str],
    owners: Mapping[SegmentKey, str | None],
) -> dict[SegmentKey, str]:
    """Return the target of each segment of `targets`; nothing when there is no reader.

    targets: the present ones; a target that is not in `readers` counts as None.
    owners: the present owners.
    A segment that needs a new target goes to its owner if shares stay fair, else to the other readers in turn, so that
    the segments of a stream spread. O(segments log segments).
    """
    if not readers:
        return {}
    kept: dict[str, list[SegmentKey]] = {reader: [] for reader in sorted(readers)}
    free: list[SegmentKey] = []
    for key in sorted(targets):
        reader = targets[key]
        (free if reader is None else kept.get(reader, free)).append(key)
    quotas = _quotas({reader: len(keys) for reader, keys in kept.items()}, len(targets))
    for reader, keys in kept.items():
        # Segments that the reader has not acquired yet go first: giving them away moves nothing.
        own = [key for key in keys if owners.get(key) == reader]
        keys[:] = own + [key for key in keys if owners.get(key) != reader]
        free += keys[quotas[reader] :]
        del keys[quotas[reader] :]
    homeless: list[SegmentKey] = []
    for key in sorted(free):
        owner = owners.get(key)
        if owner is not None and owner in kept and len(kept[owner]) < quotas[owner]:
            kept[owner].append(key)
        else:
            homeless.append(key)
    _deal(homeless, kept, quotas)
    return {key: reader for reader, keys in kept.items() for key in keys}


def _quotas(counts: Mapping[str, int], total: int) -> dict[str, int]:
    """Return how many segments each reader shall have. Readers with most segments get one more, so that least moves."""
    share, extra = divmod(total, len(counts))
    ranked = sorted(counts, key=lambda reader: (-counts[reader], reader))
    return {reader: share + (rank < extra) for rank, reader in enumerate(ranked)}


def _deal(free: list[SegmentKey], kept: Mapping[str, list[SegmentKey]], quotas: Mapping[str, int]) -> None:
    """Give one segment to each reader below its quota, in turn, until none is left."""
    dealt = iter(free)
    left = len(free)
    while left:
        before = left
        for reader, keys in kept.items():
            if left and len(keys) < quotas[reader]:
                keys.append(next(dealt))
                left -= 1
        assert left < before, f"{left} segments have no reader, and no reader has room"


class _Levelling:
    """Shares among readers with different subscriptions: keep what is targeted, then move one segment at a time.

    Each move makes two shares more equal, so the moves end. O(streams * readers) for each move.
    """

    def __init__(self, wanted: AssignmentInput) -> None:
        self._wanted = wanted
        self._counts = dict.fromkeys(wanted.readers, 0)
        self._held: dict[str, dict[str, list[AssignableSegment]]] = {}

    def run(self) -> dict[SegmentKey, str]:
        """Return the target of each segment."""
        for each in self._wanted.segments:
            if each.target in self._wanted.subscribers[each.stream]:
                self._give(each, each.target)
        for each in self._wanted.segments:
            readers = self._wanted.subscribers[each.stream]
            if each.target not in readers:
                least = min(readers, key=lambda reader: (self._counts[reader], reader != each.owner, reader))
                self._give(each, least)
        for segments in self._segments():
            # Those that the reader has not acquired come last, and are given away first.
            segments.sort(key=lambda each: (each.owner != each.target, each.key))
        while (move := self._best_move()) is not None:
            stream, giver, taker = move
            self._counts[giver] -= 1
            self._give(self._held[stream][giver].pop(), taker)
        return {
            each.key: reader
            for held in self._held.values()
            for reader, segments in held.items()
            for each in segments
        }

    def _segments(self) -> Iterable[list[AssignableSegment]]:
        return [segments for held in self._held.values() for segments in held.values()]

    def _give(self, each: AssignableSegment, reader: str | None) -> None:
        assert reader is not None
        self._held.setdefault(each.stream, {}).setdefault(reader, []).append(each)
        self._counts[reader] += 1

    def _best_move(self) -> tuple[str, str, str] | None:
        """Return the stream, giver and taker with the largest difference of shares; None if none exceeds one."""
        best: tuple[str, str, str] | None = None
        largest = 1
        for stream in sorted(self._held):
            held = self._held[stream]
            giver = max(sorted(each for each in held if held[each]), key=self._counts.__getitem__)
            taker = min(self._wanted.subscribers[stream], key=self._counts.__getitem__)
            difference = self._counts[giver] - self._counts[taker]
            if difference > largest:
                best, largest = (stream, giver, taker), difference
        return best


def _by_number(each: AssignableSegment) -> tuple[int, SegmentId]:
    return number_of(each.segment), each.segment
