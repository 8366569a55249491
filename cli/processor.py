"""`eventproc processor`: list, describe, pause and resume the processors of a directory, in all processes."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.options import group_argument
from eventproc.cli.output.tables import Row, described, rows_of
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.processors import ProcessorDescription, ProcessorMember
    from eventproc.runtime import Eventproc

COLUMNS: Final = (
    "name",
    "state",
    "processes",
    "lag_events",
    "lag_bytes",
    "lag_ms",
    "progress_at_ms",
    "blocker",
)
MEMBER_COLUMNS: Final = (
    *("reader", "pid", "alive", "state", "segments", "failed_calls", "dead_letters", "skipped", "truncated"),
    *("restarts", "last_error"),
)
SEGMENT_COLUMNS: Final = (
    *(
        "stream",
        "segment",
        "owner",
        "number",
        "lag_events",
        "lag_bytes",
        "lag_ms",
        "progress_at_ms",
        "waiting",
    ),
)


@click.group(cls=Noun)
def processor() -> None:
    """List, describe, pause and resume event processors.

    Examples:
        eventproc processor list
        eventproc processor pause shop/mailer
    """


def _for_people(row: Row) -> Row:
    """Return a row, and those of its members, with the event that blocks it in words."""
    from eventproc.cli.live_status import blocker_text
    from eventproc.processors import Blocker

    found = row.get("blocker")
    shown = {**row, "blocker": blocker_text(Blocker(**found)) if isinstance(found, dict) else None}
    return (
        shown | {"members": [_for_people(each) for each in rows_of(row, "members")]}
        if "members" in row
        else shown
    )


@processor.shows(COLUMNS, people=_for_people)
async def list_(ep: Eventproc) -> list[Row]:
    """List the processors with their progress.

    Examples:
        eventproc processor list
    """
    return [_summary(each) for each in await ep.processors()]


@processor.shows(tables={"members": MEMBER_COLUMNS, "segments": SEGMENT_COLUMNS}, people=_for_people)
@group_argument
async def describe(ep: Eventproc, name: str) -> Row:
    """Show a processor: its lag, the event that blocks it, its processes, and its segments with their owners.

    Examples:
        eventproc processor describe shop/mailer
    """
    from eventproc.cli.group import segment_row

    found = await ep.processor(name)
    return {
        **_summary(found),
        "dead_letters": (await ep.dead_letters(name).count()).letters,
        "members": [_member(each) for each in found.members],
        "segments": [segment_row(each) for each in found.group.segments],
    }


@processor.does("{name} is paused")
@group_argument
def pause(ep: Eventproc, name: str) -> Awaitable[None]:
    """Pause a processor in all processes until `resume`. Running handlers finish.

    Examples:
        eventproc processor pause shop/mailer
    """
    return ep.pause_processor(name)


@processor.does("{name} is resumed")
@group_argument
def resume(ep: Eventproc, name: str) -> Awaitable[None]:
    """Resume a paused processor.

    Examples:
        eventproc processor resume shop/mailer
    """
    return ep.resume_processor(name)


def _summary(found: ProcessorDescription) -> Row:
    group = found.group
    return {
        "name": found.name,
        "state": _state(found),
        "paused": group.paused,
        "processes": found.alive,
        "streams": [each.name for each in group.streams],
        "replaced": list(group.replaced),
        "created_ms": group.created_ms,
        "lag_events": group.events,
        "lag_bytes": group.bytes,
        "lag_ms": group.age_ms,
        "progress_at_ms": found.last_progress_ms,
        "blocker": None if found.blocker is None else described(found.blocker),
    }


def _state(found: ProcessorDescription) -> str:
    if found.group.replaced:
        return "stream deleted"
    if found.group.paused:
        return "paused"
    return "running" if found.alive else "stopped"


def _member(member: ProcessorMember) -> Row:
    row: dict[str, object] = {
        "reader": member.reader,
        "pid": member.pid,
        "alive": member.alive,
        "joined_at_ms": member.joined_ms,
        "segments": member.segments,
    }
    if (said := member.status) is not None:
        row |= described(said)
    return row
