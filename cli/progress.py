"""A progress bar where a person looks on, nothing elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeAlias

from eventproc.cli.settings import Settings

Advance: TypeAlias = Callable[[int, str], None]
"""Called with how far the work is, and a text to show beside the bar."""


def progress(settings: Settings, label: str, total: int | None) -> AbstractContextManager[Advance]:
    """Return a context that yields how to advance the bar; total: None when it is not known."""
    if settings.quiet or not sys.stderr.isatty():
        return nullcontext(_ignore)
    from eventproc.cli.table import progress_bar

    return progress_bar(label, total)


def _ignore(completed: int, beside: str) -> None:
    """Nobody looks."""
