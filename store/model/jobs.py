"""What is known of a job: an event of a share group that was submitted so that its outcome can be asked for."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.model.short_repr import short_repr_of_fields

JobState: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
"""waiting: for its time, a worker, or its next attempt. running: a worker has it. done: its call returned. failed: it
is a dead letter. cancelled: nobody does it."""

ENDED: Final = ("done", "failed", "cancelled")
"""The states in which a job stays, unless somebody retries it."""

JOB_ID_CHARS_MAX: Final = 200
"""Characters of the id of a job. It is stored with the job, and in its event."""

RESULT_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a result: it is a row beside the stream. Larger ones belong in a file or a stream, and their name here."""

ERROR_CHARS_MAX: Final = 2_000
"""Characters of an error that are kept: its dead letter has more of it."""

KEPT_MS: Final = 24 * 3_600_000
"""How long an ended job is known, in ms. Higher: more rows."""


@attrs.frozen(kw_only=True)
class JobDescription:
    """A job at one moment.

    id: within its group. group: the share group whose workers do it. stream: of its event. state: see `JobState`.
    attempts: calls that have begun. progress: what its handler noted last, 0 to 1; None: nothing. error: of the last
    call that failed. submitted_ms, changed_ms: wall clock. due_ms: when it begins at the earliest, wall clock; None: at
    once. payload: its bytes. key: routing key.
    """

    __repr__ = short_repr_of_fields

    id: str
    group: str
    stream: str
    state: JobState
    attempts: int
    progress: float | None
    error: str | None
    submitted_ms: int
    changed_ms: int
    due_ms: int | None
    key: str | None
    payload: bytes
