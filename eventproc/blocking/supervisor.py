"""Supervisors, without `await`."""

from __future__ import annotations

from functools import partial

from eventproc.blocking._generated import SupervisorCalls
from eventproc.blocking.loop import Loop
from eventproc.ingestion.supervisor import Supervisor


class BlockingSupervisor(SupervisorCalls):
    """The handle of a supervisor; made by `submit_supervisor` and `supervisor`. See `Supervisor`."""

    def __init__(self, loop: Loop, supervisor: Supervisor) -> None:
        super().__init__(loop, supervisor)
        self.id = supervisor.id

    def backfill(self, id: str | None = None, *, task_count: int | None = None) -> BlockingSupervisor:
        """Begin a bounded supervisor for what is behind, and go on from now. See `Supervisor.backfill`."""
        call = partial(self._twin.backfill, id, task_count=task_count)
        return BlockingSupervisor(self._loop, self._loop.call(call))

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"
