"""What a processor did so far, in one process, and how it says so: counts, the blocker."""

from __future__ import annotations

import attrs

from eventproc.processors.lanes import Item, Trouble
from eventproc.processors.letter import failure_text
from eventproc.processors.work import Work
from eventproc.store.model.ids import format_segment


@attrs.frozen(kw_only=True)
class Blocker:
    """The call that has been under way, or failing, for longest.

    since_ms: wall clock of its first attempt. error: of the last failed attempt, None while the first runs.
    """

    stream: str
    segment: str
    number: int
    offset: int
    key: str | None
    attempt: int
    since_ms: int
    error: str | None


class Tally:
    """Counts of one processor in this process since it was started; `committed` is the part that is durable.

    finished: events, however that came. last_commit_ms: wall clock, None before the first. last_error: of a call.
    """

    def __init__(self) -> None:
        self.finished = 0
        self.committed = 0
        self.failed_calls = 0
        self.dead_letters = 0
        self.skipped = 0
        self.emitted = 0
        self.restarts = 0
        self.last_commit_ms: int | None = None
        self.last_error: str | None = None

    def note_failure(self, error: Exception) -> None:
        """Count a failed call."""
        self.failed_calls += 1
        self.last_error = failure_text(error)


def name_of(item: Item) -> str:
    """Return how people are told of an event."""
    event, chunk = item
    where = f"{chunk.cell.assigned.stream} segment {format_segment(event.segment)} event {event.number}"
    return where if event.key is None else f"{where} (key {event.key!r})"


def find_blocker(work: Work, wall_ms: int) -> Blocker | None:
    """Return what has been under way for longest in this process, None when nothing is."""
    now_ms = work.now_ms()
    calls: list[tuple[int, int, Item, Trouble | None]] = [
        (
            slot.since_ms if slot.trouble is None else slot.trouble.since_ms,
            slot.attempt,
            items[0],
            slot.trouble,
        )
        for slot in work.running
        if (items := slot.items)
    ]
    calls += (
        (lane.trouble.since_ms, lane.next_attempt, lane.items[0], lane.trouble)
        for lane in work.lanes.failing
        if lane.items and lane.trouble is not None
    )
    if not calls:
        return None
    since_ms, attempt, (event, chunk), trouble = min(calls, key=lambda call: call[0])
    return Blocker(
        stream=chunk.cell.assigned.stream,
        segment=format_segment(event.segment),
        number=event.number,
        offset=event.offset,
        key=event.key,
        attempt=attempt,
        since_ms=wall_ms - (now_ms - since_ms),
        error=None if trouble is None else trouble.error,
    )
