"""Storages: streams of a system in memory that keep their events outside the database."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path

import pytest

import eventproc
from eventproc.errors import InvalidArgument, Rejected
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.segments.columns import join_blocks
from eventproc.store.segments.event_storage import (
    ArrayStorage,
    EventStorage,
    LinkedListStorage,
)
from eventproc.store.segments.extents import insert_blob
from eventproc.store.segments.reaper import free_step
from eventproc.testing import check, verify_storage
from tests.segments.support import ONE, SampleEvent, part
from tests.support.reading import payloads_of

LARGE = b"x" * 5_000


class CountingStorage(LinkedListStorage):
    """A storage of a user: knows how much each of its instances keeps."""

    made: list[CountingStorage]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[int, int] = {}
        type(self).made.append(self)

    def append(self, data: bytes, /) -> int:
        position = super().append(data)
        self.kept[position] = len(data)
        return position

    def free(self, position: int, /) -> None:
        super().free(position)
        del self.kept[position]


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    CountingStorage.made = []
    eventproc.register_storage("counting", CountingStorage)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep
        await check(ep.db)


@pytest.mark.parametrize("make", [ArrayStorage, LinkedListStorage, CountingStorage])
def test_the_storages_keep_the_contract(make: Callable[[], EventStorage]) -> None:
    CountingStorage.made = []
    for seed in range(5):
        verify_storage(make, seed=seed)


def test_an_array_is_freed_from_its_beginning_in_linear_time() -> None:
    storage = ArrayStorage()
    positions = [storage.append(b"") for _ in range(60_000)]
    began = time.process_time()
    for position in positions:
        storage.free(position)
    assert time.process_time() - began < 2  # quadratic: 6 s or more
    assert repr(storage) == "ArrayStorage(first=60000, length=0)"


class ForgetfulStorage(ArrayStorage):
    def free(self, position: int, /) -> None:
        del self._array[: position - self._first + 1]
        self._first = position + 1


class ShiftingStorage:
    def __init__(self) -> None:
        self._data: list[bytes] = []

    def append(self, data: bytes, /) -> int:
        self._data.append(data)
        return len(self._data) - 1

    def read(self, position: int, /) -> bytes:
        return self._data[position]

    def free(self, position: int, /) -> None:
        del self._data[position]


@pytest.mark.parametrize("make", [ForgetfulStorage, ShiftingStorage])
def test_the_contract_fails_for_a_storage_that_loses_or_moves_data(make: Callable[[], EventStorage]) -> None:
    with pytest.raises((AssertionError, IndexError)):
        verify_storage(make)


@pytest.mark.usefixtures("commit_path")
@pytest.mark.parametrize("storage", ["database", "array", "linked_list", "counting"])
async def test_a_stream_reads_the_same_from_every_storage(ep: Eventproc, storage: str) -> None:
    stream = await ep.create_stream("s/t", storage=storage)
    async with stream.writer() as writer:
        for payload in (b"a", LARGE, b"b"):
            await writer.write(payload, key="k")
    async with stream.transaction() as txn:
        await txn.write(b"c")
        await txn.write(LARGE + b"2")
    assert await payloads_of(stream) == [b"a", LARGE, b"b", b"c", LARGE + b"2"]


async def test_the_bytes_of_all_events_lie_in_the_storage(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", storage="counting")
    async with stream.writer() as writer:
        await writer.write(b"small")
        await writer.write(LARGE)
    [storage] = CountingStorage.made
    assert sum(storage.kept.values()) >= len(LARGE) + len(b"small")
    stored = await ep.db.read(lambda tx: tx.execute("SELECT sum(length(data)) FROM blob").fetchone())
    assert stored[0] < 100
    count_inline = "SELECT count(inline) FROM extent WHERE stream_id = ?"
    assert await ep.db.read(lambda tx: tx.execute(count_inline, (stream.stream_id,)).fetchone()) == (0,)


async def test_a_truncated_storage_takes_new_events(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", storage="counting")
    for payload in (LARGE, b"kept"):
        await stream.truncate(await stream.tail())
        while not await ep.db.write(partial(free_step, stream_id=stream.stream_id, deleted=False)):
            pass
        async with stream.writer() as writer:
            await writer.write(payload)
    [storage] = CountingStorage.made
    assert len(storage.kept) == 1
    assert await payloads_of(stream) == [b"kept"]


async def test_a_transaction_that_was_rolled_back_leaves_nothing_in_the_storage(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", storage="counting")
    [storage] = CountingStorage.made

    def fail(tx: Tx) -> None:
        insert_blob(tx, stream.stream_id, join_blocks([part(ONE, [SampleEvent(b"lost")]).events]))
        raise Rejected

    with pytest.raises(Rejected):
        await ep.db.write(fail)
    async with stream.writer() as writer:
        await writer.write(b"kept")
    assert len(storage.kept) == 1
    assert await payloads_of(stream) == [b"kept"]


async def test_a_deleted_stream_takes_its_storage_along(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", storage="counting")
    async with stream.writer() as writer:
        await writer.write(b"old")
    await stream.seal()
    await stream.delete()
    again = await ep.create_stream("s/t", storage="counting")
    assert len(CountingStorage.made) == 2
    assert await payloads_of(again) == []


async def test_an_update_keeps_the_storage(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", storage="counting")
    await stream.update(scaling=eventproc.ScalingPolicy.fixed(2))
    async with stream.writer() as writer:
        await writer.write(b"a")
    assert CountingStorage.made[0].kept


def test_a_directory_refuses_a_storage_that_ends_with_the_process(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path) as ep:
        ep.create_scope("s")
        with pytest.raises(InvalidArgument, match="a directory keeps all events in its database"):
            ep.create_stream("s/t", storage="array")
        assert ep.streams("s") == []


async def test_an_unknown_storage_is_refused_with_the_known_names(ep: Eventproc) -> None:
    with pytest.raises(InvalidArgument, match="database, array, linked_list"):
        await ep.create_stream("s/t", storage="tape")


@pytest.mark.parametrize("name", ["", "database"])
def test_a_storage_needs_a_name_of_its_own(name: str) -> None:
    with pytest.raises(InvalidArgument, match="storage name"):
        eventproc.register_storage(name, ArrayStorage)
