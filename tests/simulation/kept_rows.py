"""Functions that say to the rows of which streams they keep do so: a server commits them at once with others.

Some of the commits of a simulation that say it run twice before they run: once as they are, once with the rows of all
other streams gone. Both must do the same, and change rows of their own streams only. So no function of another stream
that is committed meanwhile can change what one does, at whichever of its statements.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

COLUMNS = {
    "extent": "segment, start, length, first_number, count, first_time, last_time, place IS NULL, place_offset, inline",
    "delayed_event": "event_id, stream_id, due_ms, payload, routing_key, headers, failure",
    "blob": "format, chunk, checksum, ends, keys, positions, times, event_times, headers, data",
}
"""What of a row is compared, if not everything: ids of blobs and of delayed events differ."""

CHECKED = 0.2
"""Share of the functions that are checked."""

_CHANGES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}


class SameBytes:
    """A clock whose random bytes are always the same."""

    def __init__(self, clock: Any) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._clock, name)

    def random_bytes(self, count: int) -> bytes:
        return bytes(count)


@contextmanager
def checking_kept_rows(opening: type, tables: Sequence[str], seed: int) -> Iterator[list[int]]:
    """Check functions of every opening of that class; yields a list with the number of checked ones.

    tables: those of which they may change rows.
    """
    random, checked = Random(seed), [0]
    write = opening.write  # type: ignore[attr-defined]

    async def checking_write(self: Any, fn: Callable[[Any], object], **options: Any) -> object:
        streams = options.get("streams")
        if streams is None or random.random() >= CHECKED:
            return await write(self, fn, **options)

        def check_and_run(tx: Any) -> object:
            _check(tx, fn, streams, tables)
            checked[0] += 1
            return fn(tx)

        return await write(self, check_and_run, **options)

    with patch.object(opening, "write", checking_write):
        yield checked


def _check(tx: Any, fn: Callable[[Any], object], streams: Collection[str], tables: Sequence[str]) -> None:
    tx.flush_pending()
    clock, tx.clock = tx.clock, SameBytes(tx.clock)
    marks = ", ".join("?" * len(streams))
    found = tx.execute(
        f"SELECT CAST(json_extract(substr(body, 3), '$.stream_id') AS INTEGER) FROM record"
        f" WHERE kind = 'stream' AND key IN ({marks}) UNION SELECT stream_id FROM reap WHERE name IN ({marks})",
        (*streams, *streams),
    )
    ids = ", ".join(str(each) for (each,) in found)
    try:
        beside, alone = (_outcome(tx, fn, ids, tables, hides=hides) for hides in (False, True))
    finally:
        tx.clock = clock
    assert beside == alone, f"a function of {streams} depends on rows of other streams: {beside} and {alone}"


def _outcome(tx: Any, fn: Callable[[Any], object], ids: str, tables: Sequence[str], *, hides: bool) -> object:
    """Run a function, undo it, and return its result and the rows of its streams."""
    mark, changed = tx.mark(), set[str]()
    tx.execute("SAVEPOINT kept")
    try:
        if hides:
            for table in tables:
                tx.execute(f"DELETE FROM {table} WHERE stream_id NOT IN ({ids})")
        others = _rows(tx, tables, f"stream_id NOT IN ({ids})")

        def note(action: int, table: str | None, *_: object) -> int:
            if action in _CHANGES and table is not None:
                changed.add(table)
            return sqlite3.SQLITE_OK

        tx.connection.set_authorizer(note)
        try:
            result = repr(fn(tx))
            tx.flush_pending()
        except Exception as why:
            result = repr(why)
        finally:
            tx.connection.set_authorizer(None)
        assert changed <= {*tables}, f"it changes {changed}"
        assert others == _rows(tx, tables, f"stream_id NOT IN ({ids})"), "it changes rows of other streams"
        return result, _rows(tx, tables, f"stream_id IN ({ids})")
    finally:
        tx.execute("ROLLBACK TO kept")
        tx.execute("RELEASE kept")
        tx.rewind(mark)
        tx.drop_pending()
        tx.known.forget()


def _rows(tx: Any, tables: Sequence[str], where: str) -> dict[str, list[tuple[object, ...]]]:
    return {
        table: sorted(
            tx.execute(f"SELECT {COLUMNS.get(table, '*')} FROM {table} WHERE {where}").fetchall(), key=repr
        )
        for table in tables
    }
