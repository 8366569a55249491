"""`eventproc processor`: list, describe, pause and resume the processors of a directory, in all processes."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final, cast

import click

import eventproc
from eventproc.cli.options import group_argument
from eventproc.cli.verbs import Noun

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import ProcessorDescription
    from eventproc.runtime import Eventproc

COLUMNS: Final = (
    *("name", "state", "processes=alive", "lag_events=group.events", "lag_bytes=group.bytes"),
    *("lag_ms=group.age_ms", "progress_at_ms=group.moved_ms"),
    *("call_median_ms=calls.median_ms", "call_p99_ms=calls.p99_ms", "commit_age_ms", "blocker"),
)
COUNTS: Final = ("failed_calls", "retrying", "dead_letters", "skipped", "truncated", "restarts", "last_error")
TABLES: Final = {
    "members": (
        *("reader", "pid", "alive", "state=status.state", "segments"),
        *(f"{name}=status.{name}" for name in COUNTS),
        *(
            "calls=status.calls.count",
            "call_mean_ms=status.calls.mean_ms",
            "call_median_ms=status.calls.median_ms",
        ),
        *("call_p99_ms=status.calls.p99_ms", "commit_age_ms=status.commit_age_ms"),
    ),
    "segments": (
        *("stream", "segment", "owner", "number", "lag_events=events", "lag_bytes=bytes", "lag_ms=age_ms"),
        *("progress_at_ms=moved_ms", "waiting"),
    ),
}
"""The tables of `describe`: the field of each, and its columns."""


@click.group(cls=Noun)
def processor() -> None:
    """List, describe, pause and resume event processors.

    Examples:
        eventproc processor list
        eventproc processor pause shop/mailer
    """


def _for_people(row: Row) -> Row:
    """Return a row with the event that blocks the processor in words."""
    from eventproc.cli.live_status import blocker_text
    from eventproc.describe import Blocker

    found = row["blocker"]
    return {**row, "blocker": blocker_text(Blocker(**found)) if isinstance(found, dict) else None}


def _with_segments(row: Row) -> Row:
    """Return a processor's row with its segments; readers are among its members."""
    group = cast("Row", row["group"])
    lag = {
        name: group.get(name) for name in ("paused", "created_ms", "events", "bytes", "age_ms", "moved_ms")
    }
    return _for_people({**row, "group": lag, "segments": group["segments"]})


@processor.shows(COLUMNS, people=_for_people)
def list_(ep: Eventproc) -> Awaitable[list[ProcessorDescription]]:
    """List the processors and workers with their progress.

    Examples:
        eventproc processor list
    """
    return ep.processors()


@processor.shows(tables=TABLES, people=_with_segments)
@group_argument
async def describe(ep: Eventproc, name: str) -> Row:
    """Show a processor: its lag, the event that blocks it, its processes, and its segments with their owners.

    Examples:
        eventproc processor describe shop/mailer
    """
    letters = await ep.dead_letters(name).count()
    return {**eventproc.to_dict(await ep.processor(name)), "dead_letters": letters.letters}


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
