"""Versioned records: create, read, replace with an expected version, delete. Any room may define a kind."""

from __future__ import annotations

from eventproc.store.records.counters import count_up, counted, raise_counter
from eventproc.store.records.record_kind import RecordKind, Upcast, from_json, from_plain, to_json, to_plain
from eventproc.store.records.records import (
    ABSENT,
    Versioned,
    count_keys,
    create,
    delete,
    delete_all,
    find,
    get,
    keys,
    keys_containing,
    replace,
)

__all__ = [
    "ABSENT",
    "RecordKind",
    "Upcast",
    "Versioned",
    "count_keys",
    "count_up",
    "counted",
    "create",
    "delete",
    "delete_all",
    "find",
    "from_json",
    "from_plain",
    "get",
    "keys",
    "keys_containing",
    "raise_counter",
    "replace",
    "to_json",
    "to_plain",
]
