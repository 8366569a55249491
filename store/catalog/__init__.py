"""The catalog: scopes, streams and epochs as versioned records, and the system's own streams."""

from __future__ import annotations

from eventproc.store.catalog.changes import catalog_version, note_change, watch_catalog
from eventproc.store.catalog.lag import (
    UnfinishedPart,
    known_segments,
    unfinished_part,
    unfinished_parts,
    unfinished_segments,
)
from eventproc.store.catalog.queries import (
    count_streams,
    current_epoch,
    current_router,
    find_stream,
    get_scope,
    get_stream,
    get_topic,
    get_writable_stream,
    head_offsets,
    list_scopes,
    list_streams,
    stream_names,
    streams_with_policies,
    tail_offsets,
    verify_active,
)
from eventproc.store.catalog.routes import ROUTES, KeyRoutes, RouteCache, forget_routes
from eventproc.store.catalog.sizes import StreamSize, readable_size, size_before, size_between
from eventproc.store.catalog.stored_history import StoredHistory, forget_epochs, insert_epoch
from eventproc.store.catalog.stream_records import SCOPE, STREAM, Scope, StreamRecord
from eventproc.store.catalog.system_streams import (
    ABORT_STREAM,
    COMMIT_STREAM,
    REQUEST_STREAM,
    SYSTEM_EPOCH,
    SYSTEM_MIGRATIONS,
    SYSTEM_SCOPE,
    SystemStream,
    insert_stream,
    new_stream_id,
    post_event,
)
from eventproc.store.catalog.tags import change_tags

__all__ = [
    "ABORT_STREAM",
    "COMMIT_STREAM",
    "REQUEST_STREAM",
    "ROUTES",
    "SCOPE",
    "STREAM",
    "SYSTEM_EPOCH",
    "SYSTEM_MIGRATIONS",
    "SYSTEM_SCOPE",
    "KeyRoutes",
    "RouteCache",
    "Scope",
    "StoredHistory",
    "StreamRecord",
    "StreamSize",
    "SystemStream",
    "UnfinishedPart",
    "catalog_version",
    "change_tags",
    "count_streams",
    "current_epoch",
    "current_router",
    "find_stream",
    "forget_epochs",
    "forget_routes",
    "get_scope",
    "get_stream",
    "get_topic",
    "get_writable_stream",
    "head_offsets",
    "insert_epoch",
    "insert_stream",
    "known_segments",
    "list_scopes",
    "list_streams",
    "new_stream_id",
    "note_change",
    "post_event",
    "readable_size",
    "size_before",
    "size_between",
    "stream_names",
    "streams_with_policies",
    "tail_offsets",
    "unfinished_part",
    "unfinished_parts",
    "unfinished_segments",
    "verify_active",
    "watch_catalog",
]
