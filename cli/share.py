"""`eventproc share`: create, show, change and delete share groups, the consumers of which use streams as a queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

import eventproc
from eventproc.cli.options import (
    choice_options,
    duration_option,
    given_options,
    page_options,
    reset_streams_option,
    share_argument,
    start_options,
)
from eventproc.cli.verbs import Noun, describe_each, find, stream_ids

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.describe import ShareGroupDescription
    from eventproc.runtime import Eventproc

COLUMNS: Final = (
    *(
        "name",
        "state",
        "streams=streams.name",
        "lag_events=events",
        "in_flight",
        "lag_bytes=bytes",
        "lag_ms=age_ms",
    ),
)
SEGMENT_COLUMNS: Final = (
    *(
        "stream",
        "segment",
        "number",
        "next_number",
        "lag_events=events",
        "in_flight",
        "available",
        "set_aside",
    ),
)
TABLES: Final = {"consumers": ("consumer", "pid", "events"), "segments": SEGMENT_COLUMNS}
"""The tables of `describe`: the field of each, and its columns."""

RESET_COLUMNS: Final = ("stream", "cut_after", "events_before", "events_after")


share_options: Final = choice_options(
    given_options,
    "options",
    duration_option(
        "--lock",
        "lock_ms",
        least=0.1,
        help="How long a consumer holds an event unless it renews the lock; 30 by default.",
    ),
    click.option(
        "--deliveries",
        "deliveries_max",
        type=click.IntRange(min=1),
        metavar="N",
        help="After so many deliveries an event that nobody accepted becomes a dead letter; 5 by default.",
    ),
)
"""Decorator of commands that take `options`: those of a share group that can be changed."""


@click.group(cls=Noun)
def share() -> None:
    """Create, show, change and delete share groups: streams as queues.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share describe shop/work
        eventproc dead-letter list shop/work
    """


@share.shows(COLUMNS)
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/SHARE")
async def list_(ep: Eventproc, scope: str | None, page: dict[str, Any]) -> list[ShareGroupDescription]:
    """List the share groups of a scope, or of all scopes, with their lag and what is in flight.

    Examples:
        eventproc share list
        eventproc share list shop --output json
        eventproc share list shop --prefix mail --limit 100
    """
    return await describe_each(await ep.share_groups(scope, **page), ep.share_group)


@share.shows(tables=TABLES)
@share_argument
async def describe(ep: Eventproc, name: str) -> ShareGroupDescription:
    """Show a share group: its options, lag, deliveries, the consumers that hold events, and its segments.

    Examples:
        eventproc share describe shop/work
    """
    return await (await ep.share_group(name)).describe()


@share.does("created share group {target}", existing="share group {target} exists already")
@share_argument
@start_options("A stream or topic to consume")
@share_options
async def create(
    ep: Eventproc,
    name: str,
    streams: tuple[str, ...],
    positions: tuple[str, ...],
    options: dict[str, Any],
) -> Row:
    """Create a share group. An existing one with the same streams and options is left as it is.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share create shop/mail --stream shop/mails --from tail --lock 60 --deliveries 3
    """
    from eventproc.groups import group_name
    from eventproc.groups.position_texts import parse_group_start

    full = group_name(name, streams)
    known = await find(ep.share_group(full))
    start = parse_group_start(positions, await stream_ids(ep, streams))
    await ep.create_share_group(full, streams, start=start, **options)
    return {"target": full, "created": known is None}


@share.previews({"streams": RESET_COLUMNS}, "{target} is reset")
@share_argument
@click.option(
    "--to",
    "positions",
    multiple=True,
    default=("head",),
    metavar="POSITION",
    help="The new position: head (default), tail, a time or a cut; with several streams, one cut for each.",
)
@reset_streams_option
async def reset(
    ep: Eventproc, name: str, positions: tuple[str, ...], streams: tuple[str, ...], dry_run: bool
) -> Row:
    """Move a share group to another position. Consumers lose what they hold, and continue there.

    No event is lost, so the command does not ask. Events behind the position are delivered again, those before it are
    not. Dead letters stay.

    Examples:
        eventproc share reset shop/work --to head --dry-run
        eventproc share reset shop/work --to tail
    """
    from eventproc.groups.position_texts import parse_group_start

    found = await ep.share_group(name)
    now = await found.describe()
    known = [each.name for each in now.streams]
    names = streams or [each for each in known if each not in now.deleted] or known
    start = parse_group_start(positions, await stream_ids(ep, names))
    return {"streams": await found.reset(start, streams=streams or None, dry_run=dry_run)}


@share.does("updated share group {name}")
@share_argument
@share_options
@reset_streams_option
async def update(ep: Eventproc, name: str, options: dict[str, Any], streams: tuple[str, ...]) -> Row:
    """Change options of a share group, or its streams, while its consumers work. The others stay as they are.

    A stream that is added is consumed from its head. Consumers lose what they hold of one that is left out.

    Examples:
        eventproc share update shop/work --lock 60 --deliveries 3
        eventproc share update shop/work --stream shop/orders --stream shop/refunds
    """
    changes: dict[str, Any] = {**options, "streams": streams} if streams else options
    if not changes:
        raise click.UsageError("say what to change: --lock, --deliveries or --stream")
    return {"options": eventproc.to_dict(await (await ep.share_group(name)).update(**changes))}


@share.does("{consumer} is offline in {name}; it held {events} events")
@share_argument
@click.argument("consumer", metavar="CONSUMER")
async def offline(ep: Eventproc, name: str, consumer: str) -> Row:
    """Release what a consumer holds. Other consumers receive these events immediately, and this delivery counts.

    Use it for a consumer that hangs; the death of a process is detected without it. A consumer that is still alive
    cannot settle what it held, and may go on with other events.

    Examples:
        eventproc share offline shop/work worker-1
    """
    return {"events": await (await ep.share_group(name)).consumer_offline(consumer)}


async def _losses(ep: Eventproc, name: str) -> Row:
    found = await (await ep.share_group(name)).describe()
    return {"in_flight": found.in_flight, "lag_events": found.events, "lag_bytes": found.bytes}


@share.does("deleted {name}", consent="Delete share group {name}", losses=_losses)
@share_argument
async def delete(ep: Eventproc, name: str) -> None:
    """Delete a share group with its progress. Its consumers lose what they hold; streams and dead letters stay.

    Examples:
        eventproc share delete shop/work --dry-run
        eventproc share delete shop/work
    """
    await (await ep.share_group(name)).delete()
