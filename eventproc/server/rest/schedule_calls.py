"""Schedules over REST, as they are created; the rest is methods of the public API."""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import attrs

from eventproc.server.rest.method_answers import Target, named, seen
from eventproc.server.rest.routes import LocalName, RestCall, ScopeName
from eventproc.store.access.permissions import Permission
from eventproc.store.model.names import StreamName
from eventproc.store.model.schedules import MissedTicks
from eventproc.store.records.plain import JsonObject, Limits
from eventproc.store.schedules import ScheduleInfo, get_schedule
from eventproc.streams.schedules import Schedules

SCHEDULES: Final = Target(lambda call: Schedules(call.ep.db, call.caller.readable))
SCHEDULE: Final = named(lambda ep, name: (ep.schedules, name), "schedule", arguments=2)
SEEN_SCHEDULE: Final = seen(
    lambda ep, name: (ep.schedules, name), lambda tx, name: [get_schedule(tx, name).stream], "schedule", 2
)

Cron: TypeAlias = Annotated[str, Limits(about="Minute, hour, day of month, month, day of week.")]


@attrs.frozen(kw_only=True)
class ScheduleBody:
    """What a schedule appends when. The caller needs READ_UPDATE on the stream, too.

    payload: text of the events. headers: names and texts beside it. replace: whether it takes the place of another
    schedule of its name.
    """

    cron: Cron
    stream: str
    tz: str = "UTC"
    payload: str = ""
    key: str | None = None
    headers: JsonObject = attrs.field(factory=dict)
    missed: MissedTicks = MissedTicks.LATEST
    replace: bool = False


async def create_schedule(
    call: RestCall, scope: ScopeName, schedule: LocalName, body: ScheduleBody
) -> ScheduleInfo:
    """Create a schedule, which ticks from now on. An equal one stays as it is."""
    call.caller.verify(Permission.READ_UPDATE, str(StreamName.parse(body.stream)))
    asked: dict[str, Any] = {**attrs.asdict(body, recurse=False), "payload": body.payload.encode()}
    return await call.ep.schedules.create(f"{scope}/{schedule}", **asked)
