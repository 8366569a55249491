"""The state of a processor by key: a row for each key, changed in the transaction that moves the progress.

See docs/design/key-state.md, and docs/design/event-time.md for the timers of keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from math import ceil
from operator import itemgetter
from typing import Final, NamedTuple

import attrs

from eventproc.store.database import SqlValue, Tx, upsert
from eventproc.store.model.errors import NotFound
from eventproc.store.model.limits import POINT_BITS
from eventproc.store.model.list_pages import ListPage, seen_entries
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.routing import point
from eventproc.store.payload_pages import page_of_rows
from eventproc.store.records import RecordKind, create, decodable, delete, find, get, keys, replace

KEYS_A_STATEMENT: Final = 100
"""Keys that one statement looks up or stores. Lower: the thread hands the interpreter over for each row. Of one size,
it is prepared once."""

RANGES_A_QUERY: Final = 100
"""Parts of the key space in which one statement looks for timers. An owner's parts are few: neighbours are one. Higher:
longer statements, which SQLite bounds at about a thousand. Lower: more of them."""

EXPIRED_A_STEP: Final = 1_000
"""Rows of expired keys that one transaction of the sweep deletes: some 10 ms."""

DROPPED_A_STEP: Final = 5_000
"""Rows that one transaction of `drop` or the sweep deletes: some 20 ms. Higher: it holds up all writers for longer."""


class StoredState(NamedTuple):
    """The state of a key as it is stored.

    version: that of its class. expires_ms: wall time; None: never. timer_ms: the event time at which the key is called;
    None: it has no timer.
    """

    key: str
    value: bytes
    version: int
    expires_ms: int | None
    timer_ms: int | None = None


class KeyChange(NamedTuple):
    """A change of the state of a key. value: None removes it, with its timer."""

    key: str
    value: bytes | None
    timer_ms: int | None = None


@attrs.frozen(kw_only=True)
class StateRecord:
    """The record of the state of a processor's group.

    stream_id: of the stream whose keys have a state.
    payload: name of the class of the values, for people.
    versions: those of which there may be rows.
    """

    group: str
    stream: str
    stream_id: int
    payload: str
    versions: tuple[int, ...]


STATE: Final = RecordKind(name="key state", value=StateRecord)
DROPPED: Final = RecordKind(name="dropped key state", value=StateRecord)
"""What a group kept until it was deleted, or its stream made again: the sweep deletes the rows. Key: `dropped_key`."""

_COLUMNS: Final = "key, value, version, expires_ms, timer_ms"
_LOOK_UP: Final = (
    f"SELECT {_COLUMNS} FROM key_state WHERE stream_id = ? AND group_name = ?"
    f" AND key IN ({', '.join('?' * KEYS_A_STATEMENT)})"
)
_STORE: Final = upsert(
    "key_state", "stream_id, group_name, key", "value, version, expires_ms, timer_ms, key_point"
)
_ROW: Final = "(?, ?, ?, ?, ?, ?, ?, ?)"
_STORE_MANY: Final = _STORE.replace(_ROW, ", ".join([_ROW] * KEYS_A_STATEMENT))


def list_state_records(tx: Tx, page: ListPage) -> list[StateRecord]:
    """Return a page of the records by the names of their groups, of which its reader may know the stream of the keys.

    Cost: one query, and a look-up each; with a filter, as `chosen_entries`.
    """

    def read(part: ListPage) -> list[StateRecord]:
        return [
            get(tx, STATE, group).value for group in keys(tx, STATE, after=part.after or "", limit=part.most)
        ]

    return seen_entries(
        read, lambda each: page.allows(each.group, each.stream), lambda each: each.group, page
    )


def find_state(tx: Tx, group: str) -> StateRecord:
    """Return the record of a group's state. Raises NotFound: its processor keeps none, or has never run."""
    found = find(tx, STATE, group)
    if found is None:
        raise NotFound(kind="state by key", name=group)
    return found.value


def declare_state(tx: Tx, record: StateRecord) -> tuple[int, ...]:
    """Note the versions in `record`; return all of which there may be rows.

    The state of a stream that had the name before is deleted. For a group that was deleted and made again, rows that
    the sweep has not reached are deleted in this transaction.
    """
    found = find(tx, STATE, record.group)
    if found is None:
        if (dropped := find(tx, DROPPED, dropped_key(record.group, record.stream_id))) is not None:
            tx.execute(
                "DELETE FROM key_state WHERE stream_id = ? AND group_name = ?",
                (record.stream_id, record.group),
            )
            delete(tx, DROPPED, dropped)
        create(tx, STATE, record.group, record)
        return record.versions
    before = found.value
    if before.stream_id != record.stream_id:
        _drop(tx, before)
        before = attrs.evolve(before, versions=())
    record = attrs.evolve(record, versions=tuple(sorted({*before.versions, *record.versions})))
    if record != found.value:
        replace(tx, STATE, found, record)
    return record.versions


