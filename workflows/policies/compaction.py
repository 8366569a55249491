"""Compaction: whether a topic has enough events that its policy may not keep. Imported by the first such topic."""

from __future__ import annotations

from typing import Final

from eventproc.store.catalog import StreamRecord
from eventproc.store.database import Tx
from eventproc.store.segments import segment_states
from eventproc.store.segments.compaction import (
    compactable_until,
    compacted_bytes,
    first_time_at,
    uncompacted_from,
)

COMPACTED_BYTES_MIN: Final = 64 * 2**10
"""Bytes of a partition that are worth a compaction before they are `tombstone_ms` old. Higher: small topics keep older
events for longer; lower: more tasks."""


def needs_compaction(tx: Tx, stream: StreamRecord) -> bool:
    """Return whether the policy of a topic asks for a compaction now.

    Cost: in each partition about 40 look-ups, and up to two for each compacted extent.
    """
    policy = stream.config.compaction
    if policy.min_age_ms is None:
        return False
    before_ms = tx.now_ms - policy.min_age_ms + 1
    for segment, state in segment_states(tx, stream.stream_id):
        if state.head == state.tail:
            continue
        where = (tx, stream.stream_id, segment)
        until = compactable_until(*where, state, before_ms)
        begin = uncompacted_from(*where, state, until)
        if begin == until:
            continue
        is_old = first_time_at(*where, begin) < tx.now_ms - policy.min_age_ms - policy.tombstone_ms
        if is_old or until - begin >= max(COMPACTED_BYTES_MIN, compacted_bytes(*where, begin)):
            return True
    return False
