"""Assignment: fair shares, least movement, checked against every assignment there is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from eventproc.groups.assign import assign
from eventproc.store.groups import SegmentKey
from eventproc.store.model.ids import SegmentId

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
    after = assign(targets, readers, owners)
    assert after.keys() == targets.keys()
    if readers:
        assert is_fair(after, readers)
    else:
        assert set(after.values()) <= {None}


@given(cases(segments_max=5))
def test_no_fair_assignment_moves_less(case: tuple[Targets, list[str], Targets]) -> None:
    targets, readers, owners = case
    if not readers:
        return
    choices = product(readers, repeat=len(targets))
    all_of_them: Iterator[Targets] = (dict(zip(targets, choice, strict=True)) for choice in choices)
    least = min(moved(targets, other) for other in all_of_them if is_fair(other, readers))
    assert moved(targets, assign(targets, readers, owners)) == least


@given(cases())
def test_what_is_settled_stays(case: tuple[Targets, list[str], Targets]) -> None:
    targets, readers, owners = case
    once = assign(targets, readers, owners)
    assert assign(once, readers, owners) == once
    assert assign(once, readers, once) == once


@given(cases(), st.randoms())
def test_equal_arguments_give_equal_results_in_whatever_order(
    case: tuple[Targets, list[str], Targets], random: st.DataObject
) -> None:
    targets, readers, owners = case
    shuffled = list(targets.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert assign(dict(shuffled), readers[::-1], owners) == assign(targets, readers, owners)


def test_what_changes_its_target_goes_back_to_the_reader_that_still_owns_it() -> None:
    keys = segments(4)
    owners: Targets = {keys[0]: "a", keys[1]: "a", keys[2]: "b", keys[3]: "b"}
    promised: Targets = {**owners, keys[1]: "c", keys[3]: "c"}
    assert assign(promised, ["a", "b"], owners) == owners


def test_six_segments_settle_at_6_then_3_3_then_2_2_2() -> None:
    targets: Targets = dict.fromkeys(segments(6))
    for readers, settled in (["a"], [6]), (["a", "b"], [3, 3]), (["a", "b", "c"], [2, 2, 2]):
        after = assign(targets, readers, targets)
        assert shares(after, readers) == settled
        assert moved(targets, after) == (0 if len(readers) == 1 else settled[-1])
        targets = after
