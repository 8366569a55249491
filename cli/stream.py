"""`eventproc stream`: create, show, scale, truncate, offload, seal and delete streams."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Final

import attrs
import click

from eventproc.cli import session, stream_history
from eventproc.cli.destruction import Consent, destructive, submit_destruction
from eventproc.cli.options import (
    CommandGroup,
    DurationParam,
    Settings,
    if_version_option,
    note,
    output_option,
    page_options,
    pass_settings,
    request_id_option,
    stream_argument,
    waiting_options,
    watch_option,
)
from eventproc.cli.output.tables import Row, rows_of, show_one, show_rows
from eventproc.cli.retention import DAY_MS, RetentionChoice, retention_options
from eventproc.cli.scaling import VERDICT_COLUMNS, ScalingChoice, policy_row, scaling_options, scaling_row
from eventproc.cli.submit import WaitOptions, submit_and_wait
from eventproc.cli.task import submit_in_background
from eventproc.cli.watch import show_found
from eventproc.cluster import OffloadTask
from eventproc.groups.position_texts import cut_at_position
from eventproc.runtime import Eventproc
from eventproc.store.catalog import (
    StreamRecord,
    find_stream,
    list_streams,
    readable_size,
)
from eventproc.store.database import Tx
from eventproc.store.model.counts import counted
from eventproc.store.model.list_pages import ListPage
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import StreamConfig, as_tags
from eventproc.store.requests import Request
from eventproc.store.segments import write_rate
from eventproc.streams import StreamDescription
from eventproc.streams.offload import OffloadResult
from eventproc.streams.operations import MergeNeighbours, Scaling, SplitSegment, TruncateTo, opened_segments
from eventproc.streams.position_texts import parse_position, parse_ranges, parse_segments
from eventproc.workflows.requests import (
    PRESENT,
    CreateStream,
    DeleteStream,
    OfStream,
    Operation,
    ScaleStream,
    SealStream,
    UpdateStream,
    stream_of,
)

COLUMNS: Final = (
    *("name", "state", "events", "bytes", "events_per_second", "scaling", "segments_min", "epoch"),
    "created_ms",
)


@attrs.frozen
class ChangeConfig(OfStream):
    """Change what the options of `stream update` name. tags: None: as they are."""

    kind: ClassVar[str] = UpdateStream.kind
    scaling: ScalingChoice
    retention: RetentionChoice
    tags: tuple[str, ...] | None

    def plan(self, tx: Tx) -> UpdateStream:
        """See `Operation`. Raises UsageError for options that the present policy contradicts."""
        found = stream_of(tx, self)
        config = attrs.evolve(
            found.config,
            scaling=self.scaling.applied_to(found.config.scaling),
            retention=self.retention.applied_to(found.config.retention),
            tags=found.config.tags if self.tags is None else self.tags,
        )
        given = {"scaling": self.scaling.is_given, "tags": self.tags is not None}
        fields = (*(field for field, is_given in given.items() if is_given), *self.retention.fields)
        keeps = not self.scaling.is_given
        return UpdateStream(*(found.name, found.stream_id, config, keeps, fields), if_version=self.if_version)


@click.group(cls=CommandGroup)
def stream() -> None:
    """Create, show, scale, truncate, offload, seal and delete streams.

    Examples:
        eventproc stream create shop/orders --segments 4
        eventproc stream list shop
        eventproc stream describe shop/orders
    """


@stream.command("list")
@click.argument("scope", metavar="[SCOPE]", required=False)
@click.option("--tag", metavar="TAG", help="Only streams with this tag.")
@page_options("SCOPE/STREAM")
@watch_option
@output_option()
@pass_settings
def list_(
    settings: Settings,
    scope: str | None,
    tag: str | None,
    page: ListPage,
    output: str,
) -> None:
    """List the streams of a scope, or of all scopes, with the events and bytes that can be read.

    Topics are among them; their SCALING is partitions.

    EVENTS/S (events_per_second in JSON) is the rate of writing in the last minute. In a segment that got more than 32
    appends in that minute, it is the rate of about the newest 32.

    Examples:
        eventproc stream list
        eventproc stream list shop --output json
        eventproc stream list shop --tag billing --limit 100
    """

    def look(tx: Tx) -> list[Row]:
        if scope is not None:
            check_scope_name(scope)
        found = list_streams(tx, scope, page, tag=tag)
        return [_listed(tx, each) for each in found]

    show_found(settings, lambda ep: ep.db.read(look), lambda rows: show_rows(rows, COLUMNS, output))


def _listed(tx: Tx, found: StreamRecord) -> Row:
    size = readable_size(tx, found)
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "scaling": found.config.scaling.kind.value,
        "state": found.state.value,
        "events": size.events,
        "bytes": size.bytes,
        "events_per_second": round(write_rate(tx, found.stream_id), 3),
        "segments_min": found.config.scaling.segments_min,
        "epoch": found.epoch,
        "created_ms": found.created_ms,
        "tags": list(found.config.tags),
    }


@stream.command()
@stream_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a stream's state, sizes, ends and segments.

    If a policy scales the stream, this also shows the rates that it sees, and why it acts or does not.

    Examples:
        eventproc stream describe shop/orders
        eventproc stream describe shop/orders --output json
    """

    def show(found: StreamDescription) -> None:
        row = _row(found)
        if output != "table":
            show_one(row, output)
            return
        show_one({name: value for name, value in row.items() if name != "policy"}, output)
        click.echo()
        show_rows(rows_of(row, "segments"), stream_history.SEGMENT_COLUMNS[:-1], output)
        if found.scaling is not None:
            policy = scaling_row(found.scaling)
            click.echo()
            show_one({name: policy[name] for name in ("waits_for", "last_action")}, output)
            click.echo()
            show_rows(rows_of(policy, "segments"), VERDICT_COLUMNS, output)

    show_found(settings, partial(_describe, name=name), show)


