"""Opening the next epoch: what scale and update share, inside their transaction."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from eventproc.store.catalog import StreamRecord, current_epoch, insert_epoch
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch, next_epoch
from eventproc.store.model.errors import CommitsPending
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARATIONS_MAX
from eventproc.store.model.ranges import KeyRange
from eventproc.store.segments import create_segments, seal_segments
from eventproc.store.transactions import flush_staging, list_decided


def plan_epoch(
    tx: Tx,
    stream: StreamRecord,
    *,
    seal: Collection[SegmentId],
    ranges: Sequence[KeyRange],
    request_id: str,
) -> Epoch:
    """Return the epoch a scale would open. Changes nothing. Raises every refusal of pravega.md 1.10."""
    return next_epoch(
        current_epoch(tx, stream),
        stream=stream.name,
        seal=seal,
        ranges=ranges,
        now_ms=tx.now_ms,
        segments_min=stream.config.scaling.segments_min,
        request_id=request_id,
    )


def open_epoch(tx: Tx, stream: StreamRecord, epoch: Epoch, *, seal: Collection[SegmentId]) -> Epoch:
    """Open `epoch` after the stream's current one and return it as it then is; the stream's record names it next.

    Successors are made and predecessors sealed in this one transaction, so that no writer ever meets a
    seal without a successor, and no reader a successor without its predecessors' end. The epoch begins after
    the last event of what it seals, and its segments' events after that: then times never fall along a key,
    whatever the clock does, and a cut at a time skips nothing. Raises CommitsPending, before it changes anything,
    when a commit was prepared so often for an epoch that then ended that this one has to wait for it.
    """
    flush_staging(tx)  # so that along a key what is staged follows the epochs
    following = list_decided(tx, stream.stream_id, limit=1)
    if following and following[0].prepared >= PREPARATIONS_MAX:
        raise CommitsPending(stream=stream.name, stream_id=stream.stream_id, event="a scale")
    ended_ms = seal_segments(tx, stream.name, stream.stream_id, seal, sealed_epoch=epoch.number)
    if epoch.created_ms <= ended_ms:
        epoch = attrs.evolve(epoch, created_ms=ended_ms + 1)
    epoch.check()
    insert_epoch(tx, stream.stream_id, epoch)
    opened = [segment.id for segment in epoch.opened]
    create_segments(tx, stream.stream_id, opened, since_ms=epoch.created_ms)
    return epoch
