"""The state synchronizer as users have it: by name in an open directory, through the public API only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import Eventproc, ReplicatedType
from eventproc.errors import AlreadyExists, InvalidArgument, NotFound, ScopeNotEmpty

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"])


@dataclass(frozen=True)
class Stock:
    """How many of each item there are."""

    items: tuple[tuple[str, int], ...] = ()

    def count(self, item: str) -> int:
        return dict(self.items).get(item, 0)


@dataclass(frozen=True)
class Added:
    item: str
    count: int


@dataclass(frozen=True)
class Sold:
    item: str


def fold(state: Stock, update: Added | Sold) -> Stock:
    change = update.count if isinstance(update, Added) else -1
    items = dict(state.items) | {update.item: state.count(update.item) + change}
    return replace(state, items=tuple(sorted(items.items())))


STOCK = ReplicatedType[Stock, Added | Sold](
    name="stock", state=Stock, updates={"added": Added, "sold": Sold}, fold=fold
)


def sell_one(state: Stock) -> list[Added | Sold]:
    return [Sold("apple")] if state.count("apple") else []


@asynccontextmanager
async def two_instances(path: Path) -> AsyncIterator[tuple[Eventproc, Eventproc]]:
    async with eventproc.open(path) as one, eventproc.open(path) as two:
        await one.create_scope("shop")
        yield one, two


async def test_two_instances_on_one_directory_converge(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock())
        b = await two.synchronizer("shop/stock", STOCK)
        await a.update(lambda _: [Added("apple", 3)])
        await b.update(lambda _: [Added("pear", 2)])
        await a.update(sell_one)
        assert await a.fetch() == await b.fetch() == Stock((("apple", 2), ("pear", 2)))
        assert a.state == b.state
        assert a.revision == b.revision


async def test_a_waiting_member_learns_of_a_change(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock())
        b = await two.synchronizer("shop/stock", STOCK)
        seen: list[Stock] = []

        async def wait() -> None:
            seen.append(await b.wait_change())

        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await a.update(lambda _: [Added("fig", 1)])
        assert seen == [Stock((("fig", 1),))]


async def test_only_the_first_initial_state_counts(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        with pytest.raises(NotFound, match="synchronizer"):
            await one.synchronizer("shop/stock", STOCK)
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock((("apple", 1),)))
        b = await two.synchronizer("shop/stock", STOCK, initial=Stock((("pear", 9),)))
        assert a.state == b.state == Stock((("apple", 1),))
        with pytest.raises(AlreadyExists):
            await one.synchronizer("shop/stock", _other_type())


async def test_what_other_members_could_not_read_is_refused(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        items: list[Any] = [["apple"], [(b"apple", 1)], [("\ud800", 1)]]
        states: list[Any] = [5, {"item": 1}, *map(Stock, items)]
        for wrong in states:
            with pytest.raises(InvalidArgument, match="state of stock"):
                await one.synchronizer("shop/stock", STOCK, initial=wrong)
        assert await one.synchronizers() == []
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock())
        updates: list[Any] = [Added("apple", None), Added("apple", "many"), "apple"]  # type: ignore[arg-type]
        for wrong in updates:
            with pytest.raises(InvalidArgument, match=r"updates? of stock"):
                await a.update(partial(_only, wrong))
        assert a.state == (await two.synchronizer("shop/stock", STOCK)).state == Stock()


async def test_a_member_has_its_own_updates_and_snapshots_as_others_read_them(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock([["fig", 1]]))  # type: ignore[arg-type]
        b = await two.synchronizer("shop/stock", STOCK)
        assert a.state == b.state == Stock((("fig", 1),))
        await a.update(lambda _: (each for each in [Added("apple", 2.5)]))  # type: ignore[arg-type, return-value]
        assert a.state == await b.fetch() == Stock((("apple", 2), ("fig", 1)))
        await a.compact()
        assert a.state == await b.fetch()


async def test_a_deleted_object_is_not_found_by_its_members(tmp_path: Path) -> None:
    async with two_instances(tmp_path) as (one, two):
        a = await one.synchronizer("shop/stock", STOCK, initial=Stock())
        assert await two.synchronizers("shop") == await two.synchronizers() == ["shop/stock"]
        await two.delete_synchronizer("shop/stock")
        with pytest.raises(NotFound):
            await a.update(lambda _: [Added("apple", 1)])
        assert await one.synchronizers("shop") == []
        with pytest.raises(NotFound):
            await one.delete_synchronizer("shop/stock")


async def test_a_scope_is_deleted_with_its_objects_only_on_request(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path) as ep:
        await ep.create_scope("shop")
        await ep.synchronizer("shop/stock", STOCK, initial=Stock())
        with pytest.raises(ScopeNotEmpty, match="1 synchronizer;"):
            await ep.delete_scope("shop")
        await ep.delete_scope("shop", recursive=True)
        assert await ep.synchronizers() == []
        with pytest.raises(NotFound):
            await ep.synchronizer("shop/stock", STOCK, initial=Stock())


def _only(update: Any, _: Stock) -> list[Any]:
    return [update]


def _other_type() -> ReplicatedType[Stock, Added | Sold]:
    return ReplicatedType(name="other", state=Stock, updates={"added": Added, "sold": Sold}, fold=fold)
