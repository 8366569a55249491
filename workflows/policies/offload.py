"""Offload: which events a stream's policy moves out of the database, and the task that moves them.

It decides on a task, which moves events as one of a person does. So a death in between leaves nothing behind.
"""

from __future__ import annotations

from typing import ClassVar, Final

import attrs

from eventproc.store.catalog import StreamRecord
from eventproc.store.chunks.offload import DEFAULT_LIMITS, cold_tail
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import check_int
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import OFFLOAD_NOTHING
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.workflows.policies.limits import SizeSince, kept_since

LATE_SHARE: Final = 8
"""An offload waits until an eighth of a limit is beyond it, or enough to fill a file. Higher: less stays in the
database beyond the limit; more and smaller files, and more tasks."""


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


def wanted_offload(tx: Tx, stream: StreamRecord) -> OffloadTask | None:
    """Return the offload that the policy of a stream asks for now, None if it asks for none.

    Cost: in each segment about 40 look-ups, and what `cold_tail` costs. No event is decoded.
    """
    policy = stream.config.offload
    if policy == OFFLOAD_NOTHING:
        return None
    sizes = SizeSince(tx, stream, by_extent=True)
    since_ms = max(kept_since(tx, sizes, policy.age_ms, policy.size_bytes))
    found = [
        cold_tail(tx, stream.stream_id, segment, times.offset_at(since_ms))
        for segment, times in sizes.segments.items()
    ]
    tails = [each for each in found if each is not None]
    due = any(each.is_full for each in tails)
    if policy.size_bytes is not None:
        late_bytes = min(policy.size_bytes // LATE_SHARE, DEFAULT_LIMITS.run_bytes_max)
        due |= sum(each.bytes for each in tails) >= max(late_bytes, 1)
    if policy.age_ms is not None:
        late_ms = policy.age_ms + policy.age_ms // LATE_SHARE
        due |= any(each.first_time < tx.now_ms - late_ms for each in tails)
    return OffloadTask(stream.name, max(tx.now_ms - since_ms + 1, 0)) if due else None
