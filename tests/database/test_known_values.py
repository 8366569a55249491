"""What a commit batch has read is known to the next ones, until something else changes the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eventproc.store.database import Database, Tx
from tests.database.support import (
    MIGRATIONS,
    Refused,
    World,
    backend_of,
    insert,
    on_sqlite,
    open_database,
    open_world,
)


@pytest.fixture
def anyio_backend(form: str) -> tuple[str, dict[str, object]]:
    return backend_of(form)


@pytest.fixture
async def known(world: World) -> Database:
    """A database whose last batch knew the number of its rows."""
    await world.db.write(insert("first"))
    await world.db.write(keep("second"))
    return world.db


def keep(name: str) -> Callable[[Tx], None]:
    def fn(tx: Tx) -> None:
        count: int | None = tx.known.find("count", tx)
        if count is None:
            (count,) = tx.execute("SELECT count(*) FROM item").fetchone()
            assert count is not None
        tx.known.begin(tx)
        insert(name)(tx)
        tx.known.keep({"count": count + 1}, tx)

    return fn


def find(tx: Tx) -> int | None:
    count: int | None = tx.known.find("count", tx)
    return count


@pytest.mark.linux  # elsewhere no process looks at how far the log goes
async def test_value_that_was_kept_with_its_rows_is_known_to_the_next_batch(known: Database) -> None:
    assert await known.write(find) == 2
    await known.write(keep("third"))
    assert await known.write(find) == 3


async def test_value_is_forgotten_when_other_rows_are_written(known: Database) -> None:
    await known.write(insert("third"))
    assert await known.write(find) is None


async def test_value_is_forgotten_when_its_rows_are_rolled_back(known: Database) -> None:
    def fail(tx: Tx) -> None:
        keep("third")(tx)
        raise Refused

    with pytest.raises(Refused):
        await known.write(fail)
    assert await known.write(find) is None


async def test_read_knows_nothing_and_keeps_nothing(known: Database) -> None:
    assert await known.read(find) is None
    await known.read(lambda tx: tx.known.keep({"count": 2}, tx))
    assert await known.read(find) is None


@pytest.mark.linux  # elsewhere no process looks at how far the log goes
@on_sqlite
async def test_value_is_forgotten_when_another_connection_commits(tmp_path: Path, form: str) -> None:
    async with open_world(form, tmp_path / "store") as world:
        if world.db.path is None:
            return
        await world.db.write(insert("first"))
        await world.db.write(keep("second"))
        async with open_database(world.db.path, migrations=MIGRATIONS) as other:
            await other.write(insert("third"))
            assert await world.db.write(find) is None
            await world.db.write(keep("fourth"))
            assert await world.db.write(find) == 4
        with closing(sqlite3.connect(world.db.path / "eventproc.db")) as foreign, foreign:
            foreign.execute("INSERT INTO item VALUES ('fifth')")
        assert await world.db.write(find) is None
