"""Segments: append-only sequences of framed events, kept as an index of extents over columnar blobs."""

from __future__ import annotations

from eventproc.store.segments.append import (
    AppendResult,
    SegmentEvents,
    WriterSequence,
    append,
    flush_appends,
    last_sequence,
    next_append,
    note_sequence,
    tail_offset,
)
from eventproc.store.segments.columns import EncodedBlock, EventBlock, Headers
from eventproc.store.segments.event import (
    ID_HEADER,
    JOB_HEADER,
    NO_HEADERS,
    PRIORITY_HEADER,
    RESERVED_NAMES,
    TTL_HEADER,
    Event,
    EventRun,
    ReservedHeaders,
    reserved_headers,
    shown_headers,
)
from eventproc.store.segments.extents import INLINE_EXTENT_COUNTER, InlineExtentCounter, read_extents
from eventproc.store.segments.inline_extents import join_step
from eventproc.store.segments.lifecycle import (
    create_segments,
    delete_segments,
    forget_passed_segments,
    request_reaping,
    seal_segments,
    truncate_segments,
    watch_growth,
)
from eventproc.store.segments.offsets import (
    SegmentTimes,
    is_event_boundary,
    number_at,
    offset_at_time,
    offset_of_number,
    progress_at,
    verify_offset,
)
from eventproc.store.segments.priorities import is_prioritized, mark_prioritized, priority_parts
from eventproc.store.segments.rates import SegmentRate, segment_rates, write_rate
from eventproc.store.segments.read import READ_BYTES_MAX, ReadResult, first_event_age_ms, read
from eventproc.store.segments.reaper import forget_ids, forget_writers, free_step
from eventproc.store.segments.recent import RECENT_EVENTS, RecentEvents
from eventproc.store.segments.state import (
    SegmentState,
    readable_sealed,
    sealed_epoch,
    sealed_segments,
    segment_ids,
    segment_state,
    segment_states,
)
from eventproc.store.segments.time_to_live import (
    NEVER,
    first_expiry,
    live_ranges,
)

__all__ = [
    "ID_HEADER",
    "INLINE_EXTENT_COUNTER",
    "JOB_HEADER",
    "NEVER",
    "NO_HEADERS",
    "PRIORITY_HEADER",
    "READ_BYTES_MAX",
    "RECENT_EVENTS",
    "RESERVED_NAMES",
    "TTL_HEADER",
    "AppendResult",
    "EncodedBlock",
    "Event",
    "EventBlock",
    "EventRun",
    "Headers",
    "InlineExtentCounter",
    "ReadResult",
    "RecentEvents",
    "ReservedHeaders",
    "SegmentEvents",
    "SegmentRate",
    "SegmentState",
    "SegmentTimes",
    "WriterSequence",
    "append",
    "create_segments",
    "delete_segments",
    "first_event_age_ms",
    "first_expiry",
    "flush_appends",
    "forget_ids",
    "forget_passed_segments",
    "forget_writers",
    "free_step",
    "is_event_boundary",
    "is_prioritized",
    "join_step",
    "last_sequence",
    "live_ranges",
    "mark_prioritized",
    "next_append",
    "note_sequence",
    "number_at",
    "offset_at_time",
    "offset_of_number",
    "priority_parts",
    "progress_at",
    "read",
    "read_extents",
    "readable_sealed",
    "request_reaping",
    "reserved_headers",
    "seal_segments",
    "sealed_epoch",
    "sealed_segments",
    "segment_ids",
    "segment_rates",
    "segment_state",
    "segment_states",
    "shown_headers",
    "tail_offset",
    "truncate_segments",
    "verify_offset",
    "watch_growth",
    "write_rate",
]
