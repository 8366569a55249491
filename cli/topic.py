"""`eventproc topic`: create, show, alter, truncate and delete topics."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, is_confirmed, submit_destruction
from eventproc.cli.options import (
    CommandGroup,
    Settings,
    if_version_option,
    output_option,
    page_options,
    pass_settings,
    request_id_option,
    timeout_option,
    topic_argument,
    waiting_options,
    watch_option,
)
from eventproc.cli.output.tables import Row, show_done, show_rows, show_with_tables
from eventproc.cli.retention import RetentionChoice, retention_options, ttl_ms_of, ttl_option
from eventproc.cli.submit import WaitOptions, submit_and_wait
from eventproc.cli.watch import show_found
from eventproc.runtime import Eventproc
from eventproc.store.catalog import StreamRecord, find_stream, get_topic, list_topics, readable_size
from eventproc.store.database import Tx
from eventproc.store.model.ids import format_segment
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import Partitioning, ScalingPolicy, StreamConfig
from eventproc.store.requests import Request
from eventproc.store.segments import write_rate
from eventproc.streams.position_texts import parse_time
from eventproc.topics import PartitionDescription, TopicDescription
from eventproc.topics.description import partitioning_of
from eventproc.topics.operations import TruncatePartitions, delete_topic
from eventproc.workflows.requests import PRESENT, CreateStream, Operation, UpdateStream

COLUMNS: Final = (
    *("name", "state", "partitions", "partitioning", "events", "bytes", "events_per_second", "created_ms"),
)
PARTITION_COLUMNS: Final = ("partition", "segment", "first", "end", "events", "bytes")
STRATEGIES: Final = (Partitioning.KEY.value, Partitioning.ROUND_ROBIN.value)
KEYS_MOVE: Final = ": keys go to other partitions from now on, and their older events stay where they are"


@click.group(cls=CommandGroup)
def topic() -> None:
    """Create, show, alter, truncate and delete topics, which are streams with partitions.

    `eventproc write` and `eventproc read` take topics, and --partition.

    Examples:
        eventproc topic create shop/clicks --partitions 6
        eventproc topic describe shop/clicks
        eventproc write shop/clicks clicks.jsonl --key user
    """


@topic.command()
@topic_argument
@click.option(
    "--partitions",
    type=int,
    metavar="N",
    help="Number of partitions; 1 unless given, or as many as an existing topic has.",
)
@click.option(
    "--partitioning",
    type=click.Choice(STRATEGIES),
    help="How writers choose a partition; by key unless given.",
)
@retention_options
@ttl_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def create(
    settings: Settings,
    name: str,
    partitions: int | None,
    partitioning: str | None,
    retention: RetentionChoice,
    ttl: float | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Create a topic. An existing topic with the same configuration is left as it is.

    --output json says in the field "created" whether the topic is new.

    Examples:
        eventproc topic create shop/clicks --partitions 6
        eventproc topic create shop/jobs --partitions 4 --partitioning round_robin
    """

    def choose_config(tx: Tx) -> StreamConfig:
        found = find_stream(tx, name)
        known = None if found is None or not found.value.config.is_topic else found.value.config
        kept = 1 if known is None else known.scaling.segments_min
        count = kept if partitions is None else partitions
        if partitioning is not None:
            strategy = Partitioning(partitioning)
        else:
            strategy = Partitioning.KEY if found is None else partitioning_of(found.value)
        config = StreamConfig() if known is None else known
        return attrs.evolve(
            config,
            scaling=ScalingPolicy.partitions(count),
            partitioning=strategy,
            retention=retention.applied_to(config.retention),
            ttl_ms=ttl_ms_of(ttl, config.ttl_ms),
        )

    async def make(ep: Eventproc) -> Operation:
        StreamName.parse(name)
        return CreateStream(name, await ep.db.read(choose_config))

    created, existing = f"created topic {name}", f"topic {name} exists already"
    submit_and_wait(
        settings, make, WaitOptions(no_wait, timeout, request_id), created, output, existing=existing
    )


