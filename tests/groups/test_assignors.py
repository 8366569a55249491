"""Assignors: complete, exclusive, fair, to subscribers alone, checked against every assignment and naive twins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from random import Random

import attrs
import pytest
from hypothesis import given, strategies as st

from eventproc.groups.assignors import (
    BUILT_IN,
    AssignableSegment,
    AssignmentInput,
    fault_in,
    share_equally,
)
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import SegmentId, segment_id

READERS = ["a", "b", "c", "d"]
Targets = dict[SegmentKey, str | None]


def segments(count: int) -> list[SegmentKey]:
    return [(1, SegmentId(number)) for number in range(count)]


@st.composite
def cases(draw: st.DrawFn, segments_max: int = 40) -> tuple[Targets, list[str], Targets]:
    keys = segments(draw(st.integers(0, segments_max)))
    readers = draw(st.lists(st.sampled_from(READERS[:3]), unique=True))
    who = st.sampled_from([None, *READERS])
    return {key: draw(who) for key in keys}, readers, {key: draw(who) for key in keys}


def moved(before: Targets, after: Targets) -> int:
    return sum(1 for key in before if before[key] is not None and before[key] != after[key])


def shares(targets: Targets, readers: list[str]) -> list[int]:
    counts = Counter(targets.values())
    return [counts[reader] for reader in readers]


def is_fair(targets: Targets, readers: list[str]) -> bool:
    counts = shares(targets, readers)
    return sum(counts) == len(targets) and max(counts) - min(counts) <= 1


@given(cases())
def test_every_segment_has_one_reader_and_shares_differ_by_at_most_one(
    case: tuple[Targets, list[str], Targets],
) -> None:
    targets, readers, owners = case
    after = share_equally(targets, readers, owners)
    if readers:
        assert after.keys() == targets.keys()
        assert is_fair({**after}, readers)
    else:
        assert after == {}


@given(cases(segments_max=5))
@pytest.mark.acceptance("K25")
def test_no_fair_assignment_moves_less(case: tuple[Targets, list[str], Targets]) -> None:
    targets, readers, owners = case
    if not readers:
        return
    choices = product(readers, repeat=len(targets))
    all_of_them: Iterator[Targets] = (dict(zip(targets, choice, strict=True)) for choice in choices)
    least = min(moved(targets, other) for other in all_of_them if is_fair(other, readers))
    assert moved(targets, {**share_equally(targets, readers, owners)}) == least


@given(cases())
def test_what_is_settled_stays(case: tuple[Targets, list[str], Targets]) -> None:
    targets, readers, owners = case
    once: Targets = {**targets, **share_equally(targets, readers, owners)}
    if not readers:
        return
    assert share_equally(once, readers, owners) == once
    assert share_equally(once, readers, once) == once


@given(cases(), st.randoms())
def test_equal_arguments_give_equal_results_in_whatever_order(
    case: tuple[Targets, list[str], Targets], random: st.DataObject
) -> None:
    targets, readers, owners = case
    shuffled = list(targets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert share_equally(dict(shuffled), readers[::-1], owners) == share_equally(targets, readers, owners)


def test_what_changes_its_target_goes_back_to_the_reader_that_still_owns_it() -> None:
    keys = segments(4)
    owners: Targets = {keys[0]: "a", keys[1]: "a", keys[2]: "b", keys[3]: "b"}
    promised: Targets = {**owners, keys[1]: "c", keys[3]: "c"}
    assert share_equally(promised, ["a", "b"], owners) == owners


def test_six_segments_settle_at_6_then_3_3_then_2_2_2() -> None:
    targets: Targets = dict.fromkeys(segments(6))
    for readers, settled in (["a"], [6]), (["a", "b"], [3, 3]), (["a", "b", "c"], [2, 2, 2]):
        after: Targets = {**share_equally(targets, readers, targets)}
        assert shares(after, readers) == settled
        assert moved(targets, after) == (0 if len(readers) == 1 else settled[-1])
        targets = after


@st.composite
def inputs(draw: st.DrawFn, *, equal: bool = False, segments_max: int = 12) -> AssignmentInput:
    """Streams with segments, and readers that subscribe to some or all of them."""
    streams = [f"s/{name}" for name in "xyz"[: draw(st.integers(1, 3))]]
    readers = sorted(draw(st.lists(st.sampled_from(READERS), unique=True, min_size=1)))
    subscribers = {
        stream: tuple(readers if equal else sorted(draw(st.sets(st.sampled_from(readers)))))
        for stream in streams
    }
    who = st.sampled_from([None, *READERS])
    unread = st.sampled_from([0, 1, 5, 100, 10**6])
    found = [
        AssignableSegment(stream, number, segment_id(each, 0), draw(who), draw(who), draw(unread))
        for number, stream in enumerate(streams)
        if subscribers[stream]
        for each in draw(st.sets(st.sampled_from(range(segments_max))))
    ]
    wanted = {stream: each for stream, each in subscribers.items() if each}
    return AssignmentInput(tuple(sorted(found, key=lambda each: each.key)), wanted)


def counts_of(targets: Mapping[SegmentKey, str], readers: Iterable[str]) -> dict[str, int]:
    """Return how many segments each reader has."""
    counted = Counter(targets.values())
    return {reader: counted[reader] for reader in readers}


every_assignor = pytest.mark.parametrize("name", sorted(BUILT_IN))


@every_assignor
@given(inputs())
@pytest.mark.acceptance("K25")
def test_an_assignor_gives_each_segment_to_one_subscriber(name: str, wanted: AssignmentInput) -> None:
    found = BUILT_IN[name](wanted)
    assert found.keys() == {each.key for each in wanted.segments}
    assert all(found[each.key] in wanted.subscribers[each.stream] for each in wanted.segments)
    assert fault_in(found, wanted) is None


@every_assignor
@given(inputs(), st.randoms(use_true_random=False))
@pytest.mark.acceptance("K25")
def test_an_assignor_decides_alike_in_whatever_order(
    name: str, wanted: AssignmentInput, random: Random
) -> None:
    order = list(wanted.subscribers.items())
    random.shuffle(order)
    shuffled = attrs.evolve(wanted, subscribers=dict(order))
    assert BUILT_IN[name](shuffled) == BUILT_IN[name](wanted)


@pytest.mark.parametrize("name", ["equal", "round_robin"])
@given(inputs(equal=True))
@pytest.mark.acceptance("K25")
def test_with_equal_subscriptions_shares_differ_by_at_most_one(name: str, wanted: AssignmentInput) -> None:
    counts = counts_of(BUILT_IN[name](wanted), wanted.readers).values()
    assert max(counts) - min(counts) <= 1


@given(inputs())
def test_with_different_subscriptions_no_single_move_makes_shares_more_equal(wanted: AssignmentInput) -> None:
    found = BUILT_IN["equal"](wanted)
    counts = counts_of(found, wanted.readers)
    for each in wanted.segments:
        least = min(counts[reader] for reader in wanted.subscribers[each.stream])
        assert counts[found[each.key]] - least <= 1


@every_assignor
@given(inputs())
def test_a_settled_assignment_stays(name: str, wanted: AssignmentInput) -> None:
    found = BUILT_IN[name](wanted)
    settled = tuple(
        attrs.evolve(each, target=found[each.key], owner=found[each.key]) for each in wanted.segments
    )
    assert BUILT_IN[name](attrs.evolve(wanted, segments=settled)) == found


@given(inputs())
def test_ranges_are_those_of_the_naive_definition(wanted: AssignmentInput) -> None:
    found = BUILT_IN["range"](wanted)
    for stream, readers in wanted.subscribers.items():
        own = [each for each in wanted.segments if each.stream == stream]
        own.sort(key=lambda each: each.segment)
        given_to = [found[each.key] for each in own]
        sizes = [len(own) // len(readers) + (rank < len(own) % len(readers)) for rank in range(len(readers))]
        assert given_to == [reader for reader, size in zip(readers, sizes, strict=True) for _ in range(size)]


@given(inputs())
def test_turns_are_those_of_the_naive_definition(wanted: AssignmentInput) -> None:
    waiting = list(wanted.readers)
    expected: dict[SegmentKey, str] = {}
    for each in sorted(wanted.segments, key=lambda each: (each.stream, each.segment)):
        while waiting[0] not in wanted.subscribers[each.stream]:
            waiting.append(waiting.pop(0))
        expected[each.key] = waiting[0]
        waiting.append(waiting.pop(0))
    assert BUILT_IN["round_robin"](wanted) == expected


@given(inputs(equal=True))
def test_unread_events_of_two_readers_differ_by_at_most_those_of_one_segment(
    wanted: AssignmentInput,
) -> None:
    found = BUILT_IN["lag"](wanted)
    held: dict[str, list[int]] = {reader: [] for reader in wanted.readers}
    for each in wanted.segments:
        held[found[each.key]].append(each.unread)
    for own in held.values():
        least = min(sum(other) for other in held.values())
        assert not own or sum(own) - min(own) <= least


@given(inputs(equal=True))
def test_segments_without_unread_events_are_shared_equally_by_lag(wanted: AssignmentInput) -> None:
    idle = tuple(attrs.evolve(each, unread=0) for each in wanted.segments)
    found = BUILT_IN["lag"](attrs.evolve(wanted, segments=idle))
    counts = counts_of(found, wanted.readers).values()
    assert max(counts) - min(counts) <= 1


def test_a_segment_with_most_of_the_lag_has_a_reader_of_its_own() -> None:
    found = two_topics(["a", "b"])
    lag = dict(zip([each.key for each in found.segments], [10, 900, 20, 30, 40, 50], strict=True))
    wanted = attrs.evolve(
        found, segments=tuple(attrs.evolve(each, unread=lag[each.key]) for each in found.segments)
    )
    targets = BUILT_IN["lag"](wanted)
    alone = targets[0, segment_id(1, 0)]
    assert [key for key, reader in targets.items() if reader == alone] == [(0, segment_id(1, 0))]


def two_topics(readers: list[str]) -> AssignmentInput:
    found = tuple(
        AssignableSegment(f"s/{name}", number, segment_id(each, 0))
        for number, name in enumerate("xy")
        for each in range(3)
    )
    return AssignmentInput(found, {"s/x": tuple(readers), "s/y": tuple(readers)})


@pytest.mark.acceptance("K26")
def test_ranges_of_two_topics_of_three_give_four_and_two_with_equal_numbers_together() -> None:
    found = BUILT_IN["range"](two_topics(["a", "b"]))
    assert counts_of(found, ["a", "b"]) == {"a": 4, "b": 2}
    for each in range(3):
        assert found[0, segment_id(each, 0)] == found[1, segment_id(each, 0)]


@pytest.mark.parametrize(
    ("targets", "fault"),
    [
        ([], "it returned list"),
        ({}, "it left out 6 segments"),
        ({"x": "a"}, "it left out 6 segments"),
        (
            dict.fromkeys([each.key for each in two_topics(["a"]).segments], "z"),
            "'z', which does not subscribe",
        ),
        (
            dict.fromkeys([*(each.key for each in two_topics(["a"]).segments), (7, SegmentId(0))], "a"),
            "1 segments that the group does not have",
        ),
    ],
)
def test_what_is_wrong_with_an_own_assignment_is_said(targets: object, fault: str) -> None:
    assert fault in str(fault_in(targets, two_topics(["a"])))
