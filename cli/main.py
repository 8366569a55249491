"""The command `eventproc`: its commands, loaded when they are named, and the exit code of whatever happens.

Only click is imported here: `eventproc --help` knows each command's line from the table below, so that it
loads nothing of the store. Exit codes: see `failures`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Final

import click
from click.shell_completion import CompletionItem, shell_complete

from eventproc._version import __version__
from eventproc.cli import failures, stdio
from eventproc.cli.settings import Settings, global_options

PROGRAM: Final = "eventproc"
COMPLETE_VARIABLE: Final = "_EVENTPROC_COMPLETE"
"""What a shell's completion script sets, and click looks for."""

COMMANDS: Final = MappingProxyType(
    {
        "init": ("init", "Make a directory for streams."),
        "scope": ("scope", "Make, list and delete scopes, the namespaces of streams."),
        "stream": ("stream", "Make, show, scale, truncate, offload, seal and delete streams."),
        "write": ("write", "Write the lines, JSON lines or CSV rows of a file to a stream."),
        "read": ("read", "Read the events of a stream."),
        "group": ("group", "Make, show, reset, checkpoint and delete reader groups."),
        "txn": ("txn", "List, describe, commit and abort transactions."),
        "processor": ("processor", "List, describe, pause and resume event processors."),
        "query": ("query", "List Spark's queries, and how far they are."),
        "dead-letter": ("dead_letter", "List, show, redrive and drop events that processors gave up."),
        "request": ("request", "Show, list and wait for what was asked of the system."),
        "run": ("run", "Serve the directory, and run the processors of apps."),
        "doctor": ("doctor", "Check a directory's health, and show who uses it."),
        "demo": ("demo", "Run the main job on real data, and prove that nothing was lost."),
        "version": ("about", "Show the version."),
        "completion": ("about", "Print a shell's completion script."),
    }
)
"""Name of a command: the module of this package that has it under the same name, a hyphen being written as _, and
its one line of help."""


class Root(click.Group):
    """The commands of the table, imported one by one, when they are named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None when there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        found = getattr(import_module(f"eventproc.cli.{module}"), cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command), f"{cmd_name} is a {type(found).__name__}"
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table: no command is imported for the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete a command's name, from the table too."""
        found = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.command(cls=Root, params=global_options(), context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="eventproc %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Durable, elastic streams and ordered event processing in a directory.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 not possible in this state, 5 timed out (the
    request goes on), 6 the directory is missing or cannot be used; 130 after Ctrl-C, 143 after SIGTERM.
    """
    ctx.ensure_object(Settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this process and return its exit code. `arguments`: its own unless given."""
    stdio.prepare()
    code = run(arguments)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        # A read of standard input cannot be interrupted, and the interpreter would wait for its thread.
        sys.stderr.flush()
        os._exit(code)
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line in this process: the same as `main`, for those who go on afterwards."""
    settings = Settings()
    try:
        code = _invoke(sys.argv[1:] if arguments is None else list(arguments), settings)
        sys.stdout.flush()
    except click.exceptions.Exit as done:
        return done.exit_code
    except BaseException as why:
        if settings.debug:
            import traceback

            traceback.print_exception(why)
        return _explain(why, settings)
    return code


def _invoke(arguments: list[str], settings: Settings) -> int:
    # Not click's own main: that one has words and exit codes of its own for Ctrl-C and for closed pipes.
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        try:
            return shell_complete(root, {"obj": settings}, PROGRAM, COMPLETE_VARIABLE, instruction)
        except (KeyError, ValueError):  # what the script sets beside it is missing, or no number
            raise click.UsageError(
                f"{COMPLETE_VARIABLE} is for the scripts of `{PROGRAM} completion`; unset it"
            ) from None
    with root.make_context(PROGRAM, arguments, obj=settings) as context:
        code: object = root.invoke(context)
    return code if isinstance(code, int) else failures.OK


def _explain(why: BaseException, settings: Settings) -> int:
    """Say in one line what happened, and return the exit code."""
    why = failures.innermost(why)
    if isinstance(why, (BrokenPipeError, stdio.OutputLost)):
        stdio.forget_output()
    if isinstance(why, BrokenPipeError):  # who read our output has enough
        return failures.SIGNALLED + signal.SIGPIPE
    if isinstance(why, (KeyboardInterrupt, click.Abort)):
        return failures.SIGNALLED + signal.SIGINT
    if isinstance(why, failures.Signalled):
        return failures.SIGNALLED + why.number
    if isinstance(why, click.UsageError) and type(why).__name__ == "NoArgsIsHelpError":
        # A noun alone; a class of click 8.2, which older ones answer with the help and exit code 0.
        click.echo(why.format_message(), err=True)
        return failures.USAGE
    if request_id := failures.pending_request(why):
        from eventproc.cli.show import show_pending

        show_pending(request_id, settings.output)
    click.echo(failures.line(why), err=True)
    return failures.exit_code(why)