def forget_version(tx: Tx, group: str, version: int) -> StoredState | None:
    """Return a row of a version; without one, forget that there were any. Reads the rows until it finds one."""
    found = get(tx, STATE, group)
    record = found.value
    row = tx.execute(
        f"SELECT {_COLUMNS} FROM key_state WHERE stream_id = ? AND group_name = ? AND version = ? ORDER BY key LIMIT 1",
        (record.stream_id, group, version),
    ).fetchone()
    if row is not None:
        return _stored(row)
    left = tuple(each for each in record.versions if each != version)
    replace(tx, STATE, found, attrs.evolve(record, versions=left))
    return None


def look_up(tx: Tx, stream_id: int, group: str, keys: Sequence[str]) -> list[StoredState]:
    """Return the states of keys, without those that have none or have expired. One statement per 100 keys."""
    found: list[StoredState] = []
    for at in range(0, len(keys), KEYS_A_STATEMENT):
        some = [each.encode() for each in keys[at : at + KEYS_A_STATEMENT]]
        some += some[-1:] * (KEYS_A_STATEMENT - len(some))
        found += map(_stored, tx.execute(_LOOK_UP, (stream_id, group, *some)).fetchall())
    return [each for each in found if each.expires_ms is None or each.expires_ms > tx.now_ms]


def store_changes(
    tx: Tx,
    stream_id: int,
    group: str,
    changes: Iterable[KeyChange],
    *,
    version: int,
    ttl_ms: int | None,
) -> None:
    """Store the last change of each key. A row each."""
    last = {each.key: each for each in changes}
    expires_ms = None if ttl_ms is None else tx.now_ms + ttl_ms
    stored = [
        (stream_id, group, key.encode(), value, version, expires_ms, timer_ms, _key_point(key, timer_ms))
        for key, value, timer_ms in sorted(last.values(), key=itemgetter(0))  # neighbours share pages
        if value is not None
    ]
    _store(tx, stored)
    if len(stored) < len(last):
        _delete_keys(
            tx, stream_id, group, [each.key.encode() for each in last.values() if each.value is None]
        )


def store_states(tx: Tx, stream_id: int, group: str, states: Iterable[StoredState]) -> None:
    """Store the states of keys, of which each comes once. A row each."""
    _store(
        tx,
        [
            (stream_id, group, each.key.encode(), *each[1:], _key_point(each.key, each.timer_ms))
            for each in states
        ],
    )


def due_timers(
    tx: Tx, stream_id: int, group: str, reached_ms: int, within: Sequence[KeyRange], limit: int
) -> list[tuple[str, int]]:
    """Return the keys whose timers are due, and these, the earliest first. One query by an index for some ranges.

    within: parts of the key space, which share no point. limit: at most so many for each query.
    """
    found: list[tuple[str, int]] = []
    for at in range(0, len(within), RANGES_A_QUERY):
        some = within[at : at + RANGES_A_QUERY]
        rows = tx.execute(
            "SELECT key, timer_ms FROM key_state WHERE stream_id = ? AND group_name = ? AND timer_ms <= ?"
            f" AND ({' OR '.join(['key_point >= ? AND key_point < ?'] * len(some))})"
            " AND (expires_ms IS NULL OR expires_ms > ?) ORDER BY timer_ms, key_point, key LIMIT ?",
            (
                *(stream_id, group, reached_ms),
                *(_scaled(border) for each in some for border in (each.low, each.high)),
                *(tx.now_ms, limit),
            ),
        )
        found += [(bytes(key).decode(), timer_ms) for key, timer_ms in rows]
    return found


def list_states(
    tx: Tx, group: str, *, first: str | None, last: str | None, after: str | None, limit: int
) -> list[StoredState]:
    """Return a page of the states of keys from `first` to before `last`, behind `after`, sorted by key.

    Raises NotFound. Two queries by the key.
    """
    record = find_state(tx, group)
    found = "FROM key_state WHERE stream_id = ? AND group_name = ? AND (expires_ms IS NULL OR expires_ms > ?)"
    parameters: list[SqlValue] = [record.stream_id, group, tx.now_ms]
    for compare, bound in ((">=", first), ("<", last), (">", after)):
        if bound is not None:
            found += f" AND key {compare} ?"
            parameters.append(bound.encode())
    rows = page_of_rows(tx, _COLUMNS, "length(value)", f"{found} ORDER BY key", parameters, limit)
    return [_stored(row) for row in rows]


