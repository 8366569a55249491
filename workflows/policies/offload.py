"""Offload: which events a stream's policy moves out of the database, and the task that moves them.

It decides on a task, which moves events as one of a person does. So a death in between leaves nothing behind.
"""

from __future__ import annotations

from typing import ClassVar, Final, TypeAlias

import attrs

from eventproc.store.catalog import StreamRecord
from eventproc.store.chunks.offload import DEFAULT_LIMITS, cold_events
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import INT_MAX, check_int
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import OFFLOAD_NOTHING
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.segments import segment_ids
from eventproc.workflows.policies.limits import SizeSince, kept_since

LATE_SHARE: Final = 8
"""An offload waits until an eighth of a limit is beyond it, or enough to fill a file. Higher: less stays in the
database beyond the limit; more and smaller files, and more tasks."""

PassedOffsets: TypeAlias = dict[tuple[int, SegmentId], int]
"""The offset before which nothing is left to move, by stream id and segment. Without it a look begins at the head."""


@attrs.frozen
class OffloadTask:
    """Move old events of a stream out of the database into files, as `Stream.offload`. Progress counts bytes.

    stream: "scope/stream". older_than_ms: age of the events to move, in ms, when the task is submitted. Default: all.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "offload"
    stream: str
    older_than_ms: int = 0

    def __attrs_post_init__(self) -> None:
        StreamName.parse(self.stream)
        check_int("age", self.older_than_ms, least=0, unit="milliseconds")

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile."""
        return f"stream {self.stream}"


def wanted_offload(tx: Tx, stream: StreamRecord, passed: PassedOffsets) -> OffloadTask | None:
    """Return the offload that the policy of a stream asks for now, None if it asks for none.

    passed: what earlier looks passed; advanced by this one, which forgets segments that are gone.
    Cost: in each segment what `cold_events` costs, and about 40 look-ups for a limit of size. No event is decoded.
    """
    policy = stream.config.offload
    if policy == OFFLOAD_NOTHING:
        return None
    sizes = SizeSince(tx, stream, by_extent=True)
    since_ms = max(kept_since(tx, sizes, policy.age_ms, policy.size_bytes))
    task = OffloadTask(stream.name, min(max(tx.now_ms - since_ms + 1, 0), INT_MAX))
    size_bytes = 0
    places = [(stream.stream_id, segment) for segment in segment_ids(tx, stream.stream_id)]
    for gone in passed.keys() - places:
        del passed[gone]
    for at in places:
        found = cold_events(tx, *at, passed.get(at, 0), tx.now_ms - task.older_than_ms)
        passed[at] = found.passed
        size_bytes += found.bytes
        due = found.is_full
        if policy.size_bytes is not None:
            late_bytes = min(policy.size_bytes // LATE_SHARE, DEFAULT_LIMITS.run_bytes_max)
            due |= size_bytes >= max(late_bytes, 1)
        if policy.age_ms is not None and found.bytes:
            due |= found.first_time < tx.now_ms - policy.age_ms - policy.age_ms // LATE_SHARE
        if due:
            return task
    return None
