"""`eventproc stream`: make, scale, truncate, offload, seal and delete a stream. What only looks is in `stream_show`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.asking import Waiting, ask
from eventproc.cli.dry import would
from eventproc.cli.places import find_cut, parse_place, parse_ranges, parse_segments
from eventproc.cli.settings import (
    Noun,
    Number,
    Settings,
    dry_run_option,
    note,
    output_option,
    pass_settings,
    stream_argument,
    waiting_options,
)
from eventproc.cli.show import Row, show_one, show_rows
from eventproc.cli.stream_show import LOOKS, segment_row
from eventproc.runtime import Eventproc
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch, merge_ranges, split_ranges
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.requests import Request
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

Plan = Callable[[Epoch], tuple[tuple[SegmentId, ...], tuple[KeyRange, ...]]]
"""From the active epoch to what a scale seals, and the ranges of what it opens."""


@click.group(cls=Noun)
def stream() -> None:
    """Make, show, scale, truncate, offload, seal and delete streams."""


for _command in LOOKS:
    stream.add_command(_command)


@stream.command()
@stream_argument
@click.option(
    "--segments",
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="How many segments it begins with.",
)
@waiting_options
@output_option()
@pass_settings
def create(settings: Settings, name: str, segments: int, no_wait: bool, timeout: float, output: str) -> None:
    """Create a stream. An existing stream with the same configuration is left as it is."""

    async def make(_: Eventproc) -> AnyRequest:
        return CreateStream(name, StreamConfig(scaling=ScalingPolicy.fixed(segments)))

    ask(settings, make, Waiting(no_wait, timeout), f"{name} exists", output)


@stream.command()
@stream_argument
@click.option("--segments", type=int, required=True, metavar="N", help="How many active segments it has.")
@waiting_options
@output_option()
@pass_settings
def update(settings: Settings, name: str, segments: int, no_wait: bool, timeout: float, output: str) -> None:
    """Change the configuration. A new number of segments takes effect immediately, with equal key ranges."""

    async def make(ep: Eventproc) -> AnyRequest:
        found = await ep.stream(name)
        return UpdateStream(name, found.stream_id, StreamConfig(scaling=ScalingPolicy.fixed(segments)))

    ask(settings, make, Waiting(no_wait, timeout), f"{name} has {segments} segments", output)


@stream.command()
@stream_argument
@click.option(
    "--cut",
    "place",
    required=True,
    metavar="CUT",
    help="The new head: from `stream cut`, or head, tail, a time.",
)
@dry_run_option
@waiting_options
@output_option()
@pass_settings
def truncate(
    settings: Settings, name: str, place: str, dry_run: bool, no_wait: bool, timeout: float, output: str
) -> None:
    """Move the head of a stream to a cut; what lies before it is gone."""

    async def make(ep: Eventproc) -> TruncateStream:
        found = await ep.stream(name)
        cut = await find_cut(found, parse_place(place, name, found.stream_id))
        return TruncateStream(name, cut.stream_id, dict(cut.offsets))

    if dry_run:
        request = session.run(settings, make)
        would(settings, lambda _: request, output)
    else:
        ask(settings, make, Waiting(no_wait, timeout), f"truncated {name}", output)


@stream.command()
@stream_argument
@click.option(
    "--older-than",
    "days",
    type=Number(),
    default=0.0,
    show_default=True,
    metavar="DAYS",
    help="Only what was written longer ago.",
)
@output_option()
@pass_settings
def offload(settings: Settings, name: str, days: float, output: str) -> None:
    """Move old events of a stream out of the database, into files; they are read as before."""

    async def work(ep: Eventproc) -> OffloadResult:
        return await (await ep.stream(name)).offload(older_than_ms=round(days * DAY_MS))

    done = session.run(settings, work)
    note(settings, f"moved {done.events} events of {name}")
    show_one(attrs.asdict(done), output)


@stream.command()
@stream_argument
@dry_run_option
@waiting_options
@output_option()
@pass_settings
def seal(settings: Settings, name: str, dry_run: bool, no_wait: bool, timeout: float, output: str) -> None:
    """End a stream: no more events, for ever; reading goes on."""

    async def make(ep: Eventproc) -> AnyRequest:
        return SealStream(name, (await ep.stream(name)).stream_id)

    if dry_run:
        would(settings, lambda tx: SealStream(name, _stream_id(tx, name)), output)
    else:
        ask(settings, make, Waiting(no_wait, timeout), f"sealed {name}", output)


@stream.command()
@stream_argument
@dry_run_option
@waiting_options
@output_option()
@pass_settings
def delete(settings: Settings, name: str, dry_run: bool, no_wait: bool, timeout: float, output: str) -> None:
    """Delete a sealed stream and all that is in it."""

    async def make(ep: Eventproc) -> AnyRequest:
        return DeleteStream(name, (await ep.stream(name)).stream_id)

    if dry_run:
        would(settings, lambda tx: DeleteStream(name, _stream_id(tx, name)), output)
    else:
        ask(settings, make, Waiting(no_wait, timeout), f"deleted {name}", output)


@stream.command()
@stream_argument
@click.argument("segment", metavar="ID")
@click.option(
    "--into", type=int, default=2, show_default=True, metavar="N", help="How many equal parts it becomes."
)
@waiting_options
@output_option()
@pass_settings
def split(
    settings: Settings, name: str, segment: str, into: int, no_wait: bool, timeout: float, output: str
) -> None:
    """Split an active segment into equal parts, and print the new ones."""
    (identifier,) = parse_segments([segment])
    _scale(
        settings,
        name,
        lambda epoch: split_ranges(epoch, identifier, into, stream=name),
        Waiting(no_wait, timeout),
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
    """Merge neighbouring active segments, and print the new one."""
    identifiers = parse_segments(segments)
    _scale(
        settings,
        name,
        lambda epoch: merge_ranges(epoch, identifiers, stream=name),
        Waiting(no_wait, timeout),
        output,
    )


@stream.command()
@stream_argument
@click.option("--seal", "sealed", required=True, metavar="IDS", help="The segments to seal: 0.0,1.0")
@click.option("--ranges", required=True, metavar="RANGES", help="The key ranges of the new ones: 0-0.5,0.5-1")
@waiting_options
@output_option()
@pass_settings
def scale(
    settings: Settings, name: str, sealed: str, ranges: str, no_wait: bool, timeout: float, output: str
) -> None:
    """Seal segments and open others over exactly their key space; print the new ones."""
    plan = parse_segments([sealed]), parse_ranges(ranges)
    _scale(settings, name, lambda _: plan, Waiting(no_wait, timeout), output)


def _scale(settings: Settings, name: str, plan: Plan, waiting: Waiting, output: str) -> None:
    async def make(ep: Eventproc) -> AnyRequest:
        found = await ep.stream(name)
        seal, ranges = plan((await found.epochs())[-1])
        return ScaleStream(name, found.stream_id, seal, ranges)

    async def tell(ep: Eventproc, request: Request) -> None:
        epochs = await (await ep.stream(name)).epochs()
        opened = next((epoch.opened for epoch in epochs if epoch.request_id == request.id), ())
        note(settings, f"scaled {name}")
        rows: list[Row] = [segment_row(segment) for segment in opened]
        show_rows(rows, ["segment", "low", "high"], output)

    ask(settings, make, waiting, tell, output)


def _stream_id(tx: Tx, name: str) -> int:
    StreamName.parse(name)
    return get_stream(tx, name).value.stream_id
