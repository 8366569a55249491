"""`eventproc topic`: create, show, alter, truncate and delete topics."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Final

import click

import eventproc
from eventproc.cli.options import (
    Settings,
    if_version_option,
    output_option,
    page_options,
    pass_settings,
    request_id_option,
    timeout_option,
    topic_argument,
    waiting_options,
)
from eventproc.cli.output.tables import Row
from eventproc.cli.stream_configs import TOPIC_OPTIONS, GivenConfig, config_options
from eventproc.cli.verbs import Noun, find

if TYPE_CHECKING:
    from eventproc import CompactTopicTask, Operation, UpdateStream
    from eventproc.cli.submit import MakeOperation
    from eventproc.describe import CompactionResult, PartitionPosition, Request, TopicDescription, TopicInfo
    from eventproc.runtime import Eventproc

COLUMNS: Final = (
    *("name", "state", "partitions", "partitioning", "events", "bytes=size_bytes", "events_per_second"),
    "created_ms",
)
PARTITION_COLUMNS: Final = ("partition=number", "segment", "first", "end", "events", "bytes=size_bytes")
STRATEGIES: Final = ("key", "round_robin")
KEYS_MOVE: Final = ": keys go to other partitions from now on, and their older events stay where they are"


@click.group(cls=Noun)
def topic() -> None:
    """Create, show, alter, truncate and delete topics, which are streams with partitions.

    `eventproc write` and `eventproc read` take topics, and --partition.

    Examples:
        eventproc topic create shop/clicks --partitions 6
        eventproc topic describe shop/clicks
        eventproc write shop/clicks clicks.jsonl --key user
    """


@topic.submits("created topic {name}", existing="topic {name} exists already", versioned=False)
@topic_argument
@config_options(
    click.option(
        *("--partitions", "scaling__segments_min"),
        type=int,
        metavar="N",
        help="Number of partitions; 1 unless given, or as many as an existing topic has.",
    ),
    click.option(
        "--partitioning",
        type=click.Choice(STRATEGIES),
        help="How writers choose a partition; by key unless given.",
    ),
    *TOPIC_OPTIONS,
)
def create(name: str, change: GivenConfig) -> MakeOperation:
    """Create a topic. An existing topic with the same configuration is left as it is.

    --output json says in the field "created" whether the topic is new.

    Examples:
        eventproc topic create shop/clicks --partitions 6
        eventproc topic create shop/jobs --partitions 4 --partitioning round_robin
        eventproc topic create shop/prices --compact-after 60
    """

    async def make(ep: Eventproc) -> Operation:
        found = await find(ep.topic(name))
        new = eventproc.StreamConfig(eventproc.ScalingPolicy.partitions(1))
        return eventproc.CreateStream(name, change.applied_to(new if found is None else found.config))

    return make


@topic.shows(COLUMNS)
@click.argument("scope", metavar="[SCOPE]", required=False)
@page_options("SCOPE/TOPIC")
def list_(ep: Eventproc, scope: str | None, page: dict[str, Any]) -> Awaitable[list[TopicInfo]]:
    """List the topics of a scope, or of all scopes, with the events and bytes that can be read.

    EVENTS/S (events_per_second in JSON) is the rate of writing, as in `stream list`.

    Examples:
        eventproc topic list
        eventproc topic list shop --output json
        eventproc topic list shop --limit 100 --after shop/clicks
    """
    return ep.topics(scope, **page)


@topic.shows(tables={"partitions": PARTITION_COLUMNS})
@topic_argument
async def describe(ep: Eventproc, name: str) -> TopicDescription:
    """Show a topic's state, strategy, sizes and partitions.

    The events of a partition have the numbers from FIRST on, below END.

    Examples:
        eventproc topic describe shop/clicks
        eventproc topic describe shop/clicks --output json
    """
    return await (await ep.topic(name)).describe()


@topic.shows(("partition", "number", "end"))
@topic_argument
@click.argument("time", metavar="TIME")
async def positions(ep: Eventproc, name: str, time: str) -> list[PartitionPosition]:
    """List where the events begin that were appended at TIME or later (ISO 8601, or ms), by partition.

    NUMBER is that of the first such event; END, if there is none yet.

    Examples:
        eventproc topic positions shop/clicks 2026-11-20T12:30:00Z
    """
    from eventproc.streams.position_texts import parse_time

    return await (await ep.topic(name)).positions_at(parse_time(time))


@topic.command()
@topic_argument
@config_options(
    click.option(
        *("--partitions", "scaling__segments_min"),
        type=int,
        metavar="N",
        help="New number of partitions, at least as many as now.",
    ),
    click.option("--partitioning", type=click.Choice(STRATEGIES), help="New strategy."),
    *TOPIC_OPTIONS,
)
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def alter(
    settings: Settings,
    name: str,
    change: GivenConfig,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Add partitions to a topic, change its strategy, or how long its events live and where.

    More partitions, or another strategy, take effect immediately: keys go to other partitions then, while their older
    events stay where they are. Groups read new partitions from their beginning. Events beyond a new limit of age or
    size are truncated, or moved into files, within about a minute.

    Examples:
        eventproc topic alter shop/clicks --partitions 8
        eventproc topic alter shop/jobs --partitioning key
        eventproc topic alter shop/clicks --keep-days 7
        eventproc topic alter shop/clicks --ttl 3600
    """
    if not change.fields:
        raise click.UsageError("say what to change: --partitions, --partitioning, --keep-days, --ttl ...")
    from eventproc.cli.output.tables import show_done
    from eventproc.cli.submit import WaitOptions, submit_and_wait

    moves = False

    async def make(ep: Eventproc) -> UpdateStream:
        nonlocal moves
        found = await (await ep.topic(name)).describe()
        change.applied_to(found.config)
        moved = [each for each in change.fields if each in ("scaling", "partitioning")]
        after = found.config.with_fields(change.config, moved)
        moves = after != found.config and after.partitioning is not eventproc.Partitioning.ROUND_ROBIN
        return eventproc.UpdateStream(
            *(name, found.stream_id, change.config, change.keeps_segments, change.fields),
            if_version=if_version,
        )

    async def show_altered(ep: Eventproc, request: Request) -> None:
        row: Row = {"done": "alter", "target": name, "request_id": request.id, "keys_moved": moves}
        show_done(settings, row, output, f"altered {name}{KEYS_MOVE if moves else ''}")

    submit_and_wait(settings, make, WaitOptions(no_wait, timeout, request_id), show_altered, output)