@topic.command("list")
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/TOPIC")
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, scope: str | None, page: ListPage, output: str) -> None:
    """List the topics of a scope, or of all scopes, with the events and bytes that can be read.

    EVENTS/S (events_per_second in JSON) is the rate of writing, as in `stream list`.

    Examples:
        eventproc topic list
        eventproc topic list shop --output json
        eventproc topic list shop --limit 100 --after shop/clicks
    """

    def look(tx: Tx) -> list[Row]:
        if scope is not None:
            check_scope_name(scope)
        return [_listed(tx, each) for each in list_topics(tx, scope, page)]

    show_found(settings, lambda ep: ep.db.read(look), lambda rows: show_rows(rows, COLUMNS, output))


def _listed(tx: Tx, found: StreamRecord) -> Row:
    size = readable_size(tx, found)
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "state": found.state.value,
        "partitions": found.config.scaling.segments_min,
        "partitioning": partitioning_of(found).value,
        "events": size.events,
        "bytes": size.bytes,
        "events_per_second": round(write_rate(tx, found.stream_id), 3),
        "created_ms": found.created_ms,
    }


@topic.command()
@topic_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a topic's state, strategy, sizes and partitions.

    The events of a partition have the numbers from FIRST on, below END.

    Examples:
        eventproc topic describe shop/clicks
        eventproc topic describe shop/clicks --output json
    """

    def show(found: TopicDescription) -> None:
        show_with_tables(_row(found), [("partitions", PARTITION_COLUMNS)], output)

    show_found(settings, partial(_describe, name=name), show)


def _row(found: TopicDescription) -> Row:
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "state": found.state.value,
        "version": found.version,
        "partitioning": found.partitioning.value,
        "keep_ms": found.config.retention.age_ms,
        "keep_bytes": found.config.retention.size_bytes,
        "ttl_ms": found.config.ttl_ms,
        "created_ms": found.created_ms,
        "epoch": found.epoch,
        "events": found.events,
        "bytes": found.size_bytes,
        "head": str(found.head),
        "tail": str(found.tail),
        "partitions": [_described(each) for each in found.partitions],
    }


def _described(partition: PartitionDescription) -> dict[str, object]:
    return {
        "partition": partition.number,
        "segment": format_segment(partition.segment),
        "first": partition.first,
        "end": partition.end,
        "events": partition.events,
        "bytes": partition.size_bytes,
    }


@topic.command()
@topic_argument
@click.option(
    "--partitions", type=int, metavar="N", help="New number of partitions, at least as many as now."
)
@click.option("--partitioning", type=click.Choice(STRATEGIES), help="New strategy.")
@retention_options
@ttl_option
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def alter(
    settings: Settings,
    name: str,
    partitions: int | None,
    partitioning: str | None,
    retention: RetentionChoice,
    ttl: float | None,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Add partitions to a topic, change its strategy, or how long its events live.

    More partitions, or another strategy, take effect immediately: keys go to other partitions then, while their older
    events stay where they are. Groups read new partitions from their beginning. Events beyond a new limit of age or
    size are truncated within about a minute.

    Examples:
        eventproc topic alter shop/clicks --partitions 8
        eventproc topic alter shop/jobs --partitioning key
        eventproc topic alter shop/clicks --keep-days 7
        eventproc topic alter shop/clicks --ttl 3600
    """
    if partitions is None and partitioning is None and ttl is None and not retention.fields:
        raise click.UsageError("say what to change: --partitions, --partitioning, --keep-days, --ttl ...")
    moves = False

    def altered(tx: Tx) -> UpdateStream:
        nonlocal moves
        found = get_topic(tx, name).value
        config = attrs.evolve(
            found.config,
            scaling=found.config.scaling if partitions is None else ScalingPolicy.partitions(partitions),
            partitioning=partitioning_of(found) if partitioning is None else Partitioning(partitioning),
        )
        moves = config != found.config and config.partitioning is not Partitioning.ROUND_ROBIN
        config = attrs.evolve(
            config,
            retention=retention.applied_to(config.retention),
            ttl_ms=ttl_ms_of(ttl, config.ttl_ms),
        )
        given = {
            "scaling": partitions is not None,
            "partitioning": partitioning is not None,
            "ttl_ms": ttl is not None,
        }
        fields = (*(field for field, is_given in given.items() if is_given), *retention.fields)
        return UpdateStream(
            name,
            found.stream_id,
            config,
            keep_segments=partitions is None,
            fields=fields,
            if_version=if_version,
        )

    async def show_altered(ep: Eventproc, request: Request) -> None:
        row: Row = {"done": "alter", "target": name, "request_id": request.id, "keys_moved": moves}
        show_done(settings, row, output, f"altered {name}{KEYS_MOVE if moves else ''}")

    async def make(ep: Eventproc) -> Operation:
        return await ep.db.read(altered)

    submit_and_wait(settings, make, WaitOptions(no_wait, timeout, request_id), show_altered, output)


