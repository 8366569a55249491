"""Pravega's calls on health: /v1/health. The parts are the database of the directory, and its host."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Final, TypeAlias

from eventproc.server.rest.method_answers import Target
from eventproc.server.rest.pravega_values import HealthResult, HealthStatus
from eventproc.server.rest.routes import RestCall
from eventproc.store.model.errors import EventprocError, NotFound
from eventproc.store.records.plain import Limits

SERVER: Final = "controller"
"""Name of the server among its parts, as in Pravega."""

PartName: TypeAlias = Annotated[str, Limits(about="Part of the server: database or host.")]


async def get_health(call: RestCall) -> HealthResult:
    """Show the health of the server and of its parts."""
    try:
        found = await call.ep.cluster.describe()
    except EventprocError as why:
        parts = {
            "database": _part("database", str(why)),
            "host": _part("host", "the database does not answer"),
        }
        return _whole(parts)
    host = "no instance is the host now" if found.host is None else None
    details = {"host": str(found.host), "host_epoch": str(found.host_epoch)}
    return _whole({"database": _part("database", None), "host": _part("host", host, details)})


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

_NONE: Final[Mapping[str, str]] = MappingProxyType({})


def _part(name: str, failure: str | None, details: Mapping[str, str] = _NONE) -> HealthResult:
    """Return the health of a part. A host that is missing is replaced by another instance: that is no death."""
    works = failure is None
    return HealthResult(
        name=name,
        status=HealthStatus.UP
        if works
        else HealthStatus.DOWN
        if name == "database"
        else HealthStatus.STARTING,
        readiness=works,
        liveness=works or name != "database",
        details=dict(details) if works else {"failure": str(failure)},
        children={},
    )


def _whole(parts: dict[str, HealthResult]) -> HealthResult:
    failing = next((each for each in parts.values() if each.status is not HealthStatus.UP), None)
    return HealthResult(
        name=SERVER,
        status=HealthStatus.UP if failing is None else failing.status,
        readiness=failing is None,
        liveness=all(each.liveness for each in parts.values()),
        details={} if failing is None else {failing.name: failing.details["failure"]},
        children=parts,
    )
