"""`eventproc delayed`: list, show, cancel and move events that are not due yet."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from eventproc.cli.options import due_ms, due_options, limit_option
from eventproc.cli.output.events import row_of
from eventproc.cli.verbs import Noun, rows_of_pages

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.runtime import Eventproc

event_argument = click.argument("event_id", metavar="ID")


@click.group(cls=Noun)
def delayed() -> None:
    """List, show, cancel and move delayed events, which are appended to their streams when they are due.

    `eventproc write --delay` makes them, as do writers and handlers. The host appends them: a process that has the
    directory open, such as `eventproc run`.

    Examples:
        eventproc delayed list
    """


@delayed.shows(["id", "stream", "due_ms", "key", "bytes", "failure"])
@limit_option(100, "Largest number of events.")
@click.option("--stream", metavar="STREAM", help="List the events of this stream only.")
@click.option("--after", metavar="ID", help="List the events after this one.")
async def list_(ep: Eventproc, limit: int, stream: str | None, after: str | None) -> list[Row]:
    """List delayed events, in the order of their ids.

    Examples:
        eventproc delayed list
        eventproc delayed list --stream shop/orders --limit 20
    """
    read, row = partial(ep.delayed.list, stream=stream), partial(row_of, whole=False)
    return await rows_of_pages(read, row, "id", after=after, limit=limit)


@delayed.shows(watch=False)
@event_argument
async def show(ep: Eventproc, event_id: str) -> Row:
    """Show a delayed event with its payload.

    Examples:
        eventproc delayed show 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return row_of(await ep.delayed.get(event_id), whole=True)


@delayed.shows(watch=False)
@event_argument
async def cancel(ep: Eventproc, event_id: str) -> Row:
    """Forget a delayed event: it is never appended. Shows what it was.

    Examples:
        eventproc delayed cancel 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55
    """
    return row_of(await ep.delayed.cancel(event_id), whole=True)


@delayed.shows(watch=False)
@event_argument
@due_options
async def move(ep: Eventproc, event_id: str, delay: float | None, at: str | None) -> Row:
    """Let a delayed event be due at another time. One that could not be appended is tried again.

    Examples:
        eventproc delayed move 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --delay 600
        eventproc delayed move 0199f0c2-7a44-7c1e-9d1e-2f6b8f1d3c55 --at 2030-01-31T08:00Z
    """
    delay_ms, at_ms = due_ms(delay, at)
    if delay_ms is None and at_ms is None:
        raise click.UsageError("say when it is due: give --delay or --at")
    return row_of(await ep.delayed.move(event_id, delay_ms=delay_ms, at=at_ms), whole=False)
