"""Sweeps: bounded passes of the host that free and forget old data; each step is one transaction.

They free the bytes of truncated and deleted streams, return them to the file system, drop the history before a stream's
head, truncate the internal streams behind their group's progress, free the entries of deleted tables, and forget old
outcomes, jobs and ids of events, expired and dropped states, finished transactions, silent writers and Kafka's
producers. If the host dies between two steps, the next host continues from there.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import (
    STREAM,
    SYSTEM_EPOCH,
    StreamRecord,
    SystemStream,
    find_stream,
    forget_epochs,
    get_stream,
)
from eventproc.store.database import Tx
from eventproc.store.groups import forget_producers
from eventproc.store.jobs import forget_jobs
from eventproc.store.key_states import forget_dropped, forget_expired
from eventproc.store.model.ids import SegmentId
from eventproc.store.progress import get_progress
from eventproc.store.records import replace
from eventproc.store.requests import forget_outcomes
from eventproc.store.segments import (
    forget_ids,
    forget_passed_segments,
    forget_writers,
    free_step,
    truncate_segments,
)
from eventproc.store.segments.free_pages import vacuum_step
from eventproc.store.segments.holds import postpone_reaping
from eventproc.store.segments.reaper import find_due_reaping, finish_reaping
from eventproc.store.task_queue import forget_tasks
from eventproc.store.transactions import forget_txns

EPOCHS_A_STEP: Final = 256
"""Epoch records deleted in one step."""

SYSTEM_KEEP_BYTES: Final = 2**20
"""Bytes of finished requests that an internal stream keeps until it is truncated. Lower: a transaction for each request
instead of one for a few thousand."""


def free_due(tx: Tx) -> bool:
    """Free some bytes and history of the first stream that is due. Return whether there is more to do."""
    due = find_due_reaping(tx)
    if due is None:
        return False
    finished = free_step(tx, due.stream_id, deleted=due.deleted)
    if finished:
        found = None if due.deleted else find_stream(tx, due.name)
        current = found.value if found is not None and found.value.stream_id == due.stream_id else None
        finished = _forget_history(tx, due.stream_id, current)
    if finished:
        finish_reaping(tx, due)
    return find_due_reaping(tx) is not None


def postpone_reap(tx: Tx) -> str | None:
    """Let `free_due` go on with the streams behind the first that is due; return its name, None if there is none."""
    due = find_due_reaping(tx)
    if due is None:
        return None
    postpone_reaping(tx, due.stream_id)
    return due.name


def shrink(tx: Tx) -> bool:
    """Return some of the pages that were freed, by whatever step, to the file system. Return whether there are more."""
    return vacuum_step(tx) > 0


def forget(tx: Tx) -> bool:
    """Forget what is old, expired or finished: see the head of this file. Return whether there may be more."""
    forget_writers(tx)
    forget_producers(tx)
    more = forget_txns(tx)
    more = forget_ids(tx) or more
    more = forget_jobs(tx) or more
    more = forget_expired(tx) or more
    more = forget_dropped(tx) or more
    more = forget_tasks(tx) or more
    return forget_outcomes(tx) or more


def truncate_internal(tx: Tx, stream: SystemStream) -> None:
    """Truncate an internal stream behind its group's progress.

    It is done directly: a request would be another event in an internal stream.
    """
    before = get_stream(tx, stream.name)
    heads: dict[SegmentId, int] = {}
    for segment in SYSTEM_EPOCH.ids:
        heads[segment] = get_progress(tx, stream.name, stream.stream_id, segment).offset
    old = before.value.head or dict.fromkeys(heads, 0)
    if sum(heads.values()) - sum(old.values()) >= SYSTEM_KEEP_BYTES:
        truncate_segments(tx, stream.name, stream.stream_id, heads, passed=())
        replace(tx, STREAM, before, attrs.evolve(before.value, head=heads))


def _forget_history(tx: Tx, stream_id: int, stream: StreamRecord | None) -> bool:
    """Delete epochs before the stream's first kept one, and the rows of their segments. Return whether that is all.

    stream: None for a deleted stream, whose epochs are all deleted.
    """
    before = None if stream is None else stream.first_epoch
    if before is not None:
        forget_passed_segments(tx, stream_id, first_epoch=before)
    return forget_epochs(tx, stream_id, before=before, limit=EPOCHS_A_STEP)
