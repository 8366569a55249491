"""Task groups: which partitions they read, from where, and how they are created again and adopted."""

from __future__ import annotations

import pytest

from eventproc.store.model.ingestion import IngestGroupState, TaskState
from tests.ingestion.support import HOUR_MS, Bench


@pytest.mark.acceptance("S3")
async def test_each_group_has_its_partitions_and_its_replicas(bench: Bench) -> None:
    await bench.start_supervisor(6, task_count=3, replicas=2)
    groups, partitions = await bench.active(), await bench.partitions()
    assert sorted(groups) == [0, 1, 2]
    for number, key in enumerate(partitions):
        assert key in groups[number % 3].starts
    tasks = await bench.live()
    assert len({each.id for each in tasks}) == 6
    assert sorted(each.base for each in tasks) == sorted([*(each.base for each in groups.values())] * 2)
    assert all(each.ends is None for each in groups.values())


@pytest.mark.acceptance("S4")
async def test_there_are_at_most_as_many_groups_as_partitions(bench: Bench) -> None:
    await bench.start_supervisor(2, task_count=5)
    assert sorted(await bench.active()) == [0, 1]


@pytest.mark.acceptance("S12")
async def test_a_group_whose_time_is_over_hands_over_without_a_gap(bench: Bench) -> None:
    await bench.start_supervisor(2, replicas=2)
    one, two = await bench.worker("w1"), await bench.worker("w2")
    (fast,), (slow,) = await one.claim(), await two.claim()
    await bench.write(10)
    await slow.step()
    await bench.write(10)
    await fast.step()
    tails = await bench.tails()
    await bench.run_after(HOUR_MS)
    (pending,) = await bench.pending()
    assert pending.ends == tails
    assert (await bench.active())[0].starts == tails
    await slow.complete()  # it reads on to the ends of the faster one
    await bench.run()
    assert await bench.pending() == []
    assert await bench.committed() == tails
    assert len(bench.files) == 2
    await bench.check_ranges()
    assert all(each.state is TaskState.WAITING for each in await bench.live())


async def test_a_group_hands_over_in_time_after_the_wall_clock_was_set_back(bench: Bench) -> None:
    worker = await bench.start_tasks()
    await bench.write(10)
    await worker.step()
    (reading,) = await bench.groups()
    bench.clock.step_wall(-24 * HOUR_MS)
    await bench.run()
    await bench.run_after(HOUR_MS)
    first, second = await bench.groups()
    assert first.base == reading.base, "the order of creation is that of the ranges"
    assert first.state is IngestGroupState.PENDING
    assert second.state is IngestGroupState.ACTIVE
    assert first.deadline_ms is None or first.deadline_ms - bench.clock.wall_ms() <= HOUR_MS
