"""`eventproc stream`: create, show, scale, truncate, offload, seal and delete streams."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.destruction import Consent, destructive, submit_destruction
from eventproc.cli.options import (
    CommandGroup,
    DurationParam,
    Settings,
    note,
    output_option,
    pass_settings,
    stream_argument,
    waiting_options,
    watch_option,
)
from eventproc.cli.output.tables import Row, rows_of, show_one, show_rows
from eventproc.cli.position_arguments import cut_at_position, parse_position, parse_ranges, parse_segments
from eventproc.cli.submit import WaitOptions, submit_and_wait
from eventproc.cli.watch import show_found
from eventproc.runtime import Eventproc
from eventproc.store.catalog import StreamRecord, find_stream, list_streams
from eventproc.store.database import Tx
from eventproc.store.model.counts import counted
from eventproc.store.model.epochs import Epoch, Segment, merge_ranges, split_ranges
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.requests import Request
from eventproc.store.segments import readable_size, write_rate
from eventproc.streams import SegmentDescription, StreamDescription
from eventproc.streams.offload import OffloadResult
from eventproc.workflows.requests import (
    AnyRequest,
    CreateStream,
    DeleteStream,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)

DAY_MS: Final = 24 * 3_600_000
COLUMNS: Final = (
    *("name", "state", "events", "bytes", "events_per_second", "segments_min", "epoch", "created_ms"),
)
SEGMENT_COLUMNS: Final = ("segment", "low", "high", "state", "head", "tail", "events")
EPOCH_COLUMNS: Final = ("epoch", "created_ms", "splits", "merges", "segments")

ScalePlan = Callable[[Epoch], tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]]
"""From the active epoch to the segments that a scale seals, and the key ranges of those that it opens."""


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
@watch_option
@output_option()
@pass_settings
def list_(settings: Settings, scope: str | None, output: str) -> None:
    """List the streams of a scope, or of all scopes, with the events and bytes that can be read.

    EVENTS/S (events_per_second in JSON) is the rate of writing in the last minute. In a segment that got more than 32
    appends in that minute, it is the rate of about the newest 32.

    Examples:
        eventproc stream list
        eventproc stream list shop --output json
    """

    def look(tx: Tx) -> list[Row]:
        if scope is not None:
            check_scope_name(scope)
        return [_listed(tx, each) for each in list_streams(tx, scope)]

    show_found(settings, lambda ep: ep.db.read(look), lambda rows: show_rows(rows, COLUMNS, output))


def _listed(tx: Tx, found: StreamRecord) -> Row:
    events, size_bytes = readable_size(tx, found.stream_id)
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "state": found.state.value,
        "events": events,
        "bytes": size_bytes,
        "events_per_second": round(write_rate(tx, found.stream_id), 3),
        "segments_min": found.config.scaling.segments_min,
        "epoch": found.epoch,
        "created_ms": found.created_ms,
    }


@stream.command()
@stream_argument
@watch_option
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a stream's state, sizes, ends and segments.

    Examples:
        eventproc stream describe shop/orders
        eventproc stream describe shop/orders --output json
    """

    def show(found: StreamDescription) -> None:
        show_one(row := _row(found), output)
        if output == "table":
            click.echo()
            show_rows(rows_of(row, "segments"), SEGMENT_COLUMNS, output)

    show_found(settings, partial(_describe, name=name), show)


def _row(found: StreamDescription) -> Row:
    return {
        **_names(found.name),
        "stream_id": found.stream_id,
        "state": found.state.value,
        "scaling": found.config.scaling.kind.value,
        "segments_min": found.config.scaling.segments_min,
        "created_ms": found.created_ms,
        "epoch": found.epoch,
        "events": found.events,
        "bytes": found.size_bytes,
        "head": str(found.head),
        "tail": str(found.tail),
        "segments": [_described(segment) for segment in found.segments],
    }


@stream.command()
@stream_argument
@watch_option
@output_option()
@pass_settings
def segments(settings: Settings, name: str, output: str) -> None:
    """List the active segments, in the order of their key ranges.

    Examples:
        eventproc stream segments shop/orders
    """

    def show(found: StreamDescription) -> None:
        show_rows([_described(each) for each in found.segments], SEGMENT_COLUMNS, output)

    show_found(settings, partial(_describe, name=name), show)


