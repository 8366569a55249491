"""The catalog: scopes, streams and epochs as versioned records, and the system's own streams."""

from __future__ import annotations

from eventproc.store.catalog.changes import (
    WATCH_CATALOG as WATCH_CATALOG,
    catalog_version as catalog_version,
    note_change as note_change,
)
from eventproc.store.catalog.lag import (
    UnfinishedPart as UnfinishedPart,
    known_segments as known_segments,
    unfinished_part as unfinished_part,
    unfinished_parts as unfinished_parts,
    unfinished_segments as unfinished_segments,
)
from eventproc.store.catalog.queries import (
    SCOPES as SCOPES,
    WATCH_SCOPES as WATCH_SCOPES,
    change_tags as change_tags,
    count_streams as count_streams,
    current_epoch as current_epoch,
    current_router as current_router,
    find_stream as find_stream,
    get_scope as get_scope,
    get_stream as get_stream,
    get_topic as get_topic,
    get_writable_stream as get_writable_stream,
    head_offsets as head_offsets,
    list_scopes as list_scopes,
    list_streams as list_streams,
    list_topics as list_topics,
    record_names as record_names,
    scope_names as scope_names,
    stream_names as stream_names,
    streams_with_policies as streams_with_policies,
    tail_offsets as tail_offsets,
    verify_active as verify_active,
)
from eventproc.store.catalog.routes import (
    ROUTES as ROUTES,
    KeyRoutes as KeyRoutes,
    forget_routes as forget_routes,
)
from eventproc.store.catalog.sizes import (
    StreamSize as StreamSize,
    readable_size as readable_size,
    size_before as size_before,
    size_between as size_between,
)
from eventproc.store.catalog.stored_history import (
    StoredHistory as StoredHistory,
    forget_epochs as forget_epochs,
    insert_epoch as insert_epoch,
)
from eventproc.store.catalog.stream_records import (
    SCOPE as SCOPE,
    STREAM as STREAM,
    Scope as Scope,
    StreamRecord as StreamRecord,
)
from eventproc.store.catalog.system_streams import (
    ABORT_STREAM as ABORT_STREAM,
    COMMIT_STREAM as COMMIT_STREAM,
    REQUEST_STREAM as REQUEST_STREAM,
    SYSTEM_EPOCH as SYSTEM_EPOCH,
    SYSTEM_MIGRATIONS as SYSTEM_MIGRATIONS,
    SYSTEM_SCOPE as SYSTEM_SCOPE,
    SystemStream as SystemStream,
    insert_stream as insert_stream,
    new_stream_id as new_stream_id,
    post_event as post_event,
)
