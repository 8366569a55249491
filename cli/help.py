"""`eventproc help`: the help of any command, by its words."""

from __future__ import annotations

import click

from eventproc.cli.options import Command


@click.command(cls=Command)
@click.argument("words", metavar="[COMMAND]...", nargs=-1)
@click.pass_context
def help(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, as its option --help does.

    Examples:
        eventproc help
        eventproc help stream
        eventproc help stream create
    """
    found = ctx.find_root()
    for word in words:
        if not isinstance(found.command, click.Group):
            raise click.UsageError(f"`{found.command_path}` has no commands of its own", found)
        name, command, _ = found.command.resolve_command(found, [word])
        assert command is not None, f"{word} was resolved"
        found = click.Context(command, parent=found, info_name=name)
    click.echo(found.get_help())
