"""Autoscalers: thresholds of the lag, costs, and what forbids a change now."""

from __future__ import annotations

from functools import partial

import attrs
import pytest

from eventproc.ingestion import AutoscalerConfig, LagAggregate
from eventproc.ingestion.autoscale import TaskLoad, aggregate_lag, cost_based, lag_based
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.notices import ScaleNotice, encode_notice
from eventproc.store.ingestion import post_notice
from tests.ingestion.support import HOUR_MS, Bench

CONFIG = AutoscalerConfig(task_count_min=1, task_count_max=8, scale_out_threshold=100, scale_in_threshold=10)


def samples(*lags: int) -> list[LagSample]:
    return [LagSample(at_ms=number, lag=lag) for number, lag in enumerate(lags)]


def wanted(lags: list[LagSample], current: int, partitions: int = 8) -> int | None:
    return lag_based(lags, CONFIG, current=current, partitions=partitions).task_count


@pytest.mark.acceptance("S28")
def test_enough_samples_beyond_a_threshold_scale_by_a_step_within_the_bounds() -> None:
    assert wanted(samples(100, 100, 100, *[50] * 7), 3) == 5  # exactly 30 % at the threshold
    assert wanted(samples(100, 100, *[50] * 8), 3) is None
    assert wanted(samples(*[200] * 10), 7) == 8
    assert wanted(samples(*[200] * 10), 8) is None
    assert wanted(samples(*[200] * 10), 3, partitions=4) == 4
    assert wanted(samples(*[10] * 9, 50), 3) == 2
    assert wanted(samples(*[10] * 8, 50, 50), 3) is None
    assert wanted(samples(*[0] * 10), 1) is None
    assert wanted([], 3) is None
    assert wanted(samples(200), 3, partitions=0) is None
    assert "is the limit" in lag_based(samples(*[0] * 10), CONFIG, current=1, partitions=8).reason


def test_the_lags_of_partitions_become_one_number() -> None:
    lags = [5, -3, 10]
    assert aggregate_lag(lags, LagAggregate.SUM) == 15
    assert aggregate_lag(lags, LagAggregate.MAX) == 10
    assert aggregate_lag(lags, LagAggregate.AVERAGE) == 5
    assert aggregate_lag([], LagAggregate.MAX) == 0


@pytest.mark.acceptance("S30", differs="a change is cheap, so it never waits for a rollover")
def test_the_cheapest_number_of_groups_is_chosen() -> None:
    load = TaskLoad(lag=0, rate=1000.0, idle_ratio=0.9, partitions=8, current=8, task_duration_s=3600)
    assert (cost_based(load, CONFIG).task_count or 8) < 8
    behind = attrs.evolve(load, lag=500_000_000, idle_ratio=0.0, current=2)
    assert (cost_based(behind, CONFIG).task_count or 2) > 2
    for broken in (
        attrs.evolve(load, rate=0.0),
        attrs.evolve(load, rate=None),
        attrs.evolve(load, idle_ratio=None),
        attrs.evolve(load, lag=-1),
        attrs.evolve(load, partitions=0),
    ):
        assert cost_based(broken, CONFIG).task_count is None


SCALER = {
    "task_count_min": 1,
    "task_count_max": 4,
    "scale_out_threshold": 20,
    "scale_in_threshold": 0,
    "lag_collection_interval_ms": 10_000,
    "lag_collection_range_ms": 30_000,
    "scale_action_period_ms": 10_000,
    "min_scale_up_delay_ms": 600_000,
}


@pytest.mark.acceptance("S28")
async def test_lag_makes_more_groups_without_stopping_all_tasks(bench: Bench) -> None:
    await bench.start_tasks(4, autoscaler=SCALER)
    await bench.write(100)
    while (memory := await bench.memory()).task_count is None:
        assert len(memory.samples) < 4
        await bench.run_after(10_000)
    assert memory.task_count == 3
    assert memory.samples == ()
    assert "of the lags are 20 or more" in (memory.last_scale_reason or "")
    assert sorted(await bench.active()) == [0, 1, 2]
    supervisor = await bench.ep.supervisor("clicks")
    assert (await supervisor.status()).task_count == 3
    await bench.begin()  # another host knows it too
    await bench.run()
    assert (await supervisor.status()).task_count == 3
    await supervisor.suspend()
    await bench.run()
    before = (await bench.memory()).samples
    await bench.run_after(60_000)
    assert (await bench.memory()).samples == before
    await supervisor.resume()
    await bench.run()
    assert (await supervisor.status()).task_count == 3


async def test_lag_makes_more_groups_soon_after_the_wall_clock_was_set_back(bench: Bench) -> None:
    await bench.start_tasks(4, autoscaler=SCALER)
    await bench.write(100)
    await bench.run_after(10_000)
    bench.clock.step_wall(-24 * HOUR_MS)
    for _ in range(6):
        await bench.run_after(10_000)
    assert (await bench.memory()).task_count == 3
    times = [each.at_ms for each in (await bench.memory()).lags]
    assert times == sorted(times)


@pytest.mark.acceptance(
    "S29", differs="the number is remembered with the supervisor, not in a version of its spec"
)
async def test_a_change_waits_for_publishing_groups_and_for_its_delay(bench: Bench) -> None:
    worker = await bench.start_tasks(4, autoscaler=SCALER)
    await bench.write(100)
    await worker.step()
    await bench.run_after(HOUR_MS)

    async def scale(count: int) -> None:
        kind, body = encode_notice(ScaleNotice(count, "a test"))
        await bench.db.write(lambda tx: post_notice(tx, "clicks", kind, body))
        await bench.run()

    await scale(2)
    memory = await bench.memory()
    assert memory.task_count is None
    assert "not now: groups are publishing" in (memory.last_scale_reason or "")
    await worker.complete_pending()
    await bench.run()
    offsets = await bench.offsets()
    await scale(2)
    assert (await bench.memory()).task_count == 2
    assert await bench.committed() == {key: each.offset for key, each in offsets.items()}
    await scale(4)
    assert (await bench.memory()).task_count == 2
    assert "less than 600,000 ms old" in ((await bench.memory()).last_scale_reason or "")
    await (await bench.ep.supervisor("clicks")).suspend()
    bench.clock.advance(HOUR_MS)
    await scale(4)
    assert "suspended" in ((await bench.memory()).last_scale_reason or "")


async def test_a_change_that_must_wait_delays_no_run(bench: Bench) -> None:
    await bench.start_tasks(4, autoscaler=SCALER, period_ms=HOUR_MS)
    began_ms = bench.clock.wall_ms()
    for count in (4, 3):
        kind, body = encode_notice(ScaleNotice(count, "a test"))
        await bench.db.write(partial(post_notice, supervisor="clicks", kind=kind, body=body))
        await bench.run()
    assert "less than 600,000 ms old" in ((await bench.memory()).last_scale_reason or "")
    await bench.run_at_due()
    assert bench.clock.wall_ms() - began_ms <= SCALER["lag_collection_interval_ms"] + 1_000


async def test_a_long_time_is_measured_by_a_bounded_number_of_samples(bench: Bench) -> None:
    asked = {**SCALER, "lag_collection_interval_ms": 1, "lag_collection_range_ms": 24 * HOUR_MS}
    await bench.start_tasks(autoscaler=asked)
    await bench.run_after(1_000)
    assert len((await bench.memory()).samples) == 1
    await bench.run_after(24 * HOUR_MS // 1000)
    assert len((await bench.memory()).samples) == 2
