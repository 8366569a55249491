"""What a supervisor remembers between two runs. All else follows from its groups, tasks and offsets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.ingestion.health import Health
from eventproc.store.model.ingestion import IngestTask, TaskState
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import from_json, to_json

LAGS_KEPT: Final = 240
"""Samples of the lag's history. Higher: a finer picture, and a larger record in every run, some 30 bytes a sample."""

SAMPLES_MAX: Final = 1_000
"""Samples of the lag for the autoscaler. Higher: a finer measure of a long time, and a larger record in every run."""

LAG_STEP_MS: Final = 30_000
"""Pause between two samples at first. It doubles whenever there are LAGS_KEPT, and every second one is dropped."""


@attrs.frozen(kw_only=True)
class LagSample:
    """The lag at one moment, aggregated over the partitions. at_ms: wall time. lag: in events."""

    __repr__ = short_repr_of_fields

    at_ms: int
    lag: int


@attrs.frozen(kw_only=True)
class TaskTotals:
    """What the tasks of a supervisor have done since it began: counters that only grow. A new beginning forgets them.

    All work counts: that of each replica, and what was read again after a failure.
    processed, processed_bytes, thrown_away, unparseable, rows: as in the statistics of a task.
    published: sequences that were published. succeeded, failed, stopped: how tasks ended.
    hung: those of the stopped ones whose worker gave no sign, or whose job made no progress.
    """

    __repr__ = short_repr_of_fields

    processed: int = 0
    processed_bytes: int = 0
    thrown_away: int = 0
    unparseable: int = 0
    rows: int = 0
    published: int = 0
    succeeded: int = 0
    failed: int = 0
    stopped: int = 0
    hung: int = 0


def with_task(totals: TaskTotals, task: IngestTask) -> TaskTotals:
    """Return the totals with what a task has done, which may be running."""
    return TaskTotals(
        processed=totals.processed + task.stats.processed,
        processed_bytes=totals.processed_bytes + task.stats.processed_bytes,
        thrown_away=totals.thrown_away + task.stats.thrown_away,
        unparseable=totals.unparseable + task.stats.unparseable,
        rows=totals.rows + task.stats.rows,
        published=totals.published + task.stats.published,
        succeeded=totals.succeeded + (task.state is TaskState.SUCCEEDED),
        failed=totals.failed + (task.state is TaskState.FAILED),
        stopped=totals.stopped + (task.state is TaskState.STOPPED),
        hung=totals.hung,
    )


@attrs.frozen(kw_only=True)
class Memory:
    """What a supervisor remembers. All times are wall times in ms.

    next_group, next_task: numbers of the next ones, for their names. task_count: what the autoscaler chose; None: the
    spec's. scaled_from: what the spec said about it then; if the spec says something else, its number counts again.
    handoff: groups that end in the next run. retries: how often new tasks took over a pending group, by its base.
    idle_since_ms: since when nothing was written or left to read.
    tails: sum of the tails at the last run. samples: of the lag for the autoscaler, the oldest first.
    lags: the history of the sum of all lags, the oldest first. lag_step_ms: between two of them.
    totals: of the tasks whose ends were counted.
    added_streams: ids of streams that a spec has added and that existed then, until their first offsets are stored.
    """

    health: Health = attrs.field(factory=Health)
    next_group: int = 0
    next_task: int = 0
    task_count: int | None = None
    scaled_from: str | None = None
    handoff: tuple[int, ...] = ()
    retries: Mapping[str, int] = attrs.field(factory=dict)
    last_run_ms: int | None = None
    last_scale_ms: int | None = None
    last_scale_reason: str | None = None
    idle_since_ms: int | None = None
    tails: int | None = None
    samples: tuple[LagSample, ...] = ()
    next_sample_ms: int = 0
    next_scale_ms: int | None = None
    lags: tuple[LagSample, ...] = ()
    lag_step_ms: int = LAG_STEP_MS
    totals: TaskTotals = attrs.field(factory=TaskTotals)
    added_streams: tuple[int, ...] = ()

    def needs_lag(self, now_ms: int) -> bool:
        """Return whether the next sample of the history is due."""
        return not self.lags or now_ms - self.lags[-1].at_ms >= self.lag_step_ms

    def with_lag(self, now_ms: int, lag: int) -> Memory:
        """Return the memory with another sample of the history, and with half of the others if there are too many."""
        lags = (*self.lags, LagSample(at_ms=now_ms, lag=lag))
        if len(lags) < LAGS_KEPT:
            return attrs.evolve(self, lags=lags)
        return attrs.evolve(self, lags=lags[1::2], lag_step_ms=self.lag_step_ms * 2)

    def earlier(self, back_ms: int) -> Memory:
        """Return the memory of a supervisor whose wall clock was set back: what waits, waits as if it had not been."""

        def less(at_ms: int | None) -> int | None:
            return None if at_ms is None else at_ms - back_ms

        def moved(samples: tuple[LagSample, ...]) -> tuple[LagSample, ...]:
            return tuple(attrs.evolve(each, at_ms=each.at_ms - back_ms) for each in samples)

        return attrs.evolve(
            self,
            health=attrs.evolve(self.health, failed_ms=less(self.health.failed_ms)),
            last_run_ms=less(self.last_run_ms),
            last_scale_ms=less(self.last_scale_ms),
            idle_since_ms=less(self.idle_since_ms),
            samples=moved(self.samples),
            next_sample_ms=self.next_sample_ms - back_ms,
            next_scale_ms=less(self.next_scale_ms),
            lags=moved(self.lags),
        )

    def encode(self) -> str:
        """Return the memory as JSON."""
        return to_json(self).decode()

    @classmethod
    def decode(cls, text: str) -> Memory:
        """Return the memory that `encode` wrote."""
        return from_json(text.encode(), cls)
