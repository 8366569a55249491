"""Groups when their scope is deleted."""

from __future__ import annotations

import pytest

from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound, ScopeNotEmpty
from tests.groups.support import written


def rows_of_groups(tx: Tx) -> list[int]:
    tables = (
        "group_segment WHERE group_name LIKE 's/%'",
        "group_member",
        "record WHERE kind IN ('group', 'log')",
    )
    return [tx.execute(f"SELECT count(*) FROM {each}").fetchone()[0] for each in tables]


async def test_a_scope_with_groups_is_not_empty(ep: Eventproc) -> None:
    await ep.create_scope("other")
    await written(ep, 1, name="other/t")
    group = await ep.create_group("s/g", ["other/t"])
    with pytest.raises(ScopeNotEmpty, match="has 0 streams and 1 group"):
        await ep.delete_scope("s")
    assert (await group.describe()).events == 1
    await group.delete()
    await ep.delete_scope("s")


async def test_the_groups_of_a_scope_that_is_not_there_are_not_found(ep: Eventproc) -> None:
    assert await ep.groups("s") == []
    with pytest.raises(NotFound, match="nope"):
        await ep.groups("nope")


async def test_a_scope_that_is_deleted_with_all_that_is_in_it_takes_its_groups_along(ep: Eventproc) -> None:
    await ep.create_scope("other")
    await written(ep, 1, name="s/t")
    await written(ep, 3, name="other/t")
    stays = await ep.create_group("other/g", ["s/t"])
    await ep.create_group("s/h", ["other/t"])
    group = await ep.create_group("s/g", ["s/t", "other/t"])
    async with group.reader("a") as reader:
        events = aiter(reader)
        await anext(events)
        await ep.delete_scope("s", recursive=True)
        with pytest.raises(NotFound):
            async for _ in events:
                pass
    assert [each.name for each in await ep.groups()] == ["other/g"]
    assert (await stays.describe()).replaced == ("s/t",)
    await stays.delete()
    assert await ep.db.read(rows_of_groups) == [0, 0, 0]
    await ep.create_scope("s")
    with pytest.raises(NotFound):
        await ep.group("s/g")
