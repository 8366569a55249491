"""Cuts of a stream, and the frontiers of readers that start there: head, tail, a time, chosen segments."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, equal_or_after, verify_cut
from eventproc.store.model.errors import StreamReplaced, Truncated
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, epoch_of, format_segment
from eventproc.store.segments import known_state, segment_state, verify_offset

PASSED_MAX: Final = 500
"""Empty sealed segments that one transaction of a group passes. Each holds the lock of all writers for up to 0.1 ms.
Higher: writers wait longer; lower: a long history without events takes more commits."""


def frontier_at(tx: Tx, stream: StreamRecord, cut: StreamCut) -> Frontier:
    """Return the frontier of a reader that starts at `cut`.

    Raises StreamReplaced for a cut of another incarnation; InvalidCut when it does not cover the key
    space once, lies beyond the tail or inside an event; Truncated when it lies before the head.
    """
    if cut.stream == stream.name and cut.stream_id != stream.stream_id:
        raise StreamReplaced(stream=cut.stream, stream_id=cut.stream_id, current_id=stream.stream_id)
    history = StoredHistory(tx, stream)
    if cut.stream == stream.name and (gone := _compacted(history, cut)) is not None:
        raise truncated(tx, stream, gone, cut.offsets[gone])
    verify_cut(cut, history)
    for segment, offset in cut.offsets.items():
        if offset > 0:
            state = verify_offset(tx, cut, segment)
            if state is not None and offset < state.head:
                raise truncated(tx, stream, segment, offset)
    frontier = Frontier.from_cut(cut, history)
    head = head_cut(tx, stream)
    if not equal_or_after(cut, head, history):
        _pass_ended(tx, stream, frontier, history, head)
        now = attrs.evolve(cut, offsets=frontier.offsets())
        if not equal_or_after(now, head, history):
            segment, offset = next(
                (segment, offset)
                for segment, offset in now.offsets.items()
                if offset < head.offsets.get(segment, offset) or segment not in head.offsets
            )
            raise truncated(tx, stream, segment, offset)
    return frontier


def truncated(tx: Tx, stream: StreamRecord, segment: SegmentId, offset: int) -> Truncated:
    """Return the error of a position at `offset` of a segment, before the head."""
    state = segment_state(tx, stream.stream_id, segment)
    return Truncated(
        stream=stream.name,
        segment=format_segment(segment),
        offset=max(offset, 0),
        head=0 if state is None else state.head,
        head_cut=str(head_cut(tx, stream)),
    )


def _compacted(history: StoredHistory, cut: StreamCut) -> SegmentId | None:
    """Return a segment of the cut that lies before the oldest epoch kept."""
    kept = history.epoch(history.first).by_id
    return next((each for each in cut.offsets if epoch_of(each) < history.first and each not in kept), None)


def _pass_ended(
    tx: Tx, stream: StreamRecord, frontier: Frontier, history: StoredHistory, head: StreamCut
) -> None:
    """Continue with the successors of segments that the head has passed and the frontier has read to their ends.

    Such a reader has lost no event, though the head is later: see `workflows.truncate`.
    """
    frontier.pass_ended(
        history,
        lambda segment, offset: (
            segment not in head.offsets and is_over(tx, stream.stream_id, segment, offset)
        ),
    )


def is_over(tx: Tx, stream_id: int, segment: SegmentId, offset: int) -> bool:
    """Return whether a segment is sealed and has nothing to read from that offset on."""
    state = segment_state(tx, stream_id, segment)
    return state is not None and state.sealed and offset == state.tail


def frontier_of_segments(
    tx: Tx, stream: StreamRecord, segments: Iterable[SegmentId], *, from_tail: bool
) -> Frontier:
    """Return the frontier of a reader of chosen segments, from their heads or tails. Raises NotFound."""
    history = StoredHistory(tx, stream)
    held = {}
    for segment in segments:
        get_segment(history, segment)
        state = known_state(tx, stream.stream_id, segment)
        held[segment] = state.tail if from_tail else state.head
    return Frontier(held, {})
