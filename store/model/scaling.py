"""Which segments a scaling policy splits and merges: a pure function of the age and the rates of each active segment.

Semantics: pravega.md 7.2 and 7.3, with windows instead of moving averages, and with the coldness of all segments taken
at the same moment instead of marks that expire. With the shortest window W (2 min by default):
- a segment younger than 5 W is left alone. A scale replaces the segments that it seals, so this also mutes the policy;
- *hot*: more than 5 x the target over W, 2 x over 2.5 W, or the target over 5 W. It is split;
- *cold*: older than 10 W, less than the target over W, 2.5 W and 5 W, and less than half of it over 10 W. Two or three
  cold neighbours are merged if the result would not be hot.
All splits and merges of one look are one scale. Merges come first, so they make room for splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

import attrs

from eventproc.base.counts import counted
from eventproc.store.model.epochs import Segment
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.policies import WINDOW_MS, ScalingKind, ScalingPolicy
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.short_repr import short_repr_of_fields

HOT_TIMES: Final = (5, 2, 1)
"""How many times the target is hot, over W, 2.5 W and 5 W."""

MUTED_WINDOWS: Final = 5
"""Shortest windows for which a new segment is left alone."""

COLD_WINDOWS: Final = 10
"""Shortest windows of the longest one, over which a cold segment has less than half of the target."""

MERGED_MAX: Final = 3
"""Segments that one merge replaces: a cold one and its neighbours. Higher: a stream shrinks in fewer scales, and a
wrong guess costs more splits."""


def windows_ms(policy: ScalingPolicy) -> tuple[int, int, int, int]:
    """Return the windows over which the policy takes rates, the shortest first."""
    shortest = WINDOW_MS if policy.window_ms is None else policy.window_ms
    return shortest, shortest * 5 // 2, shortest * MUTED_WINDOWS, shortest * COLD_WINDOWS


@attrs.frozen
class SegmentLoad:
    """What a policy sees of an active segment.

    rates: events or bytes per second over each window of `windows_ms`.
    """

    segment: Segment
    age_ms: int
    rates: tuple[float, float, float, float]


class LoadVerdict(StrEnum):
    """What a policy says of a segment."""

    YOUNG = "young"
    """It was created a short while ago, and is left alone."""

    HOT = "hot"
    """Its rate is above the target: it is to be split."""

    COLD = "cold"
    """Its rate is far below the target: it is to be merged with a cold neighbour."""

    STEADY = "steady"
    """Its rate is about the target."""


@attrs.frozen
class SegmentVerdict:
    """What a policy sees of a segment, and what it does with it.

    rates: events or bytes per second over each window, the shortest first.
    reason: why the policy acts, or does not.
    """

    __repr__ = short_repr_of_fields

    segment: SegmentId
    age_ms: int
    rates: tuple[float, float, float, float]
    verdict: LoadVerdict
    reason: str


@attrs.frozen
class ScalePlan:
    """What a policy does with a stream: one scale, or nothing if `seal` is empty."""

    __repr__ = short_repr_of_fields

    seal: tuple[SegmentId, ...]
    ranges: tuple[KeyRange, ...]
    verdicts: tuple[SegmentVerdict, ...]


def judge(policy: ScalingPolicy, load: SegmentLoad) -> LoadVerdict:
    """Return what the policy says of one segment, whatever its neighbours are."""
    assert policy.target is not None, "the policy goes by no rate"
    *_, muted_ms, cold_ms = windows_ms(policy)
    if load.age_ms < muted_ms:
        return LoadVerdict.YOUNG
    if any(rate > times * policy.target for rate, times in zip(load.rates, HOT_TIMES, strict=False)):
        return LoadVerdict.HOT
    *recent, longest = load.rates
    if load.age_ms > cold_ms and max(recent) < policy.target and longest < policy.target / 2:
        return LoadVerdict.COLD
    return LoadVerdict.STEADY


def plan_scale(policy: ScalingPolicy, loads: Sequence[SegmentLoad]) -> ScalePlan:
    """Return what the policy does with a stream. loads: of all active segments, in the order of their ranges."""
    verdicts = [judge(policy, load) for load in loads]
    notes = [_note(policy, load, verdict) for load, verdict in zip(loads, verdicts, strict=True)]
    seal: list[SegmentId] = []
    ranges: list[KeyRange] = []
    merges = _merges(policy, loads, verdicts)
    for run in merges:
        seal += [loads[each].segment.id for each in run]
        ranges.append(KeyRange(loads[run[0]].segment.range.low, loads[run[-1]].segment.range.high))
        named = ", ".join(format_segment(loads[each].segment.id) for each in run)
        for each in run:
            notes[each] += f"; {named} are merged"
    count = len(loads) - sum(len(run) - 1 for run in merges)
    if count <= policy.segments_min:
        for each in _left_alone(verdicts, LoadVerdict.COLD, merges):
            notes[each] += f"; {counted(policy.segments_min, 'segment')} is the minimum"
    else:
        for each in _left_alone(verdicts, LoadVerdict.COLD, merges):
            notes[each] += "; no neighbour can be merged with it"
    hot = [each for each, verdict in enumerate(verdicts) if verdict is LoadVerdict.HOT]
    for each in sorted(hot, key=lambda index: -max(loads[index].rates[:3])):  # the hottest take the room
        parts = min(_parts(policy, loads[each]), policy.most - count + 1)
        if parts < 2:
            notes[each] += f"; {counted(policy.most, 'segment')} is the maximum"
            continue
        try:
            pieces = loads[each].segment.range.split(parts)
        except InvalidArgument:
            notes[each] += "; its key range is too narrow"
            continue
        seal.append(loads[each].segment.id)
        ranges += pieces
        count += parts - 1
        notes[each] += f"; it is split into {parts}"
    return ScalePlan(
        tuple(sorted(seal)),
        tuple(sorted(ranges)),
        tuple(
            SegmentVerdict(load.segment.id, load.age_ms, load.rates, verdict, note)
            for load, verdict, note in zip(loads, verdicts, notes, strict=True)
        ),
    )


def _parts(policy: ScalingPolicy, load: SegmentLoad) -> int:
    """Return into how many segments a hot one is split, if there is room."""
    assert policy.target is not None and policy.factor is not None, "the policy goes by no rate"
    return min(max(2, int(max(load.rates[:3]) / policy.target)), policy.factor)


def _merges(
    policy: ScalingPolicy, loads: Sequence[SegmentLoad], verdicts: Sequence[LoadVerdict]
) -> list[list[int]]:
    """Return runs of cold neighbours to merge, as indexes: from the left, and each as long as it may be."""
    removable = len(loads) - policy.segments_min
    runs: list[list[int]] = []
    run: list[int] = []
    for each, verdict in enumerate(verdicts):
        fits = len(run) < min(MERGED_MAX, removable + 1) and not _would_be_hot(policy, loads, [*run, each])
        if run and not (verdict is LoadVerdict.COLD and fits):
            removable -= len(run) - 1
            runs.append(run)
            run = []
        if verdict is LoadVerdict.COLD and removable > 0:
            run.append(each)
    runs.append(run)
    return [run for run in runs if len(run) > 1]


def _would_be_hot(policy: ScalingPolicy, loads: Sequence[SegmentLoad], run: Sequence[int]) -> bool:
    """Return whether the events of several segments together exceed the target, over any window."""
    assert policy.target is not None, "the policy goes by no rate"
    totals: list[float] = [sum(rates) for rates in zip(*(loads[each].rates for each in run), strict=True)]
    return max(totals) > policy.target


def _left_alone(
    verdicts: Sequence[LoadVerdict], wanted: LoadVerdict, runs: Sequence[Sequence[int]]
) -> list[int]:
    used = {each for run in runs for each in run}
    return [each for each, verdict in enumerate(verdicts) if verdict is wanted and each not in used]


def _note(policy: ScalingPolicy, load: SegmentLoad, verdict: LoadVerdict) -> str:
    """Return why the segment is what it is."""
    assert policy.target is not None, "the policy goes by no rate"
    unit = "events/s" if policy.kind is ScalingKind.EVENT_RATE else "bytes/s"
    windows = windows_ms(policy)
    match verdict:
        case LoadVerdict.YOUNG:
            return f"young: left alone for {(windows[2] - load.age_ms) / 1000:,.0f} s more"
        case LoadVerdict.HOT:
            rates = zip(load.rates, HOT_TIMES, windows, strict=False)
            rate, times, window = next(each for each in rates if each[0] > each[1] * policy.target)
            limit = f"{times} x {policy.target:,}" if times > 1 else f"{policy.target:,}"
            return f"hot: {rate:,.0f} {unit} over {window / 1000:,.0f} s, above {limit}"
        case LoadVerdict.COLD:
            return f"cold: {load.rates[3]:,.0f} {unit} over {windows[3] / 1000:,.0f} s, below {policy.target:,} / 2"
        case LoadVerdict.STEADY:
            return f"steady: {load.rates[2]:,.0f} {unit} over {windows[2] / 1000:,.0f} s, target {policy.target:,}"
