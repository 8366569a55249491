"""When the notes of a stream's writers are to be looked at: see `eventproc.store.marks`, which few programs need."""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.database import Tx, Watch
from eventproc.store.records import RecordKind, create, delete, find, get, keys

LOOK_PAUSE_MS: Final = 1_000
"""Least time between two looks at all notes of a stream, and so between two marks, in ms. Higher: readers learn later
how far time has come. Lower: writers that note a time with each event make a mark for each, and read all notes."""

_CHANNEL: Final = ("marks due",)


@attrs.frozen
class DueLook:
    """A look at the notes of a stream that is due at due_ms, wall clock, if no note takes it earlier."""

    due_ms: int


DUE: Final = RecordKind(name="due mark", value=DueLook)


def _first_due_ms(tx: Tx) -> int | None:
    return min((get(tx, DUE, stream).value.due_ms for stream in keys(tx, DUE)), default=None)


DUE_LOOKS: Final = Watch(_CHANNEL, _first_due_ms)
"""Notices that another look is the next one."""


def first_look_ms(tx: Tx) -> int | None:
    """Return when the next look is due, in wall ms; None if none is. Reads the few that are."""
    due_ms = _first_due_ms(tx)
    return None if due_ms is None else tx.now_ms + pause_ms(due_ms, tx.now_ms)


def pause_ms(due_ms: int, now_ms: int) -> int:
    """Return how long a look waits that is due at due_ms. None waits longer than the pause: clocks are set back."""
    left_ms = due_ms - now_ms
    return left_ms if 0 < left_ms <= LOOK_PAUSE_MS else 0


def set_due(tx: Tx, stream: str, due_ms: int | None) -> None:
    """Let a look be due, unless one is; None: none is due any more."""
    found = find(tx, DUE, stream)
    if due_ms is None and found is not None:
        delete(tx, DUE, found)
    elif due_ms is not None and found is None:
        create(tx, DUE, stream, DueLook(due_ms))
        tx.wake(_CHANNEL)
