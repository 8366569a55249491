"""The commands of a noun: each is a function over the public API, and a row that says what is shown of its result.

A module of commands imports click, options and `eventproc`, whose names load when they are first used. So a shell
completes from the commands themselves, and help costs no more. Opening the directory, `--output`, `--watch`,
`--dry-run`, the question before data is destroyed, and the wait for a request are written here once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import click

from eventproc.base.counts import counted
from eventproc.cli.options import (
    TABLE,
    CommandGroup,
    Settings,
    background_option,
    destructive,
    dry_run_option,
    if_version_option,
    note,
    output_option,
    request_id_option,
    waiting_options,
    watch_option,
)

if TYPE_CHECKING:
    from eventproc.cli.output.tables import Row
    from eventproc.runtime import Eventproc

T = TypeVar("T")

Function: TypeAlias = Callable[..., Any]
"""What a command does: a function of the opened directory and the command's arguments and options."""


class Noun(CommandGroup):
    """The commands about one noun, such as `stream`. Its methods are decorators; they return the command."""

    def shows(
        self,
        columns: Sequence[str] | Callable[..., Sequence[str]] = (),
        *,
        tables: Mapping[str, Sequence[str]] = MappingProxyType({}),
        people: Callable[[Row], Any] | None = None,
        watch: bool = True,
    ) -> Callable[[Function], click.Command]:
        """Print what the function returns: a description, or a list of them.

        columns: of a list, for people; or a function of the arguments and options that returns them. tables: of one
            description, for people: the field of each, and its columns. people: returns what people see of a
            description: a row, or a text.
        watch: whether the command takes --watch.
        """

        def decorate(look: Function) -> click.Command:
            def look_and_show(output: str, **given: Any) -> None:
                from eventproc.cli.output.tables import show_result
                from eventproc.cli.watch import show_found

                chosen = columns(**given) if callable(columns) else columns
                show = partial(show_result, output=output, columns=chosen, tables=tables, people=people)
                show_found(_settings(), partial(look, **given), show)

            return self._added(look, look_and_show, *([watch_option] if watch else []))

        return decorate

    def does(
        self,
        done: str | Callable[[Row], str],
        *,
        existing: str | None = None,
        consent: str | None = None,
        losses: Function | None = None,
        before: Callable[..., dict[str, Any]] | None = None,
        host: bool = False,
    ) -> Callable[[Function], click.Command]:
        """Let the function change something, and report it: `done` for people, an object for programs.

        The object has the verb, the target, the other arguments, and the fields that the function returns.
        done, consent: formats of these and of the arguments and options; `done` may be a function of them.
        existing: instead of `done`, if the function returns "created" as False.
        consent: the question before data is destroyed; None: nothing is asked. losses: a function like the command's,
            which --dry-run calls: it returns what would change, by the names of `destruction.COUNTED`.
        before: makes the function's arguments of the command's, before the directory is opened.
        host: whether this process may run requests.
        """

        def decorate(act: Function) -> click.Command:
            def change(output: str, yes: bool = False, dry_run: bool = False, **given: Any) -> None:
                from eventproc.cli import session
                from eventproc.cli.destruction import Consent, is_confirmed
                from eventproc.cli.output.tables import described, show_done

                settings, target, others = _settings(), *_arguments()
                given = given if before is None else before(**given)
                if losses is not None:
                    look = partial(_losses, losses, _verb(), target, given)
                    agreed = Consent(yes or consent is None, dry_run)
                    if not is_confirmed(settings, agreed, (consent or "").format(**given), look, output):
                        return
                result = session.run(settings, partial(act, **given), host=host)
                fields = {} if result is None else described(result)
                row = {"done": _verb(), "target": target, **others, **fields}
                text, words = done if existing is None or fields["created"] else existing, {**given, **row}
                show_done(
                    settings, row, output, text.format(**words) if isinstance(text, str) else text(words)
                )

            options = [destructive] if consent else [dry_run_option] if losses else []
            return self._added(act, change, *options)

        return decorate

    def submits(
        self,
        done: str | Function,
        *,
        existing: str | None = None,
        consent: str | Callable[..., str] | None = None,
        versioned: bool = True,
    ) -> Callable[[Function], click.Command]:
        """Submit the operation that the function makes of the arguments, and wait for its outcome.

        It may return a coroutine function that makes it of the directory.

        done, existing, consent: as for `does`; `done` may be a coroutine function that shows the outcome, of the
            directory, the request, `settings` and `output`; `consent` a function of the arguments and options.
        versioned: whether the command takes --if-version, for the operation's field of that name.
        """

        def decorate(make: Function) -> click.Command:
            def submit(
                output: str,
                request_id: str | None,
                no_wait: bool,
                timeout: float,
                if_version: int | None = None,
                yes: bool = False,
                dry_run: bool = False,
                **given: Any,
            ) -> None:
                import attrs

                from eventproc.cli.destruction import Consent, submit_destruction
                from eventproc.cli.submit import WaitOptions, submit_and_wait

                settings, waiting = _settings(), WaitOptions(no_wait, timeout, request_id)
                asked = make(**given)
                if if_version is not None:
                    asked = attrs.evolve(asked, if_version=if_version)
                text = (
                    done.format(**given)
                    if isinstance(done, str)
                    else partial(done, settings=settings, output=output)
                )
                if consent is None:
                    known = None if existing is None else existing.format(**given)
                    submit_and_wait(settings, asked, waiting, text, output, existing=known)
                else:
                    assert isinstance(text, str), "what was destroyed is not shown"
                    question = consent(**given) if callable(consent) else consent.format(**given)
                    submit_destruction(
                        settings, asked, Consent(yes, dry_run), question, waiting, text, output
                    )

            consents = [destructive] if consent else []
            versions = [if_version_option] if versioned else []
            return self._added(make, submit, *consents, *versions, request_id_option, waiting_options)

        return decorate

    def works(self, done: str) -> Callable[[Function], click.Command]:
        """Let the function do long work, and print what it returns; or with --background submit it as a task.

        Its argument `background` says which: then it returns the task.
        done: for people; a format of the arguments and options, and of `events`, which the result counts.
        """

        def decorate(act: Function) -> click.Command:
            def work(output: str, background: bool, **given: Any) -> None:
                from eventproc.cli import session
                from eventproc.cli.output.tables import described, show_one
                from eventproc.cli.submit import submit_in_background

                settings, begin = _settings(), partial(act, **given, background=background)
                if background:
                    submit_in_background(settings, begin, output)
                else:
                    result = session.run(settings, begin)
                    note(settings, done.format(**given, events=counted(result.events, "event")))
                    show_one(described(result), output)

            return self._added(act, work, background_option)

        return decorate

    def previews(
        self, tables: Mapping[str, Sequence[str]], done: str, *, hint: Callable[[Row], str] | None = None
    ) -> Callable[[Function], click.Command]:
        """Let the function change something, or with `dry_run` only look, and print what it returns before and after.

        It returns fields, among them one of the tables, of descriptions.
        tables: the possible fields, and their columns. done: what is done then, a format of the target and the fields.
        hint: returns another note for people, or an empty text.
        """

        def decorate(act: Function) -> click.Command:
            def change(output: str, dry_run: bool, **given: Any) -> None:
                from eventproc.cli import session
                from eventproc.cli.output.tables import described, rows_of, show_one, show_rows

                settings = _settings()
                found = session.run(settings, partial(act, **given, dry_run=dry_run))
                (field,) = tables.keys() & found.keys()
                verb = "would" if dry_run else "done"
                row = {"dry_run": dry_run, verb: _verb(), "target": _arguments()[0], **found}
                row[field] = [described(each) for each in found[field]]
                if output == TABLE:
                    show_rows(rows_of(row, field), tables[field], output)
                else:
                    show_one(row, output)
                text = done.format(**row)
                note(settings, f"nothing was changed; without --dry-run, {text}" if dry_run else text)
                if hint is not None and (more := hint(row)):
                    note(settings, more)

            return self._added(act, change, dry_run_option)

        return decorate

    def _added(self, function: Function, callback: Function, *options: Callable[[Any], Any]) -> click.Command:
        """Add a command with the function's name, docstring and options; these options and --output come after them."""
        command: Any = wraps(function)(callback)
        own = command.__dict__.pop("__click_params__", [])
        for option in (output_option(), *reversed(options)):
            option(command)
        command.__click_params__ += own
        return self.command(function.__name__.rstrip("_").replace("_", "-"))(command)


