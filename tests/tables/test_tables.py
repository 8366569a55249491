"""Key-value tables: conditions, whole batches, and what was written since a position."""

from __future__ import annotations

from functools import partial
from random import Random

import pytest

from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import NotFound, VersionConflict
from eventproc.store.tables import (
    ANY_VERSION,
    NO_VERSION,
    TableEntry,
    create_table,
    delete_table,
    entries_after,
    entries_since,
    get_entries,
    get_table,
    remove_entries,
    update_entries,
)

NAME = "s/group_kvtable/0.#epoch.0"


async def update(db: Database, *entries: tuple[bytes, bytes, int]) -> list[int]:
    return await db.write(partial(update_entries, name=NAME, entries=[TableEntry(*each) for each in entries]))


async def test_a_table_is_created_once_and_deleted_with_its_entries(db: Database) -> None:
    assert await db.write(partial(create_table, name=NAME))
    assert not await db.write(partial(create_table, name=NAME))
    await update(db, (b"k", b"v", ANY_VERSION))
    await db.write(partial(delete_table, name=NAME))
    with pytest.raises(NotFound, match="table"):
        await update(db, (b"k", b"v", ANY_VERSION))
    assert await db.write(partial(create_table, name=NAME))
    assert (await db.read(lambda tx: get_entries(tx, get_table(tx, NAME), [b"k"])))[0].version == NO_VERSION


async def test_a_batch_is_checked_against_the_state_before_it(db: Database) -> None:
    """The Rust client sends a key four times with the same condition when it creates a group."""
    await db.write(partial(create_table, name=NAME))
    versions = await update(db, (b"k", b"1", NO_VERSION), (b"k", b"2", NO_VERSION))
    assert versions == sorted(set(versions))
    (found,) = await db.read(lambda tx: get_entries(tx, get_table(tx, NAME), [b"k"]))
    assert (found.value, found.version) == (b"2", versions[-1])


async def test_a_refused_condition_changes_nothing(db: Database) -> None:
    await db.write(partial(create_table, name=NAME))
    (version,) = await update(db, (b"k", b"1", NO_VERSION))
    with pytest.raises(VersionConflict):
        await update(db, (b"other", b"", NO_VERSION), (b"k", b"2", NO_VERSION))
    with pytest.raises(VersionConflict):
        await update(db, (b"other", b"", NO_VERSION), (b"k", b"2", version + 1))
    with pytest.raises(NotFound, match="key"):
        await update(db, (b"k", b"2", version), (b"other", b"", version))
    with pytest.raises(VersionConflict):
        await db.write(partial(remove_entries, name=NAME, keys=[(b"k", version + 1)]))
    entries = await db.read(lambda tx: entries_after(tx, get_table(tx, NAME), b"", 9))
    assert entries == [TableEntry(b"k", b"1", version)]


async def test_pages_of_a_delta_give_the_latest_entries_in_the_order_of_writing(db: Database) -> None:
    random, twin = Random(7), dict[bytes, bytes]()

    def act(tx: Tx) -> None:
        create_table(tx, NAME)
        for number in range(200):
            key, value = b"%d" % random.randrange(20), b"%d" % number
            twin.pop(key, None)
            if random.random() < 0.7:
                update_entries(tx, NAME, [TableEntry(key, value, ANY_VERSION)])
                twin[key] = value
            else:
                remove_entries(tx, NAME, [(key, ANY_VERSION)])
            for page in (1, 3):
                assert _delta(tx, page) == list(twin.items())

    await db.write(act)


def _delta(tx: Tx, page: int) -> list[tuple[bytes, bytes]]:
    found: list[tuple[bytes, bytes]] = []
    position, table = 0, get_table(tx, NAME)
    while (delta := entries_since(tx, table, position, page)).entries:
        assert delta.position > position
        position = delta.position
        found += [(entry.key, entry.value) for entry in delta.entries]
    assert position <= table.tail
    return found
