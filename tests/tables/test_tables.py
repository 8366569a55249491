"""Key-value tables: conditions, whole batches, and what was written since a position."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random

import anyio
import pytest
from hypothesis import given, strategies as st

import eventproc
from eventproc.store import tables
from eventproc.store.database import Database, Tx
from eventproc.store.inspection.streams import catalog_violations
from eventproc.store.key_value_tables import KeyValueTable, create_key_value_table, delete_key_value_table
from eventproc.store.model.errors import InvalidArgument, NotFound, VersionConflict
from eventproc.store.tables import (
    ANY_VERSION,
    NO_VERSION,
    TableEntry,
    create_table,
    delete_table,
    drop_entries,
    entries_after,
    entries_since,
    get_entries,
    get_table,
    remove_entries,
    update_entries,
)
from eventproc.workflows import scopes
from eventproc.workflows.requests import DeleteScope
from eventproc.workflows.scopes import create_scope
from tests.support.sqlite import instructions
from tests.workflows.support import open_life

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


async def test_a_deleted_table_is_gone_and_its_entries_are_freed_in_bounded_steps(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "DROP_ENTRIES", 10)

    def fill(tx: Tx, count: int) -> None:
        create_table(tx, NAME)
        entries = [TableEntry(b"%d" % number, b"v", NO_VERSION) for number in range(count)]
        update_entries(tx, NAME, entries)

    def delete(tx: Tx) -> int:
        return instructions(tx.connection, lambda: delete_table(tx, NAME))

    async def left() -> int:
        found = await db.read(lambda tx: tx.execute("SELECT count(*) FROM kentry").fetchone())
        return int(found[0])

    await db.write(partial(fill, count=1))
    few = await db.write(delete)
    await db.write(partial(fill, count=95))
    assert await db.write(delete) <= few + 10
    with pytest.raises(NotFound, match="table"):
        await db.read(lambda tx: get_table(tx, "/1"))
    with pytest.raises(InvalidArgument, match="empty"):
        await db.write(partial(create_table, name="/1"))
    await db.write(partial(fill, count=5))
    steps = [await left()]
    while await db.write(drop_entries):
        steps.append(await left())
    assert steps[-1] == 5
    assert max(before - after for before, after in pairwise(steps)) == 10
    monkeypatch.setattr(tables, "DROP_BYTES", 3)
    await db.write(delete)
    await db.write(drop_entries)
    assert await left() == 3  # two entries of a key and a value of one byte each reach the bound


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


async def test_a_key_value_table_that_lost_a_partition_is_found_by_the_checks(db: Database) -> None:
    table = KeyValueTable(name="s/t", partitions=3, primary_key_length=2, secondary_key_length=0)

    def make(tx: Tx) -> None:
        create_scope(tx, "s")
        assert create_key_value_table(tx, table)
        assert not create_key_value_table(tx, table)

    await db.write(make)
    assert await db.read(lambda tx: list(catalog_violations(tx))) == []
    await db.write(partial(delete_table, name=table.segments[1]))
    (line,) = await db.read(lambda tx: list(catalog_violations(tx)))
    assert line == "the key-value table s/t has no partition s/t_kvtable/1.#epoch.0"
    await db.write(partial(delete_key_value_table, name="s/t"))
    assert await db.read(lambda tx: list(catalog_violations(tx))) == []


KEYS = st.binary(min_size=1, max_size=3)
BOUNDS = st.binary(max_size=3)


@given(st.dictionaries(KEYS, st.binary(max_size=2)), BOUNDS, BOUNDS, BOUNDS, st.integers(1, 4))
def test_pages_of_a_range_have_the_entries_that_a_dict_has(
    twin: dict[bytes, bytes], after: bytes, first: bytes, last: bytes, count: int
) -> None:
    def act(tx: Tx) -> None:
        for name in (NAME, "s/a", "s/z"):  # the neighbours have other values
            create_table(tx, name)
            entries = [
                TableEntry(key, value if name == NAME else b"other", ANY_VERSION)
                for key, value in twin.items()
            ]
            update_entries(tx, name, entries)
        table, found, behind = get_table(tx, NAME), list[TableEntry](), after
        while page := entries_after(tx, table, behind, count, first=first, last=last):
            assert len(page) <= count
            found += page
            behind = page[-1].key
        assert [(each.key, each.value) for each in found] == [
            (key, value)
            for key, value in sorted(twin.items())
            if key > after and key >= first and (not last or key <= last)
        ]

    async def main() -> None:
        async with eventproc.open_memory() as ep:
            await ep.db.write(act)

    anyio.run(main)


async def test_a_range_is_read_without_a_look_at_the_keys_outside(db: Database) -> None:
    """Half of the keys lie before the range, and half behind it."""

    def fill(tx: Tx) -> None:
        create_table(tx, NAME)
        update_entries(tx, NAME, [TableEntry(b"%06d" % number, b"v", NO_VERSION) for number in range(2_000)])

    def cost(tx: Tx, after: bytes, first: bytes) -> int:
        table, last = get_table(tx, NAME), b"001001"
        return instructions(
            tx.connection, lambda: entries_after(tx, table, after, 1_000, first=first, last=last)
        )

    await db.write(fill)
    for after, first in ((b"", b"001000"), (b"000999", b"000000"), (b"000999", b"001000")):
        assert await db.write(partial(cost, after=after, first=first)) < 200


@pytest.mark.parametrize("recursive", [False, True], ids=["empty scope", "recursive"])
async def test_a_scope_is_deleted_with_any_number_of_tables_in_bounded_steps(
    recursive: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scopes, "TABLES_A_STEP", 2)

    def make(tx: Tx) -> None:
        for scope in ("s", "s-b"):
            for number in range(5):
                name = f"{scope}/table{number}"
                create_table(tx, name)
                update_entries(tx, name, [TableEntry(b"k", b"v", NO_VERSION)])

    def look(tx: Tx, sql: str) -> list[str]:
        return [row[0] for row in tx.execute(sql).fetchall()]

    async with open_life() as life:
        await life.ep.create_scope("s")
        await life.ep.create_scope("s-b")
        await life.db.write(make)
        if recursive:
            await life.done(DeleteScope("s"))
        else:
            await life.ep.delete_scope("s")
        while await life.db.write(drop_entries):
            pass
        left = await life.db.read(partial(look, sql="SELECT name FROM ktable ORDER BY name"))
        assert left == [f"s-b/table{number}" for number in range(5)]
        assert len(await life.db.read(partial(look, sql="SELECT key FROM kentry"))) == 5
