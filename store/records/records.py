"""Records in the database: create, get, replace and delete, as functions of a transaction.

One statement compares the version and changes the record. If it fails, an error gives the reason and nothing has
changed. A version is 1 at creation and grows by one with each replacement (invariant 7).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Final, Generic, TypeVar, cast

import attrs

from eventproc.base.bounded_cache import BoundedCache
from eventproc.store.database import SharedSlot, Tx, find_number
from eventproc.store.model.errors import AlreadyExists, CorruptRecord, NotFound, VersionConflict
from eventproc.store.model.list_pages import NO_LIMIT
from eventproc.store.records.record_kind import RecordKind

LOG = logging.getLogger("eventproc.records")

T = TypeVar("T")


@attrs.frozen
class Versioned(Generic[T]):
    """A record as it was read. Pass it to `replace` or `delete`."""

    key: str
    version: int
    value: T


CACHED_RECORDS_MAX: Final = 4_096
"""Values kept, about 1 kB each. Raise it if a process alternates between more streams."""

BODY_BYTES_MAX: Final = 1_024
"""Longest body that is cached, because its value takes several times as much memory. The record of a truncated stream
with many segments is decoded each time."""


class RecordCache:
    """Cache of decoded values, for kinds with immutable values: by (name of the kind, key).

    A value depends only on its body. So a decoded or encoded value may be reused while the same body is stored, in any
    snapshot, and even if the transaction that stored it was rolled back. Measured: decoding a stream takes 10 us, a
    scale needs it in two transactions, and the page of a server lists all streams every 5 s. Safe for threads.
    """

    def __init__(self) -> None:
        self._known = BoundedCache[tuple[str, str], tuple[bytes, object]](CACHED_RECORDS_MAX)

    def find(self, kind: str, key: str, body: bytes) -> object | None:
        """Return the value of exactly this body, or None if it is not cached."""
        known = self._known.find((kind, key))
        return known[1] if known is not None and known[0] == body else None

    def keep(self, kind: str, key: str, body: bytes, value: object) -> None:
        """Cache the value of a body and replace an older entry of the key. A long body is not cached."""
        if len(body) > BODY_BYTES_MAX:
            self._known.forget((kind, key))
        else:
            self._known.keep((kind, key), (body, value))


RECORD_CACHE: Final = SharedSlot(RecordCache, in_reads=True)

_UNREAD: Final = object()
"""Not in the cache of the transaction. There, None stands for a record that does not exist."""


def create(tx: Tx, kind: RecordKind[T], key: str, value: T) -> Versioned[T]:
    """Store a new record at version 1. Raises AlreadyExists."""
    kind.verify(key, None, value)
    body = kind.encode(value)
    done = tx.execute(
        "INSERT INTO record (kind, key, version, body) VALUES (?, ?, 1, ?) ON CONFLICT DO NOTHING",
        (kind.name, key, body),
    )
    if done.rowcount != 1:
        raise AlreadyExists(kind=kind.name, name=key)
    return _written(tx, kind, body, Versioned(key, 1, value))


def find(tx: Tx, kind: RecordKind[T], key: str) -> Versioned[T] | None:
    """Return the record, or None. One b-tree lookup and one JSON document; repeated calls in a transaction are free."""
    cached = ("record", kind.name, key)
    found = tx.cache.get(cached, _UNREAD)
    if found is _UNREAD:
        row = tx.execute(
            "SELECT version, body FROM record WHERE kind = ? AND key = ?", (kind.name, key)
        ).fetchone()
        found = None if row is None else Versioned(key, row[0], _decode(tx, kind, key, row[1]))
        tx.remember(cached, found)
    return found  # type: ignore[no-any-return]  # a cast would be one more call


def version_of(tx: Tx, kind: RecordKind[T], key: str) -> int | None:
    """Return the version of a record, None without it: for those that know the record and ask if it changed."""
    row = tx.execute("SELECT version FROM record WHERE kind = ? AND key = ?", (kind.name, key)).fetchone()
    return None if row is None else int(row[0])


def get(tx: Tx, kind: RecordKind[T], key: str) -> Versioned[T]:
    """Return the record. Raises NotFound."""
    if (found := find(tx, kind, key)) is None:
        raise NotFound(kind=kind.name, name=key)
    return found


def decodable(tx: Tx, kind: RecordKind[T], keys: Iterable[str]) -> Iterator[Versioned[T]]:
    """Yield the records of these keys; log those that cannot be decoded."""
    for key in keys:
        try:
            found = find(tx, kind, key)
        except CorruptRecord as why:
            LOG.error("a record is left as it is: %s", why)
        else:
            if found is not None:
                yield found


def replace(tx: Tx, kind: RecordKind[T], before: Versioned[T], value: T) -> Versioned[T]:
    """Replace the record `before` with `value`. Raises VersionConflict if it changed, NotFound if it was deleted."""
    kind.verify(before.key, before.value, value)
    body = kind.encode(value)
    done = tx.execute(
        "UPDATE record SET version = version + 1, body = ? WHERE kind = ? AND key = ? AND version = ?",
        (body, kind.name, before.key, before.version),
    )
    if done.rowcount != 1:
        raise _why_stale(tx, kind, before)
    return _written(tx, kind, body, Versioned(before.key, before.version + 1, value))


def delete(tx: Tx, kind: RecordKind[T], before: Versioned[T]) -> None:
    """Delete the record `before`. Raises VersionConflict if it changed, NotFound if it was deleted."""
    done = tx.execute(
        "DELETE FROM record WHERE kind = ? AND key = ? AND version = ?",
        (kind.name, before.key, before.version),
    )
    if done.rowcount != 1:
        raise _why_stale(tx, kind, before)
    tx.remember(("record", kind.name, before.key), None)


def delete_all(tx: Tx, kind: RecordKind[T], keys: Iterable[str]) -> None:
    """Delete the records of these keys regardless of their versions; for records that no longer change."""
    for key in keys:
        tx.execute("DELETE FROM record WHERE kind = ? AND key = ?", (kind.name, key))
        tx.remember(("record", kind.name, key), None)


def keys(
    tx: Tx, kind: RecordKind[T], *, prefix: str = "", after: str = "", limit: int = NO_LIMIT
) -> list[str]:
    """Return the sorted keys of a kind that begin with `prefix` and sort after `after`, at most `limit`."""
    # One lower bound: of two, SQLite seeks to the first and reads each row up to the second.
    is_behind = after >= prefix
    rows = tx.execute(
        f"SELECT key FROM record WHERE kind = ? AND key {'>' if is_behind else '>='} ? AND key < ?"
        " ORDER BY key LIMIT ?",
        (kind.name, after if is_behind else prefix, prefix + "\U0010ffff", limit),
    )
    return [row[0] for row in rows]


def bodies(tx: Tx, kind: RecordKind[T]) -> list[tuple[str, bytes]]:
    """Return the sorted keys of a kind, each with what is stored, to be decoded by the kind. One query."""
    rows = tx.execute("SELECT key, body FROM record WHERE kind = ? ORDER BY key", (kind.name,))
    return [(key, bytes(body)) for key, body in rows]


def keys_containing(tx: Tx, kind: RecordKind[T], text: str) -> list[str]:
    """Return the sorted keys of a kind whose stored JSON contains `text`. Cost: reads the rows, and decodes none."""
    searched = text.encode()
    return [key for key, body in bodies(tx, kind) if searched in body]


def count_keys(tx: Tx, kind: RecordKind[T], *, prefix: str = "") -> int:
    """Return how many keys of a kind begin with `prefix`. Cost: reads the rows, and decodes none."""
    query = "SELECT count(*) FROM record WHERE kind = ? AND key >= ? AND key < ?"
    return find_number(tx, query, kind.name, prefix, prefix + "\U0010ffff") or 0


def _written(tx: Tx, kind: RecordKind[T], body: bytes, after: Versioned[T]) -> Versioned[T]:
    """Cache the record just written, and return it."""
    tx.remember(("record", kind.name, after.key), after)
    if kind.immutable:
        tx.shared[RECORD_CACHE].keep(kind.name, after.key, body, after.value)
    return after


def _decode(tx: Tx, kind: RecordKind[T], key: str, body: bytes) -> T:
    if not kind.immutable:
        return kind.decode(key, body)
    known = tx.shared[RECORD_CACHE]
    value = cast("T | None", known.find(kind.name, key, body))
    if value is None:
        value = kind.decode(key, body)
        known.keep(kind.name, key, body, value)
    return value


def _why_stale(tx: Tx, kind: RecordKind[T], before: Versioned[T]) -> VersionConflict | NotFound:
    if (actual := version_of(tx, kind, before.key)) is None:
        return NotFound(kind=kind.name, name=before.key)
    return VersionConflict(key=f"{kind.name} {before.key}", expected=before.version, actual=actual)
