"""Segments: append-only sequences of framed events, kept as an index of extents over columnar blobs."""

from __future__ import annotations

from eventproc.store.segments.append import (
    AppendResult,
    SegmentEvents,
    WriterSequence,
    append,
    flush_appends,
    last_sequence,
    tail_offset,
)
from eventproc.store.segments.block import EncodedBlock, EventBlock, Headers
from eventproc.store.segments.borders import number_at
from eventproc.store.segments.event import NO_HEADERS, Event, EventRun
from eventproc.store.segments.lifecycle import (
    create_segments,
    delete_segments,
    readable_sealed,
    request_reaping,
    seal_segments,
    sealed_epoch,
    sealed_lengths,
    truncate_segments,
)
from eventproc.store.segments.read import (
    READ_BYTES_MAX,
    ReadResult,
    SegmentState,
    is_event_boundary,
    offset_at_time,
    read,
    read_extents,
    readable_size,
    segment_state,
    verify_offset,
)
from eventproc.store.segments.reaper import forget_writers, free_step, join_step
from eventproc.store.segments.recent import RECENT_EVENTS, RecentEvents
from eventproc.store.segments.tiny import INLINE_EXTENT_COUNTER, InlineExtentCounter

__all__ = [
    "INLINE_EXTENT_COUNTER",
    "NO_HEADERS",
    "READ_BYTES_MAX",
    "RECENT_EVENTS",
    "AppendResult",
    "EncodedBlock",
    "Event",
    "EventBlock",
    "EventRun",
    "Headers",
    "InlineExtentCounter",
    "ReadResult",
    "RecentEvents",
    "SegmentEvents",
    "SegmentState",
    "WriterSequence",
    "append",
    "create_segments",
    "delete_segments",
    "flush_appends",
    "forget_writers",
    "free_step",
    "is_event_boundary",
    "join_step",
    "last_sequence",
    "number_at",
    "offset_at_time",
    "read",
    "read_extents",
    "readable_sealed",
    "readable_size",
    "request_reaping",
    "seal_segments",
    "sealed_epoch",
    "sealed_lengths",
    "segment_state",
    "tail_offset",
    "truncate_segments",
    "verify_offset",
]