@topic.command()
@topic_argument
@click.option("--partition", type=int, metavar="P", help="Truncate only this partition.")
@click.option("--before", metavar="TIME", help="Delete what was appended before it (ISO 8601, or ms).")
@click.option("--number", type=int, metavar="N", help="With --partition: delete its events before number N.")
@click.option("--cut", "position", metavar="CUT", help="The new head: a cut from `stream cut`, head or tail.")
@destructive
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def truncate(
    settings: Settings,
    name: str,
    partition: int | None,
    before: str | None,
    number: int | None,
    position: str | None,
    yes: bool,
    dry_run: bool,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Delete the oldest events of a topic, or of one partition.

    Examples:
        eventproc topic truncate shop/clicks --before 2026-11-20T12:30:00Z --dry-run
        eventproc topic truncate shop/clicks --partition 3 --number 1000
        eventproc topic truncate shop/clicks --cut tail
    """
    if sum(each is not None for each in (before, number, position)) != 1:
        raise click.UsageError("give exactly one of --before, --number and --cut")
    if number is not None and partition is None:
        raise click.UsageError("each partition counts its own events: --number needs --partition")
    if position is not None and partition is not None:
        raise click.UsageError("a cut names all partitions: leave --partition out")
    time_ms = None if before is None else parse_time(before)

    asked = TruncatePartitions(
        *(name, PRESENT, partition, time_ms, number), place=position, if_version=if_version
    )
    submit_destruction(
        settings,
        asked,
        Consent(yes, dry_run),
        f"Truncate topic {name}" if partition is None else f"Truncate partition {partition} of topic {name}",
        WaitOptions(no_wait, timeout, request_id),
        f"truncated {name}",
        output,
    )


@topic.command()
@topic_argument
@destructive
@if_version_option
@request_id_option
@timeout_option
@output_option()
@pass_settings
def delete(
    settings: Settings,
    name: str,
    yes: bool,
    dry_run: bool,
    if_version: int | None,
    request_id: str | None,
    timeout: float,
    output: str,
) -> None:
    """Delete a topic with its events and transactions.

    It is sealed first. If the command ends in between, repeat it.

    Examples:
        eventproc topic delete shop/clicks --dry-run
        eventproc topic delete shop/clicks
    """

    async def look(ep: Eventproc) -> Row:
        found = await _describe(ep, name=name)
        return {
            "dry_run": True,
            "would": "delete",
            "target": name,
            "already_done": False,
            "stream_count": 1,
            "events": found.events,
            "bytes": found.size_bytes,
        }

    async def act(ep: Eventproc) -> None:
        wait_ms = round(timeout * 1000)
        await delete_topic(
            ep.db, name, PRESENT, if_version=if_version, request_id=request_id, timeout_ms=wait_ms
        )

    if is_confirmed(settings, Consent(yes, dry_run), f"Delete topic {name}", look, output):
        session.run(settings, act, host=True)
        show_done(settings, {"done": "delete", "target": name}, output, f"deleted {name}")


async def _describe(ep: Eventproc, *, name: str) -> TopicDescription:
    return await (await ep.topic(name)).describe()


def _names(name: str) -> dict[str, object]:
    scope, _, local = name.partition("/")
    return {"name": name, "scope": scope, "topic": local}
