"""The commands on key-value tables: replies are bounded, and what a table cannot have is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import eventproc
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import KeyVersion, WireEntry
from eventproc.store.tables import ANY_VERSION, KEY_BYTES_MAX, PAGE_BYTES_MAX, VALUE_BYTES_MAX
from tests.server.wire_peer import WirePeer, connected
from tests.support.virtual_time import anyio_backend as anyio_backend

TABLE = "s/readers_kvtable/0.#epoch.0"


@pytest.fixture
async def peer() -> AsyncIterator[WirePeer]:
    async with eventproc.open_memory() as ep, connected(ep) as peer:
        yield peer


async def create(peer: WirePeer, *, key_length: int = 0) -> None:
    await peer.ask(c.CreateTableSegment(1, TABLE, key_length=key_length), c.SegmentCreated)


def update(key: bytes, value: bytes = b"", *, offset: int = -1) -> c.UpdateTableEntries:
    return c.UpdateTableEntries(1, TABLE, "", (WireEntry(key, ANY_VERSION, value),), offset)


async def test_a_page_has_a_limited_size_and_the_pages_have_all_entries(peer: WirePeer) -> None:
    await create(peer)
    keys = [f"k{number}".encode() for number in range(9)]
    for key in keys:
        await peer.ask(update(key, bytes(VALUE_BYTES_MAX)), c.TableEntriesUpdated)
    by_time: list[bytes] = []
    position, reached_end = 0, False
    while not reached_end:
        delta = await peer.ask(
            c.ReadTableEntriesDelta(1, TABLE, "", position, 1_000), c.TableEntriesDeltaRead
        )
        assert len(delta.encode()) < PAGE_BYTES_MAX + KEY_BYTES_MAX
        by_time += [each.key for each in delta.entries]
        position, reached_end = delta.position, delta.reached_end
    by_key: list[bytes] = []
    after = b""
    while (
        page := await peer.ask(c.ReadTableEntries(1, TABLE, "", 1_000, after), c.TableEntriesRead)
    ).entries:
        assert len(page.encode()) < PAGE_BYTES_MAX + KEY_BYTES_MAX
        by_key += [each.key for each in page.entries]
        after = page.continuation
    assert by_time == by_key == keys


async def test_a_read_of_too_many_bytes_is_refused(peer: WirePeer) -> None:
    await create(peer)
    await peer.ask(update(b"k", bytes(VALUE_BYTES_MAX)), c.TableEntriesUpdated)
    read = c.ReadTable(7, TABLE, "", (KeyVersion(b"k", ANY_VERSION),) * 60)
    assert (await peer.ask(read, c.ErrorMessage)).request_id == 7
    read = c.ReadTable(8, TABLE, "", (KeyVersion(b"k", ANY_VERSION),) * 2)
    assert len((await peer.ask(read, c.TableRead)).entries) == 2


async def test_keys_and_values_that_a_table_cannot_have_are_refused(peer: WirePeer) -> None:
    refusal = await peer.ask(c.CreateTableSegment(1, TABLE, key_length=KEY_BYTES_MAX + 1), c.ErrorMessage)
    assert refusal.code == c.ILLEGAL_ARGUMENT
    await create(peer, key_length=2)
    for command in (update(b"k"), update(b""), update(b"key"), update(b"kk", bytes(VALUE_BYTES_MAX + 1))):
        assert (await peer.ask(command, c.ErrorMessage)).code == c.ILLEGAL_ARGUMENT
    await peer.ask(update(b"kk", bytes(VALUE_BYTES_MAX)), c.TableEntriesUpdated)


async def test_a_command_that_names_the_end_of_the_table_needs_it_there(peer: WirePeer) -> None:
    await create(peer)
    await peer.ask(update(b"a", offset=0), c.TableEntriesUpdated)
    refusal = await peer.ask(update(b"b", offset=0), c.SegmentIsTruncated)
    keys = (KeyVersion(b"a", ANY_VERSION),)
    refused = await peer.ask(c.RemoveTableKeys(1, TABLE, "", keys, 0), c.SegmentIsTruncated)
    assert refused == refusal
    await peer.ask(c.RemoveTableKeys(1, TABLE, "", keys, refusal.start_offset), c.TableKeysRemoved)