def _row(found: StreamDescription) -> Row:
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "state": found.state.value,
        "version": found.version,
        **policy_row(found.config.scaling),
        "keep_ms": found.config.retention.age_ms,
        "keep_bytes": found.config.retention.size_bytes,
        "until_consumed": found.config.retention.consumed,
        "keep_ms_min": found.config.retention.age_ms_min,
        "keep_bytes_min": found.config.retention.size_bytes_min,
        "tags": list(found.config.tags),
        "created_ms": found.created_ms,
        "epoch": found.epoch,
        "events": found.events,
        "bytes": found.size_bytes,
        "head": str(found.head),
        "tail": str(found.tail),
        "segments": [stream_history.described(segment) for segment in found.segments],
        "policy": None if found.scaling is None else scaling_row(found.scaling),
    }


for _command in stream_history.COMMANDS:
    stream.add_command(_command)


@stream.command()
@stream_argument
@click.option(
    "--at",
    default="tail",
    show_default=True,
    metavar="POSITION",
    help="head, tail, or a time (ISO 8601, or ms).",
)
@output_option()
@pass_settings
def cut(settings: Settings, name: str, at: str, output: str) -> None:
    """Print a cut, for `truncate --cut` and `read --from`.

    Examples:
        eventproc stream cut shop/orders
        eventproc stream cut shop/orders --at 2026-11-20T12:30:00Z
    """

    async def look(ep: Eventproc) -> str:
        found = await ep.stream(name)
        return str(await cut_at_position(found, parse_position(at, name, found.stream_id)))

    text = session.run(settings, look)
    if output == "table":
        click.echo(text)
    else:
        show_one({**_names(name), "cut": text}, output)


