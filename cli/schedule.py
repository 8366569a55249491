"""`eventproc schedule`: create, show, pause, resume and delete schedules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import click

from eventproc.cli.options import limit_option, page_options
from eventproc.cli.texts import BytesParam
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from eventproc.cli.output.tables import Row
    from eventproc.describe import ScheduleInfo
    from eventproc.runtime import Eventproc

schedule_argument = click.argument("name", metavar="SCOPE/SCHEDULE")

MISSED = ("skip", "latest", "all")

TICKS_MAX = 1_000
"""Ticks that `Schedules.next` returns at most."""


@click.group(cls=Noun)
def schedule() -> None:
    """Create, show, pause, resume and delete schedules, which append an event to a stream again and again.

    The host appends one event for each tick: a process that has the directory open, such as `eventproc run`.

    Examples:
        eventproc schedule create shop/close --cron '0 18 * * mon-fri' --tz Europe/Paris --stream shop/jobs
    """


@schedule.shows(watch=False)
@schedule_argument
@click.option("--cron", required=True, metavar="TEXT", help="Minute, hour, day of month, month, day of week.")
@click.option("--stream", required=True, metavar="SCOPE/STREAM", help="The stream that gets the events.")
@click.option("--tz", default="UTC", show_default=True, metavar="ZONE", help="Time zone of the expression.")
@click.option(
    "--payload",
    type=BytesParam(),
    default=b"",
    metavar="TEXT",
    help="Payload of the events; none unless given.",
)
@click.option("--key", metavar="TEXT", help="Routing key of the events.")
@click.option(
    "--missed",
    type=click.Choice(MISSED),
    default="latest",
    show_default=True,
    help="What becomes of ticks that no process was there for.",
)
@click.option("--replace", is_flag=True, help="Take the place of another schedule of this name.")
async def create(ep: Eventproc, name: str, **options: Any) -> Row:
    """Create a schedule, which ticks from now on. An equal one stays as it is.

    Examples:
        eventproc schedule create shop/close --cron '0 18 * * mon-fri' --tz Europe/Paris --stream shop/jobs
        eventproc schedule create shop/poll --cron '*/5 * * * *' --stream shop/jobs --payload '{"do":"poll"}'
    """
    return _row(await ep.schedules.create(name, **options))


@schedule.shows(["name", "stream", "cron", "tz", "due_ms", "paused", "failure"])
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/SCHEDULE")
async def list_(ep: Eventproc, scope: str | None, page: dict[str, Any]) -> list[Row]:
    """List the schedules of a scope, or of all scopes, with their next ticks.

    Examples:
        eventproc schedule list
        eventproc schedule list shop --output json
    """
    return [_row(each) for each in await ep.schedules.list(scope, **page)]


@schedule.shows()
@schedule_argument
async def show(ep: Eventproc, name: str) -> Row:
    """Show a schedule and its next tick.

    Examples:
        eventproc schedule show shop/close
    """
    return _row(await ep.schedules.get(name))


@schedule.shows(["at_ms"], watch=False)
@schedule_argument
@limit_option(10, "How many to show.", TICKS_MAX)
async def next_(ep: Eventproc, name: str, limit: int) -> list[Row]:
    """Show the next ticks of a schedule.

    Examples:
        eventproc schedule next shop/close --limit 3
    """
    return [{"at_ms": each} for each in await ep.schedules.next(name, count=limit)]


@schedule.shows(watch=False)
@schedule_argument
async def pause(ep: Eventproc, name: str) -> Row:
    """Let a schedule tick no more. What it misses is left out.

    Examples:
        eventproc schedule pause shop/close
    """
    return _row(await ep.schedules.pause(name))


@schedule.shows(watch=False)
@schedule_argument
async def resume(ep: Eventproc, name: str) -> Row:
    """Let a schedule tick from now on, also one with a failure.

    Examples:
        eventproc schedule resume shop/close
    """
    return _row(await ep.schedules.resume(name))


async def _losses(ep: Eventproc, name: str) -> Row:
    await ep.schedules.get(name)
    return {"schedules": 1}


@schedule.does("deleted schedule {name}", consent="Delete schedule {name}", losses=_losses)
@schedule_argument
def delete(ep: Eventproc, name: str) -> Awaitable[None]:
    """Remove a schedule. The events that it has appended stay.

    Examples:
        eventproc schedule delete shop/close
    """
    return ep.schedules.delete(name)


def _row(info: ScheduleInfo) -> Row:
    row = attrs.asdict(info)
    return {**row, "payload": info.payload.decode(errors="backslashreplace")}
