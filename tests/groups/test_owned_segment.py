"""Cells against a naive twin that remembers each event by itself."""

from __future__ import annotations

import gc
from collections import deque
from random import Random

import pytest
from hypothesis import given, strategies as st

from eventproc.groups.owned_segment import WAITING_BYTES_MAX, InFlightRun, OwnedSegment
from eventproc.store.model.limits import FINISHED_RANGES_MAX, FRAME_BYTES
from eventproc.store.model.progress import Progress
from tests.processors.worker import run_of, segment_at


class Twin:
    """Sizes of all events of a segment, and the numbers of those that are finished."""

    def __init__(self, random: Random) -> None:
        self.sizes = [random.choice([0, 1, 5, 300]) for _ in range(random.randint(1, 200))]
        self.finished: set[int] = set()

    def offset(self, number: int) -> int:
        return sum(FRAME_BYTES + size for size in self.sizes[:number])

    def progress(self) -> Progress:
        number = next(index for index in range(len(self.sizes) + 1) if index not in self.finished)
        ranges: list[tuple[int, int, int]] = []
        for each in sorted(self.finished):
            if each < number:
                continue
            if ranges and ranges[-1][1] == each:
                ranges[-1] = ranges[-1][0], each + 1, self.offset(each + 1)
            else:
                ranges.append((each, each + 1, self.offset(each + 1)))
        return Progress(number, self.offset(number), tuple(ranges))


