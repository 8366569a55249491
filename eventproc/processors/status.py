"""What a processor tells about itself."""

from __future__ import annotations

import enum

import attrs

from eventproc.processors.tally import Blocker


class ProcessorState(enum.StrEnum):
    """What a processor is doing in this process."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    FAILED = "failed"


@attrs.frozen(kw_only=True)
class ProcessorStatus:
    """A processor, of one moment.

    Of its group, in all processes: lag_events, lag_bytes (not finished durably), lag_ms (how long ago the first of
    them was appended, None without one). Of this process: segments owned, in_flight (calls running), waiting
    (read, not finished), counts since the start, last_commit_ms (wall clock), the blocker, and the error that
    stopped it.
    """

    name: str
    group: str
    order: str
    state: ProcessorState
    lag_events: int
    lag_bytes: int
    lag_ms: int | None
    segments: int
    in_flight: int
    waiting: int
    finished: int
    emitted: int
    failed_calls: int
    dead_letters: int
    skipped: int
    truncated: int
    restarts: int
    last_commit_ms: int | None
    last_error: str | None
    blocker: Blocker | None
    error: str | None
