"""Packing: few tasks of about equal size, nothing lost, nothing out of order."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from eventproc.spark.partitioning import FileSlice, divide_into_partitions, pack_into_tasks, split_groups
from eventproc.store.model.limits import FRAME_BYTES

PAYLOADS = pa.schema([("payload", pa.binary())])

GROUPS = st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=3), max_size=8)


def _slices(sizes: list[list[int]]) -> list[list[FileSlice]]:
    """Return groups of slices of so many events of ten bytes, each of a segment of its own."""
    groups, segment = [], 0
    for group in sizes:
        made = []
        for events in group:
            made.append(FileSlice("", "f", "s/t", segment, 0, 0, 0, 10 * events))
            segment += 1
        groups.append(made)
    return groups


@given(GROUPS, st.integers(1, 6))
def test_tasks_keep_groups_together_and_in_order(sizes: list[list[int]], count: int) -> None:
    groups = _slices(sizes)
    tasks = pack_into_tasks(groups, count)
    assert len(tasks) <= count
    assert [each for task in tasks for each in task] == [each for group in groups for each in group]
    assert all(any(set(group) <= set(task) for task in tasks) for group in groups)


@given(GROUPS, st.integers(1, 6))
def test_task_exceeds_its_share_by_at_most_one_group(sizes: list[list[int]], count: int) -> None:
    groups = _slices(sizes)
    total = sum(map(sum, sizes)) * 10
    largest = max((sum(each.size_bytes for each in group) for group in groups), default=0)
    for task in pack_into_tasks(groups, count):
        assert sum(each.size_bytes for each in task) <= total / min(count, len(groups)) + largest


@given(GROUPS, st.integers(1, 12))
def test_split_makes_enough_groups_at_event_borders(sizes: list[list[int]], count: int) -> None:
    groups = _slices(sizes)
    events = sum(map(sum, sizes))
    parts = split_groups(groups, count, lambda _, target: -(-target // 10) * 10)
    cut = [(each.segment, at) for part in parts for each in part for at in range(each.start, each.end, 10)]
    assert cut == [(each.segment, at) for group in groups for each in group for at in range(0, each.end, 10)]
    assert all(each.start < each.end for part in parts for each in part)
    assert len(parts) >= min(count, len(groups)) and (events == 0 or len(parts) >= min(count, events) / 2)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4), st.integers(1, 25))
@pytest.mark.acceptance("Q9")
def test_partition_has_at_most_the_given_events(counts: list[int], most: int) -> None:
    with TemporaryDirectory() as folder:
        task = []
        for segment, count in enumerate(counts):
            path = Path(folder) / str(segment)
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, PAYLOADS) as writer:
                for first in range(0, count, 7):  # record batches of seven events
                    part = [b"." * (10 - FRAME_BYTES)] * min(7, count - first)
                    writer.write_batch(pa.record_batch([pa.array(part, pa.binary())], schema=PAYLOADS))
            task.append(FileSlice(str(path.parent), path.name, "s/t", segment, 0, 0, 0, 10 * count))
        parts = [list(each.slices) for each in divide_into_partitions([task], 0, 1, most)]
    sizes = [sum(each.size_bytes for each in part) // 10 for part in parts]
    assert sizes[:-1] == [most] * (len(sizes) - 1) and 0 < sizes[-1] <= most
    cut = [(each.segment, at) for part in parts for each in part for at in range(each.start, each.end, 10)]
    assert cut == [(segment, 10 * at) for segment, count in enumerate(counts) for at in range(count)]
