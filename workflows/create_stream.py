"""Create a stream: its record, its first epoch and its segments, in one transaction.

Semantics: pravega.md 3.1. If a stream with an equal configuration exists, the request is done; if its configuration
differs, the request is refused, and the error names the fields. A topic may have more partitions than requested. The
state CREATING is never stored, so a creation cannot be half finished.
"""

from __future__ import annotations

import attrs

from eventproc.base.counts import counted
from eventproc.store.catalog import SCOPE, find_stream, insert_stream, verify_active
from eventproc.store.database import Tx
from eventproc.store.model.errors import AlreadyExists, NotFound
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import OFFLOAD_NOTHING, StreamConfig, differing
from eventproc.store.records import find
from eventproc.store.requests import note_result
from eventproc.store.segments.event_storage import STREAM_STORAGES, verify_storage_name
from eventproc.store.segments.file_blobs import chunk_files
from eventproc.workflows.requests import CreateStream


def check(tx: Tx, request: CreateStream) -> bool:
    """Return whether the stream exists with an equal configuration.

    Raises InvalidArgument, NotFound, AlreadyExists, NotSupported (an offload without a place for files).
    """
    scope_name = StreamName.parse(request.stream).scope
    if (scope := find(tx, SCOPE, scope_name)) is None:
        raise NotFound(kind="scope", name=scope_name)
    verify_active(scope.value, "create a stream")
    verify_storage_name(tx, request.config.storage)
    if request.config.offload != OFFLOAD_NOTHING:
        chunk_files(tx)
    if (found := find_stream(tx, request.stream)) is None:
        return False
    ours, theirs = found.value.config, request.config
    if fields := differing(ours, _grown(theirs, ours)):
        kind = "topic" if ours.is_topic else "stream"
        raise AlreadyExists(
            kind=kind, name=request.stream, differing=fields, remedy=_remedy(request.stream, ours, theirs)
        )
    return True


def apply(tx: Tx, request: CreateStream, request_id: str) -> bool:
    """Create the stream unless it exists. One step."""
    if not check(tx, request):
        made = insert_stream(tx, request.stream, request.config)
        tx.shared[STREAM_STORAGES].assign(made.stream_id, request.config.storage)
        note_result(tx, request_id, made.stream_id)
    return True


def _remedy(name: str, ours: StreamConfig, theirs: StreamConfig) -> str:
    count = theirs.scaling.segments_min
    if ours.is_topic is not theirs.is_topic:
        return f"the existing one is {'' if ours.is_topic else 'not '}a topic: choose another name"
    if ours.is_topic:
        existing = f"{counted(ours.scaling.segments_min, 'partition')}, partitioning {ours.partitioning}"
        return f"the existing topic has {existing}: open it as it is, or change it with `topic.alter`"
    if ours.scaling.kind is not theirs.scaling.kind or ours.scaling.goes_by_rate:
        return "open the existing stream as it is, or change it with `stream.update(scaling=...)`"
    change = f"`eventproc stream update {name} --segments {count}`"
    return (
        f"the existing stream has {ours.scaling.segments_min}: open it as it is, or change it with {change}"
    )


def _grown(theirs: StreamConfig, ours: StreamConfig) -> StreamConfig:
    """Return the requested configuration; with as many partitions as the existing topic has, if it asks for fewer.

    Partitions are only ever added. So a program that creates its topic when it starts still runs after it was grown.
    """
    if ours.is_topic and theirs.is_topic and theirs.scaling.segments_min < ours.scaling.segments_min:
        return attrs.evolve(theirs, scaling=ours.scaling)
    return theirs
