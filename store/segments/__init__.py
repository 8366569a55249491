"""Segments: append-only sequences of framed events, kept as an index of extents over columnar blobs."""

from __future__ import annotations

from eventproc.store.segments.append import (
    Landed,
    Part,
    WriterSequence,
    append,
    last_sequence,
    settle,
    tail_offset,
)
from eventproc.store.segments.block import Encoded, EventBlock, Headers
from eventproc.store.segments.borders import number_at
from eventproc.store.segments.event import NO_HEADERS, Event, Run
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
    SegmentState,
    Slice,
    extents,
    is_event_border,
    offset_at_time,
    read,
    readable,
    segment_state,
    verify_offset,
)
from eventproc.store.segments.reaper import forget_writers, free_step, join_step
from eventproc.store.segments.recent import Recent
from eventproc.store.segments.tiny import TinyExtents

__all__ = [
    "NO_HEADERS",
    "READ_BYTES_MAX",
    "Encoded",
    "Event",
    "EventBlock",
    "Headers",
    "Landed",
    "Part",
    "Recent",
    "Run",
    "SegmentState",
    "Slice",
    "TinyExtents",
    "WriterSequence",
    "append",
    "create_segments",
    "delete_segments",
    "extents",
    "forget_writers",
    "free_step",
    "is_event_border",
    "join_step",
    "last_sequence",
    "number_at",
    "offset_at_time",
    "read",
    "readable",
    "readable_sealed",
    "request_reaping",
    "seal_segments",
    "sealed_epoch",
    "sealed_lengths",
    "segment_state",
    "settle",
    "tail_offset",
    "truncate_segments",
    "verify_offset",
]
