"""Change a stream's configuration. The number of segments, or of partitions, changes in the same transaction.

Semantics: pravega.md 3.2. If the number differs, all active segments are sealed, and the new number of segments is
opened with equal key ranges. A policy that goes by a rate asks for its smallest number if there are fewer. The update
and its scale are one transaction, so the scale cannot be half done.

A sealed stream only changes its offload, which goes on after the seal.

A topic only gains partitions. If its partitioning changes, or whether it is compacted, its reserve is replaced even if
no partition is added: that ends the epoch, so every writer reads the new configuration before its next send.
"""

from __future__ import annotations

import attrs

from eventproc.base.counts import counted
from eventproc.store.catalog import (
    STREAM,
    StreamRecord,
    change_tags,
    current_epoch,
    get_stream,
    get_writable_stream,
    note_change,
)
from eventproc.store.database import Tx
from eventproc.store.model.errors import ScaleRefused
from eventproc.store.model.partitions import growth, partition_ids
from eventproc.store.model.policies import (
    OFFLOAD_NOTHING,
    Partitioning,
    ScalingPolicy,
    StreamConfig,
    as_config,
)
from eventproc.store.model.ranges import initial_ranges
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import Versioned, replace
from eventproc.store.segments.file_blobs import chunk_files
from eventproc.workflows.requests import UpdateStream
from eventproc.workflows.scale_stream import open_epoch, plan_epoch


def check(tx: Tx, request: UpdateStream) -> bool:
    """Return whether the stream has this configuration already.

    Raises NotFound, StreamReplaced, StreamSealed, NotSupported (an offload without a place for files).
    """
    stream = _changeable_stream(tx, request).value
    config = _config_after(stream, request)
    if config.offload not in (stream.config.offload, OFFLOAD_NOTHING):
        chunk_files(tx)
    return stream.config == config and not _count_differs(tx, stream, request, config.scaling)


def apply(tx: Tx, request: UpdateStream, request_id: str) -> bool:
    """Store the configuration, and open an epoch with the new number of segments if it differs. One step."""
    before = _changeable_stream(tx, request)
    stream = attrs.evolve(before.value, config=_config_after(before.value, request))
    updating = advance(stream.state, StreamEvent.UPDATE, name=request.stream)
    wanted = stream.config.scaling.segments_min
    differs = _count_differs(tx, stream, request, stream.config.scaling)
    if differs or _routing(before.value.config) != _routing(stream.config):
        current = current_epoch(tx, stream)
        if stream.config.is_topic:
            added = wanted - len(partition_ids(current)) if differs else 0
            seal, ranges = growth(current, added)
        else:
            seal, ranges = current.ids, initial_ranges(wanted)
        epoch = plan_epoch(tx, stream, seal=seal, ranges=ranges, request_id=request_id)
        stream = attrs.evolve(stream, epoch=open_epoch(tx, stream, epoch, seal=seal).number)
    updated = advance(updating, StreamEvent.UPDATED, name=request.stream)
    change_tags(tx, stream.name, before.value.config.tags, stream.config.tags)
    replace(tx, STREAM, before, attrs.evolve(stream, state=updated))
    note_change(tx)  # so that its policies are kept from now on
    return True


def _changeable_stream(tx: Tx, request: UpdateStream) -> Versioned[StreamRecord]:
    """Return the stream if the request may change it. Raises StreamSealed, and what `get_stream` raises."""
    changed = {each.partition(".")[0] for each in request.fields or ()}
    found = get_stream(tx, request.stream, stream_id=request.stream_id)
    if found.value.state is StreamState.SEALED and request.keep_segments and changed == {"offload"}:
        return found
    return get_writable_stream(tx, request.stream, stream_id=request.stream_id)


def _config_after(stream: StreamRecord, request: UpdateStream) -> StreamConfig:
    """Return the configuration after the update, of what the stream has now: another update may have come between.

    Raises ScaleRefused, and InvalidArgument if no stream can have it, such as if the limits of both updates contradict
    each other.
    """
    if request.fields is not None:
        config = stream.config.with_fields(request.config, request.fields)
    else:  # events stay where they are: the storage is chosen once, when the stream is created
        config = attrs.evolve(request.config, storage=stream.config.storage)
    _verify_kind(stream, config)
    return as_config(config)


def _routing(config: StreamConfig) -> tuple[Partitioning | None, bool]:
    """Return what writers of a topic must know before their next send, besides its epoch."""
    return config.partitioning, config.is_compacted


def _count_differs(tx: Tx, stream: StreamRecord, request: UpdateStream, after: ScalingPolicy) -> bool:
    # A fixed policy is a count, and one by rate a minimum: pravega.md 3.2, "segment count fix-up".
    if request.keep_segments:
        return False
    return not after.leaves(len(partition_ids(current_epoch(tx, stream))))


def _verify_kind(stream: StreamRecord, config: StreamConfig) -> None:
    """Raise ScaleRefused if the update would make a stream a topic, a topic a stream, or remove partitions."""
    before, after = stream.config.scaling, config.scaling
    if stream.config.is_topic is not config.is_topic:
        remedy = (
            "use `topic.alter`" if stream.config.is_topic else "create another one with `ep.create_topic`"
        )
        what = "it is a topic" if stream.config.is_topic else "it is not a topic"
        raise ScaleRefused(stream=stream.name, reason=f"{what}; {remedy}")
    if stream.config.is_topic and after.segments_min < before.segments_min:
        kept = counted(before.segments_min, "partition")
        raise ScaleRefused(
            stream=stream.name, reason=f"it has {kept}; partitions can be added, and never removed"
        )
