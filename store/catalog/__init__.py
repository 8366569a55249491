"""What streams there are: scopes, streams, epochs, as versioned records, and the system's own streams."""

from __future__ import annotations

from eventproc.store.catalog.lag import (
    UnfinishedPart,
    known_segments,
    unfinished_part,
    unfinished_parts,
    unfinished_segments,
)
from eventproc.store.catalog.queries import (
    StoredHistory,
    current_epoch,
    find_stream,
    get_scope,
    get_stream,
    head_offsets,
    insert_epoch,
    list_scopes,
    list_streams,
    stream_names,
    tail_offsets,
    verify_active,
)
from eventproc.store.catalog.stream_records import EPOCH, SCOPE, STREAM, Scope, StreamRecord
from eventproc.store.catalog.system_streams import (
    ABORT_STREAM,
    COMMIT_STREAM,
    REQUEST_STREAM,
    SYSTEM_EPOCH,
    SYSTEM_MIGRATION,
    SYSTEM_SCOPE,
    SystemStream,
    insert_stream,
    new_stream_id,
    post_event,
)

__all__ = [
    "ABORT_STREAM",
    "COMMIT_STREAM",
    "EPOCH",
    "REQUEST_STREAM",
    "SCOPE",
    "STREAM",
    "SYSTEM_EPOCH",
    "SYSTEM_MIGRATION",
    "SYSTEM_SCOPE",
    "Scope",
    "StoredHistory",
    "StreamRecord",
    "SystemStream",
    "UnfinishedPart",
    "current_epoch",
    "find_stream",
    "get_scope",
    "get_stream",
    "head_offsets",
    "insert_epoch",
    "insert_stream",
    "known_segments",
    "list_scopes",
    "list_streams",
    "new_stream_id",
    "post_event",
    "stream_names",
    "tail_offsets",
    "unfinished_part",
    "unfinished_parts",
    "unfinished_segments",
    "verify_active",
]
