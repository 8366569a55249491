"""Jobs over REST, submitted and listed; the rest is methods of a job. A caller needs READ on the streams of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeAlias, cast

import attrs

from eventproc.jobs.jobs import Job, Jobs, only_stream
from eventproc.runtime import Eventproc
from eventproc.server.rest.group_calls import readable
from eventproc.server.rest.method_answers import Target, named
from eventproc.server.rest.problems import HttpProblem
from eventproc.server.rest.routes import LocalName, RestCall, ScopeName
from eventproc.store.access.permissions import Permission
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.jobs import JobDescription
from eventproc.store.model.names import StreamName
from eventproc.store.records.plain import JsonObject, Limits
from eventproc.streams.position_texts import parse_time

JobId: TypeAlias = Annotated[str, Limits(about="Id of the job within its group.")]
NewJobId: TypeAlias = Annotated[
    str | None, Limits(about="The id of the job: a repeated call finds the first one. Left out: a new id.")
]


async def _job(call: RestCall, scope: str, group: str, job: str) -> Job[Any]:
    name = f"{scope}/{group}"
    found = call.ep.jobs(name).job(job)
    readable(call, name, await found.describe())
    return found


JOBS: Final = named(Eventproc.jobs)
JOB: Final = Target(_job, {"scope": ScopeName, "group": LocalName, "job": JobId})


@attrs.frozen(kw_only=True)
class JobBody:
    """A job. The caller needs READ_UPDATE on the stream, too.

    payload: its text. stream: that takes the job; null: the only one of the group. headers: names and texts beside the
    payload. priority: 0 to 9, higher ones go first. delay_ms: do it not before so many ms. at: do it then, a time (ISO
    8601, or ms).
    """

    payload: str
    stream: str | None = None
    key: str | None = None
    headers: JsonObject = attrs.field(factory=dict)
    priority: int = 0
    delay_ms: int | None = None
    at: str | None = None


def shown_job(call: RestCall, jobs: Jobs[bytes], found: JobDescription) -> JobDescription:
    """Return a job to a caller that may read its stream. Raises NotPermitted."""
    return readable(call, jobs.share_group, found)


async def submit_job(
    call: RestCall, scope: ScopeName, group: LocalName, body: JobBody, idempotency_key: NewJobId = None
) -> JobDescription:
    """Submit a job to the workers of a share group. One whose id is known is shown as it is."""
    name = f"{scope}/{group}"
    if idempotency_key is not None and "/" in idempotency_key:
        reason = "it must have no '/': the job has its id at the end of its path"
        raise invalid_argument("Idempotency-Key", idempotency_key, reason)
    if body.stream is None:
        streams = (await (await call.ep.share_group(name)).info()).streams
        call.caller.verify_streams(name, [each.name for each in streams])
        stream = only_stream(name, streams)
    else:
        stream = str(StreamName.parse(body.stream))
    call.caller.verify(Permission.READ_UPDATE, stream)
    job = await call.ep.jobs(name, stream).submit(  # to this one, also if the group has another one meanwhile
        body.payload.encode(),
        id=idempotency_key,
        key=body.key,
        headers=cast("Mapping[str, str]", body.headers),
        priority=body.priority,
        delay_ms=body.delay_ms,
        at=None if body.at is None else parse_time(body.at),
    )
    found = readable(call, name, await job.describe())
    if found.stream != stream or (found.payload, found.key) != (body.payload.encode(), body.key):
        detail = f"Idempotency-Key {job.id!r} is the id of another job of {name}; use a new one for each job"
        raise HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return found
