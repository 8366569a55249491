"""Names of scopes, streams, groups and segments without opening the directory, for the completion of a shell."""

from __future__ import annotations

from eventproc.store.name_lookup import (
    UNREADABLE as UNREADABLE,
    stored_names as stored_names,
    stored_segments as stored_segments,
)
