"""Truncating a topic: the new head of each partition, by time or by event number. A function of a transaction."""

from __future__ import annotations

from eventproc.store.catalog import StreamRecord, current_epoch
from eventproc.store.database import Tx
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import Router, partition_ids
from eventproc.store.segments import segment_state
from eventproc.store.segments.offsets import offset_after, offset_at_time


def new_heads(
    tx: Tx,
    topic: StreamRecord,
    *,
    partition: int | None,
    before_ms: int | None = None,
    before_number: int | None = None,
) -> dict[SegmentId, int]:
    """Return the offsets of the cut at which a truncation puts the head: the heads of now, moved where events go.

    partition: the only one to truncate; None: all. before_ms, before_number: what `Topic.truncate` says.
    Raises InvalidArgument if there is no such partition, or the number lies beyond its end.
    """
    epoch = current_epoch(tx, topic)
    chosen = partition_ids(epoch)
    if partition is not None:
        chosen = (Router(epoch).partition(partition, topic=topic.name),)
    heads = {}
    for segment in epoch.ids:
        state = segment_state(tx, topic.stream_id, segment)
        assert state is not None, f"active segment {segment} of {topic.name} has no row"
        head = state.head
        if segment in chosen and before_ms is not None:
            head = max(head, offset_at_time(tx, topic.stream_id, segment, before_ms))
        elif segment in chosen and before_number is not None:
            if before_number > state.tail_number:
                reason = f"partition {partition} ends at event {state.tail_number}"
                raise InvalidArgument(what="before_number", value=str(before_number), reason=reason)
            gone = before_number - state.head_number
            head = offset_after(tx, topic.stream_id, segment, head, gone) if gone > 0 else head
        heads[segment] = head
    return heads
