"""Names of scopes, streams, groups and segments without opening the directory, for the completion of a shell."""

from __future__ import annotations

from eventproc.store.name_lookup import UNREADABLE, stored_names, stored_segments

__all__ = ["UNREADABLE", "stored_names", "stored_segments"]
