"""The commands of `eventproc group` that only look: list, describe, lag, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from eventproc.cli import session
from eventproc.cli.settings import Command, Settings, group_argument, output_option, pass_settings
from eventproc.cli.show import Row, show_one, show_rows
from eventproc.groups import (
    GroupCheckpoint,
    GroupDescription,
    GroupInfo,
    MemberDescription,
    SegmentLag,
    describe_group,
    list_groups,
)
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.database.instances import is_alive, pid_of
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.ids import format_segment
from eventproc.store.model.names import check_scope_name

COLUMNS: Final = ("name", "kind", "streams", "readers", "lag_events", "lag_bytes", "lag_s", "progress_at_ms")
READER_COLUMNS: Final = ("reader", "pid", "alive", "joined_at_ms", "segments")
STREAM_COLUMNS: Final = ("stream", "lag_events", "cut")
SEGMENT_COLUMNS: Final = ("stream", "segment", "owner", "lag_events", "lag_bytes", "lag_s")
STATE_COLUMNS: Final = (*SEGMENT_COLUMNS, "offset", "number", "waiting", "progress_at_ms")
CHECKPOINT_COLUMNS: Final = ("name", "completed_at_ms", "automatic", "cuts")


@click.command("list", cls=Command)
@click.argument("scope", metavar="[SCOPE]", required=False)
@output_option()
@pass_settings
def list_(settings: Settings, scope: str | None, output: str) -> None:
    """List the groups of a scope, or of all, with how far they are; those of processors too."""

    def look(tx: Tx) -> list[GroupDescription]:
        if scope is not None:
            check_scope_name(scope)
        return [describe_group(tx, each.name) for each in list_groups(tx, scope)]

    rows = [_summary(each) for each in session.run(settings, lambda ep: ep.db.read(look))]
    show_rows(_in_seconds(rows) if output == "table" else rows, COLUMNS, output)


@click.command(cls=Command)
@group_argument
@output_option()
@pass_settings
def describe(settings: Settings, name: str, output: str) -> None:
    """Show a group: its options, its lag, where it stands, its readers, its segments and who has them."""

    async def look(ep: Eventproc) -> tuple[Path | None, GroupInfo, GroupDescription, dict[str, StreamCut]]:
        group = await ep.reader_group(name)
        described = await group.describe()
        cuts = {} if described.replaced else await group.cuts()
        return ep.path, await group.info(), described, cuts

    path, info, found, cuts = session.run(settings, look)
    options = info.options
    readers = [_reader(each, path) for each in found.members]
    streams = [_stream(each.name, found, cuts) for each in found.streams]
    segments = _segments(found)
    row = {
        **_summary(found),
        "generation": found.generation,
        "created_ms": found.created_ms,
        "lease_ms": options.lease_ms,
        "checkpoint_every_ms": options.checkpoint_ms,
        "on_truncated": options.on_truncated,
        "checkpoints_started": list(found.checkpoints_started),
        "members": readers,
        "streams": streams,
        "segments": segments,
    }
    show_one(row, output)
    if output == "table":
        tables = ((streams, STREAM_COLUMNS), (readers, READER_COLUMNS), (segments, STATE_COLUMNS))
        for rows, columns in tables:
            if rows:
                click.echo()
                show_rows(_in_seconds(rows), columns, output)


@click.command(cls=Command)
@group_argument
@output_option()
@pass_settings
def lag(settings: Settings, name: str, output: str) -> None:
    """Show what a group has not finished, by segment and in all: events, bytes, and seconds since the oldest came."""

    async def look(ep: Eventproc) -> GroupDescription:
        return await (await ep.reader_group(name)).describe()

    found = session.run(settings, look)
    segments = _segments(found)
    total = {"name": found.name, **_lag(found.events, found.bytes, found.age_ms)}
    if output == "table":
        show_rows(_in_seconds([*segments, {**total, "stream": "total"}]), SEGMENT_COLUMNS, output)
    else:
        show_one({**total, "segments": segments}, output)


@click.command(cls=Command)
@group_argument
@output_option()
@pass_settings
def checkpoints(settings: Settings, name: str, output: str) -> None:
    """List the complete checkpoints that are kept, the oldest first."""

    async def look(ep: Eventproc) -> list[GroupCheckpoint]:
        return await (await ep.reader_group(name)).checkpoints()

    rows: list[Row] = [checkpoint_row(each) for each in session.run(settings, look)]
    if output == "table":
        rows = [{**row, "cuts": [f"{each['stream']} {each['cut']}" for each in _cuts(row)]} for row in rows]
    show_rows(rows, CHECKPOINT_COLUMNS, output)


LOOKS: Final = (list_, describe, lag, checkpoints)
"""What `eventproc group` takes over from here."""


def checkpoint_row(found: GroupCheckpoint) -> dict[str, object]:
    """Return what is shown of a complete checkpoint."""
    return {
        "name": found.name,
        "completed_at_ms": found.at_ms,
        "automatic": found.automatic,
        "cuts": [{"stream": stream, "cut": str(cut)} for stream, cut in sorted(found.cuts.items())],
    }


def segment_row(lag: SegmentLag) -> dict[str, object]:
    """Return what is shown of a segment, whatever reads it."""
    return {
        "stream": lag.stream,
        "segment": format_segment(lag.segment),
        "owner": lag.owner,
        "owner_epoch": lag.owner_epoch,
        "offset": lag.offset,
        "number": lag.number,
        **_lag(lag.events, lag.bytes, lag.age_ms),
        "sealed": lag.sealed,
        "reached": lag.reached,
        "waiting": [format_segment(each) for each in lag.waiting],
        "progress_at_ms": lag.moved_ms,
    }


def show_checkpoint(row: Row, output: str) -> None:
    """Print one checkpoint."""
    show_one(row, output)
    if output == "table":
        click.echo()
        show_rows(_cuts(row), ("stream", "cut"), output)


def _cuts(row: Row) -> list[Row]:
    cuts = row["cuts"]
    assert isinstance(cuts, list), cuts
    return cuts


def _in_seconds(rows: Sequence[Row]) -> list[Row]:
    """Return rows for people, who read how long something lasts in seconds."""
    shown: list[Row] = []
    for row in rows:
        age_ms = row.get("lag_ms")
        shown.append({**row, "lag_s": f"{age_ms / 1000:.3f}" if isinstance(age_ms, int) else None})
    return shown


def _summary(found: GroupDescription) -> dict[str, object]:
    moved = [each.moved_ms for each in found.segments if each.moved_ms is not None]
    return {
        "name": found.name,
        "kind": found.kind,
        "streams": [each.name for each in found.streams],
        "replaced": list(found.replaced),
        "paused": found.paused,
        "readers": len(found.members),
        **_lag(found.events, found.bytes, found.age_ms),
        "lost_events": found.lost_events,
        "progress_at_ms": max(moved, default=None),
    }


def _lag(events: int, size_bytes: int, age_ms: int | None) -> dict[str, object]:
    return {
        "lag_events": events,
        "lag_bytes": size_bytes,
        "lag_ms": age_ms,
    }


def _reader(member: MemberDescription, path: Path | None) -> dict[str, object]:
    return {
        "reader": member.reader,
        "pid": None if path is None else pid_of(path, member.instance),
        "alive": path is None or is_alive(path, member.instance),
        "joined_at_ms": member.joined_ms,
        "segments": member.owned,
    }


def _stream(name: str, found: GroupDescription, cuts: dict[str, StreamCut]) -> dict[str, object]:
    own = [each for each in found.segments if each.stream == name]
    ages = [each.age_ms for each in own if each.age_ms is not None]
    return {
        "stream": name,
        "replaced": name in found.replaced,
        "cut": str(cuts[name]) if name in cuts else None,
        **_lag(sum(each.events for each in own), sum(each.bytes for each in own), max(ages, default=None)),
    }


def _segments(found: GroupDescription) -> list[Row]:
    return [segment_row(each) | {"target": each.target} for each in found.segments]
