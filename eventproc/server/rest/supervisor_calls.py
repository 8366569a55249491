"""Supervisors of ingestion, as an operator sees and changes them."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final, TypeAlias

import attrs

from eventproc.ingestion.changes import SpecEffect
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.status import IngestTaskInfo, SupervisorInfo, SupervisorStatus, SupervisorVersion
from eventproc.ingestion.supervisor import Supervisor
from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import DIRECTORY, Target, calling, listing
from eventproc.server.rest.routes import AfterNumber, RestCall
from eventproc.store.records.plain import JsonObject, Limits

SupervisorId: TypeAlias = Annotated[str, Limits(about="Id of the supervisor.")]


@attrs.frozen
class SpecBody:
    """A spec, as a file of `eventproc supervisor submit`. dry_run: only show what it would change."""

    spec: JsonObject
    dry_run: bool = False


@attrs.frozen
class SpecReport:
    """What a spec changes, and whether it was submitted."""

    submitted: bool
    effect: SpecEffect


@attrs.frozen
class HandoffBody:
    """Which groups publish now; null: all."""

    groups: tuple[int, ...] | None = None


list_supervisors = listing("list_supervisors", Eventproc.supervisors, DIRECTORY, SupervisorInfo, by="id")


async def submit_supervisor(call: RestCall, body: SpecBody) -> SpecReport:
    """Submit the spec of a supervisor, or show what that would change."""
    effect = await call.ep.preview_supervisor(body.spec)
    if not body.dry_run:
        await call.ep.submit_supervisor(body.spec)
    return SpecReport(not body.dry_run, effect)


SUPERVISOR: Final = Target(lambda call, id: call.ep.supervisor(id), {"supervisor": SupervisorId})
_then_status = partial(calling, target=SUPERVISOR, result=SupervisorStatus, then=Supervisor.status)

describe_supervisor = calling("describe_supervisor", Supervisor.status, SUPERVISOR, SupervisorStatus)
list_supervisor_versions = listing(
    *("list_supervisor_versions", Supervisor.history, SUPERVISOR, SupervisorVersion),
    by="version",
    after=AfterNumber,
)
list_supervisor_tasks = calling(
    "list_supervisor_tasks", Supervisor.tasks, SUPERVISOR, tuple[IngestTaskInfo, ...]
)
list_supervisor_lags = calling("list_supervisor_lags", Supervisor.lags, SUPERVISOR, tuple[LagSample, ...])
suspend_supervisor = _then_status("suspend_supervisor", Supervisor.suspend)
resume_supervisor = _then_status("resume_supervisor", Supervisor.resume)
terminate_supervisor = _then_status("terminate_supervisor", Supervisor.terminate)
reset_supervisor = _then_status("reset_supervisor", Supervisor.reset)
hand_off_supervisor = _then_status("hand_off_supervisor", Supervisor.handoff, body=HandoffBody)
