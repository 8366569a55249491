"""The records of the catalog and their invariants, which every change must satisfy.

A stream's record is small and read often. Its history is one immutable row per epoch, so that a stream that was
scaled a thousand times still costs two lookups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.states import ScopeState, StreamState
from eventproc.store.records import RecordKind


@attrs.frozen(kw_only=True)
class Scope:
    """A namespace of streams. `state` is DELETING while a recursive delete empties it."""

    name: str
    created_ms: int
    state: ScopeState = ScopeState.ACTIVE


@attrs.frozen(kw_only=True)
class StreamRecord:
    """The record of a stream.

    name: "scope/stream".
    stream_id: its incarnation, never reused.
    epoch: number of the current epoch.
    first_epoch: the oldest epoch with a record.
    head: the cut at which it was truncated, {segment: offset}; -1 for a segment that begins after the cut. None if it
        was never truncated.
    truncated_ms: when it was truncated last, wall clock. None if it never was.
    """

    name: str
    stream_id: int
    state: StreamState
    config: StreamConfig
    created_ms: int
    epoch: int = 0
    first_epoch: int = 0
    head: Mapping[SegmentId, int] | None = None
    truncated_ms: int | None = None

    @property
    def is_writable(self) -> bool:
        """Whether the stream accepts events: it is not sealed, and no request seals it."""
        return self.state is not StreamState.SEALED and self.state is not StreamState.SEALING


def _stream_may_follow(before: StreamRecord | None, after: StreamRecord) -> str | None:
    if before is None:
        return None
    if (before.name, before.stream_id) != (after.name, after.stream_id):
        return f"a stream keeps its name and id; {before.name}#{before.stream_id} -> {after.name}#{after.stream_id}"
    if after.epoch not in (before.epoch, before.epoch + 1):
        return f"an epoch is followed by the next; {before.epoch} -> {after.epoch}"
    if after.first_epoch < before.first_epoch:
        return f"history is compacted forward; {before.first_epoch} -> {after.first_epoch}"
    if before.head is not None:
        if after.head is None:
            return "a truncated stream stays truncated"
        back = [
            segment for segment, offset in before.head.items() if after.head.get(segment, offset) < offset
        ]
        if back:
            return f"the head of segment {back[0]} would move back"
    if before.state is StreamState.SEALED and after.state not in (StreamState.SEALED, StreamState.DELETING):
        return f"a sealed stream stays sealed; -> {after.state.value}"
    return None


SCOPE: Final = RecordKind(name="scope", value=Scope, immutable=True)
STREAM: Final = RecordKind(name="stream", value=StreamRecord, invariant=_stream_may_follow, immutable=True)
EPOCH: Final = RecordKind(name="epoch", value=Epoch, immutable=True)
"""The form of an epoch in the table `epoch`."""
