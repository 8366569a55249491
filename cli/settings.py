"""What holds for every command: the directory, how much is said, and the options that many commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_S: Final = 120.0
"""How long a command waits for the outcome of its request, unless told otherwise. The request goes on."""


NUMBER_MAX: Final = 1_000_000_000
"""Largest number of seconds or days that an option takes: as many seconds are 31 years. Far below what ms in 63 bits
could be, and far above what anybody waits for."""


TABLE: Final = "table"
"""The value of --output for people; the others are for programs."""


class Settings:
    """The global options, accepted before and after the command's name; the last one counts.

    directory: as given by -C or EVENTPROC_DIR, None without them. output: the --output of the command that runs.
    """

    def __init__(self) -> None:
        self.directory: str | None = None
        self.quiet = False
        self.debug = False
        self.output = TABLE


pass_settings = click.make_pass_decorator(Settings, ensure=True)


class Directory(click.types.StringParamType):
    """A directory's name. An empty one is what an unset variable leaves of `-C "$VAR"`, and means no directory."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name as it is."""
        return str(super().convert(value, param, ctx)) or self.fail("the directory is empty", param, ctx)


class Number(click.FloatRange):
    """How many seconds or days: a number that is one, and neither negative nor without end."""

    def __init__(self) -> None:
        super().__init__(min=0, max=NUMBER_MAX)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(number) else number


def _keep(ctx: click.Context, parameter: click.Parameter, value: str | bool | None) -> None:
    assert parameter.name is not None, "an option has a name"
    if value:
        setattr(ctx.ensure_object(Settings), parameter.name, value)


def global_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Return the global options. hidden: those of a command, which its help does not repeat."""
    return [
        click.Option(
            ["-C", "directory"],
            type=Directory(),
            metavar="DIR",
            envvar=None if hidden else "EVENTPROC_DIR",  # an empty one counts as none
            show_envvar=True,
            help="The directory; the current one unless given.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            help="Errors only: no notes, no progress.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Show where an error comes from.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
    ]


class Command(click.Command):
    """A command that takes the global options too. Without an --output of its own it refuses the option."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)
        if not any("--output" in parameter.opts for parameter in self.params):
            self.params.append(
                click.Option(["-o", "--output"], hidden=True, expose_value=False, callback=_refuse_output)
            )


def _refuse_output(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"`{ctx.command_path}` has only one form of output; leave --output out", ctx)


class Noun(click.Group):
    """A noun: a group of commands that take the global options too."""

    command_class = Command

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += global_options(hidden=True)


def output_option(default: str = "table") -> Callable[[F], F]:
    """Decorator of commands that print data: `--output`, passed as `output`."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice([TABLE, "json", "jsonl"]),
        default=default,
        show_default=True,
        callback=_keep_output,
        help="table for people; json (one document) or jsonl (one object per line) for programs.",
    )


def _keep_output(ctx: click.Context, _parameter: click.Parameter, value: str) -> str:
    ctx.ensure_object(Settings).output = value
    return value


def stream_argument(command: F) -> F:
    """Decorator of commands about one stream: its full name, passed as `name`."""
    return click.argument("name", metavar="SCOPE/STREAM")(command)


def group_argument(command: F) -> F:
    """Decorator of commands about one group, of readers or of a processor: its full name, passed as `name`."""
    return click.argument("name", metavar="SCOPE/GROUP")(command)


def waiting_options(command: F) -> F:
    """Decorator of commands that submit a request: `--timeout` and `--no-wait`."""
    command = timeout_option(command)
    return click.option(
        "--no-wait", is_flag=True, help="Only submit the request, and print its id for `request wait`."
    )(command)


def timeout_option(command: F) -> F:
    """Decorator of commands that wait: `--timeout`, in seconds."""
    return click.option(
        "--timeout",
        type=Number(),
        default=TIMEOUT_S,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for the outcome; the request goes on.",
    )(command)


def dry_run_option(command: F) -> F:
    """Decorator of commands that destroy something."""
    return click.option("--dry-run", is_flag=True, help="Only say what would go; change nothing.")(command)


def note(settings: Settings, text: str) -> None:
    """Say something to people, on stderr, unless they want quiet."""
    if not settings.quiet:
        click.echo(text, err=True)
