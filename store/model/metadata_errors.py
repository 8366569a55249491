"""Errors about the metadata of a stream: its version, and its history. Users import from `eventproc.errors`."""

from __future__ import annotations

from eventproc.store.model.errors import NotFound, Rejected, error


@error
class StaleVersion(Rejected):
    """A change of a stream named a version (`if_version`) that the stream has no longer; nothing changed.

    Read the stream again with `stream.describe()`, decide again, and pass its present version.

    expected: the version that the change named. present: the version that the stream has.
    """

    _text = (
        "{stream} has version {present}, not {expected}: it changed, and this change was refused;"
        " look at it with `eventproc stream describe {stream}` and decide again"
    )
    stream: str
    expected: int
    present: int


@error
class HistoryCompacted(NotFound):
    """An epoch or a segment lies before the history that is kept since a truncation of the stream.

    Ask about epochs from `first_epoch` on. `stream.truncation()` tells where the stream begins.

    first_epoch: the oldest epoch that is kept.
    """

    stream: str
    first_epoch: int

    def __str__(self) -> str:
        return (
            f"{self.stream} keeps its history from epoch {self.first_epoch} on, since a truncation; "
            f"{self.kind} {self.name} is older"
        )
