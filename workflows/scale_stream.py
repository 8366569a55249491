"""Scale a stream: seal active segments and open others over the same key space, in one transaction.

Semantics: pravega.md 3.3 and 1.10. Every refusal is decided twice, at submit and when the workflow runs, by the same
pure function. If an epoch was opened in between, the second check refuses and changes nothing. The update of a stream
uses `plan_epoch` and `open_epoch` too.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import attrs

from eventproc.store.catalog import (
    STREAM,
    StreamRecord,
    current_epoch,
    forget_routes,
    get_writable_stream,
    insert_epoch,
)
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch, next_epoch, verify_scale
from eventproc.store.model.errors import CommitsPending
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARATIONS_MAX
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.states import StreamEvent, advance
from eventproc.store.records import replace
from eventproc.store.requests import note_result
from eventproc.store.segments import create_segments, seal_segments
from eventproc.store.transactions import flush_txns, list_decided
from eventproc.workflows.requests import ScaleStream


def check(tx: Tx, request: ScaleStream) -> bool:
    """Return False, because a scale is never done already. Raises the refusals of pravega.md 1.10."""
    stream = get_writable_stream(tx, request.stream, stream_id=request.stream_id).value
    verify_scale(
        current_epoch(tx, stream),
        stream=stream.name,
        seal=request.seal,
        ranges=request.ranges,
        segments_min=stream.config.scaling.segments_min,
    )
    return False


def apply(tx: Tx, request: ScaleStream, request_id: str) -> bool:
    """Publish the next epoch. One step."""
    before = get_writable_stream(tx, request.stream, stream_id=request.stream_id)
    epoch = plan_epoch(tx, before.value, seal=request.seal, ranges=request.ranges, request_id=request_id)
    scaling = advance(before.value.state, StreamEvent.SCALE, name=request.stream)
    epoch = open_epoch(tx, before.value, epoch, seal=request.seal)
    scaled = advance(scaling, StreamEvent.SCALED, name=request.stream)
    replace(tx, STREAM, before, attrs.evolve(before.value, epoch=epoch.number, state=scaled))
    note_result(tx, request_id, epoch)
    return True


def plan_epoch(
    tx: Tx,
    stream: StreamRecord,
    *,
    seal: Collection[SegmentId],
    ranges: Sequence[KeyRange],
    request_id: str,
) -> Epoch:
    """Return the epoch that a scale would open, without changes. Raises every refusal of pravega.md 1.10."""
    return next_epoch(
        current_epoch(tx, stream),
        stream=stream.name,
        seal=seal,
        ranges=ranges,
        now_ms=tx.now_ms,
        segments_min=stream.config.scaling.segments_min,
        request_id=request_id,
    )


def open_epoch(tx: Tx, stream: StreamRecord, epoch: Epoch, *, seal: Collection[SegmentId]) -> Epoch:
    """Open `epoch` after the stream's current one and return it as stored. The caller updates the stream's record.

    Successors are created and predecessors sealed in the same transaction: a writer never meets a sealed segment
    without a successor, and a reader never meets a successor before the predecessor's end.
    The epoch begins later than the last event of the segments that it seals, and its own events begin later still.
    So times never decrease along a key, whatever the clock does, and a cut at a time skips no event.
    Raises CommitsPending, before any change, if a commit has been prepared PREPARATIONS_MAX times for epochs that
    then ended: the scale has to wait for that commit.
    """
    flush_txns(tx)  # so that staged events of a key are in the order of the epochs
    following = list_decided(tx, stream.stream_id, limit=1)
    if following and following[0].prepared >= PREPARATIONS_MAX:
        raise CommitsPending(stream=stream.name, stream_id=stream.stream_id, event="a scale")
    ended_ms = seal_segments(tx, stream.name, stream.stream_id, seal, sealed_epoch=epoch.number)
    if epoch.created_ms <= ended_ms:
        epoch = attrs.evolve(epoch, created_ms=ended_ms + 1)
    epoch.check()
    insert_epoch(tx, stream.stream_id, epoch)
    forget_routes(tx, stream.stream_id)
    opened = [segment.id for segment in epoch.opened]
    create_segments(tx, stream.stream_id, opened, since_ms=epoch.created_ms)
    return epoch
