"""The forms of `eventproc group reset` that move event numbers of partitions."""

from __future__ import annotations

from functools import partial
from typing import Final

import attrs
import click

from eventproc.cli import session
from eventproc.cli.options import (
    Settings,
    note,
)
from eventproc.cli.output.tables import Row, show_one, show_rows
from eventproc.groups import READERS, get_group
from eventproc.groups.names import group_name
from eventproc.groups.operations import OffsetStart
from eventproc.runtime import Eventproc
from eventproc.store.model.group_errors import NotAReaderGroup
from eventproc.streams.position_texts import parse_time

MOVE_COLUMNS: Final = ("topic", "partition", "committed", "number", "clamped")


@attrs.frozen(kw_only=True)
class OffsetMove:
    """Where `group reset` moves event numbers to; each field as the option of that name, None unless given."""

    positions: tuple[str, ...] = ()
    number: int | None = None
    shift: int | None = None
    duration_s: float | None = None
    partitions: tuple[str, ...] = ()

    @property
    def is_wanted(self) -> bool:
        """Whether an option was given that only this form has."""
        given = (self.number, self.shift, self.duration_s)
        return bool(self.partitions) or any(each is not None for each in given)


def move_offsets(settings: Settings, name: str, move: OffsetMove, *, dry_run: bool, output: str) -> None:
    """Move event numbers of a group without consumers online, and print each partition before and after."""
    targets = [move.positions or None, move.number, move.shift, move.duration_s]
    if sum(each is not None for each in targets) != 1 or len(move.positions) > 1:
        raise click.UsageError("use exactly one of --to POSITION, --number, --shift and --duration")
    chosen = [_partition(text) for text in move.partitions] or None

    async def act(ep: Eventproc) -> tuple[str, list[Row]]:
        full = group_name(name)
        record = await ep.db.read(partial(get_group, name=full))
        if record.kind != READERS:
            raise NotAReaderGroup(group=full, streams=tuple(each.name for each in record.streams))
        group = await ep.group(full)
        duration_ms = None if move.duration_s is None else round(move.duration_s * 1000)
        moved = await group.reset_offsets(
            _start(move.positions[0]) if move.positions else None,
            duration_ms=duration_ms,
            number=move.number,
            shift=move.shift,
            partitions=chosen,
            dry_run=dry_run,
        )
        rows = [attrs.asdict(each, recurse=False) for each in moved]
        return full, [{**row, "topic": row.pop("stream")} for row in rows]

    full, rows = session.run(settings, act)
    if output == "table":
        show_rows(rows, MOVE_COLUMNS, output)
    else:
        verb = "would" if dry_run else "done"
        show_one({"dry_run": dry_run, verb: "reset", "target": full, "partitions": rows}, output)
    if any(row["clamped"] for row in rows):
        note(settings, "some numbers lay outside their partition, and were moved to its nearest end")
    note(settings, f"nothing was changed; without --dry-run, {full} is reset" if dry_run else f"reset {full}")


def _start(text: str) -> OffsetStart:
    return "head" if text == "head" else "tail" if text == "tail" else parse_time(text)


def _partition(text: str) -> tuple[str, int]:
    topic, _, number = text.rpartition(":")
    if not topic or not number.isascii() or not number.isdecimal():
        raise click.UsageError(f"--partition {text!r}: it must look like SCOPE/TOPIC:NUMBER")
    return topic, int(number)