def _truncation(name: str, partition: int | None, **_: object) -> str:
    return (
        f"Truncate topic {name}" if partition is None else f"Truncate partition {partition} of topic {name}"
    )


@topic.submits("truncated {name}", consent=_truncation)
@topic_argument
@click.option("--partition", type=int, metavar="P", help="Truncate only this partition.")
@click.option("--before", metavar="TIME", help="Delete what was appended before it (ISO 8601, or ms).")
@click.option("--number", type=int, metavar="N", help="With --partition: delete its events before number N.")
@click.option("--cut", metavar="CUT", help="The new head: a cut from `stream cut`, head or tail.")
def truncate(
    name: str, partition: int | None, before: str | None, number: int | None, cut: str | None
) -> Operation:
    """Delete the oldest events of a topic, or of one partition.

    Examples:
        eventproc topic truncate shop/clicks --before 2026-11-20T12:30:00Z --dry-run
        eventproc topic truncate shop/clicks --partition 3 --number 1000
        eventproc topic truncate shop/clicks --cut tail
    """
    from eventproc.streams.position_texts import parse_time

    if sum(each is not None for each in (before, number, cut)) != 1:
        raise click.UsageError("give exactly one of --before, --number and --cut")
    if number is not None and partition is None:
        raise click.UsageError("each partition counts its own events: --number needs --partition")
    if cut is not None and partition is not None:
        raise click.UsageError("a cut names all partitions: leave --partition out")
    time_ms = None if before is None else parse_time(before)
    return eventproc.TruncatePartitions(name, eventproc.PRESENT, partition, time_ms, number, cut=cut)


@topic.works("removed {events} of {name}")
@topic_argument
async def compact(ep: Eventproc, name: str, background: bool) -> CompactTopicTask | CompactionResult:
    """Remove the events of a topic that have a newer one of their key, now. Its policy does so in the background.

    Numbers and offsets of the other events stay as they are.

    Examples:
        eventproc topic compact shop/prices
        eventproc topic compact shop/prices --background
    """
    found = await ep.topic(name)
    return eventproc.CompactTopicTask(found.name) if background else await found.compact()


async def _losses(ep: Eventproc, name: str, **_: object) -> Row:
    found = await (await ep.topic(name)).describe()
    return {"stream_count": 1, "events": found.events, "bytes": found.size_bytes}


@topic.does("deleted {name}", consent="Delete topic {name}", losses=_losses, host=True)
@topic_argument
@if_version_option
@request_id_option
@timeout_option
async def delete(
    ep: Eventproc, name: str, if_version: int | None, request_id: str | None, timeout: float
) -> None:
    """Delete a topic with its events and transactions.

    It is sealed first. If the command ends in between, repeat it.

    Examples:
        eventproc topic delete shop/clicks --dry-run
        eventproc topic delete shop/clicks
    """
    from eventproc.topics.operations import delete_topic

    await delete_topic(
        *(ep.db, name, eventproc.PRESENT),
        if_version=if_version,
        request_id=request_id,
        timeout_ms=round(timeout * 1000),
    )
