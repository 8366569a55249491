"""Supervisors of ingestion, as an operator sees and changes them."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import attrs

from eventproc.ingestion.changes import SpecEffect
from eventproc.ingestion.memory import LagSample
from eventproc.ingestion.status import IngestTaskInfo, SupervisorInfo, SupervisorStatus, SupervisorVersion
from eventproc.ingestion.supervisor import Supervisor
from eventproc.server.rest.routes import PAGE, After, Page, PageLimit, RestCall, page_of
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


@attrs.frozen
class Lags:
    """The lag at moments since the beginning."""

    samples: tuple[LagSample, ...]


@attrs.frozen
class IngestTasks:
    """Tasks, the oldest first."""

    tasks: tuple[IngestTaskInfo, ...]


async def list_supervisors(
    call: RestCall, after: After = None, limit: PageLimit = PAGE
) -> Page[SupervisorInfo]:
    """List the supervisors that have not ended, by id."""
    found = await call.ep.supervisors(after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: each.id)


async def submit_supervisor(call: RestCall, body: SpecBody) -> SpecReport:
    """Submit the spec of a supervisor, or show what that would change."""
    effect = await call.ep.preview_supervisor(body.spec)
    if not body.dry_run:
        await call.ep.submit_supervisor(body.spec)
    return SpecReport(not body.dry_run, effect)


async def describe_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorStatus:
    """Show what a supervisor does: state, partitions with their lag, live tasks, errors."""
    return await (await _found(call, supervisor)).status()


async def list_supervisor_versions(
    call: RestCall,
    supervisor: SupervisorId,
    after: Annotated[int | None, Limits(0, about="`next` of the previous page.")] = None,
    limit: PageLimit = PAGE,
) -> Page[SupervisorVersion]:
    """List the versions of a supervisor's spec, the newest first."""
    found = await (await _found(call, supervisor)).history(after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: str(each.version))


async def list_supervisor_tasks(call: RestCall, supervisor: SupervisorId) -> IngestTasks:
    """List the live tasks of a supervisor and the last 200 that ended, with their reports, the oldest first."""
    return IngestTasks(tuple(await (await _found(call, supervisor)).tasks()))


async def list_supervisor_lags(call: RestCall, supervisor: SupervisorId) -> Lags:
    """Show the lag of a supervisor since its beginning, in at most 240 samples."""
    return Lags(tuple(await (await _found(call, supervisor)).lags()))


async def suspend_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorStatus:
    """Let the tasks of a supervisor publish and end, and create no others."""
    found = await _found(call, supervisor)
    await found.suspend()
    return await found.status()


async def resume_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorStatus:
    """Let a suspended supervisor go on, at its published offsets."""
    found = await _found(call, supervisor)
    await found.resume()
    return await found.status()


async def terminate_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorStatus:
    """End a supervisor; its tasks publish first."""
    found = await _found(call, supervisor)
    await found.terminate()
    return await found.status()


async def hand_off_supervisor(
    call: RestCall, supervisor: SupervisorId, body: HandoffBody
) -> SupervisorStatus:
    """Let groups of a supervisor publish what they have read now."""
    found = await _found(call, supervisor)
    await found.handoff(body.groups)
    return await found.status()


async def reset_supervisor(call: RestCall, supervisor: SupervisorId) -> SupervisorStatus:
    """Let a supervisor read again, from where its spec says for a first run."""
    found = await _found(call, supervisor)
    await found.reset()
    return await found.status()


async def _found(call: RestCall, supervisor: str) -> Supervisor:
    return await call.ep.supervisor(supervisor)
