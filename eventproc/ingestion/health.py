"""The state of a supervisor, from the results of its runs and of its tasks. Pure; the rules are Druid's.

After three failed runs a supervisor is unhealthy, and three good ones make it healthy again; the same holds for tasks.
"""

from __future__ import annotations

import enum
from typing import Final

import attrs

from eventproc.store.model.short_repr import short_repr_of_fields

THRESHOLD: Final = 3
"""Failed runs, or tasks, in a row that make a supervisor unhealthy, and good ones that make it healthy again. Lower:
one hiccup is reported; higher: a real failure is reported later."""

ERRORS_KEPT: Final = 10
"""Errors that a supervisor shows. The oldest is dropped."""


class SupervisorState(enum.StrEnum):
    """What a supervisor does, and whether it can."""

    PENDING = "pending"
    """It waits for its first run."""
    CONNECTING_TO_STREAM = "connecting_to_stream"
    """Its first runs have not succeeded."""
    RUNNING = "running"
    IDLE = "idle"
    """Nothing was written for longer than `idle_after_ms`: no tasks are created."""
    SUSPENDED = "suspended"
    COMPLETED = "completed"
    """It is bounded, and has published everything in its ranges."""
    STOPPING = "stopping"
    """It was terminated, and its tasks publish."""
    UNHEALTHY_SUPERVISOR = "unhealthy_supervisor"
    """Its runs fail."""
    UNHEALTHY_TASKS = "unhealthy_tasks"
    """Its tasks fail."""
    UNABLE_TO_CONNECT_TO_STREAM = "unable_to_connect_to_stream"
    """Its streams are not found, and never were."""
    LOST_CONTACT_WITH_STREAM = "lost_contact_with_stream"
    """Its streams are not found any more."""

    @property
    def healthy(self) -> bool:
        """Whether no person is needed."""
        return self not in _UNHEALTHY


_UNHEALTHY_RUNS: Final = frozenset(
    {
        SupervisorState.UNHEALTHY_SUPERVISOR,
        SupervisorState.UNABLE_TO_CONNECT_TO_STREAM,
        SupervisorState.LOST_CONTACT_WITH_STREAM,
    }
)
_UNHEALTHY: Final = _UNHEALTHY_RUNS | {SupervisorState.UNHEALTHY_TASKS}


@attrs.frozen(kw_only=True)
class SupervisorError:
    """Something that failed. at_ms: wall time."""

    __repr__ = short_repr_of_fields

    at_ms: int
    message: str


@attrs.frozen(kw_only=True)
class Health:
    """The state and the counts that it follows from. Counts of runs and tasks are of those in a row.

    failed_ms: wall time at which the last failure of a task was counted; None: none was.
    """

    state: SupervisorState = SupervisorState.PENDING
    failed_runs: int = 0
    good_runs: int = 0
    failed_tasks: int = 0
    good_tasks: int = 0
    failed_ms: int | None = None
    ever_good: bool = False
    errors: tuple[SupervisorError, ...] = ()

    def note_error(self, now_ms: int, message: str) -> Health:
        """Return the health with one more error. An error like the last one replaces it."""
        kept = [each for each in self.errors if each.message != message]
        error = SupervisorError(at_ms=now_ms, message=message)
        return attrs.evolve(self, errors=(*kept, error)[-ERRORS_KEPT:])

    def note_task(self, now_ms: int, *, failed: bool) -> Health:
        """Return the health after a task ended by itself."""
        if failed:
            return attrs.evolve(self, failed_tasks=self.failed_tasks + 1, good_tasks=0, failed_ms=now_ms)
        return attrs.evolve(self, failed_tasks=0, good_tasks=self.good_tasks + 1)

    def finish_run(self, proposed: SupervisorState, *, failed: bool, stream_failed: bool) -> Health:
        """Return the health after a run.

        proposed: the state if all is well. stream_failed: the run failed because a stream was not found.
        """
        ran = attrs.evolve(
            self,
            failed_runs=self.failed_runs + 1 if failed else 0,
            good_runs=0 if failed else self.good_runs + 1,
            ever_good=self.ever_good or not failed,
        )
        return attrs.evolve(ran, state=ran._next_state(proposed, stream_failed))

    def _next_state(self, proposed: SupervisorState, stream_failed: bool) -> SupervisorState:
        if self.failed_runs >= THRESHOLD:
            if not stream_failed:
                return SupervisorState.UNHEALTHY_SUPERVISOR
            if self.ever_good:
                return SupervisorState.LOST_CONTACT_WITH_STREAM
            return SupervisorState.UNABLE_TO_CONNECT_TO_STREAM
        if self.failed_tasks >= THRESHOLD:
            return SupervisorState.UNHEALTHY_TASKS
        if self.state in _UNHEALTHY_RUNS and self.good_runs < THRESHOLD:
            return self.state
        if self.state is SupervisorState.UNHEALTHY_TASKS and self.good_tasks < THRESHOLD:
            return self.state
        if not self.ever_good:
            return SupervisorState.CONNECTING_TO_STREAM
        return proposed
