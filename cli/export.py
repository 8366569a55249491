"""`eventproc export`: print all metadata as JSON lines."""

from __future__ import annotations

import sys

import click

from eventproc.cli import session
from eventproc.cli.options import Command, Settings, pass_settings


@click.command(cls=Command)
@pass_settings
def export(settings: Settings) -> None:
    """Print all metadata as JSON lines, all of one moment, without events.

    The field "object" says what a line is: scope, stream, epoch, group, share_group, synchronizer, transaction,
    request, task or supervisor. The first line is "export", with the format and the time; the last one is "end", with
    the number of lines. A slow reader of the lines lets the log of the database grow.

    Examples:
        eventproc export > metadata.jsonl
        eventproc export | jq 'select(.object == "stream") | .name'
    """
    session.run(settings, lambda ep: ep.export_metadata(sys.stdout.write))
