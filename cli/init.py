"""`eventproc init`: create a directory for streams."""

from __future__ import annotations

import click

from eventproc.cli.options import (
    Command,
    Settings,
    StoreParam,
    output_option,
    pass_settings,
)
from eventproc.cli.output.tables import show_done


@click.command(cls=Command)
@click.argument("argument", metavar="[DIR]", type=StoreParam(), required=False)
@click.option(
    "--durability",
    type=click.Choice(["fsync", "os"]),
    help="What an acknowledged write survives: power loss (fsync, the default), or the death of processes (os).",
)
@click.option(
    "--chunks",
    metavar="PLACE",
    help="A new or empty folder for the files of Spark and of moved events, or a URL such as s3://BUCKET/PREFIX.",
)
@output_option()
@pass_settings
def init(
    settings: Settings, argument: str | None, durability: str | None, chunks: str | None, output: str
) -> None:
    """Create the directory DIR for streams; the current directory unless given.

    The directory may also be named by -C or EVENTPROC_DIR. An existing directory of eventproc is left as it is; it is
    refused (exit code 4) if --durability names another durability than it has. With a folder as --chunks, its folder
    "chunks" is a link: all machines must see that folder at the same path. With a URL (s3://, gs://, az://), the files
    are objects; credentials come from the environment and are not stored.

    With a URL as DIR, such as postgresql://USER@HOST/DATABASE?schema=NAME, it creates the schema NAME in that database
    (eventproc unless given), and the schema and the role NAME_app for the SQL of programs.

    Examples:
        eventproc init data
        eventproc init data --durability os
        eventproc init data --chunks /mnt/shared/chunks
        eventproc init data --chunks s3://bucket/streams
        eventproc init 'postgresql://ann@db.example.com/shop?schema=streams'
    """
    from eventproc.cli import session

    if argument is not None:
        session.use_address(settings, argument)
    made = session.create_store(settings, durability, chunks)
    row = {"done": "init", "target": session.shown(session.address_of(settings)), "created": made}
    name = session.shown(settings.directory or ".")
    show_done(settings, row, output, f"{name} {'is ready' if made else 'exists already'}")
