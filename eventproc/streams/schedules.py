"""The handle of schedules, which append an event at each time that a cron expression names."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from functools import partial
from itertools import islice
from typing import Any

from typing_extensions import Unpack

from eventproc.store.database import Database
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import check_choice, check_int, check_str
from eventproc.store.model.list_pages import ListPage, NameFilter, PageOptions
from eventproc.store.model.names import StreamName, check_full_name
from eventproc.store.model.schedules import MissedTicks, check_timetable, ticks_after
from eventproc.store.schedules import (
    SCHEDULE_HEADER,
    ScheduleInfo,
    ScheduleRecord,
    create_schedule,
    delete_schedule,
    get_schedule,
    list_schedules,
    pause_schedule,
    resume_schedule,
)
from eventproc.streams.codec import codec_of
from eventproc.streams.new_events import check_headers, checked_event

NEXT_MAX = 1_000
"""Most ticks that `Schedules.next` returns. Higher: a call computes for longer, some 20 us each."""


class Schedules:
    """The schedules of a store; `ep.schedules`. The host appends their events, one for each tick over all processes."""

    def __init__(self, db: Database, readable: NameFilter | None = None) -> None:
        """readable: which schedules `list` shows, of which streams. None (default): all."""
        self._db = db
        self._readable = readable

    def __repr__(self) -> str:
        return f"Schedules({self._db.name!r})"

    async def create(
        self,
        name: str,
        *,
        cron: str,
        stream: str,
        tz: str = "UTC",
        payload: object = b"",
        key: str | bytes | None = None,
        headers: Mapping[str, str] | None = None,
        missed: str = MissedTicks.LATEST,
        replace: bool = False,
    ) -> ScheduleInfo:
        """Create a schedule, which ticks from now on, and return it. An equal one stays as it is, paused or not.

        The event of a tick has the tick as its event time, and the header `ep-schedule`, the name of the schedule.

        Args:
            name: full name, "scope/name".
            cron: the expression: minute, hour, day of month, month, day of week; with six fields, the first is the
                second.
            stream: full name of the stream that gets the events.
            tz: name of the time zone, such as "Europe/Paris". As with Debian's cron, a time that daylight saving
                leaves out happens right after, and one that it repeats happens once. Default: UTC.
            payload: of the events: bytes as they are, or a value that the codec of its class encodes. Default: none.
            key: their routing key. None (default): none.
            headers: names and texts beside the payload. None (default): none.
            missed: what becomes of ticks that were due more than a minute ago, as while no process ran: "latest"
                (default) happens once, with the last of them; "all" happen, in order; "skip": none.
            replace: take the place of another schedule of this name. Default: False.

        Raises:
            NotFound: there is no such scope or stream.
            StreamSealed: the stream is sealed.
            AlreadyExists: there is another schedule of this name.
            InvalidArgument: an argument is not valid.
        """
        asked = as_schedule(name, cron, stream, tz, payload, key, headers, missed)
        check_timetable(asked.cron, asked.tz, self._db.clock.wall_ms())
        step = partial(create_schedule, asked=asked, replaces=replace)
        return await self._db.write(step, step=Step.DELAYED_CHANGE)

    async def get(self, name: str) -> ScheduleInfo:
        """Return a schedule.

        Args:
            name: its full name.

        Raises:
            NotFound: there is no such schedule.
        """
        return await self._db.read(partial(get_schedule, name=check_str("schedule", name)))

    async def list(
        self, scope: str | None = None, **options: Unpack[PageOptions]
    ) -> builtins.list[ScheduleInfo]:
        """Return the schedules, sorted by scope and name.

        Args:
            scope: only those of this scope. None (default): all.
            options: see `PageOptions`.

        Raises:
            NotFound: there is no such scope.
            InvalidArgument: an argument has the wrong type, or the limit is not positive.
        """
        chosen = None if scope is None else check_str("scope", scope)
        page = ListPage.of(self._readable, **options)
        return await self._db.read(partial(list_schedules, scope=chosen, page=page))

    async def next(self, name: str, *, count: int = 10) -> builtins.list[int]:
        """Return the next ticks of a schedule, in ms since 1970, also of a paused one.

        Args:
            name: its full name.
            count: how many, at most 1,000. Default: 10.

        Raises:
            NotFound: there is no such schedule.
            InvalidArgument: the count is not 1 to 1,000.
        """
        count = check_int("count", count, least=1, most=NEXT_MAX)
        info = await self.get(name)
        return builtins.list(islice(ticks_after(info.cron, info.tz, self._db.clock.wall_ms()), count))

    async def pause(self, name: str) -> ScheduleInfo:
        """Let a schedule tick no more, and return it. What it misses is left out.

        Args:
            name: its full name.

        Raises:
            NotFound: there is no such schedule.
        """
        step = partial(pause_schedule, name=check_str("schedule", name))
        return await self._db.write(step, step=Step.DELAYED_CHANGE)

    async def resume(self, name: str) -> ScheduleInfo:
        """Let a schedule tick from now on, also one with a `failure`, and return it.

        Args:
            name: its full name.

        Raises:
            NotFound: there is no such schedule, or its stream was deleted.
            StreamSealed: its stream is sealed.
        """
        step = partial(resume_schedule, name=check_str("schedule", name))
        return await self._db.write(step, step=Step.DELAYED_CHANGE)

    async def delete(self, name: str) -> None:
        """Remove a schedule. The events that it has appended stay.

        Args:
            name: its full name.

        Raises:
            NotFound: there is no such schedule.
        """
        step = partial(delete_schedule, name=check_str("schedule", name))
        await self._db.write(step, step=Step.DELAYED_CHANGE)


def as_schedule(
    name: str,
    cron: str,
    stream: str,
    tz: str,
    payload: object = b"",
    key: str | bytes | None = None,
    headers: Mapping[str, str] | None = None,
    missed: str = MissedTicks.LATEST,
) -> ScheduleRecord:
    """Return what the arguments of `Schedules.create` ask for. Raises InvalidArgument."""
    if isinstance(payload, (bytes, bytearray, memoryview)):
        data = bytes(payload)
    else:
        kind: Any = type(payload)
        data = codec_of(kind).encode(payload)
    data, text, _, checked = checked_event(data, key, None, headers)
    full_name = check_full_name("schedule", name)
    check_headers({**(checked or {}), SCHEDULE_HEADER: full_name})  # those of a tick
    return ScheduleRecord(
        name=full_name,
        stream=str(StreamName.parse(stream)),
        stream_id=0,
        cron=check_str("cron", cron),
        tz=check_str("tz", tz),
        payload=data,
        key=text,
        headers=dict(checked or {}),
        missed=check_choice("missed", missed, MissedTicks),
    )
