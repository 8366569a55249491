"""Truncate a stream: move its head to a cut in one transaction; the bytes before it are freed later.

Semantics: pravega.md 3.5 and 1.8. The head moves first and the reaper follows, so a reader at the head always finds
its events.

Epochs are kept from one before the oldest that the head needs. So a reader that is exactly at the end of a segment
that the head has just passed still finds the segment and its successors, and loses no events. The epochs of unfinished
transactions are kept, too: events of foreign clients belong to the key ranges of their segments.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import STREAM, StoredHistory, StreamRecord, get_writable_stream, head_offsets
from eventproc.store.database import Tx
from eventproc.store.model.cuts import StreamCut, divide_cut, equal_or_after, verify_cut
from eventproc.store.model.errors import InvalidCut
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId, epoch_of
from eventproc.store.model.states import StreamEvent, advance
from eventproc.store.records import replace
from eventproc.store.requests import RequestOrigin, find_request
from eventproc.store.segments import readable_sealed, sealed_epoch, truncate_segments, verify_offset
from eventproc.store.transactions import oldest_unfinished_epoch
from eventproc.workflows.policies.retention import retained_head
from eventproc.workflows.requests import TruncateStream

SLACK_EPOCHS: Final = 1
"""Epochs kept before the oldest that the head needs. Higher: readers and writers that are further behind can continue
without loss. Each epoch costs a record, and a row per segment."""


def check(tx: Tx, request: TruncateStream) -> bool:
    """Return whether the head is at the cut already.

    Raises NotFound, StreamReplaced, StreamSealed, and InvalidCut for a cut that does not cover the key space exactly
    once, is before the head or beyond the tail, or is inside an event.
    """
    stream = get_writable_stream(tx, request.stream, stream_id=request.stream_id).value
    return not _moves_head(tx, stream, StoredHistory(tx, stream), _cut(stream, request.offsets))


def apply(tx: Tx, request: TruncateStream, request_id: str) -> bool:
    """Move the head. One step."""
    from eventproc.store.marks import truncate_marks  # few programs need it

    before = get_writable_stream(tx, request.stream, stream_id=request.stream_id)
    stream, history = before.value, StoredHistory(tx, before.value)
    cut = _cut(stream, request.offsets)
    if not _moves_head(tx, stream, history, cut):
        return True
    _verify_policy(tx, stream, history, cut, request_id)
    truncating = advance(stream.state, StreamEvent.TRUNCATE, name=stream.name)
    oldest = _oldest_needed(tx, cut, history)
    heads = {segment: offset for segment, offset in cut.offsets.items() if offset > 0}
    passed = _passed(tx, cut, history, oldest)
    truncate_segments(tx, stream.name, stream.stream_id, heads, passed=passed)
    truncate_marks(tx, stream, cut)
    replace(
        tx,
        STREAM,
        before,
        attrs.evolve(
            stream,
            state=advance(truncating, StreamEvent.TRUNCATED, name=stream.name),
            head=dict(cut.offsets),
            truncated_ms=tx.now_ms,
            first_epoch=max(stream.first_epoch, _oldest_kept(tx, stream, oldest)),
        ),
    )
    return True


def _moves_head(tx: Tx, stream: StreamRecord, history: StoredHistory, cut: StreamCut) -> bool:
    head = _cut(stream, head_offsets(tx, stream))
    verify_cut(cut, history)
    if cut == head:
        return False
    if not equal_or_after(cut, head, history):
        raise InvalidCut(stream=stream.name, cut=str(cut), reason=f"it lies before the head {head}")
    for segment in cut.offsets:
        verify_offset(tx, cut, segment)
    return True


def _verify_policy(
    tx: Tx, stream: StreamRecord, history: StoredHistory, cut: StreamCut, request_id: str
) -> None:
    """Raise InvalidCut if a policy asked for this cut and keeps events before it now, because a group went back."""
    asked = find_request(tx, request_id)
    if asked is None or asked.origin is not RequestOrigin.POLICY:
        return
    if not equal_or_after(retained_head(tx, stream), cut, history):
        reason = "a group needs events before it, or the policy changed, since it was asked for"
        raise InvalidCut(stream=stream.name, cut=str(cut), reason=reason)


def _oldest_needed(tx: Tx, cut: StreamCut, history: StoredHistory) -> int:
    """Return the oldest epoch that the cut needs: the last epoch of its oldest segment."""
    ended = [sealed_epoch(tx, cut.stream_id, segment) for segment in cut.offsets]
    return min(history.current if epoch is None else epoch - 1 for epoch in ended)


def _oldest_kept(tx: Tx, stream: StreamRecord, oldest: int) -> int:
    """Return the oldest epoch to keep, if `oldest` is the oldest one that the head needs."""
    kept, begun_in = oldest - SLACK_EPOCHS, oldest_unfinished_epoch(tx, stream.stream_id)
    return kept if begun_in is None else min(kept, begun_in)


def _passed(tx: Tx, cut: StreamCut, history: StoredHistory, oldest: int) -> list[SegmentId]:
    """Return the segments with readable bytes that lie completely before the cut.

    Each segment of the cut was active in the epoch `oldest` or began later, so segments that were sealed by then are
    before the cut. Only other segments that began before the newest one of the cut need a comparison of key ranges,
    which reads an epoch each; a cut along one epoch has none.
    """
    newest = max(map(epoch_of, cut.offsets))
    passed: list[SegmentId] = []
    unsure: list[SegmentId] = []
    for segment, ended in readable_sealed(tx, cut.stream_id).items():
        if ended <= oldest:
            passed.append(segment)
        elif segment not in cut.offsets and epoch_of(segment) < newest:
            unsure.append(segment)
    if unsure:
        division = divide_cut(cut, history)
        passed += [each for each in unsure if division.is_behind(get_segment(history, each))]
    return passed


def _cut(stream: StreamRecord, offsets: dict[SegmentId, int]) -> StreamCut:
    return StreamCut(stream=stream.name, stream_id=stream.stream_id, offsets=offsets)
