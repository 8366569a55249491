"""`eventproc share`: create, show, reset and delete share groups, the consumers of which use streams as a queue."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

import click

from eventproc.cli.options import DurationParam, page_options, share_argument
from eventproc.cli.verbs import Noun
from eventproc.store.model.limits import DELIVERIES_MAX, LOCK_MS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eventproc.cli.output.tables import Row
    from eventproc.groups import ShareGroupDescription
    from eventproc.runtime import Eventproc
    from eventproc.shares.changes import ShareResetPreview
    from eventproc.store.database import Peers, Tx
    from eventproc.store.model.list_pages import ListPage

COLUMNS: Final = ("name", "state", "streams", "lag_events", "in_flight", "lag_bytes", "lag_ms")
CONSUMER_COLUMNS: Final = ("consumer", "pid", "events")
SEGMENT_COLUMNS: Final = (
    "stream",
    "segment",
    "number",
    "next_number",
    "lag_events",
    "in_flight",
    "redelivered",
)
TABLES: Final = {"consumers": CONSUMER_COLUMNS, "segments": SEGMENT_COLUMNS}
"""The tables of `describe`: the field of each, and its columns."""

RESET_COLUMNS: Final = ("stream", "events_before", "events_after")


@click.group(cls=Noun)
def share() -> None:
    """Create, show, reset and delete share groups: streams as queues.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share describe shop/work
        eventproc dead-letter list shop/work
    """


@share.shows(COLUMNS)
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/SHARE")
async def list_(ep: Eventproc, scope: str | None, page: ListPage) -> list[Row]:
    """List the share groups of a scope, or of all scopes, with their lag and what is in flight.

    Examples:
        eventproc share list
        eventproc share list shop --output json
        eventproc share list shop --prefix mail --limit 100
    """
    from eventproc.groups import SHARE, describe_share_group, list_groups
    from eventproc.store.model.names import check_scope_name

    def look(tx: Tx) -> list[ShareGroupDescription]:
        if scope is not None:
            check_scope_name(scope)
        return [describe_share_group(tx, each.name) for each in list_groups(tx, scope, page, kinds=[SHARE])]

    return [_summary(each) for each in await ep.db.read(look)]


@share.shows(tables=TABLES)
@share_argument
async def describe(ep: Eventproc, name: str) -> Row:
    """Show a share group: its options, lag, deliveries, the consumers that hold events, and its segments.

    Examples:
        eventproc share describe shop/work
    """
    return _described(await (await ep.share_group(name)).describe(), ep.db.peers)


@share.does("created share group {target}", existing="share group {target} exists already")
@share_argument
@click.option(
    "--stream",
    "streams",
    multiple=True,
    required=True,
    metavar="SCOPE/STREAM",
    help="A stream or topic to consume; may be repeated.",
)
@click.option(
    "--from",
    "positions",
    multiple=True,
    default=("head",),
    metavar="POSITION",
    help="Where it begins: head (default), tail, a time or a cut; with several streams, one cut for each.",
)
@click.option(
    "--lock",
    "lock_s",
    type=DurationParam(),
    default=LOCK_MS / 1000,
    show_default=True,
    metavar="SECONDS",
    help="How long a consumer holds an event unless it renews the lock.",
)
@click.option(
    "--deliveries",
    "deliveries_max",
    type=click.IntRange(min=1),
    default=DELIVERIES_MAX,
    show_default=True,
    metavar="N",
    help="After so many deliveries an event that nobody accepted becomes a dead letter.",
)
async def create(
    ep: Eventproc,
    name: str,
    streams: tuple[str, ...],
    positions: tuple[str, ...],
    lock_s: float,
    deliveries_max: int,
) -> Row:
    """Create a share group. An existing one with the same streams and options is left as it is.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share create shop/mail --stream shop/mails --from tail --lock 60 --deliveries 3
    """
    from eventproc.groups import group_name
    from eventproc.groups.position_texts import parse_group_start
    from eventproc.shares import ShareOptions, ensure_share_group

    full = group_name(name, streams)
    known = {each: (await ep.stream(each)).stream_id for each in streams}
    options = ShareOptions(lock_ms=round(lock_s * 1000), deliveries_max=deliveries_max)
    start = parse_group_start(positions, known)
    make = partial(ensure_share_group, name=full, streams=streams, start=start, options=options)
    return {"target": full, "created": await ep.db.write(make)}


@share.previews("streams", RESET_COLUMNS, "is reset")
@share_argument
@click.option(
    "--to",
    "positions",
    multiple=True,
    default=("head",),
    metavar="POSITION",
    help="The new position: head (default), tail, a time or a cut; with several streams, one cut for each.",
)
@click.option(
    "--stream",
    "streams",
    multiple=True,
    metavar="SCOPE/STREAM",
    help="Replaces the streams of the group; may be repeated.",
)
async def reset(
    ep: Eventproc, name: str, positions: tuple[str, ...], streams: tuple[str, ...], dry_run: bool
) -> list[ShareResetPreview]:
    """Move a share group to another position. Consumers lose what they hold, and continue there.

    No event is lost, so the command does not ask. Events behind the position are delivered again, those before it are
    not. Dead letters stay.

    Examples:
        eventproc share reset shop/work --to head --dry-run
        eventproc share reset shop/work --to tail
    """
    from eventproc.groups.position_texts import parse_group_start

    found = await ep.share_group(name)
    names = streams or tuple(each.name for each in (await found.info()).streams)
    known = {each: (await ep.stream(each)).stream_id for each in names}
    start = parse_group_start(positions, known)
    return await found.reset(start, streams=streams or None, dry_run=dry_run)


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


def _summary(found: ShareGroupDescription) -> dict[str, object]:
    return {
        "name": found.name,
        "state": found.state,
        "streams": [each.name for each in found.streams],
        "deleted_streams": list(found.deleted),
        "lag_events": found.events,
        "lag_bytes": found.bytes,
        "lag_ms": found.age_ms,
        "in_flight": found.in_flight,
        "deliveries": _counts(found.deliveries),
        "lost_events": found.lost_events,
    }


def _described(found: ShareGroupDescription, peers: Peers) -> Row:
    from eventproc.store.model.ids import format_segment

    return {
        **_summary(found),
        "generation": found.generation,
        "created_ms": found.created_ms,
        "lock_ms": found.options.lock_ms,
        "deliveries_max": found.options.deliveries_max,
        "consumers": [
            {
                "consumer": each.consumer,
                "pid": peers.pid_of(each.instance),
                "events": each.events,
            }
            for each in found.consumers
        ],
        "segments": [
            {
                "stream": each.stream,
                "segment": format_segment(each.segment),
                "offset": each.offset,
                "number": each.number,
                "next_number": each.next_number,
                "lag_events": each.events,
                "lag_bytes": each.bytes,
                "lag_ms": each.age_ms,
                "in_flight": each.in_flight,
                "redelivered": each.redelivered,
                "deliveries": _counts(each.deliveries),
                "sealed": each.sealed,
            }
            for each in found.segments
        ],
    }


def _counts(deliveries: Mapping[int, int]) -> list[dict[str, int]]:
    return [{"delivery": count, "events": events} for count, events in deliveries.items()]
