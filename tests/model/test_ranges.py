"""Key ranges against a twin that asks about points."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import KEY_RANGE_WIDTH_MIN, SEGMENTS_MAX
from eventproc.store.model.ranges import KEY_SPACE, KeyRange, canonical, initial_ranges, tiles

STEPS = 8
POINTS = [(step + 0.5) / STEPS for step in range(STEPS)]
RANGES = st.lists(st.integers(0, STEPS), min_size=2, max_size=2, unique=True).map(
    lambda ends: KeyRange(min(ends) / STEPS, max(ends) / STEPS)
)


def cover(ranges: tuple[KeyRange, ...]) -> list[int]:
    return [sum(each.low <= point < each.high for each in ranges) for point in POINTS]


@given(RANGES, RANGES)
def test_ranges_overlap_when_they_share_a_point(a: KeyRange, b: KeyRange) -> None:
    assert a.overlaps(b) == (2 in cover((a, b)))
    assert [a.contains(point) for point in POINTS] == [bool(count) for count in cover((a,))]


def test_a_range_contains_its_low_end_and_not_its_high_end() -> None:
    assert KeyRange(0.25, 0.5).contains(0.25)
    assert not KeyRange(0.25, 0.5).contains(0.5)
    assert not KeyRange(0.0, 0.25).overlaps(KeyRange(0.25, 0.5))


@given(st.lists(RANGES, max_size=6).map(tuple))
def test_ranges_tile_when_each_point_is_covered_once(ranges: tuple[KeyRange, ...]) -> None:
    assert tiles(sorted(ranges)) == (cover(ranges) == [1] * STEPS)


def test_neither_an_empty_range_nor_another_order_is_a_tiling() -> None:
    assert not tiles([KeyRange(0.0, 0.0), KEY_SPACE])
    assert not tiles([])
    assert not tiles([KeyRange(0.5, 1.0), KeyRange(0.0, 0.5)])


@given(st.lists(RANGES, max_size=6).map(tuple), st.lists(RANGES, max_size=6).map(tuple))
def test_canonical_forms_are_equal_when_the_points_are(
    a: tuple[KeyRange, ...], b: tuple[KeyRange, ...]
) -> None:
    if max(cover(a), default=0) <= 1:
        assert (canonical(a) == canonical(b)) == (cover(a) == cover(b))
    assert cover(canonical(a)) == cover(a)
    assert canonical(reversed(a)) == canonical(a)


@given(RANGES, st.integers(2, 50))
def test_a_split_tiles_the_range_in_order(whole: KeyRange, into: int) -> None:
    parts = whole.split(into)
    assert len(parts) == into
    assert (parts[0].low, parts[-1].high) == (whole.low, whole.high)
    assert all(before.high == after.low for before, after in pairwise(parts))
    assert all(part.low < part.high for part in parts)
    assert canonical(parts) == (whole,)


@pytest.mark.acceptance("B10")
def test_a_split_in_two_keeps_the_ends_and_shares_the_middle() -> None:
    whole = KeyRange(0.1706574888245243, 0.7085170563088633)
    left, right = whole.split(2)
    assert (left.low, right.high) == (whole.low, whole.high)
    assert left.high == right.low == pytest.approx((whole.low + whole.high) / 2)


def test_a_range_is_split_down_to_a_single_position_and_no_further() -> None:
    assert len(KeyRange(0.5, 0.5 + 2 * KEY_RANGE_WIDTH_MIN).split(2)) == 2
    with pytest.raises(InvalidArgument, match="too narrow to be split into 2"):
        KeyRange(0.5, 0.5 + KEY_RANGE_WIDTH_MIN).split(2)


@pytest.mark.parametrize("into", [-1, 0, 1, SEGMENTS_MAX + 1])
def test_a_split_into_an_impossible_number_is_refused(into: int) -> None:
    with pytest.raises(InvalidArgument):
        KEY_SPACE.split(into)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 100, SEGMENTS_MAX])
def test_the_first_ranges_tile_for_any_number_of_segments(count: int) -> None:
    ranges = initial_ranges(count)
    assert len(ranges) == count
    assert tiles(ranges)


@pytest.mark.parametrize("count", [-1, 0, SEGMENTS_MAX + 1])
def test_a_stream_of_an_impossible_number_of_segments_is_refused(count: int) -> None:
    with pytest.raises(InvalidArgument):
        initial_ranges(count)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_range_survives_its_text(one: float, other: float) -> None:
    made = KeyRange(*sorted((one, other)))
    if made.low < made.high:
        assert KeyRange.parse(str(made)) == made


def test_a_range_is_written_as_people_do() -> None:
    assert str(KeyRange(0.25, 0.5)) == "0.25-0.5"
    assert KeyRange.parse("0-1") == KEY_SPACE
    assert KeyRange.parse("1e-05-0.5") == KeyRange(0.00001, 0.5)


@pytest.mark.parametrize(
    "text", ["", "0.5", "0.5-0.5", "0.6-0.5", "0-1.1", "-0.1-0.5", "a-b", "0-nan", "0-1-2"]
)
def test_what_is_no_range_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidArgument):
        KeyRange.parse(text)


@pytest.mark.parametrize(
    "low, high", [(0.5, 0.5), (0.6, 0.5), (-0.1, 0.5), (0.5, 1.1), (float("nan"), 0.5), (0.0, 0.0)]
)
def test_an_empty_range_or_one_outside_the_key_space_does_not_verify(low: float, high: float) -> None:
    with pytest.raises(InvalidArgument):
        KeyRange(low, high).verify()
