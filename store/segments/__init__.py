"""Segments: append-only sequences of framed events, kept as an index of extents over columnar blobs."""

from __future__ import annotations

from eventproc.store.segments.append import (
    AppendResult as AppendResult,
    SegmentEvents as SegmentEvents,
    WriterSequence as WriterSequence,
    append as append,
    flush_appends as flush_appends,
    last_sequence as last_sequence,
    next_append as next_append,
    note_sequence as note_sequence,
    tail_offset as tail_offset,
)
from eventproc.store.segments.columns import (
    EncodedBlock as EncodedBlock,
    EventBlock as EventBlock,
    Headers as Headers,
)
from eventproc.store.segments.event import (
    ID_HEADER as ID_HEADER,
    JOB_GROUP_HEADER as JOB_GROUP_HEADER,
    JOB_HEADER as JOB_HEADER,
    KAFKA_HEADER as KAFKA_HEADER,
    NO_HEADERS as NO_HEADERS,
    PRIORITY_HEADER as PRIORITY_HEADER,
    RESERVED_NAMES as RESERVED_NAMES,
    TTL_HEADER as TTL_HEADER,
    Event as Event,
    EventRun as EventRun,
    ReservedHeaders as ReservedHeaders,
    job_of as job_of,
    reserved_headers as reserved_headers,
    shown_headers as shown_headers,
)
from eventproc.store.segments.extents import (
    INLINE_EXTENT_COUNTER as INLINE_EXTENT_COUNTER,
    InlineExtentCounter as InlineExtentCounter,
    read_extents as read_extents,
)
from eventproc.store.segments.inline_extents import join_step as join_step
from eventproc.store.segments.lifecycle import (
    create_segments as create_segments,
    delete_segments as delete_segments,
    forget_passed_segments as forget_passed_segments,
    seal_segments as seal_segments,
    truncate_segments as truncate_segments,
    watch_growth as watch_growth,
    watch_head as watch_head,
)
from eventproc.store.segments.offsets import (
    SegmentTimes as SegmentTimes,
    is_event_boundary as is_event_boundary,
    number_at as number_at,
    offset_at_time as offset_at_time,
    offset_of_number as offset_of_number,
    progress_at as progress_at,
    verify_offset as verify_offset,
)
from eventproc.store.segments.priorities import (
    is_prioritized as is_prioritized,
    mark_prioritized as mark_prioritized,
    priority_parts as priority_parts,
)
from eventproc.store.segments.rates import (
    SegmentRate as SegmentRate,
    rates_known_ms as rates_known_ms,
    segment_rates as segment_rates,
    write_rate as write_rate,
    written_streams as written_streams,
)
from eventproc.store.segments.read import (
    READ_BYTES_MAX as READ_BYTES_MAX,
    ReadResult as ReadResult,
    first_event_age_ms as first_event_age_ms,
    read as read,
)
from eventproc.store.segments.reaper import (
    forget_ids as forget_ids,
    forget_writers as forget_writers,
    free_step as free_step,
)
from eventproc.store.segments.recent import RECENT_EVENTS as RECENT_EVENTS, RecentEvents as RecentEvents
from eventproc.store.segments.state import (
    SegmentState as SegmentState,
    known_state as known_state,
    readable_sealed as readable_sealed,
    sealed_epoch as sealed_epoch,
    sealed_segments as sealed_segments,
    segment_ids as segment_ids,
    segment_state as segment_state,
    segment_states as segment_states,
)
from eventproc.store.segments.time_to_live import (
    NEVER as NEVER,
    first_expiry as first_expiry,
    live_ranges as live_ranges,
)
