"""Supervisors, without `await`."""

from __future__ import annotations

from eventproc.blocking._generated import SupervisorCalls
from eventproc.blocking.loop import Loop
from eventproc.ingestion.supervisor import Supervisor


class BlockingSupervisor(SupervisorCalls):
    """The handle of a supervisor; made by `submit_supervisor` and `supervisor`. See `Supervisor`."""

    def __init__(self, loop: Loop, supervisor: Supervisor) -> None:
        super().__init__(loop, supervisor)
        self.id = supervisor.id

    def __repr__(self) -> str:
        return f"Blocking{self._twin!r}"