@stream.command()
@stream_argument
@output_option()
@pass_settings
def epochs(settings: Settings, name: str, output: str) -> None:
    """List the epochs that are still stored, the oldest first.

    Examples:
        eventproc stream epochs shop/orders
    """

    async def look(ep: Eventproc) -> list[Epoch]:
        return await (await ep.stream(name)).epochs()

    found = session.run(settings, look)
    if output == "table":
        shown = [_epoch(epoch) | {"segments": [str(each) for each in epoch.segments]} for epoch in found]
        show_rows(shown, EPOCH_COLUMNS, output)
    else:
        show_rows([_epoch(epoch) for epoch in found], EPOCH_COLUMNS, output)


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
@click.option(
    "--segments",
    type=int,
    metavar="N",
    help="Number of segments at the beginning; 1 unless given, or whatever an existing stream has.",
)
@waiting_options
@output_option()
@pass_settings
def create(
    settings: Settings, name: str, segments: int | None, no_wait: bool, timeout: float, output: str
) -> None:
    """Create a stream. An existing stream with the same configuration is left as it is.

    --output json says in the field "created" whether the stream is new.

    Examples:
        eventproc stream create shop/orders
        eventproc stream create shop/orders --segments 4
    """

    def choose_config(tx: Tx) -> StreamConfig:
        if segments is not None:
            return StreamConfig(scaling=ScalingPolicy.fixed(segments))
        found = find_stream(tx, name)
        return StreamConfig() if found is None else found.value.config

    async def make(ep: Eventproc) -> AnyRequest:
        StreamName.parse(name)
        return CreateStream(name, await ep.db.read(choose_config))

    created, existing = f"created stream {name}", f"stream {name} exists already"
    submit_and_wait(settings, make, WaitOptions(no_wait, timeout), created, output, existing=existing)


