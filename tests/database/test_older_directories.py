"""Directories that earlier versions made: they keep their data, and everything of this version works in them."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import open_database
from eventproc.store.inspection.schema_check import differences, expected_tables, found_tables
from eventproc.store.schema import add_attributes
from eventproc.testing import check


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # directories can be opened on asyncio only


@pytest.mark.parametrize(("schema", "has_tables"), [(1, False), (1, True), (2, False)])
async def test_a_directory_of_an_older_schema_works_as_a_new_one(
    tmp_path: Path, schema: int, has_tables: bool
) -> None:
    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS[:schema]) as db:
        if has_tables:
            await db.write(add_attributes)  # while the number is still that of the first
    async with eventproc.open(tmp_path / "data") as ep:
        assert differences(await expected_tables(), await ep.db.read(found_tables)) == []
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await stream.split(0)
        await stream.seal()
        await stream.delete()
        await check(ep.db)
