"""The controller's questions about segments: active ones, those of an epoch or a cut, and who follows whom.

Each is a function of a transaction and the request. They raise NotFound for a missing stream.
"""

from __future__ import annotations

from typing import Final

from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import (
    cut_of,
    info_of,
    name_of,
    segment_range,
    segment_ranges,
)
from eventproc.server.writable_streams import verify_writable
from eventproc.store.catalog import StoredHistory, current_epoch, find_stream, get_stream
from eventproc.store.catalog.queries import head_cut, time_cut
from eventproc.store.database import Tx
from eventproc.store.marks import has_log
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import StreamCut, segments_between, verify_cut
from eventproc.store.model.epochs import first_epoch
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.history import get_segment, successors
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.states import StreamState

SEGMENTS_MAX: Final = 10_000
"""Segments between two cuts; more are refused. Higher: longer reads, and replies of more than 1 MB."""

_EPOCH_OF_LOGS: Final = first_epoch(1, created_ms=0)


def current(tx: Tx, request: pb.StreamInfo) -> pb.SegmentRanges:
    """Return the active segments; none of a sealed stream. To clients, a log of theirs is a stream of one segment.

    Raises InvalidArgument for a stream that clients may not write.
    """
    name = name_of(request)
    if find_stream(tx, name) is None and has_log(tx, name):
        return segment_ranges(name, _EPOCH_OF_LOGS.segments)
    stream = get_stream(tx, name).value
    verify_writable(stream)
    is_sealed = stream.state is StreamState.SEALED
    return segment_ranges(name, () if is_sealed else current_epoch(tx, stream).segments)


def of_epoch(tx: Tx, request: pb.GetEpochSegmentsRequest) -> pb.SegmentRanges:
    """Return the segments of an epoch. Raises NotFound."""
    stream = get_stream(tx, name_of(request.streamInfo)).value
    return segment_ranges(stream.name, StoredHistory(tx, stream).epoch(request.epoch).segments)


def at_time(tx: Tx, request: pb.GetSegmentsRequest) -> pb.SegmentsAtTime:
    """Return the cut of a time; the head for 0."""
    stream, time_ms = get_stream(tx, name_of(request.streamInfo)).value, request.timestamp
    cut = head_cut(tx, stream) if time_ms <= 0 else time_cut(tx, stream, time_ms)
    info, location = info_of(stream.name), pb.SegmentsAtTime.SegmentLocation
    return pb.SegmentsAtTime(
        segments=[
            location(segmentId=pb.SegmentId(streamInfo=info, segmentId=int(segment)), offset=offset)
            for segment, offset in cut.offsets.items()
            if offset >= 0  # the others begin behind the cut: readers meet them as successors
        ]
    )


def following(tx: Tx, request: pb.SegmentId) -> pb.SuccessorResponse:
    """Return the successors of a segment, each with all its predecessors; none while it is active."""
    stream = get_stream(tx, name_of(request.streamInfo)).value
    history = StoredHistory(tx, stream)
    return pb.SuccessorResponse(
        segments=[
            pb.SuccessorResponse.SegmentEntry(
                segment=segment_range(stream.name, get_segment(history, each)), value=map(int, before)
            )
            for each, before in successors(history, SegmentId(request.segmentId)).items()
        ]
    )


def between(tx: Tx, request: pb.StreamCutRange) -> pb.StreamCutRangeResponse:
    """Return the segments in either of two cuts or between them; an empty cut is the head or the tail.

    Raises InvalidCut, and InvalidArgument if the second cut is before the first, or more than SEGMENTS_MAX segments
    lie between them: a reader must not take a part for all.
    """
    stream = get_stream(tx, name_of(request.streamInfo)).value
    name, history = stream.name, StoredHistory(tx, stream)
    # The field is named as a word of Python.
    first, last = getattr(request, "from"), request.to
    start = StreamCut(name, stream.stream_id, cut_of(first)) if first else head_cut(tx, stream)
    end = StreamCut(name, stream.stream_id, cut_of(last)) if last else None
    for cut in (start, end):
        if cut is not None:
            verify_cut(cut, history)
    found = segments_between(history, start, end, limit=SEGMENTS_MAX + 1)
    if len(found) > SEGMENTS_MAX:
        reason = (
            f"more than {SEGMENTS_MAX:,} segments lie between the cuts; ask for parts, with cuts in between"
        )
        raise invalid_argument("cuts", name, reason)
    info = info_of(name)
    return pb.StreamCutRangeResponse(
        segments=[pb.SegmentId(streamInfo=info, segmentId=int(each)) for each in found]
    )


def is_active(tx: Tx, request: pb.SegmentId) -> pb.SegmentValidityResponse:
    """Return whether a segment is active."""
    stream = get_stream(tx, name_of(request.streamInfo)).value
    found = stream.state is not StreamState.SEALED and request.segmentId in current_epoch(tx, stream).by_id
    return pb.SegmentValidityResponse(response=found)


def is_cut(tx: Tx, request: pb.StreamCut) -> pb.StreamCutValidityResponse:
    """Return whether a cut covers the key space exactly once."""
    stream = get_stream(tx, name_of(request.streamInfo)).value
    cut = StreamCut(stream.name, stream.stream_id, cut_of(request.cut))
    try:
        verify_cut(cut, StoredHistory(tx, stream))
    except InvalidCut:
        return pb.StreamCutValidityResponse(response=False)
    return pb.StreamCutValidityResponse(response=True)
