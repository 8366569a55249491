"""The log of a replicated object: one segment, under an id that no stream has, and a record.

The record holds the mark: the offset of the newest snapshot, where a new member begins to read.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Final, NewType

import attrs

from eventproc.store.catalog import new_stream_id
from eventproc.store.database import Tx, Watch
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import RecordKind, Versioned, create, delete, find, keys
from eventproc.store.segments import create_segments, delete_segments, segment_state, tail_offset

LogId = NewType("LogId", int)
"""Id of a log, never reused; from the same counter as the ids of streams."""

SEGMENT: Final = SegmentId(0)
"""The one segment of a log."""


@attrs.frozen(kw_only=True)
class ReplicatedLog:
    """A log. snapshot: offset of the newest snapshot, 0 before the first. The log is truncated at the snapshot before
    that one."""

    log: LogId
    snapshot: int = 0


def _log_may_follow(before: ReplicatedLog | None, after: ReplicatedLog) -> str | None:
    if before is not None and (before.log != after.log or before.snapshot >= after.snapshot):
        return f"a log keeps its id, and its snapshots move forward; {before} -> {after}"
    return None


LOG_RECORD: Final = RecordKind(name="log", value=ReplicatedLog, invariant=_log_may_follow)


def create_log(tx: Tx) -> LogId:
    """Create an empty log and return its id; the caller stores the id where members find it. Two rows."""
    log = LogId(new_stream_id(tx))
    create(tx, LOG_RECORD, _key(log), ReplicatedLog(log=log))
    create_segments(tx, log, (SEGMENT,))
    return log


def delete_log(tx: Tx, log: LogId) -> None:
    """Delete the log. Members get NotFound from now on; the reaper frees its bytes. Raises NotFound."""
    delete(tx, LOG_RECORD, get_log(tx, log))
    delete_segments(tx, log_name(log), log)


def list_logs(tx: Tx) -> list[LogId]:
    """Return the ids of all logs."""
    return [LogId(int(key)) for key in keys(tx, LOG_RECORD)]


def get_log(tx: Tx, log: LogId) -> Versioned[ReplicatedLog]:
    """Return the log's record. Raises NotFound."""
    if (record := find(tx, LOG_RECORD, _key(log))) is None:
        raise _gone(log)
    return record


def watch_log(log: LogId) -> Watch:
    """Return the subscription to changes of the log, including its deletion; see `Database.subscribe`."""
    return Watch(("stream", log), partial(_tail_of, log=log))


def log_name(log: LogId) -> str:
    """Return the name of the log in errors."""
    return f"log {log}"


def tail(tx: Tx, log: LogId) -> int:
    """Return where the log ends, this transaction's appends included. Raises NotFound. One look-up a commit."""
    try:
        return tail_offset(tx, log_name(log), log, SEGMENT)
    except NotFound:
        raise _gone(log) from None


def _key(log: LogId) -> str:
    return f"{log:016d}"


def _gone(log: LogId) -> NotFound:
    return NotFound(kind="log", name=str(log))


def _tail_of(tx: Tx, log: LogId) -> Hashable:
    state = segment_state(tx, log, SEGMENT)
    return None if state is None else state.tail
