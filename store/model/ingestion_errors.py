"""Errors of ingestion. Users import them from `eventproc.errors`."""

from __future__ import annotations

from datetime import UTC, datetime

import attrs

from eventproc.store.model.errors import Fenced, NotFound, Rejected, Retryable, error
from eventproc.store.model.short_repr import short_repr_of_fields


@attrs.frozen
class SpecProblem:
    """One problem of a spec. path: of the value, such as `io.task_count`."""

    __repr__ = short_repr_of_fields

    path: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@error
class InvalidSpec(Rejected):
    """The spec of a supervisor is not valid. All problems are named, each with the path of its value.

    Correct the named values, and submit the spec again.
    """

    spec: str
    problems: tuple[SpecProblem, ...]

    def __str__(self) -> str:
        return f"the spec of {self.spec} is not valid: " + "; ".join(map(str, self.problems))


@error
class BackfillRefused(Rejected):
    """A supervisor cannot be backfilled now: its reason is named. Nothing changed.

    Do what the reason says. A supervisor that has published everything needs no backfill.
    """

    _text = "supervisor {supervisor} cannot be backfilled: {reason}"
    supervisor: str
    reason: str


@error
class SupervisorTerminated(NotFound):
    """The supervisor was terminated, and does not run.

    Submit a spec of the same id: it goes on at its offsets. `eventproc supervisor history` shows the last spec.
    """

    kind: str = "supervisor"
    terminated_ms: int

    def __str__(self) -> str:
        at = datetime.fromtimestamp(self.terminated_ms / 1000, UTC).isoformat(timespec="seconds")
        return (
            f"no supervisor {self.name!r}: it was terminated at {at.replace('+00:00', 'Z')}; submit its spec again to"
            f" go on at its offsets (`supervisor history {self.name}` shows it)"
        )


@error
class TableChanged(Rejected):
    """Files of a table that a call was to replace were compacted, overwritten or dropped meanwhile. Nothing changed.

    Compute the rows again from what the table holds now, and repeat the call.
    """

    _text = "table {table} was compacted, overwritten or dropped meanwhile; compute the rows again and repeat"
    table: str


@error
class TableBusy(Retryable):
    """Other changes of a table were faster, again and again. Nothing changed.

    Repeat the call.
    """

    _text = "table {table} was changed by others in each of {attempts} attempts; repeat the call"
    table: str
    attempts: int


@error
class SparkEnded(Rejected):
    """The Spark driver of an ingestion worker ended: its JVM died, or its SparkContext was stopped.

    Start the worker again, in a new process. It has given its tasks back, and supervisors replace them.
    """

    _text = "worker {worker} lost Spark: {reason}; its tasks were given back. Start the worker again"
    worker: str
    reason: str


@error
class TaskFenced(Fenced):
    """A supervisor ended or replaced an ingestion task that still ran.

    Drop the task and what it has not published; another task reads the range again.
    """

    _text = "ingestion task {task} is {state}; its worker must drop it"
    task: str
    state: str