def _settings() -> Settings:
    return click.get_current_context().ensure_object(Settings)


def _verb() -> str:
    return click.get_current_context().info_name or ""


def _arguments() -> tuple[object, dict[str, object]]:
    """Return the first argument of the command, which is its target, and the others by their names."""
    context = click.get_current_context()
    given = {
        each.name: context.params[each.name]
        for each in context.command.params
        if isinstance(each, click.Argument)
    }
    target, *others = given
    return given[target], {str(name): given[name] for name in others}


async def describe_each(found: Iterable[Any], handle: Callable[[str], Awaitable[Any]]) -> list[Any]:
    """Return the descriptions of what was found, without those that were deleted since. handle: opens one by name."""
    described = [await find(handle(each.name)) for each in found]
    return [each for each in described if each is not None]


async def find(handle: Awaitable[Any]) -> Any:
    """Return the description of what the handle is of; None if it does not exist."""
    from eventproc.errors import NotFound

    try:
        return await (await handle).describe()
    except NotFound:
        return None


async def rows_of_pages(
    read: Callable[..., Awaitable[Sequence[T]]],
    row: Callable[[T], Row],
    by: str,
    *,
    after: str | None,
    limit: int,
) -> list[Row]:
    """Return the rows of a list whose pages are bounded in bytes; the payloads of only one page are kept.

    read: returns the page of `after` and `limit`. by: the field of a row that `after` is.
    """
    rows: list[Row] = []
    while len(rows) < limit and (page := await read(after=after, limit=limit - len(rows))):
        rows += map(row, page)
        after = str(rows[-1][by])
    return rows


async def stream_ids(ep: Eventproc, names: Iterable[str]) -> dict[str, int]:
    """Return the ids of streams, for the positions of a group in them. Raises NotFound."""
    return {each: (await ep.stream(each)).stream_id for each in names}


async def _losses(look: Function, verb: str, target: object, given: Mapping[str, Any], ep: object) -> Row:
    lost: Row = await look(ep, **given)
    return {"dry_run": True, "would": verb, "target": target, "already_done": False, **lost}
