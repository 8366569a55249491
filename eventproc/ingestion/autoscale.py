"""Autoscalers: pure functions from what was measured to the number of groups that should read."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Final

import attrs

from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.spec import AutoscalerConfig, LagAggregate

LAG_PER_TASK_SCALE: Final = 100_000
"""Events of lag per task at which predicted idle time counts for about a third. As in Druid."""


@attrs.frozen
class ScaleDecision:
    """What an autoscaler wants. task_count: None for no change. reason: of the change, or of none."""

    task_count: int | None
    reason: str


def aggregate_lag(lags: Collection[int], how: LagAggregate) -> int:
    """Return the lags of the partitions as one number. Negative ones count as 0."""
    values = [max(each, 0) for each in lags]
    if not values:
        return 0
    if how is LagAggregate.MAX:
        return max(values)
    return sum(values) if how is LagAggregate.SUM else sum(values) // len(values)


def lag_based(
    samples: Sequence[LagSample], config: AutoscalerConfig, *, current: int, partitions: int
) -> ScaleDecision:
    """Scale out if enough samples are at or above a threshold, otherwise in if enough are at or below another one."""
    if partitions <= 0 or not samples:
        return ScaleDecision(None, "nothing was measured")
    high = sum(each.lag >= config.scale_out_threshold for each in samples) / len(samples)
    low = sum(each.lag <= config.scale_in_threshold for each in samples) / len(samples)
    least, most = min(config.task_count_min, partitions), min(config.task_count_max, partitions)
    if high >= config.trigger_scale_out_fraction:
        wanted, why = (
            current + config.scale_out_step,
            f"{high:.0%} of the lags are {config.scale_out_threshold:,} or more",
        )
    elif low >= config.trigger_scale_in_fraction:
        wanted, why = (
            current - config.scale_in_step,
            f"{low:.0%} of the lags are {config.scale_in_threshold:,} or less",
        )
    else:
        return ScaleDecision(None, "the lag lies between the thresholds")
    wanted = max(least, min(wanted, most))
    if wanted == current:
        return ScaleDecision(None, f"{why}, but {current} is the limit")
    return ScaleDecision(wanted, why)


@attrs.frozen(kw_only=True)
class TaskLoad:
    """What the cost is computed from.

    lag: events behind, of all partitions. rate: rows per second of one task. idle_ratio: share of time that tasks wait.
    """

    lag: int
    rate: float | None
    idle_ratio: float | None
    partitions: int
    current: int
    task_duration_s: float


def cost_based(load: TaskLoad, config: AutoscalerConfig) -> ScaleDecision:
    """Choose the number of groups whose lag and idle time cost least, if it is cheaper than the current one.

    The candidates are the numbers at which the partitions divide differently.
    """
    if load.partitions <= 0 or load.rate is None or load.rate <= 0 or load.idle_ratio is None or load.lag < 0:
        return ScaleDecision(None, "no rate or idle time was measured")
    least = min(config.task_count_min, load.partitions)
    most = min(config.task_count_max, load.partitions)
    counts = {math.ceil(load.partitions / each) for each in range(1, load.partitions + 1)} | {least, most}
    costs = {count: _cost(count, load, config) for count in sorted(counts) if least <= count <= most}
    best = min(costs, key=lambda count: (costs[count], count))
    now = _cost(load.current, load, config)
    if best == load.current or costs[best] >= now:
        return ScaleDecision(None, f"{load.current} costs least ({now:.0f})")
    return ScaleDecision(best, f"it costs {costs[best]:.0f}, and {load.current} costs {now:.0f}")


def _cost(count: int, load: TaskLoad, config: AutoscalerConfig) -> float:
    assert load.rate is not None, "checked by the caller"
    assert load.idle_ratio is not None, "checked by the caller"
    recovery_s = load.lag / (count * load.rate)
    busy = 1 - load.idle_ratio
    idle = min(max(1 - busy * load.current / count, 0.0), 1.0)
    idle *= math.exp(-load.lag / count / LAG_PER_TASK_SCALE)
    return config.lag_weight * recovery_s + config.idle_weight * count * load.task_duration_s * idle
