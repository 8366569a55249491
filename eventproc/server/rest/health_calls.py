"""Pravega's calls on health: /v1/health. The parts are the database of the directory, and its host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, TypeAlias

import anyio

from eventproc.server.rest.method_answers import Target
from eventproc.server.rest.pravega_values import HealthResult, HealthStatus
from eventproc.server.rest.routes import RestCall
from eventproc.store.model.errors import EventprocError, NotFound, Retryable
from eventproc.store.records.plain import Limits

SERVER: Final = "controller"
"""Name of the server among its parts, as in Pravega."""

ANSWER_S_MAX: Final = 3
"""How long a question for the health waits for the database, in s; an answer takes milliseconds. Higher: a probe gives
up before it has the reason; lower: a busy server counts as one that cannot be reached."""

PartName: TypeAlias = Annotated[str, Limits(about="Part of the server: database or host.")]


async def get_health(call: RestCall) -> HealthResult:
    """Show the health of the server and of its parts."""
    try:
        with anyio.fail_after(ANSWER_S_MAX):
            found = await call.ep.cluster.describe()
    except TimeoutError:
        return _unanswered(f"it has not answered for {ANSWER_S_MAX} s", lives=True)
    except EventprocError as why:
        return _unanswered(str(why), lives=isinstance(why, Retryable))
    host = "no instance is the host now" if found.host is None else None
    details = {"host": str(found.host), "host_epoch": str(found.host_epoch)}
    return _whole([_part("database"), _part("host", host, details=details)])


async def get_part_health(call: RestCall, part: PartName) -> HealthResult:
    """Show the health of a part."""
    found = await get_health(call)
    if part == SERVER:
        return found
    if part not in found.children:
        raise NotFound(kind="health contributor", name=part)
    return found.children[part]


async def status_of(found: HealthResult) -> HealthStatus:
    """Show the status of the server or of a part."""
    return found.status


async def readiness_of(found: HealthResult) -> bool:
    """Show whether the server or a part can serve."""
    return found.readiness


async def liveness_of(found: HealthResult) -> bool:
    """Show whether the server or a part need not be restarted."""
    return found.liveness


async def details_of(found: HealthResult) -> dict[str, str]:
    """Show details of the server or of a part."""
    return found.details


WHOLE: Final = Target(get_health)
PART: Final = Target(get_part_health, {"part": PartName})


def _part(
    name: str, failure: str | None = None, *, lives: bool = True, details: Mapping[str, str] | None = None
) -> HealthResult:
    """Return the health of a part. lives: whether a failure ends without a restart of this process."""
    works = failure is None
    failed = HealthStatus.STARTING if name == "host" else HealthStatus.DOWN
    return HealthResult(
        name=name,
        status=HealthStatus.UP if works else failed,
        readiness=works,
        liveness=lives,
        details=dict(details or {}) if works else {"failure": str(failure)},
        children={},
    )


def _unanswered(reason: str, *, lives: bool) -> HealthResult:
    """Return the health without an answer of the database. A host that is missing is replaced by another instance."""
    database = _part("database", reason, lives=lives)
    return _whole([database, _part("host", "the database does not answer")])


def _whole(parts: list[HealthResult]) -> HealthResult:
    failing = next((each for each in parts if each.status is not HealthStatus.UP), None)
    return HealthResult(
        name=SERVER,
        status=HealthStatus.UP if failing is None else failing.status,
        readiness=failing is None,
        liveness=all(each.liveness for each in parts),
        details={} if failing is None else {failing.name: failing.details["failure"]},
        children={each.name: each for each in parts},
    )
