"""`eventproc read`: print the events of a stream, or of a reader group that this process joins.

In a group, an event is finished when its line was written completely to a pipe that was still open. Ctrl-C, SIGTERM
and a broken pipe end the command between two events: the progress over the printed events is made durable, and the
others are read again, by this reader or another one.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import click

from eventproc.cli.completion import SEGMENT
from eventproc.cli.options import Command, Settings, output_option, pass_settings

ENDLESS: Final = 2**63 - 1


@click.command(cls=Command)
@click.argument("name", metavar="[SCOPE/STREAM]", required=False)
@click.option("--group", metavar="SCOPE/GROUP", help="Read as a reader of this group.")
@click.option("--reader", metavar="ID", help="With --group: the reader's id; a new reader unless given.")
@click.option(
    "--from",
    "position",
    show_default="head",
    metavar="POSITION",
    help="head, tail, a cut from `stream cut`, or a time (ISO 8601, or ms).",
)
@click.option("--max", "event_max", type=click.IntRange(1, ENDLESS), metavar="N", help="Stop after N events.")
@click.option("--follow", is_flag=True, help="Wait for new events until the stream is sealed.")
@click.option(
    "--segment",
    "segments",
    type=SEGMENT,
    multiple=True,
    metavar="ID",
    help="Only this segment; may be repeated.",
)
@click.option(
    "--partition", "partitions", multiple=True, type=int, metavar="P", help="Only this one; may be repeated."
)
@output_option(default="jsonl")
@pass_settings
def read(
    settings: Settings,
    name: str | None,
    group: str | None,
    reader: str | None,
    position: str | None,
    event_max: int | None,
    follow: bool,
    segments: tuple[str, ...],
    partitions: tuple[int, ...],
    output: str,
) -> None:
    """Print the events of a stream, or of a reader group. Events of a key come in their order.

    Without --follow the command ends at the stream's present tail. A JSON line has scope, stream, segment, offset,
    number, key, timestamp, event_time, headers, id if it has one, and payload, or payload_base64 if the payload is not
    UTF-8.

    With --group the group's other readers do not get what is printed here: an event is finished once it is printed,
    and is not read again. Use --max to take some. Events already written to a pipe count as finished, even if its
    reader never read them.

    Examples:
        eventproc read shop/orders
        eventproc read shop/orders --from 2026-11-20T12:30:00Z --max 100
        eventproc read shop/clicks --partition 3
        eventproc read --group shop/billing --follow
    """
    from eventproc.cli import session
    from eventproc.cli.reading import GroupReadOptions, ReadOptions, read_group, read_stream
    from eventproc.streams.position_texts import parse_segments

    if follow and output == "json":
        raise click.UsageError("--follow has no end, which a JSON array needs: use --output jsonl")
    event_max = event_max or ENDLESS
    if group is not None:
        if name is not None or position is not None or segments or partitions:
            raise click.UsageError(
                "the group determines the streams and positions: leave SCOPE/STREAM, --from, --segment and "
                "--partition out"
            )
        wanted_of_group = GroupReadOptions(group, reader, event_max, follow, output)
        session.run(settings, partial(read_group, settings=settings, wanted=wanted_of_group))
        return
    if name is None or reader is not None:
        raise click.UsageError(
            "name what to read: SCOPE/STREAM, or --group SCOPE/GROUP, with --reader ID if wanted"
        )
    if segments and partitions:
        raise click.UsageError("a partition is a segment: give --segment or --partition, not both")
    chosen = parse_segments(segments) if segments else None
    wanted = ReadOptions(name, position or "head", event_max, follow, chosen, partitions or None, output)
    session.run(settings, partial(read_stream, settings=settings, wanted=wanted))
