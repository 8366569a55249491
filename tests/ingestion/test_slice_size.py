"""How the size of the next slice follows from the durations of the last ones."""

from __future__ import annotations

from eventproc.spark.ingestion.slice_size import (
    FIRST_BYTES,
    LEAST_BYTES,
    SLICE_MS,
    SliceSize,
    SliceSizes,
)

MIB = 2**20
ROWS_MAX = 150_000


def sized(*, bytes_max: int = 64 * MIB) -> SliceSize:
    return SliceSize(rows_max=ROWS_MAX, bytes_max=bytes_max)


def read(size: SliceSize, slices: int, *, fixed_ms: float, mib_ms: float) -> list[float]:
    """Read so many slices, and return how long they took, in ms."""
    took = []
    for _ in range(slices):
        took.append(fixed_ms + mib_ms * size.bytes / MIB)
        size.note(round(took[-1]), size_bytes=size.bytes, events=10_000, rows=100)
    return took


class TestSliceSize:
    def test_slices_soon_take_about_a_second(self) -> None:
        size = sized()
        assert size.bytes == FIRST_BYTES
        took = read(size, 8, fixed_ms=250, mib_ms=20)
        assert max(took) < 1.5 * SLICE_MS
        assert all(0.8 * SLICE_MS < each < 1.2 * SLICE_MS for each in took[4:])

    def test_slices_of_a_slow_parser_shrink(self) -> None:
        size = sized()
        took = read(size, 12, fixed_ms=250, mib_ms=400)
        assert took[-1] < 1.2 * SLICE_MS

    def test_a_busy_machine_does_not_make_slices_that_consist_of_their_fixed_cost(self) -> None:
        size = sized()
        read(size, 6, fixed_ms=250, mib_ms=10)
        took = read(size, 12, fixed_ms=1_500, mib_ms=60)
        assert size.bytes > 8 * MIB
        assert took[-1] < 5_000

    def test_small_slices_of_a_stream_that_is_read_to_its_tail_change_nothing(self) -> None:
        size = sized()
        before = size.bytes
        for _ in range(5):
            size.note(300, size_bytes=200, events=2, rows=2)
        assert size.bytes == before

    def test_a_slice_that_met_one_of_its_limits_is_not_small(self) -> None:
        size = sized()
        assert size.is_small(200, 2)
        assert not size.is_small(size.bytes, 2)
        assert not size.is_small(200, size.events)

    def test_limits_of_the_spec_hold(self) -> None:
        size = sized(bytes_max=5 * MIB)
        read(size, 5, fixed_ms=1, mib_ms=1)
        assert size.bytes == size.bytes_most == 5 * MIB
        assert sized(bytes_max=1).bytes == LEAST_BYTES

    def test_the_limit_of_rows_counts_what_events_are_rolled_up_to(self) -> None:
        size = sized()
        assert size.events == ROWS_MAX
        size.note(300, size_bytes=MIB, events=10_000, rows=100)
        assert size.events == 100 * ROWS_MAX
        size.note(300, size_bytes=MIB, events=10_000, rows=10_000)
        assert size.events == ROWS_MAX

    def test_a_rest_is_read_with_the_slice_before_it(self) -> None:
        size = sized()
        assert size.bytes < size.bytes_most <= 1.3 * size.bytes


class TestSliceSizes:
    def test_the_first_slice_of_a_worker_says_nothing_about_the_others(self) -> None:
        sizes = SliceSizes()
        idle = sizes.begin("clicks", rows_max=ROWS_MAX, bytes_max=64 * MIB)
        sizes.end("clicks", idle)  # it read nothing
        size = sizes.begin("clicks", rows_max=ROWS_MAX, bytes_max=64 * MIB)
        read(size, 1, fixed_ms=11_000, mib_ms=20)
        assert size.bytes == FIRST_BYTES
        took = read(size, 8, fixed_ms=250, mib_ms=20)
        assert took[-1] < 1.2 * SLICE_MS
        assert size.bytes > 4 * FIRST_BYTES

    def test_a_task_begins_as_the_last_one_of_its_kind_ended(self) -> None:
        sizes = SliceSizes()
        first = sizes.begin("clicks", rows_max=ROWS_MAX, bytes_max=64 * MIB)
        read(first, 4, fixed_ms=250, mib_ms=10)
        sizes.end("clicks", first)
        assert sizes.begin("clicks", rows_max=ROWS_MAX, bytes_max=64 * MIB).bytes == first.bytes
        smaller = sizes.begin("clicks", rows_max=ROWS_MAX // 2, bytes_max=8 * MIB)
        assert (smaller.bytes, smaller.events) == (8 * MIB, first.events // 2)
        assert sizes.begin("flights", rows_max=ROWS_MAX, bytes_max=64 * MIB).bytes == FIRST_BYTES
