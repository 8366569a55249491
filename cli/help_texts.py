"""What every command has in its help: examples, and for a mistyped command the names that it may have meant.

The docstring of a command ends with a section "Examples:", one command line per line. The lines are parsed by a test.
"""

from __future__ import annotations

from collections.abc import Iterable
from inspect import cleandoc
from typing import Final

import click

SECTION: Final = "\nExamples:\n"

SUGGESTIONS_MAX: Final = 3
"""Names that an error suggests. More would hide the best one."""


def split_examples(text: str | None) -> tuple[str | None, tuple[str, ...]]:
    """Return a docstring without its section of examples, and the examples."""
    before, found, section = cleandoc(text or "").partition(SECTION)
    if not found:
        return text, ()
    return before.strip(), tuple(line.strip() for line in section.splitlines() if line.strip())


class DocumentedCommand(click.Command):
    """A command whose help ends with examples.

    examples: the command lines, complete from the program's name on.
    """

    def __init__(self, name: str | None, *, help: str | None = None, **rest: object) -> None:
        help_text, self.examples = split_examples(help)
        super().__init__(name, help=help_text, **rest)  # type: ignore[arg-type]  # click's own types hold

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        super().format_epilog(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    # Not wrapped: a line must stay what a shell accepts.
                    formatter.write(f"{'':>{formatter.current_indent}}{line}\n")


class DocumentedGroup(DocumentedCommand, click.Group):
    """Commands by name, which suggests names for one that does not exist."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name. Raises UsageError with suggestions."""
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or self.get_command(ctx, name)):
            meant = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError("; ".join(filter(None, [f"no command {name!r}", meant])), ctx)
        return super().resolve_command(ctx, args)


def did_you_mean(name: str, known: Iterable[str], similarity: float = 0.6) -> str:
    """Return "did you mean 'a' or 'b'?" with the most similar names, the best first; empty if there are none.

    similarity: the least one, as `difflib` measures it (0 to 1). Names of one scope are compared without the scope.
    """
    from difflib import get_close_matches

    scope, slash, local = name.rpartition("/")
    prefix = scope + slash
    candidates = [each.removeprefix(prefix) for each in known]
    found = get_close_matches(local, candidates, n=SUGGESTIONS_MAX, cutoff=similarity)
    return f"did you mean {' or '.join(repr(prefix + each) for each in found)}?" if found else ""
