"""Options of the command line: the global ones (directory, verbosity), and those that many commands share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import wraps
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from eventproc.cli.completion import COMPLETED
from eventproc.cli.help_texts import DocumentedCommand, DocumentedGroup
from eventproc.cli.texts import TextParam

F = TypeVar("F", bound=Callable[..., Any])

TIMEOUT_S: Final = 120.0
"""Default of --timeout: how long a command waits for the outcome of its request. The request goes on afterwards."""


GRACE_S: Final = 30.0
"""Default of --grace, as of `Eventproc.run`."""

NUMBER_MAX: Final = 1_000_000_000
"""Largest number of seconds or days that an option accepts. As seconds it is 31 years, as ms it fits into 63 bits."""


WATCH_S: Final = 2.0
"""Default of --watch: how often a command shows its result again. Lower: more reads."""

WATCH_S_MIN: Final = 0.1
"""Shortest interval of --watch: a read of many groups takes about as long."""

LEVELS: Final = ("debug", "info", "warning", "error")
"""The values of --log-level."""

TEXT: Final = TextParam()

TABLE: Final = "table"
"""The value of --output for people; the others are for programs."""


class Settings:
    """The global options, accepted before and after the command's name; the last one counts.

    directory: or a URL, as given by -C or EVENTPROC_DIR; None without them. output: the --output of the command that
    runs.
    watch_s: its --watch, None without it.
    """

    def __init__(self) -> None:
        self.directory: str | None = None
        self.quiet = False
        self.debug = False
        self.output = TABLE
        self.watch_s: float | None = None


pass_settings = click.make_pass_decorator(Settings, ensure=True)


class DirectoryParam(click.types.StringParamType):
    """A directory's name. An empty one is refused: it is what an unset variable makes of `-C "$VAR"`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the name unchanged."""
        text = str(super().convert(value, param, ctx)) or self.fail("the directory is empty", param, ctx)
        if "://" in text:
            self.check_url(text, param, ctx)
        return text

    def check_url(self, url: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Refuse a URL."""
        self.fail(f"a URL ({url.partition(':')[0]}) is no directory; name a directory", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Let the shell complete it."""
        return [CompletionItem(incomplete, type="dir")]


class StoreParam(DirectoryParam):
    """A directory's name, or the URL of a PostgreSQL database."""

    def check_url(self, url: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
        """Refuse a password in an argument: other users of the machine see it in the list of processes."""
        from eventproc.runtime import store_address

        address = store_address(url)
        given = None if param is None or ctx is None else ctx.get_parameter_source(str(param.name))
        if isinstance(address, Path) or not address.has_password or given is not ParameterSource.COMMANDLINE:
            return
        remedy = "use EVENTPROC_DIR, PGPASSWORD or ~/.pgpass"
        self.fail(f"{address}: other users of the machine can see the password here; {remedy}", param, ctx)


class DurationParam(click.FloatRange):
    """A number of seconds or days: finite, and from `least` to `most`."""

    name = "number"

    def __init__(self, least: float = 0, most: float = NUMBER_MAX) -> None:
        super().__init__(min=least, max=most)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        number = float(super().convert(value, param, ctx))
        return self.fail(f"{value} is not a number", param, ctx) if math.isnan(number) else number


def duration_option(
    *names: str,
    help: str,
    metavar: str = "SECONDS",
    default: float | None = None,
    least: float = 0,
    most: float = NUMBER_MAX,
    kind: type[DurationParam] = DurationParam,
) -> Callable[[F], F]:
    """Decorator of commands with an option in seconds, or in what `metavar` says."""
    shown = default is not None
    return click.option(
        *names, type=kind(least, most), metavar=metavar, default=default, show_default=shown, help=help
    )


def milliseconds(seconds: float | None) -> int | None:
    """Return what an option in seconds says, in ms; None for none, and for an infinite time."""
    return None if seconds is None or math.isinf(seconds) else round(seconds * 1000)


def _keep(ctx: click.Context, parameter: click.Parameter, value: str | bool | float | None) -> None:
    assert parameter.name is not None, "an option has a name"
    if value:
        setattr(ctx.ensure_object(Settings), parameter.name, value)


def global_options(*, hidden: bool = False) -> list[click.Parameter]:
    """Return the global options.

    hidden: True for those of a command, because its help does not repeat them.
    """
    return [
        click.Option(
            ["-C", "directory"],
            type=StoreParam(),
            metavar="DIR",
            envvar=None if hidden else "EVENTPROC_DIR",  # empty counts as unset
            show_envvar=True,
            help="The eventproc directory, or postgresql://USER@HOST/DATABASE; the current directory unless given.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
        click.Option(
            ["-q", "--quiet"],
            is_flag=True,
            help="Print results and errors only: no notes, no progress bars.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Show the traceback of an error.",
            expose_value=False,
            callback=_keep,
            hidden=hidden,
        ),
    ]


class Command(DocumentedCommand):
    """A command that takes the global options too. Without an --output of its own it refuses the option."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for each in self.params:
            text = TEXT if each.type is click.STRING else each.type
            each.type = COMPLETED.get(each.metavar or "", text)
        self.params += global_options(hidden=True)
        if not any("--output" in parameter.opts for parameter in self.params):
            self.params.append(
                click.Option(["-o", "--output"], hidden=True, expose_value=False, callback=_refuse_output)
            )

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; --watch without a number of seconds gets the default."""
        if any("--watch" in parameter.opts for parameter in self.params):
            args = list(_with_seconds(args))
        return super().parse_args(ctx, args)


def _with_seconds(args: list[str]) -> Iterator[str]:
    """Yield the arguments with a number for each --watch that has none, so that a name after it stays a name."""
    options = args[: args.index("--")] if "--" in args else args
    for this, following in pairwise([*options, ""]):
        try:
            yield this if this != "--watch" or math.isfinite(float(following)) else f"{this}={WATCH_S}"
        except ValueError:
            yield f"{this}={WATCH_S}"
    yield from args[len(options) :]


def _refuse_output(ctx: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(f"`{ctx.command_path}` has only one form of output; leave --output out", ctx)


class CommandGroup(DocumentedGroup):
    """The commands about one noun, such as `stream`. It accepts the global options too."""

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


def watch_option(command: F) -> F:
    """Decorator of commands that `watch.show_found` runs: --watch, kept in the settings."""
    return click.option(
        "--watch",
        "watch_s",
        type=DurationParam(WATCH_S_MIN),
        metavar="[SECONDS]",
        expose_value=False,
        callback=_keep,
        help=f"Show the result again every SECONDS, {WATCH_S:g} unless given, until Ctrl-C. With --output json, "
        'each time one line with one object; that of a list has the field "rows".',
    )(command)


stream_argument: Final = click.argument("name", metavar="SCOPE/STREAM")
topic_argument: Final = click.argument("name", metavar="SCOPE/TOPIC")
group_argument: Final = click.argument("name", metavar="SCOPE/GROUP")
"""A group of readers or of a processor."""

share_argument: Final = click.argument("name", metavar="SCOPE/SHARE")


def limit_option(
    default: int | None, text: str = "How many to list at most.", most: int | None = None
) -> Callable[[F], F]:
    """Decorator of commands that list at most `limit` objects. default: None: all. most: the highest limit."""
    kind = click.IntRange(1, most)
    return click.option("--limit", type=kind, default=default, show_default=True, metavar="N", help=text)


def choice_options(
    choice: Callable[..., object], name: str, *options: Callable[[Any], Any]
) -> Callable[[F], F]:
    """Decorator of commands that take these options together, as the choice that they are the fields of.

    name: of the choice among the arguments of the command.
    """

    def decorate(command: F) -> F:
        @wraps(command)
        def with_choice(*args: Any, **given: Any) -> Any:
            chosen = choice(**{field: given.pop(field) for field in fields})
            return command(*args, **given, **{name: chosen})

        known = {each.name for each in getattr(command, "__click_params__", ())}
        for option in reversed(options):
            option(with_choice)
        fields = {each.name for each in with_choice.__click_params__} - known  # type: ignore[attr-defined]
        return with_choice  # type: ignore[return-value]

    return decorate


def given_options(**given: Any) -> dict[str, Any]:
    """Return the options of a group that were given, by their names in Python."""
    return {
        name: milliseconds(each) if name.endswith("_ms") else None if each == "nothing" else each
        for name, each in given.items()
        if each is not None
    }


def start_options(what: str) -> Callable[[F], F]:
    """Decorator of commands that create a group: `streams`, and where it begins in them as `positions`."""

    def decorate(command: F) -> F:
        command = click.option(
            "--from",
            "positions",
            multiple=True,
            default=("head",),
            metavar="POSITION",
            help="Where it begins: head (default), tail, a time or a cut; with several streams, one cut for each.",
        )(command)
        return click.option(
            "--stream",
            "streams",
            multiple=True,
            required=True,
            metavar="SCOPE/STREAM",
            help=f"{what}; may be repeated.",
        )(command)

    return decorate


def reset_streams_option(command: F) -> F:
    """Decorator of commands that reset a group: other streams, as `streams`."""
    return click.option(
        "--stream",
        "streams",
        multiple=True,
        metavar="SCOPE/STREAM",
        help="Replaces the streams of the group; may be repeated.",
    )(command)


def page_options(name: str) -> Callable[[F], F]:
    """Decorator of commands that list names: `--prefix`, `--after`, `--limit`, passed as a dict. name: of an entry."""
    return choice_options(
        dict,
        "page",
        click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it."),
        click.option("--after", metavar=name, help="The last one of the previous page."),
        limit_option(None, "How many to list at most; all unless given."),
    )


def if_version_option(command: F) -> F:
    """Decorator of commands that change a stream: `--if-version`."""
    text = "Refuse the change if the stream has another version than N, which `describe` shows."
    return click.option("--if-version", type=click.IntRange(min=1), metavar="N", help=text)(command)


def request_id_option(command: F) -> F:
    """Decorator of commands that submit a request: `--request-id`."""
    text = (
        "Id of the request, from `request new-id`: a repeated command returns the outcome of the first one."
    )
    return click.option("--request-id", metavar="ID", help=text)(command)


def waiting_options(command: F) -> F:
    """Decorator of commands that submit a request: `--timeout` and `--no-wait`."""
    command = timeout_option(command)
    return click.option(
        "--no-wait", is_flag=True, help="Submit the request, print its id for `request wait`, and return."
    )(command)


def timeout_option(command: F) -> F:
    """Decorator of commands that wait: `--timeout`, in seconds."""
    return duration_option(
        "--timeout",
        default=TIMEOUT_S,
        help="How long to wait for the outcome. The request goes on after a timeout.",
    )(command)


def due_options(command: F) -> F:
    """Decorator of commands that say when events are due: `--delay` and `--at`; `due_ms` reads them."""
    command = click.option("--at", metavar="TIME", help="Append then: ISO 8601, or ms since 1970.")(command)
    return duration_option("--delay", help="Append so many seconds from now.")(command)


def due_ms(delay: float | None, at: str | None) -> tuple[int | None, int | None]:
    """Return what `--delay` and `--at` say, in ms."""
    from eventproc.streams.position_texts import parse_time

    if delay is not None and at is not None:
        raise click.UsageError("use one of --delay and --at")
    return milliseconds(delay), None if at is None else parse_time(at)


def server_options(command: F) -> F:
    """Decorator of commands that run apps until a signal: `--grace`, `--log-level`, `--log-format`."""
    command = click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="text (default) for people, json for programs: one object in each line.",
    )(command)
    command = click.option(
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        help="The least severe messages that are shown; info unless given or set by the app.",
    )(command)
    return duration_option(
        "--grace", default=GRACE_S, help="How long running handlers may take to finish when the command ends."
    )(command)


background_option: Final = click.option(
    "--background", is_flag=True, help="Submit a task, and return without waiting for it."
)


def dry_run_option(command: F) -> F:
    """Decorator of commands that can say beforehand what they would change."""
    return click.option("--dry-run", is_flag=True, help="Print what would be done; change nothing.")(command)


def destructive(command: F) -> F:
    """Decorator of commands that destroy data: `--yes` and `--dry-run`."""
    command = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)
    return dry_run_option(command)


def note(settings: Settings, text: str) -> None:
    """Print a note for people on stderr, unless --quiet is given."""
    if not settings.quiet:
        click.echo(text, err=True)
