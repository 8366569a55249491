"""`eventproc version` and `eventproc completion`: the commands about the program itself."""

from __future__ import annotations

import platform

import click
from click.shell_completion import get_completion_class

from eventproc._version import __version__
from eventproc.cli.options import Command, output_option
from eventproc.cli.output.tables import show_one


@click.command(cls=Command)
@output_option()
def version(output: str) -> None:
    """Show the versions of eventproc and Python.

    Examples:
        eventproc version
        eventproc version --output json
    """
    if output == "table":
        click.echo(f"eventproc {__version__} (Python {platform.python_version()})")
    else:
        show_one({"eventproc": __version__, "python": platform.python_version()}, output)


@click.command(cls=Command)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a shell's completion script.

    Examples:
        eval "$(eventproc completion bash)"
        eventproc completion fish
    """
    kind = get_completion_class(shell)
    assert kind is not None, f"click does not complete in {shell}"
    click.echo(kind(ctx.find_root().command, {}, "eventproc", "_EVENTPROC_COMPLETE").source())
