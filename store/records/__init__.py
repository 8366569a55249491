"""Versioned records: create, read, replace with an expected version, delete. Any room may define a kind."""

from __future__ import annotations

from eventproc.store.records.counters import (
    count_up as count_up,
    counted as counted,
    raise_counter as raise_counter,
)
from eventproc.store.records.record_kind import (
    RecordKind as RecordKind,
    Upcast as Upcast,
    from_json as from_json,
    from_plain as from_plain,
    to_json as to_json,
    to_plain as to_plain,
)
from eventproc.store.records.records import (
    Versioned as Versioned,
    bodies as bodies,
    count_keys as count_keys,
    create as create,
    decodable as decodable,
    delete as delete,
    delete_all as delete_all,
    find as find,
    get as get,
    keys as keys,
    keys_containing as keys_containing,
    replace as replace,
    version_of as version_of,
)