@stream.command()
@stream_argument
@click.option("--segments", type=int, required=True, metavar="N", help="New number of active segments.")
@waiting_options
@output_option()
@pass_settings
def update(settings: Settings, name: str, segments: int, no_wait: bool, timeout: float, output: str) -> None:
    """Change the configuration. A new number of segments takes effect immediately, with equal key ranges.

    Examples:
        eventproc stream update shop/orders --segments 8
    """

    async def make(ep: Eventproc) -> AnyRequest:
        found = await ep.stream(name)
        return UpdateStream(name, found.stream_id, StreamConfig(scaling=ScalingPolicy.fixed(segments)))

    submit_and_wait(
        settings, make, WaitOptions(no_wait, timeout), f"{name} has {counted(segments, 'segment')}", output
    )


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
@waiting_options
@output_option()
@pass_settings
def truncate(
    settings: Settings,
    name: str,
    position: str,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    timeout: float,
    output: str,
) -> None:
    """Move the head of a stream to a cut. The events before it are deleted.

    Examples:
        eventproc stream truncate shop/orders --cut 2026-11-20T12:30:00Z --dry-run
        eventproc stream truncate shop/orders --cut tail
    """

    async def make(ep: Eventproc) -> AnyRequest:
        found = await ep.stream(name)
        cut = await cut_at_position(found, parse_position(position, name, found.stream_id))
        return TruncateStream(name, cut.stream_id, dict(cut.offsets))

    submit_destruction(
        settings,
        make,
        Consent(yes, dry_run),
        f"Truncate stream {name}",
        WaitOptions(no_wait, timeout),
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
@output_option()
@pass_settings
def offload(settings: Settings, name: str, days: float, output: str) -> None:
    """Move old events of a stream from the database into files. They are read as before.

    Examples:
        eventproc stream offload shop/orders --older-than 7
    """

    async def work(ep: Eventproc) -> OffloadResult:
        return await (await ep.stream(name)).offload(older_than_ms=round(days * DAY_MS))

    done = session.run(settings, work)
    note(settings, f"moved {counted(done.events, 'event')} of {name}")
    show_one(attrs.asdict(done), output)


@stream.command()
@stream_argument
@destructive
@waiting_options
@output_option()
@pass_settings
def seal(
    settings: Settings, name: str, yes: bool, dry_run: bool, no_wait: bool, timeout: float, output: str
) -> None:
    """Seal a stream for ever: its open transactions are aborted, and nothing can be written. It can still be read.

    Examples:
        eventproc stream seal shop/orders --dry-run
        eventproc stream seal shop/orders
    """

    async def make(ep: Eventproc) -> AnyRequest:
        return SealStream(name, (await ep.stream(name)).stream_id)

    submit_destruction(
        settings,
        make,
        Consent(yes, dry_run),
        f"Seal stream {name} for ever",
        WaitOptions(no_wait, timeout),
        f"sealed {name}",
        output,
    )


@stream.command()
@stream_argument
@destructive
@waiting_options
@output_option()
@pass_settings
def delete(
    settings: Settings, name: str, yes: bool, dry_run: bool, no_wait: bool, timeout: float, output: str
) -> None:
    """Delete a sealed stream with its events and transactions.

    Examples:
        eventproc stream delete shop/orders --dry-run
        eventproc stream delete shop/orders
    """

    async def make(ep: Eventproc) -> AnyRequest:
        return DeleteStream(name, (await ep.stream(name)).stream_id)

    submit_destruction(
        settings,
        make,
        Consent(yes, dry_run),
        f"Delete stream {name}",
        WaitOptions(no_wait, timeout),
        f"deleted {name}",
        output,
    )


@stream.command()
@stream_argument
@click.argument("segment", metavar="ID")
@click.option("--into", type=int, default=2, show_default=True, metavar="N", help="Number of equal parts.")
@waiting_options
@output_option()
@pass_settings
def split(
    settings: Settings, name: str, segment: str, into: int, no_wait: bool, timeout: float, output: str
) -> None:
    """Split an active segment into equal parts, and print the new segments.

    Examples:
        eventproc stream split shop/orders 0.0
        eventproc stream split shop/orders 0.0 --into 4
    """
    (identifier,) = parse_segments([segment])
    _scale(
        settings,
        name,
        lambda epoch: split_ranges(epoch, identifier, into, stream=name),
        WaitOptions(no_wait, timeout),
        output,
    )


@stream.command()
@stream_argument
@click.argument("segments", metavar="ID ID...", nargs=-1, required=True)
@waiting_options
@output_option()
@pass_settings
def merge(
    settings: Settings, name: str, segments: tuple[str, ...], no_wait: bool, timeout: float, output: str
) -> None:
    """Merge active segments with adjacent key ranges, and print the new segment.

    Examples:
        eventproc stream merge shop/orders 0.0 1.0
    """
    identifiers = parse_segments(segments)
    _scale(
        settings,
        name,
        lambda epoch: merge_ranges(epoch, identifiers, stream=name),
        WaitOptions(no_wait, timeout),
        output,
    )


@stream.command()
@stream_argument
@click.option("--seal", "sealed", required=True, metavar="IDS", help="The segments to seal: 0.0,1.0")
@click.option(
    "--ranges", required=True, metavar="RANGES", help="The key ranges of the new segments: 0-0.5,0.5-1"
)
@waiting_options
@output_option()
@pass_settings
def scale(
    settings: Settings, name: str, sealed: str, ranges: str, no_wait: bool, timeout: float, output: str
) -> None:
    """Seal segments, and open new ones over exactly the same key space; print the new ones.

    Examples:
        eventproc stream scale shop/orders --seal 0.0,1.0 --ranges 0-0.3,0.3-1
    """
    plan = parse_segments([sealed]), parse_ranges(ranges)
    _scale(settings, name, lambda _: plan, WaitOptions(no_wait, timeout), output)


def _scale(settings: Settings, name: str, plan: ScalePlan, waiting: WaitOptions, output: str) -> None:
    async def make(ep: Eventproc) -> AnyRequest:
        found = await ep.stream(name)
        seal, ranges = plan((await found.epochs())[-1])
        return ScaleStream(name, found.stream_id, seal, ranges)

    async def show_opened(ep: Eventproc, request: Request) -> None:
        epochs = await (await ep.stream(name)).epochs()
        opened = next((epoch.opened for epoch in epochs if epoch.request_id == request.id), ())
        note(settings, f"scaled {name}")
        rows: list[Row] = [segment_row(segment) for segment in opened]
        show_rows(rows, ["segment", "low", "high"], output)

    submit_and_wait(settings, make, waiting, show_opened, output)


def segment_row(segment: Segment) -> dict[str, object]:
    """Return the fields that every table of segments shows."""
    return {"segment": format_segment(segment.id), "low": segment.range.low, "high": segment.range.high}


async def _describe(ep: Eventproc, *, name: str) -> StreamDescription:
    return await (await ep.stream(name)).describe()


def _described(segment: SegmentDescription) -> dict[str, object]:
    return {
        "segment": format_segment(segment.id),
        "low": segment.low,
        "high": segment.high,
        "state": "sealed" if segment.sealed else "active",
        "head": segment.head,
        "tail": segment.tail,
        "head_number": segment.head_number,
        "tail_number": segment.tail_number,
        "events": segment.tail_number - segment.head_number,
    }


def _epoch(epoch: Epoch) -> dict[str, object]:
    return {
        "epoch": epoch.number,
        "created_ms": epoch.created_ms,
        "splits": epoch.splits,
        "merges": epoch.merges,
        "request_id": epoch.request_id,
        "segments": [segment_row(segment) for segment in epoch.segments],
    }


def _names(name: str) -> dict[str, object]:
    scope, _, stream = name.partition("/")
    return {"name": name, "scope": scope, "stream": stream}