class SegmentLife:
    """An owned segment and its twin, through the same random life."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.twin = Twin(random)
        self.twin.finished = {n for n in range(len(self.twin.sizes)) if random.random() < 0.2}
        if random.random() < 0.3:
            self.twin.finished = set()
        self.owned = segment_at(self.twin.progress())
        self.out: list[tuple[int, InFlightRun]] = []

    def live(self) -> None:
        before = self.owned.snapshot()
        while self.out or self.owned.number < len(self.twin.sizes):
            self._step()
            now = self.owned.snapshot()
            now.check()
            assert now == self.twin.progress()
            assert now.number >= before.number, f"{before} was returned, then {now}"
            assert all(now.is_finished(n) for n in range(len(self.twin.sizes)) if before.is_finished(n))
            before = now
        assert self.owned.is_quiet
        assert not self.owned.waiting_bytes
        assert self.owned.snapshot() == Progress(len(self.twin.sizes), self.twin.offset(len(self.twin.sizes)))

    def _step(self) -> None:
        rest = len(self.twin.sizes) - self.owned.number
        choice = self.random.randrange(10)
        if rest and choice < 3:
            self._hand_out(self.random.randint(1, min(rest, 40)))
        elif self.out:
            number, in_flight = self.out.pop(self.random.randrange(len(self.out)))
            assert not in_flight.is_finished(number)
            in_flight.finish(number)
            assert in_flight.is_finished(number)
            self.twin.finished.add(number)

    def _hand_out(self, count: int) -> None:
        first = self.owned.number
        run = run_of(self.owned, [bytes(size) for size in self.twin.sizes[first : first + count]])
        in_flight = self.owned.add(run)
        handed = [event.number for event in run.events("s/t") if not in_flight.is_finished(event.number)]
        assert handed == [n for n in range(first, first + count) if n not in self.twin.finished]
        self.out += [(number, in_flight) for number in handed]


@given(st.integers(0, 2**32))
def test_what_a_cell_tells_is_what_is_finished_and_never_goes_back(seed: int) -> None:
    SegmentLife(Random(seed)).live()


@given(st.integers(0, 2**32))
def test_durable_progress_keeps_its_ranges_and_passes_nothing_unfinished(seed: int) -> None:
    random = Random(seed)
    count = random.choice([3, 5]) * FINISHED_RANGES_MAX
    owned = segment_at()
    in_flight = owned.add(run_of(owned, [b""] * count))
    finished: set[int] = set()
    order = [number for number in range(1, count) if random.random() < 0.9]
    random.shuffle(order)
    for number in order:
        in_flight.finish(number)
        finished.add(number)
        if random.random() < 0.02:
            now = owned.snapshot()
            now.check()
            assert len(now.finished) <= FINISHED_RANGES_MAX
            in_progress = {n for n in range(count) if now.is_finished(n)}
            assert in_progress <= finished
            assert {n for n in range(count) if owned.durable.is_finished(n)} <= in_progress
            owned.durable = now


@given(st.integers(0, 2**32))
def test_no_event_is_durable_without_those_of_its_key_before_it(seed: int) -> None:
    random = Random(seed)
    keys = random.choice([7, 50, 400])
    count = 5 * FINISHED_RANGES_MAX
    owned = segment_at()
    in_flight = owned.add(run_of(owned, [b""] * count))
    by_key: list[list[int]] = [[] for _ in range(keys)]
    for number in range(count):
        by_key[random.randrange(keys)].append(number)
    left = [list(reversed(numbers)) for numbers in by_key if numbers]
    if 0 in by_key[0]:
        left = left[1:]  # one key is stuck
    while left:
        at = min(random.randrange(len(left)), random.randrange(len(left)))
        in_flight.finish(left[at].pop())
        if not left[at]:
            left.pop(at)
        if random.random() < 0.02:
            owned.durable = now = owned.snapshot()
            for numbers in by_key:
                in_progress = [now.is_finished(number) for number in numbers]
                assert in_progress == sorted(in_progress, reverse=True), (
                    f"of {numbers}, {in_progress} are durable"
                )


def test_a_segment_with_full_ranges_has_no_room_until_they_grow_together() -> None:
    owned = segment_at()
    in_flight = owned.add(run_of(owned, [b""] * (2 * FINISHED_RANGES_MAX + 2)))
    for index in range(FINISHED_RANGES_MAX):
        assert owned.has_room
        in_flight.finish(2 * index + 1)
    assert not owned.has_room
    in_flight.finish(2)
    assert owned.has_room


def test_a_cell_that_begins_with_full_ranges_reads_what_lies_between_them() -> None:
    ranges = tuple((2 * n + 1, 2 * n + 2, (2 * n + 2) * FRAME_BYTES) for n in range(FINISHED_RANGES_MAX))
    owned = segment_at(Progress(0, 0, ranges))
    rooms = [owned.has_room]
    in_flight = owned.add(run_of(owned, [b""]))
    rooms.append(owned.has_room)
    in_flight.finish(0)
    assert [*rooms, owned.has_room] == [True, False, True]


def test_a_segment_has_no_room_while_too_many_bytes_wait() -> None:
    owned = segment_at()
    payload = bytes(2**20)
    runs = [owned.add(run_of(owned, [payload])) for _ in range(WAITING_BYTES_MAX // len(payload))]
    assert not owned.has_room
    assert owned.waiting_bytes <= WAITING_BYTES_MAX + len(payload)
    runs[1].finish(1)
    assert owned.has_room


@pytest.mark.parametrize("pieces", [1, 4])
def test_a_cell_is_complete_when_all_of_its_sealed_segment_is_finished(pieces: int) -> None:
    owned = segment_at()
    runs = [owned.add(run_of(owned, [b"x"])) for _ in range(pieces)]
    owned.end = owned.offset
    for number, in_flight in reversed(list(enumerate(runs))):
        assert not owned.complete
        in_flight.finish(number)
    assert owned.complete


def test_an_empty_segment_is_complete_at_once() -> None:
    opened, sealed = segment_at(), segment_at()
    sealed.end = 0
    assert (opened.complete, sealed.complete) == (False, True)


def test_a_cell_refuses_what_does_not_follow() -> None:
    owned: OwnedSegment = segment_at()
    run = run_of(owned, [b"x", b"y"])
    owned.add(run)
    with pytest.raises(AssertionError, match="reads at"):
        owned.add(run)


def test_behind_an_event_that_never_ends_the_memory_stays_flat() -> None:
    owned = segment_at()
    owned.add(run_of(owned, [b"stuck"]))
    late: deque[tuple[int, InFlightRun]] = deque()
    events = 5_000
    for number in range(1, events):
        late.append((number, owned.add(run_of(owned, [b"x"]))))
        if len(late) > 3:  # read ahead, so that the last one is never finished when the next one comes
            done, in_flight = late.popleft()
            in_flight.finish(done)
    for done, in_flight in late:
        in_flight.finish(done)
    assert owned.snapshot() == Progress(0, 0, ((1, events, owned.offset),))
    late.clear()
    gc.collect()
    assert (
        sum(isinstance(each, InFlightRun) and each.owned is owned for each in gc.get_objects()) < events / 20
    )
    assert owned.has_room
