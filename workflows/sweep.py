"""Sweeps: bounded passes of the host that finish what others left, each step a transaction.

They free the bytes of truncated and deleted streams, drop the history behind a stream's head, join tiny
extents, truncate the internal streams behind their group, and forget old outcomes, finished transactions and
silent writers. Whoever dies between two steps leaves a state from which any host goes on.
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
    get_stream,
)
from eventproc.store.catalog.stream_records import EPOCH, epoch_key, epoch_prefix
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import Owner
from eventproc.store.progress import get_progress
from eventproc.store.records import delete_all, keys, replace
from eventproc.store.requests import forget_outcomes
from eventproc.store.segments import forget_passed_segments, forget_writers, free_step, truncate_segments
from eventproc.store.transactions import forget_txns

EPOCHS_A_STEP: Final = 256
"""Epoch records dropped in one step."""

SYSTEM_KEEP_BYTES: Final = 2**20
"""Bytes of finished requests left in an internal stream before it is truncated: a transaction each few
thousand requests instead of one each."""


def reap(tx: Tx, owner: Owner) -> bool:
    """Free some of what the oldest entry of `reap` that is due names. Return whether there is more to do."""
    owner.check(tx)
    row = tx.execute(
        "SELECT stream_id, deleted, name FROM reap WHERE not_before_ms <= ? ORDER BY stream_id LIMIT 1",
        (tx.now_ms,),
    ).fetchone()
    if row is None:
        return False
    stream_id, deleted, name = row
    finished = free_step(tx, stream_id, deleted=bool(deleted))
    if finished:
        stream = None if deleted else find_stream(tx, name)
        current = stream.value if stream is not None and stream.value.stream_id == stream_id else None
        finished = _forget_history(tx, stream_id, current)
    if finished:
        tx.execute("DELETE FROM reap WHERE stream_id = ? AND deleted = ?", (stream_id, deleted))
    return (
        tx.execute("SELECT 1 FROM reap WHERE not_before_ms <= ? LIMIT 1", (tx.now_ms,)).fetchone() is not None
    )


def forget(tx: Tx, owner: Owner) -> bool:
    """Forget old outcomes, silent writers and finished transactions. Return whether there may be more."""
    owner.check(tx)
    forget_writers(tx)
    more = forget_txns(tx)
    return forget_outcomes(tx) or more


def truncate_internal(tx: Tx, owner: Owner, stream: SystemStream) -> None:
    """Truncate an internal stream behind its group's progress, directly: by a request would be a circle."""
    owner.check(tx)
    before = get_stream(tx, stream.name)
    heads: dict[SegmentId, int] = {}
    for segment in SYSTEM_EPOCH.ids:
        heads[segment] = get_progress(tx, stream.name, stream.stream_id, segment).offset
    old = before.value.head or dict.fromkeys(heads, 0)
    if sum(heads.values()) - sum(old.values()) >= SYSTEM_KEEP_BYTES:
        truncate_segments(tx, stream.name, stream.stream_id, heads, passed=())
        replace(tx, STREAM, before, attrs.evolve(before.value, head=heads))


def _forget_history(tx: Tx, stream_id: int, stream: StreamRecord | None) -> bool:
    """Drop epochs that nobody asks for any more, and the rows of segments only they knew."""
    first = epoch_key(stream_id, 0)
    old = keys(tx, EPOCH, prefix=epoch_prefix(stream_id), limit=EPOCHS_A_STEP)
    if stream is not None:
        kept = epoch_key(stream_id, stream.first_epoch)
        old = [key for key in old if first <= key < kept]
        forget_passed_segments(tx, stream_id, first_epoch=stream.first_epoch)
    delete_all(tx, EPOCH, old)
    return len(old) < EPOCHS_A_STEP
