"""`eventproc init`: make a directory."""

from __future__ import annotations

import click

from eventproc.cli import session
from eventproc.cli.settings import Command, Settings, note, pass_settings


@click.command(cls=Command)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="What an acknowledged write survives: power loss (fsync, the default), or the death of processes (os).",
)
@pass_settings
def init(settings: Settings, durability: str | None) -> None:
    """Make a directory for streams; one that is there is left as it is, and refused if of another durability."""
    made = session.make(settings, durability)
    note(settings, f"{settings.directory} {'is ready' if made else 'is there already'}")
