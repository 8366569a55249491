"""The command `eventproc`: the table of its commands, and the exit code of every outcome.

A new command is a row of COMMANDS and a module. Only click is imported here, and a command's module when the command
is named: `eventproc --help` takes the one-line helps from the table and loads nothing of the store.
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
from click.shell_completion import CompletionItem

from eventproc._version import __version__
from eventproc.cli import exit_codes, standard_streams
from eventproc.cli.help_texts import DocumentedGroup
from eventproc.cli.options import Settings, global_options

PROGRAM: Final = "eventproc"
COMPLETE_VARIABLE: Final = "_EVENTPROC_COMPLETE"
"""The variable by which a shell's completion script calls click."""

COMMANDS: Final = MappingProxyType(
    {
        "init": ("init", "Create a directory for streams."),
        "scope": ("scope", "Create, list and delete scopes, the namespaces of streams."),
        "stream": ("stream", "Create, show, scale, truncate, offload, seal and delete streams."),
        "topic": (
            "topic",
            "Create, show, alter, truncate and delete topics, which are streams with partitions.",
        ),
        "write": ("write", "Write the lines, JSON lines or CSV rows of a file to a stream."),
        "delayed": ("delayed", "List, show, cancel and move events that are not due yet."),
        "schedule": ("schedule", "Create, show, pause, resume and delete schedules of events."),
        "read": ("read", "Read the events of a stream."),
        "group": ("group", "Create, show, reset, checkpoint and delete reader groups."),
        "share": ("share", "Create, show, reset and delete share groups: streams as queues."),
        "job": ("job", "Submit, list, show, cancel and retry the jobs of a share group's workers."),
        "txn": ("txn", "List, describe, commit and abort transactions."),
        "processor": ("processor", "List, describe, pause and resume event processors."),
        "state": ("state", "Show, export, import and drop what processors keep by key."),
        "supervisor": (
            "supervisor",
            "Submit, show, reset and terminate supervisors, which ingest streams into tables.",
        ),
        "ingest": ("ingest", "Run the tasks of ingestion supervisors."),
        "table": ("table", "List, query, compact and drop the tables that supervisors publish."),
        "dead-letter": ("dead_letter", "List, show, redrive and drop events that processors gave up on."),
        "request": ("request", "Show, list and wait for requests to change streams and scopes."),
        "task": (
            "task",
            "List, describe, wait for and cancel tasks: backups, offloads and deletions in the background.",
        ),
        "cluster": ("cluster", "List the instances that have the directory open, and what they share."),
        "run": ("run", "Serve the directory, and run the processors of apps."),
        "serve": ("serve", "Serve the directory to Pravega's clients, and run the processors of apps."),
        "ui": ("ui", "Open a page that shows the store and changes it."),
        "user": ("user", "Add users of `eventproc serve`, with their permissions, passwords and tokens."),
        "backup": ("backup", "Make a verified backup of the directory while it is in use."),
        "restore": ("backup", "Make a directory from a backup."),
        "copy": ("copy", "Copy a store between a directory and a server, in both directions."),
        "verify": ("verify", "Check everything that a directory or a backup holds."),
        "compact": ("compact", "Return the free bytes of the database file to the file system."),
        "top": ("top", "Show the busiest streams, and the groups that are most behind."),
        "doctor": ("doctor", "Check a directory's health, and list the processes that use it."),
        "demo": ("demo.command", "Send real data through a stream, and prove that nothing was lost."),
        "help": ("help", "Show the help of a command."),
        "version": ("version_and_completion", "Show the version."),
        "completion": ("version_and_completion", "Print a shell's completion script."),
    }
)
"""For each command: its module in this package, and its one-line help. In the module the command has the same name,
with _ for a hyphen."""


class RootCommand(DocumentedGroup):
    """The commands of the table. A command is imported when it is named."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the table's order."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None for an unknown name."""
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        found = getattr(import_module(f"eventproc.cli.{module}"), cmd_name.replace("-", "_"))
        assert isinstance(found, click.Command), f"{cmd_name} is a {type(found).__name__}"
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the rows and options that begin with `incomplete`, without importing the commands."""
        rows = [
            CompletionItem(name, help=line)
            for name, (_, line) in COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return rows + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table, without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


@click.command(
    cls=RootCommand, params=global_options(), context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, message="eventproc %(version)s")
@click.pass_context
def root(ctx: click.Context) -> None:
    """Durable, elastic streams and ordered event processing in a directory.

    Exit codes: 0 done, 1 failed, 2 wrong usage, 3 not found, 4 refused in the present state, 5 timed out (the request
    goes on), 6 the directory is missing or cannot be used, 130 after Ctrl-C, 143 after SIGTERM.

    Examples:
        eventproc init data
        eventproc -C data scope create shop
        eventproc -C data stream create shop/orders --segments 4
        eventproc -C data write shop/orders orders.jsonl --key customer
        eventproc -C data read shop/orders --follow
        eventproc help stream create
    """
    ctx.ensure_object(Settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line of this process and return its exit code.

    arguments: those of the process unless given.
    """
    standard_streams.prepare()
    code = run(arguments)
    if any(not thread.daemon for thread in threading.enumerate() if thread is not threading.main_thread()):
        # The interpreter would wait for a thread that reads standard input, which cannot be interrupted.
        sys.stderr.flush()
        os._exit(code)
    return code


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line like `main`, but return to the caller in every case, as tests need it."""
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
    # click's own main has its own messages and exit codes for Ctrl-C and closed pipes, so it is not used.
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        try:
            return shell_complete(root, {"obj": settings}, PROGRAM, COMPLETE_VARIABLE, instruction)
        except (KeyError, ValueError):  # the script's other variables are missing, or not numbers
            raise click.UsageError(
                f"{COMPLETE_VARIABLE} is for the scripts of `{PROGRAM} completion`; unset it"
            ) from None
    with root.make_context(PROGRAM, arguments, obj=settings) as context:
        code: object = root.invoke(context)
    return code if isinstance(code, int) else exit_codes.OK


def _explain(why: BaseException, settings: Settings) -> int:
    """Print the error in one line, and return the exit code."""
    if isinstance(why, BaseExceptionGroup):
        from eventproc.base.tasks import first_leaf

        why = first_leaf(why)
    if isinstance(why, (BrokenPipeError, standard_streams.OutputLost)):
        standard_streams.forget_output()
    if isinstance(why, BrokenPipeError):  # the reader of our output has closed the pipe
        return exit_codes.SIGNALLED + signal.SIGPIPE
    if isinstance(why, (KeyboardInterrupt, click.Abort)):
        return exit_codes.SIGNALLED + signal.SIGINT
    if isinstance(why, exit_codes.Signalled):
        return exit_codes.SIGNALLED + why.number
    if isinstance(why, click.UsageError) and type(why).__name__ == "NoArgsIsHelpError":
        # A noun without a verb. The class came with click 8.2; older versions show the help with exit code 0.
        click.echo(why.format_message(), err=True)
        return exit_codes.USAGE
    if request_id := exit_codes.pending_request(why):
        from eventproc.cli.output.tables import show_pending

        show_pending(request_id, settings.output)
    click.echo(exit_codes.error_line(why), err=True)
    return exit_codes.exit_code(why)