@stream.command()
@stream_argument
@scaling_options
@retention_options
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A label for `stream list --tag`; repeatable."
)
@request_id_option
@waiting_options
@output_option()
@pass_settings
def create(
    settings: Settings,
    name: str,
    scaling: ScalingChoice,
    retention: RetentionChoice,
    tags: tuple[str, ...],
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Create a stream. An existing stream with the same configuration is left as it is.

    --output json says in the field "created" whether the stream is new.

    Examples:
        eventproc stream create shop/orders
        eventproc stream create shop/orders --segments 4
        eventproc stream create shop/orders --keep-days 7
        eventproc stream create shop/orders --events-per-second 1000 --segments-max 16
        eventproc stream create shop/orders --until-consumed --keep-days-min 1
    """

    def choose_config(tx: Tx) -> StreamConfig:
        found = find_stream(tx, name)
        config = StreamConfig() if found is None else found.value.config
        return attrs.evolve(
            config,
            scaling=scaling.applied_to(config.scaling),
            retention=retention.applied_to(config.retention),
            tags=as_tags(tags) if tags else config.tags,
        )

    async def make(ep: Eventproc) -> Operation:
        StreamName.parse(name)
        return CreateStream(name, await ep.db.read(choose_config))

    created, existing = f"created stream {name}", f"stream {name} exists already"
    submit_and_wait(
        settings, make, WaitOptions(no_wait, timeout, request_id), created, output, existing=existing
    )


@stream.command()
@stream_argument
@scaling_options
@retention_options
@click.option(
    "--tag", "tags", multiple=True, metavar="TAG", help="A tag, instead of all present ones; repeatable."
)
@click.option("--no-tags", is_flag=True, help="Remove all tags.")
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def update(
    settings: Settings,
    name: str,
    scaling: ScalingChoice,
    retention: RetentionChoice,
    tags: tuple[str, ...],
    no_tags: bool,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Change the configuration. A new number of segments takes effect immediately, with equal key ranges.

    A policy that goes by a rate leaves the segments as they are, unless there are fewer than --segments. --segments
    without a rate ends such a policy. Events beyond a new limit of age or size are truncated within about a minute.

    Examples:
        eventproc stream update shop/orders --segments 8
        eventproc stream update shop/orders --keep-days 7 --keep-bytes 1000000000
        eventproc stream update shop/orders --bytes-per-second 1000000
    """
    if tags and no_tags:
        raise click.UsageError("give either --tag or --no-tags")
    if not (scaling.is_given or retention.fields or tags or no_tags):
        raise click.UsageError(
            "say what to change: --segments, --keep-days, --keep-bytes, --keep-all, --tag or --no-tags"
        )

    asked = ChangeConfig(
        *(name, PRESENT, scaling, retention, as_tags(tags) if tags or no_tags else None),
        if_version=if_version,
    )
    has_count = scaling.segments is not None and not scaling.goes_by_rate
    done = f"{name} has {counted(scaling.segments or 0, 'segment')}" if has_count else f"{name} is updated"
    submit_and_wait(settings, asked, WaitOptions(no_wait, timeout, request_id), done, output)


@stream.command()
@stream_argument
@click.option(
    "--cut",
    "position",
    required=True,
    metavar="CUT",
    help="The new head: a cut from `stream cut`, head, tail or a time.",
)
@destructive
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def truncate(
    settings: Settings,
    name: str,
    position: str,
    yes: bool,
    dry_run: bool,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Move the head of a stream to a cut. The events before it are deleted.

    Examples:
        eventproc stream truncate shop/orders --cut 2026-11-20T12:30:00Z --dry-run
        eventproc stream truncate shop/orders --cut tail
    """

    submit_destruction(
        settings,
        TruncateTo(name, PRESENT, position, if_version=if_version),
        Consent(yes, dry_run),
        f"Truncate stream {name}",
        WaitOptions(no_wait, timeout, request_id),
        f"truncated {name}",
        output,
    )


@stream.command()
@stream_argument
@click.option(
    "--older-than",
    "days",
    type=DurationParam(),
    default=0.0,
    show_default=True,
    metavar="DAYS",
    help="Offload only events that were written longer ago.",
)
@click.option("--background", is_flag=True, help="Submit a task, and return without waiting for it.")
@output_option()
@pass_settings
def offload(settings: Settings, name: str, days: float, background: bool, output: str) -> None:
    """Move old events of a stream from the database into files. They are read as before.

    Examples:
        eventproc stream offload shop/orders --older-than 7
        eventproc stream offload shop/orders --background
    """
    age_ms = round(days * DAY_MS)
    if background:

        async def make(ep: Eventproc) -> OffloadTask:
            return OffloadTask((await ep.stream(name)).name, age_ms)

        submit_in_background(settings, make, output)
        return

    async def work(ep: Eventproc) -> OffloadResult:
        return await (await ep.stream(name)).offload(older_than_ms=age_ms)

    done = session.run(settings, work)
    note(settings, f"moved {counted(done.events, 'event')} of {name}")
    show_one(attrs.asdict(done), output)


@stream.command()
@stream_argument
@destructive
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def seal(
    settings: Settings,
    name: str,
    yes: bool,
    dry_run: bool,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Seal a stream for ever: its open transactions are aborted, and nothing can be written. It can still be read.

    Examples:
        eventproc stream seal shop/orders --dry-run
        eventproc stream seal shop/orders
    """

    submit_destruction(
        settings,
        SealStream(name, PRESENT, if_version=if_version),
        Consent(yes, dry_run),
        f"Seal stream {name} for ever",
        WaitOptions(no_wait, timeout, request_id),
        f"sealed {name}",
        output,
    )


@stream.command()
@stream_argument
@destructive
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def delete(
    settings: Settings,
    name: str,
    yes: bool,
    dry_run: bool,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Delete a sealed stream with its events and transactions.

    Examples:
        eventproc stream delete shop/orders --dry-run
        eventproc stream delete shop/orders
    """

    submit_destruction(
        settings,
        DeleteStream(name, PRESENT, if_version=if_version),
        Consent(yes, dry_run),
        f"Delete stream {name}",
        WaitOptions(no_wait, timeout, request_id),
        f"deleted {name}",
        output,
    )


@stream.command()
@stream_argument
@click.argument("segment", metavar="ID")
@click.option("--into", type=int, default=2, show_default=True, metavar="N", help="Number of equal parts.")
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def split(
    settings: Settings,
    name: str,
    segment: str,
    into: int,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Split an active segment into equal parts, and print the new segments.

    Examples:
        eventproc stream split shop/orders 0.0
        eventproc stream split shop/orders 0.0 --into 4
    """
    (identifier,) = parse_segments([segment])
    asked = SplitSegment(name, PRESENT, identifier, into, if_version=if_version)
    _scale(settings, asked, WaitOptions(no_wait, timeout, request_id), output)


@stream.command()
@stream_argument
@click.argument("segments", metavar="ID ID...", nargs=-1, required=True)
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def merge(
    settings: Settings,
    name: str,
    segments: tuple[str, ...],
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Merge active segments with adjacent key ranges, and print the new segment.

    Examples:
        eventproc stream merge shop/orders 0.0 1.0
    """
    asked = MergeNeighbours(name, PRESENT, parse_segments(segments), if_version=if_version)
    _scale(settings, asked, WaitOptions(no_wait, timeout, request_id), output)


@stream.command()
@stream_argument
@click.option("--seal", "sealed", required=True, metavar="IDS", help="The segments to seal: 0.0,1.0")
@click.option(
    "--ranges", required=True, metavar="RANGES", help="The key ranges of the new segments: 0-0.5,0.5-1"
)
@if_version_option
@request_id_option
@waiting_options
@output_option()
@pass_settings
def scale(
    settings: Settings,
    name: str,
    sealed: str,
    ranges: str,
    if_version: int | None,
    request_id: str | None,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Seal segments, and open new ones over exactly the same key space; print the new ones.

    Examples:
        eventproc stream scale shop/orders --seal 0.0,1.0 --ranges 0-0.3,0.3-1
    """
    asked = ScaleStream(name, PRESENT, parse_segments([sealed]), parse_ranges(ranges), if_version=if_version)
    _scale(settings, asked, WaitOptions(no_wait, timeout, request_id), output)


def _scale(settings: Settings, asked: ScaleStream | Scaling, waiting: WaitOptions, output: str) -> None:
    async def show_opened(ep: Eventproc, done: Request) -> None:
        opened = await opened_segments(ep.db, done)
        note(settings, f"scaled {asked.stream}")
        rows: list[Row] = [stream_history.segment_row(segment) for segment in opened]
        show_rows(rows, ["segment", "low", "high"], output)

    submit_and_wait(settings, asked, waiting, show_opened, output)


async def _describe(ep: Eventproc, *, name: str) -> StreamDescription:
    return await (await ep.stream(name)).describe()


def _names(name: str) -> dict[str, object]:
    scope, _, stream = name.partition("/")
    return {"name": name, "scope": scope, "stream": stream}
