"""`eventproc share`: create, show, reset and delete share groups, the consumers of which use streams as a queue."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed
from eventproc.cli.options import (
    CommandGroup,
    DurationParam,
    Settings,
    dry_run_option,
    note,
    output_option,
    page_options,
    pass_settings,
    share_argument,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_done, show_one, show_rows, show_with_tables
from eventproc.cli.watch import show_found
from eventproc.groups import SHARE, ShareGroupDescription, describe_share_group, group_name, list_groups
from eventproc.groups.position_texts import parse_group_start
from eventproc.runtime import Eventproc
from eventproc.shares import (
    DELIVERIES_MAX,
    LOCK_MS,
    ShareOptions,
    ensure_share_group,
)
from eventproc.store.database import Peers, Tx
from eventproc.store.model.ids import format_segment
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.names import check_scope_name

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
TABLES: Final = (("consumers", CONSUMER_COLUMNS), ("segments", SEGMENT_COLUMNS))
"""The tables of `describe`: the field of each, and its columns."""

RESET_COLUMNS: Final = ("stream", "events_before", "events_after")


@click.group(cls=CommandGroup)
def share() -> None:
    """Create, show, reset and delete share groups: streams as queues.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share describe shop/work
        eventproc dead-letter list shop/work
    """


@share.command("list")
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/SHARE")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, scope: str | None, page: ListPage, output: str) -> None:
    """List the share groups of a scope, or of all scopes, with their lag and what is in flight.

    Examples:
        eventproc share list
        eventproc share list shop --output json
        eventproc share list shop --prefix mail --limit 100
    """

    def look(tx: Tx) -> list[ShareGroupDescription]:
        if scope is not None:
            check_scope_name(scope)
        return [describe_share_group(tx, each.name) for each in list_groups(tx, scope, page, kinds=[SHARE])]

    def show(found: list[ShareGroupDescription]) -> None:
        show_rows([_summary(each) for each in found], COLUMNS, output)

    show_found(settings, lambda ep: ep.db.read(look), show)


@share.command()
@share_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a share group: its options, lag, deliveries, the consumers that hold events, and its segments.

    Examples:
        eventproc share describe shop/work
    """

    async def look(ep: Eventproc) -> Row:
        return _described(await (await ep.share_group(name)).describe(), ep.db.peers)

    show_found(settings, look, partial(show_with_tables, tables=TABLES, output=output))


@share.command()
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
@output_option()
@pass_settings
def create(
    settings: Settings,
    name: str,
    streams: tuple[str, ...],
    positions: tuple[str, ...],
    lock_s: float,
    deliveries_max: int,
    output: str,
) -> None:
    """Create a share group. An existing one with the same streams and options is left as it is.

    Examples:
        eventproc share create shop/work --stream shop/orders
        eventproc share create shop/mail --stream shop/mails --from tail --lock 60 --deliveries 3
    """

    async def make(ep: Eventproc) -> bool:
        known = {each: (await ep.stream(each)).stream_id for each in streams}
        options = ShareOptions(lock_ms=round(lock_s * 1000), deliveries_max=deliveries_max)
        start = parse_group_start(positions, known)
        return await ep.db.write(
            partial(ensure_share_group, name=full, streams=streams, start=start, options=options)
        )

    full = group_name(name, streams)
    created = session.run(settings, make)
    text = f"created share group {full}" if created else f"share group {full} exists already"
    show_done(settings, {"done": "create", "target": full, "created": created}, output, text)


@share.command()
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
@dry_run_option
@output_option()
@pass_settings
def reset(
    settings: Settings,
    name: str,
    positions: tuple[str, ...],
    streams: tuple[str, ...],
    dry_run: bool,
    output: str,
) -> None:
    """Move a share group to another position. Consumers lose what they hold, and continue there.

    No event is lost, so the command does not ask. Events behind the position are delivered again, those before it are
    not. Dead letters stay.

    Examples:
        eventproc share reset shop/work --to head --dry-run
        eventproc share reset shop/work --to tail
    """

    async def act(ep: Eventproc) -> tuple[str, list[Row]]:
        found = await ep.share_group(name)
        names = streams or tuple(each.name for each in (await found.info()).streams)
        known = {each: (await ep.stream(each)).stream_id for each in names}
        start = parse_group_start(positions, known)
        previews = await found.reset(start, streams=streams or None, dry_run=dry_run)
        return found.name, [attrs.asdict(each) for each in previews]

    full, rows = session.run(settings, act)
    if output == "table":
        show_rows(rows, RESET_COLUMNS, output)
    else:
        verb = "would" if dry_run else "done"
        show_one({"dry_run": dry_run, verb: "reset", "target": full, "streams": rows}, output)
    note(settings, f"nothing was changed; without --dry-run, {full} is reset" if dry_run else f"reset {full}")


@share.command()
@share_argument
@destructive
@output_option()
@pass_settings
def delete(settings: Settings, name: str, yes: bool, dry_run: bool, output: str) -> None:
    """Delete a share group with its progress. Its consumers lose what they hold; streams and dead letters stay.

    Examples:
        eventproc share delete shop/work --dry-run
        eventproc share delete shop/work
    """

    async def act(ep: Eventproc) -> None:
        await (await ep.share_group(name)).delete()

    async def look(ep: Eventproc) -> Row:
        found = await (await ep.share_group(name)).describe()
        return {
            "dry_run": True,
            "would": "delete",
            "target": found.name,
            "already_done": False,
            "in_flight": found.in_flight,
            "lag_events": found.events,
            "lag_bytes": found.bytes,
        }

    if is_confirmed(settings, Consent(yes, dry_run), f"Delete share group {name}", look, output):
        session.run(settings, act)
        show_done(settings, {"done": "delete", "target": name}, output, f"deleted {name}")


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
