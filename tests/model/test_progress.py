"""Progress of a segment against a plain set of finished events."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given, strategies as st

from eventproc.store.model.errors import CorruptRecord
from eventproc.store.model.limits import FINISHED_RANGES_MAX
from eventproc.store.model.progress import Progress, decode_progress, encode_progress

EVENTS = 24


@given(
    st.lists(st.integers(8, 40), min_size=EVENTS, max_size=EVENTS),
    st.lists(st.tuples(st.integers(0, EVENTS - 1), st.integers(0, 5))),
    st.tuples(st.integers(0, EVENTS), st.integers(0, EVENTS)),
)
def test_progress_is_the_set_of_finished_events(
    sizes: list[int], steps: list[tuple[int, int]], between: tuple[int, int]
) -> None:
    ends = [0, *accumulate(sizes)]
    progress, finished = Progress(), set[int]()
    for number, count in steps:
        count = min(count, EVENTS - number)
        progress = progress.finish(number, count, ends[number + count])
        finished |= set(range(number, number + count))
        progress.check()
        first = next(each for each in range(EVENTS + 1) if each not in finished)
        assert (progress.number, progress.offset) == (first, ends[first])
        assert {each for each in range(EVENTS + 2) if progress.is_finished(each)} == finished
        assert progress.unfinished(*between) == len({*range(*between)} - finished)
        beyond = [each for each in sorted(finished) if each > first]
        assert len(progress.finished) == sum(each - 1 not in finished for each in beyond)
        assert all(end == ends[high] for _, high, end in progress.finished)
        assert progress.finish(number, count, ends[number + count]) == progress
        assert decode_progress(encode_progress(progress), key="k") == progress


NUMBERS = st.sets(st.integers(0, EVENTS - 1))


@given(NUMBERS, NUMBERS)
def test_progress_is_joined_with_another_and_loses_single_events(left: set[int], right: set[int]) -> None:
    def of(numbers: set[int]) -> Progress:
        progress = Progress()
        for number in numbers:
            progress = progress.finish(number, 1, 10 * (number + 1))
        return progress

    assert of(left).union(of(right)) == of(left | right)
    for number in left:
        assert of(left).without(number, 10 * number) == of(left - {number})


def test_progress_is_full_at_its_limit_and_has_room_again_after_a_join() -> None:
    progress = Progress()
    for index in range(FINISHED_RANGES_MAX):
        assert not progress.full
        progress = progress.finish(2 * index + 1, 1, 10 * (2 * index + 2))
    assert progress.full
    assert not progress.finish(2, 1, 30).full
    assert not progress.finish(0, 1, 10).full


def test_progress_is_stored_as_a_flat_list_of_integers() -> None:
    assert encode_progress(Progress(3, 30, ((5, 6, 60), (8, 9, 90)))) == [3, 30, 5, 6, 60, 8, 9, 90]


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1],
        [1, 2, 3],
        [-1, 0],
        [0, -1],
        [3, 30, 3, 4, 40],
        [3, 30, 5, 5, 50],
        [3, 30, 5, 6, 30],
        [3, 30, 5, 6, 60, 6, 7, 70],
        [3, 30, 8, 9, 90, 5, 6, 60],
    ],
)
def test_stored_numbers_that_are_no_progress_are_corrupt(values: list[int]) -> None:
    with pytest.raises(CorruptRecord, match="cell-7"):
        decode_progress(values, key="cell-7")
