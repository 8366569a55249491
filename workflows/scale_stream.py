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
from eventproc.store.model.partitions import grow, partition_ids, verify_growth
from eventproc.store.model.policies import ScalingPolicy
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
    epoch = current_epoch(tx, stream)
    if stream.config.is_topic:
        verify_growth(epoch, topic=stream.name, seal=request.seal, ranges=request.ranges)
        return False
    verify_scale(
        epoch,
        stream=stream.name,
        seal=request.seal,
        ranges=request.ranges,
        segments_min=stream.config.scaling.segments_min,
        segments_max=stream.config.scaling.most,
    )
    return False


def apply(tx: Tx, request: ScaleStream, request_id: str) -> bool:
    """Publish the next epoch. One step."""
    before = get_writable_stream(tx, request.stream, stream_id=request.stream_id)
    epoch = plan_epoch(tx, before.value, seal=request.seal, ranges=request.ranges, request_id=request_id)
    scaling = advance(before.value.state, StreamEvent.SCALE, name=request.stream)
    epoch = open_epoch(tx, before.value, epoch, seal=request.seal)
    scaled = advance(scaling, StreamEvent.SCALED, name=request.stream)
    config = before.value.config
    if config.is_topic:
        config = attrs.evolve(config, scaling=ScalingPolicy.partitions(len(partition_ids(epoch))))
    after = attrs.evolve(before.value, epoch=epoch.number, state=scaled, config=config)
    replace(tx, STREAM, before, after)
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
    epoch = current_epoch(tx, stream)
    if stream.config.is_topic:
        return grow(
            epoch, topic=stream.name, seal=seal, ranges=ranges, now_ms=tx.now_ms, request_id=request_id
        )
    return next_epoch(
        epoch,
        stream=stream.name,
        seal=seal,
        ranges=ranges,
        now_ms=tx.now_ms,
        segments_min=stream.config.scaling.segments_min,
        segments_max=stream.config.scaling.most,
        request_id=request_id,
    )


def open_epoch(tx: Tx, stream: StreamRecord, epoch: Epoch, *, seal: Collection[SegmentId]) -> Epoch:
    """Open `epoch` after the stream's current one and return it as stored. The caller updates the stream's record.

    Raises CommitsPending, before any change, if a commit has been prepared PREPARATIONS_MAX times for epochs that
    then ended: the scale has to wait for that commit. Everything else is as for `publish_epoch`.
    """
    flush_txns(tx)  # so that staged events of a key are in the order of the epochs
    following = list_decided(tx, stream.stream_id, limit=1)
    if following and following[0].prepared >= PREPARATIONS_MAX:
        raise CommitsPending(stream=stream.name, stream_id=stream.stream_id, event="a scale")
    return publish_epoch(tx, stream, epoch, seal=seal)


def publish_epoch(tx: Tx, stream: StreamRecord, epoch: Epoch, *, seal: Collection[SegmentId]) -> Epoch:
    """Store `epoch` after the stream's latest one, with its segments, and return it as stored.

    Successors are created and predecessors sealed in the same transaction: a writer never meets a sealed segment
    without a successor, and a reader never meets a successor before the predecessor's end.
    The epoch begins later than the last event of the segments that it seals, and its own events begin later still.
    So times never decrease along a key, whatever the clock does, and a cut at a time skips no event.
    """
    sealed = seal_segments(tx, stream.name, stream.stream_id, seal, sealed_epoch=epoch.number)
    before = current_epoch(tx, stream)
    epoch = attrs.evolve(
        epoch,
        created_ms=max(epoch.created_ms, sealed.time + 1),
        sealed_bytes=before.sealed_bytes + sealed.bytes,
        sealed_events=before.sealed_events + sealed.events,
    )
    epoch.check()
    insert_epoch(tx, stream.stream_id, epoch)
    forget_routes(tx, stream.stream_id)
    opened = [segment.id for segment in epoch.opened]
    create_segments(tx, stream.stream_id, opened, since_ms=epoch.created_ms)
    return epoch