def measure_state(tx: Tx, record: StateRecord) -> tuple[int, int]:
    """Return how many keys have a state, and its bytes without the keys. Reads all rows."""
    row = tx.execute(
        "SELECT count(*), coalesce(sum(length(value)), 0) FROM key_state WHERE stream_id = ? AND group_name = ?"
        " AND (expires_ms IS NULL OR expires_ms > ?)",
        (record.stream_id, record.group, tx.now_ms),
    ).fetchone()
    return int(row[0]), int(row[1])


def drop_step(tx: Tx, group: str) -> int:
    """Delete some rows of a group's state, and its record behind the last one; return how many rows."""
    found = find(tx, STATE, group)
    if found is None:
        return 0
    count = _delete_some(tx, found.value)
    if count < DROPPED_A_STEP:
        _delete_watermark(tx, found.value)
        delete(tx, STATE, found)
    return count


def drop_keys(tx: Tx, group: str, keys: Sequence[str]) -> int:
    """Delete the states of keys, of which each comes once; return how many had one. Raises NotFound."""
    stream_id = find_state(tx, group).stream_id
    found = look_up(tx, stream_id, group, keys)
    _delete_keys(tx, stream_id, group, [each.key.encode() for each in found])
    return len(found)


def delete_state(tx: Tx, group: str) -> None:
    """Delete the state of a group that is deleted; its rows go with the sweep."""
    found = find(tx, STATE, group)
    if found is not None:
        _drop(tx, found.value)
        delete(tx, STATE, found)


def forget_expired(tx: Tx) -> bool:
    """Delete some rows that have expired. Return whether there may be more."""
    rows = tx.execute(
        "SELECT stream_id, group_name, key FROM key_state WHERE expires_ms <= ?"
        " ORDER BY expires_ms, stream_id, group_name, key LIMIT ?",
        (tx.now_ms, EXPIRED_A_STEP),
    ).fetchall()
    tx.executemany("DELETE FROM key_state WHERE stream_id = ? AND group_name = ? AND key = ?", rows)
    return len(rows) == EXPIRED_A_STEP


def forget_dropped(tx: Tx) -> bool:
    """Delete some rows of a dropped state. Return whether there may be more."""
    for found in decodable(tx, DROPPED, keys(tx, DROPPED)):
        if _delete_some(tx, found.value) < DROPPED_A_STEP:
            delete(tx, DROPPED, found)
        return True
    return False


def dropped_key(group: str, stream_id: int) -> str:
    """Return the key of the record of a group's state that was dropped, of which there may be rows."""
    return f"{group} {stream_id}"


def _stored(row: Sequence[object]) -> StoredState:
    key, value, *others = row
    return StoredState(bytes(key).decode(), bytes(value), *others)  # type: ignore[call-overload, arg-type]


def _key_point(key: str, timer_ms: int | None) -> int | None:
    return None if timer_ms is None else _scaled(point(key))


def _scaled(place: float) -> int:
    """Return the lowest whole number that stands for a point at this place of the key space, or behind it."""
    return ceil(place * float(1 << POINT_BITS))


def _store(tx: Tx, rows: Sequence[Sequence[SqlValue]]) -> None:
    rest = len(rows) % KEYS_A_STATEMENT
    for at in range(rest, len(rows), KEYS_A_STATEMENT):
        tx.execute(_STORE_MANY, list(chain.from_iterable(rows[at : at + KEYS_A_STATEMENT])))
    if rest:
        tx.executemany(_STORE, rows[:rest])


def _delete_keys(tx: Tx, stream_id: int, group: str, keys: Iterable[bytes]) -> None:
    tx.executemany(
        "DELETE FROM key_state WHERE stream_id = ? AND group_name = ? AND key = ?",
        [(stream_id, group, key) for key in keys],
    )


def _delete_some(tx: Tx, record: StateRecord) -> int:
    """Delete some rows of a state; return how many."""
    where = (record.stream_id, record.group)
    rows = tx.execute(
        "SELECT key FROM key_state WHERE stream_id = ? AND group_name = ? ORDER BY key LIMIT ?",
        (*where, DROPPED_A_STEP),
    ).fetchall()
    _delete_keys(tx, *where, [bytes(key) for (key,) in rows])
    return len(rows)


def _drop(tx: Tx, record: StateRecord) -> None:
    """Delete the watermark, and let the sweep delete the rows, which may be many."""
    _delete_watermark(tx, record)
    create(tx, DROPPED, dropped_key(record.group, record.stream_id), record)


def _delete_watermark(tx: Tx, record: StateRecord) -> None:
    tx.execute(
        "DELETE FROM watermark WHERE stream_id = ? AND group_name = ?", (record.stream_id, record.group)
    )
