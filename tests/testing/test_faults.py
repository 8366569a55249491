"""Injected deaths, kills and full disks: each happens where it was asked for, and nowhere else."""

from __future__ import annotations

import pytest

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import Tx
from eventproc.store.database.memory_database import open_memory_database
from eventproc.store.faults import WRITE_BEGUN, Died
from eventproc.store.model.errors import DiskFull
from eventproc.testing import Deaths, disk_full, run_until_death


def _count_up(tx: Tx) -> None:
    tx.execute(
        "INSERT INTO counter VALUES ('test', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 WHERE name = 'test'"
    )


def _count(tx: Tx) -> int:
    row = tx.execute("SELECT value FROM counter WHERE name = 'test'").fetchone()
    return 0 if row is None else int(row[0])


@pytest.mark.parametrize("nth", [1, 3])
async def test_a_death_before_a_commit_loses_it_and_a_death_after_it_does_not(nth: int) -> None:
    for kept, die in ((nth - 1, Deaths.die_before_commit), (nth, Deaths.die_after_commit)):
        faults = Deaths()
        async with open_memory_database(migrations=SYSTEM_MIGRATIONS, faults=faults) as db:
            die(faults, nth)
            for _ in range(nth - 1):
                await db.write(_count_up)
            with pytest.raises(Died):
                await db.write(_count_up)
            with pytest.raises(Died):
                await db.write(_count_up)
            faults.heal()
            assert await db.read(_count) == kept


async def test_a_named_point_is_deadly_when_it_is_reached() -> None:
    faults = Deaths()
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS, faults=faults) as db:
        faults.die_at(WRITE_BEGUN)

        async def main() -> None:
            await db.write(_count_up)

        assert await run_until_death(main)
        faults.heal()
        assert not await run_until_death(main)
        assert (await db.read(_count), faults.commits) == (1, 1)


async def test_what_is_no_death_is_raised() -> None:
    async def main() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await run_until_death(main)


async def test_a_full_disk_refuses_what_needs_room_and_nothing_is_broken() -> None:
    async with open_memory_database(migrations=SYSTEM_MIGRATIONS) as db:

        def grow(tx: Tx) -> None:
            tx.execute("INSERT INTO record VALUES ('x', 'y', 1, zeroblob(100000))")

        async with disk_full(db):
            with pytest.raises(DiskFull):
                await db.write(grow)
        await db.write(grow)
