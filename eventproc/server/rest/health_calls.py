"""Health of the server: Pravega's calls below /v1/health, and the probes of Kubernetes, /healthz and /readyz.

The parts are the database of the directory, and its host. The database works if it can be written: a full disk, a lock
that another process holds, or a standby that is missing does not disturb a read.
"""

from __future__ import annotations

import inspect
import shutil
from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final, TypeAlias

import anyio
import attrs

from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import Target
from eventproc.server.rest.pravega_values import HealthResult, HealthStatus
from eventproc.server.rest.problems import HttpProblem
from eventproc.server.rest.routes import RestCall
from eventproc.store.database import SharedSlot
from eventproc.store.model.errors import EventprocError, NotFound, Retryable
from eventproc.store.model.limits import BATCH_BYTES_MAX
from eventproc.store.records import count_up
from eventproc.store.records.plain import Limits

SERVER: Final = "controller"
"""Name of the server among its parts, as in Pravega."""

ANSWER_S_MAX: Final = 3
"""How long a health check waits for the database, in s; it takes milliseconds. Higher: a probe gives up before it has
the reason; lower: a busy server counts as one that cannot be reached."""

WRITE_WAIT_MS_MAX: Final = 2_000
"""How long its write may wait until it begins, in ms. Then its error says what it has waited for. Higher and lower: as
ANSWER_S_MAX."""

assert WRITE_WAIT_MS_MAX < ANSWER_S_MAX * 1000, "the reason of a wait comes before its end"

FREE_BYTES_MIN: Final = BATCH_BYTES_MAX
"""Free bytes of the disk below which the database counts as full, because the log needs as many for a large commit.
Small ones, such as that of a health check, find room in the log for longer."""

HEALTH_WRITES: Final = "health_writes"
"""Name of a counter: how many health checks have written."""

REASON: Final = "reason"
"""Names, among the details of a part, why it does not work, in words that every caller may read."""

PartName: TypeAlias = Annotated[str, Limits(about="Part of the server: database or host.")]


@attrs.define
class _HealthCheck:
    """The health check of this opening, which the calls that come while it runs share.

    began_ms: when the last one began. ended: set at its end; None: none runs. found: by the last one; None: it
    runs, or was cancelled.
    """

    began_ms: int = 0
    ended: anyio.Event | None = None
    found: HealthResult | None = None


HEALTH_CHECK: Final = SharedSlot(_HealthCheck)


async def health_of(ep: Eventproc) -> HealthResult:
    """Return the health of this server. Cost: a commit of one row, and a read; calls share a check that runs.

    A commit that has begun cannot be given up. While it hangs, the call that began it waits, and others learn after
    ANSWER_S_MAX that the database does not answer.
    """
    check, now_ms = ep.db.shared[HEALTH_CHECK], ep.db.clock.monotonic_ms()
    if check.ended is None:
        check.began_ms, check.ended, check.found = now_ms, anyio.Event(), None
        try:
            check.found = await _checked(ep)
        finally:
            check.ended.set()
            check.ended = None
    else:
        with anyio.move_on_after(ANSWER_S_MAX - (now_ms - check.began_ms) / 1000) as waiting:
            await check.ended.wait()
        if waiting.cancelled_caught:
            return _late()
    return check.found or await health_of(ep)  # the call that began the check was cancelled


async def _checked(ep: Eventproc) -> HealthResult:
    try:
        with anyio.fail_after(ANSWER_S_MAX):
            await ep.db.write(partial(count_up, name=HEALTH_WRITES), timeout_ms=WRITE_WAIT_MS_MAX)
            room = None if ep.path is None else shutil.disk_usage(ep.path)
            found = await ep.cluster.describe()
    except TimeoutError:
        return _late()
    except (EventprocError, OSError) as why:
        return _unanswered(str(why), reason=_kind_of(why), lives=isinstance(why, (Retryable, OSError)))
    if room is not None and room.free < FREE_BYTES_MIN:
        full = f"its disk has {room.free:,} free bytes; a commit may need {FREE_BYTES_MIN:,}: free some space"
        database = _part("database", full)
    else:
        database = _part("database")
    host = "no instance is the host now" if found.host is None else None
    details = {"host": str(found.host), "host_epoch": str(found.host_epoch)}
    return _whole([database, _part("host", host, details=details)])


async def get_health(call: RestCall) -> HealthResult:
    """Show the health of the server and of its parts."""
    return await health_of(call.ep)


async def get_healthz(call: RestCall) -> dict[str, HealthStatus]:
    """Probe whether the server lives: 503 if only a restart of its process can help, with the reason."""
    found = await health_of(call.ep)
    return _probed(found, [each for each in found.children.values() if not each.liveness])


async def get_readyz(call: RestCall) -> dict[str, HealthStatus]:
    """Probe whether the server can serve: 503 if it cannot, with each part that is not ready, and why."""
    found = await health_of(call.ep)
    return _probed(found, [each for each in found.children.values() if not each.readiness])


def _probed(found: HealthResult, failing: list[HealthResult]) -> dict[str, HealthStatus]:
    """Return the status of each part. Raises HttpProblem if some are failing."""
    if failing:
        reasons = "; ".join(f"{each.name}: {each.details[REASON]}" for each in failing)
        raise HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, reasons)
    return {each.name: each.status for each in found.children.values()}


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
    name: str,
    failure: str | None = None,
    *,
    reason: str | None = None,
    lives: bool = True,
    details: Mapping[str, str] | None = None,
) -> HealthResult:
    """Return the health of a part.

    failure: what is wrong with it; None: nothing. reason: the same for callers without credentials; None: as failure.
    lives: whether a failure ends without a restart of this process.
    """
    works = failure is None
    failed = HealthStatus.STARTING if name == "host" else HealthStatus.DOWN
    return HealthResult(
        name=name,
        status=HealthStatus.UP if works else failed,
        readiness=works,
        liveness=lives,
        details=dict(details or {}) if works else {"failure": str(failure), REASON: reason or str(failure)},
        children={},
    )


def _kind_of(why: Exception) -> str:
    """Return the class of an error, and what it means: its message may name addresses and processes."""
    meaning = (inspect.getdoc(type(why)) or "").partition("\n")[0]
    return f"{type(why).__name__}: {meaning.removesuffix('.')}"


def _late() -> HealthResult:
    return _unanswered(f"it has not answered for {ANSWER_S_MAX} s")


def _unanswered(failure: str, *, reason: str | None = None, lives: bool = True) -> HealthResult:
    """Return the health without an answer of the database. A host that is missing is replaced by another instance."""
    database = _part("database", failure, reason=reason, lives=lives)
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
