"""The one place that knows singular and plural, for messages and the command line."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return "1 event" or "2 events".

    plural: of a noun that takes more than an "s".
    """
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"
