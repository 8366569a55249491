"""The system's own scope and streams, and the creation of a stream's rows.

`_system/request`, `_system/commit` and `_system/abort` are ordinary streams of two segments. The first migration
creates them: creating them through the request stream would be circular, and a failing request would block the
truncation of its own stream (pitfalls.md item 26).
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog.changes import note_change
from eventproc.store.catalog.queries import change_tags
from eventproc.store.catalog.stored_history import insert_epoch
from eventproc.store.catalog.stream_records import SCOPE, STREAM, Scope, StreamRecord
from eventproc.store.database import Migration, Tx
from eventproc.store.model.epochs import first_epoch
from eventproc.store.model.partitions import opening_epoch
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.routing import point
from eventproc.store.model.states import StreamEvent, StreamState, advance
from eventproc.store.records import count_up, create
from eventproc.store.schema import create_tables
from eventproc.store.schema_changes import (
    ADDED_2,
    ADDED_3,
    ADDED_5,
    ADDED_7,
    ADDED_8,
    ADDED_9,
    ADDED_10,
    ADDED_11,
    ADDED_14,
    ADDED_15,
    add_priorities,
    adding,
    unite_groups,
)
from eventproc.store.segments import EventBlock, Headers, SegmentEvents, append, create_segments

SYSTEM_SCOPE: Final = "_system"

SYSTEM_SEGMENTS: Final = 2
"""Segments of each internal stream: two, so that tests show that order holds per key and not per stream."""


@attrs.frozen
class SystemStream:
    """An internal stream: its name and the id it has in every directory."""

    name: str
    stream_id: int


REQUEST_STREAM: Final = SystemStream("_system/request", 1)
COMMIT_STREAM: Final = SystemStream("_system/commit", 2)
ABORT_STREAM: Final = SystemStream("_system/abort", 3)

SYSTEM_EPOCH: Final = first_epoch(SYSTEM_SEGMENTS, created_ms=0)
"""The only epoch of each internal stream, because they are never scaled. Its time has no meaning."""


def new_stream_id(tx: Tx) -> int:
    """Return a new id for a stream or another owner of segments. Ids are never reused."""
    return count_up(tx, "stream_id")


def insert_stream(tx: Tx, name: str, config: StreamConfig) -> StreamRecord:
    """Write the rows of a new stream: its record, its first epoch, its segments. Raises AlreadyExists."""
    stream = StreamRecord(
        name=name,
        stream_id=new_stream_id(tx),
        state=advance(StreamState.CREATING, StreamEvent.CREATED, name=name),
        config=config,
        created_ms=tx.now_ms,
    )
    create(tx, STREAM, name, stream)
    change_tags(tx, name, (), config.tags)
    note_change(tx)
    epoch = opening_epoch(config, created_ms=tx.now_ms)
    insert_epoch(tx, stream.stream_id, epoch)
    create_segments(tx, stream.stream_id, epoch.ids, since_ms=epoch.created_ms)
    return stream


def post_event(
    tx: Tx, stream: SystemStream, key: str, payload: bytes, headers: Headers | None = None
) -> None:
    """Append one event to an internal stream, routed by `key`, as part of `tx`.

    The event exists exactly if the rest of the transaction does. So there is no index of posted events, no sweeper of
    lost ones, and no event without its intent.
    """
    where = point(key)
    block = EventBlock(
        payloads=[payload], keys=[key], points=[where], headers=None if headers is None else [headers]
    )
    append(tx, stream.name, stream.stream_id, [SegmentEvents(SYSTEM_EPOCH.find(where).id, block.encode())])


def _create_system(tx: Tx) -> None:
    create_tables(tx)
    create(tx, SCOPE, SYSTEM_SCOPE, Scope(name=SYSTEM_SCOPE, created_ms=tx.now_ms))
    config = StreamConfig(scaling=ScalingPolicy.fixed(SYSTEM_SEGMENTS))
    for system in (REQUEST_STREAM, COMMIT_STREAM, ABORT_STREAM):
        made = insert_stream(tx, system.name, config)
        assert made.stream_id == system.stream_id, (
            f"{system.name}: {made.stream_id} is not {system.stream_id}"
        )


def _keep_tables(_: Tx) -> None:
    """Change nothing. An older version must not open the store, because it cannot read what a newer one writes."""


SYSTEM_MIGRATIONS: Final = (
    Migration(number=1, apply=_create_system),
    Migration(number=2, apply=adding(ADDED_2)),
    Migration(number=3, apply=adding(ADDED_3)),
    Migration(number=4, apply=unite_groups),
    Migration(number=5, apply=adding(ADDED_5)),
    Migration(number=6, apply=_keep_tables),  # streams with a policy of offload
    Migration(number=7, apply=adding(ADDED_7)),
    Migration(number=8, apply=adding(ADDED_8)),
    Migration(number=9, apply=adding(ADDED_9)),
    Migration(number=10, apply=adding(ADDED_10)),
    Migration(number=11, apply=adding(ADDED_11)),
    Migration(number=12, apply=add_priorities),
    Migration(number=13, apply=_keep_tables),  # compacted blobs
    Migration(number=14, apply=adding(ADDED_14)),
    Migration(number=15, apply=adding(ADDED_15)),
    Migration(number=16, apply=_keep_tables),  # users with verifiers of SCRAM
    Migration(number=17, apply=_keep_tables),  # groups and logs of Pravega's clients
)
"""The first schema, with every table and the rows of the internal streams, and what was added to it since."""
