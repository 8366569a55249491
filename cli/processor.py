"""`eventproc processor`: list, describe, pause and resume the processors of a directory, in all processes."""

from __future__ import annotations

from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.group import segment_row
from eventproc.cli.live_status import blocker_text
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    group_argument,
    output_option,
    pass_settings,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_done, show_one, show_rows
from eventproc.cli.watch import show_found
from eventproc.processors import Blocker, ProcessorDescription, ProcessorMember
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


@click.group(cls=CommandGroup)
def processor() -> None:
    """List, describe, pause and resume event processors.

    Examples:
        eventproc processor list
        eventproc processor pause shop/mailer
    """


@processor.command("list")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, output: str) -> None:
    """List the processors with their progress.

    Examples:
        eventproc processor list
    """

    def show(found: list[ProcessorDescription]) -> None:
        show_rows([_summary(each, output) for each in found], COLUMNS, output)

    show_found(settings, lambda ep: ep.processors(), show)


@processor.command()
@group_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a processor: its lag, the event that blocks it, its processes, and its segments with their owners.

    Examples:
        eventproc processor describe shop/mailer
    """

    async def look(ep: Eventproc) -> tuple[ProcessorDescription, int]:
        return await ep.processor(name), (await ep.dead_letters(name).count()).letters

    def show(described: tuple[ProcessorDescription, int]) -> None:
        found, letters = described
        members = [_member(each, output) for each in found.members]
        segments = [segment_row(each) for each in found.group.segments]
        summary = {**_summary(found, output), "dead_letters": letters}
        if output != "table":
            show_one({**summary, "members": members, "segments": segments}, output)
            return
        show_one(summary, output)
        for rows, columns in ((members, MEMBER_COLUMNS), (segments, SEGMENT_COLUMNS)):
            if rows:
                click.echo()
                show_rows(rows, columns, output)

    show_found(settings, look, show)


@processor.command()
@group_argument
@output_option()
@pass_settings
def pause(settings: Settings, name: str, output: str) -> None:
    """Pause a processor in all processes until `resume`. Running handlers finish.

    Examples:
        eventproc processor pause shop/mailer
    """
    session.run(settings, lambda ep: ep.pause_processor(name))
    show_done(settings, {"done": "pause", "target": name}, output, f"{name} is paused")


@processor.command()
@group_argument
@output_option()
@pass_settings
def resume(settings: Settings, name: str, output: str) -> None:
    """Resume a paused processor.

    Examples:
        eventproc processor resume shop/mailer
    """
    session.run(settings, lambda ep: ep.resume_processor(name))
    show_done(settings, {"done": "resume", "target": name}, output, f"{name} is resumed")


def _summary(found: ProcessorDescription, output: str) -> Row:
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
        "blocker": _blocker(found.blocker, output),
    }


def _state(found: ProcessorDescription) -> str:
    if found.group.replaced:
        return "stream deleted"
    if found.group.paused:
        return "paused"
    return "running" if found.alive else "stopped"


def _member(member: ProcessorMember, output: str) -> Row:
    row: dict[str, object] = {
        "reader": member.reader,
        "pid": member.pid,
        "alive": member.alive,
        "joined_at_ms": member.joined_ms,
        "segments": member.segments,
    }
    if (said := member.status) is not None:
        row |= attrs.asdict(said) | {"state": said.state.value, "blocker": _blocker(said.blocker, output)}
    return row


def _blocker(blocker: Blocker | None, output: str) -> object:
    if blocker is None:
        return None
    return blocker_text(blocker) if output == "table" else attrs.asdict(blocker)
