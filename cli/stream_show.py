"""The commands of `eventproc stream` that only look: list, describe, segments, epochs, cut."""

from __future__ import annotations

from typing import Final

import click

from eventproc.cli import session
from eventproc.cli.places import find_cut, parse_place
from eventproc.cli.settings import Command, Settings, output_option, pass_settings, stream_argument
from eventproc.cli.show import Row, show_one, show_rows
from eventproc.runtime import Eventproc
from eventproc.store.model.epochs import Epoch, Segment
from eventproc.store.model.ids import format_segment
from eventproc.store.model.names import check_scope_name
from eventproc.streams import SegmentDescription, StreamDescription

SEGMENT_COLUMNS: Final = ("segment", "low", "high", "state", "head", "tail", "events")
EPOCH_COLUMNS: Final = ("epoch", "created_ms", "splits", "merges", "segments")


@click.command("list", cls=Command)
@click.argument("scope", metavar="[SCOPE]", required=False)
@output_option()
@pass_settings
def list_(settings: Settings, scope: str | None, output: str) -> None:
    """List the streams of a scope, or of all."""

    async def look(ep: Eventproc) -> list[Row]:
        if scope is not None:
            check_scope_name(scope)
        return [
            {
                **_names(each.name),
                "stream_id": each.stream_id,
                "state": each.state.value,
                "segments_min": each.config.scaling.segments_min,
                "epoch": each.epoch,
                "created_ms": each.created_ms,
            }
            for each in await ep.streams(scope)
        ]

    show_rows(session.run(settings, look), ["name", "state", "segments_min", "epoch", "created_ms"], output)


@click.command(cls=Command)
@stream_argument
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a stream's state, sizes, ends and segments."""
    found = _describe(settings, name)
    segments = [_described(segment) for segment in found.segments]
    row = {
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
        "segments": segments,
    }
    show_one(row, output)
    if output == "table":
        click.echo()
        show_rows(segments, SEGMENT_COLUMNS, output)


@click.command(cls=Command)
@stream_argument
@output_option()
@pass_settings
def segments(settings: Settings, name: str, output: str) -> None:
    """List the active segments, in the order of their key ranges."""
    show_rows([_described(each) for each in _describe(settings, name).segments], SEGMENT_COLUMNS, output)


@click.command(cls=Command)
@stream_argument
@output_option()
@pass_settings
def epochs(settings: Settings, name: str, output: str) -> None:
    """List the epochs that are kept, the oldest first."""

    async def look(ep: Eventproc) -> list[Epoch]:
        return await (await ep.stream(name)).epochs()

    found = session.run(settings, look)
    if output == "table":
        shown = [_epoch(epoch) | {"segments": [str(each) for each in epoch.segments]} for epoch in found]
        show_rows(shown, EPOCH_COLUMNS, output)
    else:
        show_rows([_epoch(epoch) for epoch in found], EPOCH_COLUMNS, output)


@click.command(cls=Command)
@stream_argument
@click.option(
    "--at",
    default="tail",
    show_default=True,
    metavar="PLACE",
    help="head, tail, or a time (ISO 8601, or ms).",
)
@output_option()
@pass_settings
def cut(settings: Settings, name: str, at: str, output: str) -> None:
    """Print a cut, for `truncate --cut` and `read --from`."""

    async def look(ep: Eventproc) -> str:
        found = await ep.stream(name)
        return str(await find_cut(found, parse_place(at, name, found.stream_id)))

    text = session.run(settings, look)
    if output == "table":
        click.echo(text)
    else:
        show_one({**_names(name), "cut": text}, output)


LOOKS: Final = (list_, describe, segments, epochs, cut)
"""What `eventproc stream` takes over from here."""


def segment_row(segment: Segment) -> dict[str, object]:
    """Return what is shown of a segment wherever one is shown."""
    return {"segment": format_segment(segment.id), "low": segment.range.low, "high": segment.range.high}


def _describe(settings: Settings, name: str) -> StreamDescription:
    async def look(ep: Eventproc) -> StreamDescription:
        return await (await ep.stream(name)).describe()

    return session.run(settings, look)


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
