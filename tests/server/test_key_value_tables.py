"""Key-value tables as Pravega's Java client uses them: created by the controller, then used in the segment store."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import anyio
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

import eventproc
from eventproc.errors import ScopeNotEmpty
from eventproc.runtime import Eventproc
from eventproc.server.controller import controller_pb2 as pb, key_value_table_calls
from eventproc.server.controller.service import SERVICE
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import KeyVersion, Message, WireEntry
from eventproc.testing.crash import PATIENCE_S
from tests.server.access_support import READ, UPDATE, add_user
from tests.server.wire_peer import WirePeer

ANY, ABSENT = -(2**63), -1
"""Versions of the client: a put, and the condition that a key is absent."""

VALUE_BYTES = 2**20 - 8 * 1024
"""The largest value."""

M = TypeVar("M", bound=Message)


class JavaClient:
    """Calls one server. token: of a user, sent with each call of the controller."""

    def __init__(self, channel: Channel, token: str | None) -> None:
        self.channel = channel
        self.metadata = None if token is None else {"authorization": f"Bearer {token}"}

    async def call(self, name: str, request: Any) -> Any:
        method = SERVICE.methods_by_name[name]
        kinds = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        call = UnaryUnaryMethod(self.channel, f"/{SERVICE.full_name}/{name}", *kinds)
        return await call(request, timeout=PATIENCE_S, metadata=self.metadata)

    async def create(
        self, name: str, *, partitions: int = 3, primary: int = 4, secondary: int = 2, scope: str = "s"
    ) -> int:
        """Create a table and return the status."""
        config = pb.KeyValueTableConfig(
            scope=scope,
            kvtName=name,
            partitionCount=partitions,
            primaryKeyLength=primary,
            secondaryKeyLength=secondary,
        )
        status: int = (await self.call("createKeyValueTable", config)).status
        return status

    async def delete(self, name: str) -> int:
        status: int = (await self.call("deleteKeyValueTable", info(name))).status
        return status

    async def list(self, scope: str = "s") -> list[str]:
        """Return the tables of a scope, asking until a page is empty, as the client does."""
        found: list[str] = []
        request = pb.KVTablesInScopeRequest(scope=pb.ScopeInfo(scope=scope))
        while True:
            page = await self.call("listKeyValueTablesInScope", request)
            assert page.HasField("continuationToken")
            if page.status != page.SUCCESS or not page.kvtables:
                assert page.status in (page.SUCCESS, page.SCOPE_NOT_FOUND)
                return found if page.status == page.SUCCESS else ["SCOPE_NOT_FOUND"]
            found += [each.kvtName for each in page.kvtables]
            request.continuationToken.CopyFrom(page.continuationToken)

    async def open(self, stack: AsyncExitStack, name: str) -> JavaTable:
        """Open a table. Its connections are closed with the stack."""
        ranges = (await self.call("getCurrentSegmentsKeyValueTable", info(name))).segmentRanges
        config = (await self.call("getKeyValueTableConfiguration", info(name))).config
        assert len(ranges) == config.partitionCount
        table = JavaTable(config, {each.maxKey: each.segmentId.segmentId for each in ranges})
        token = (await self.call("getDelegationToken", pb.StreamInfo(scope="s", stream=name))).delegationToken
        for number in table.partitions.values():
            located = pb.SegmentId(
                streamInfo=pb.StreamInfo(scope="s", stream=f"{name}_kvtable"), segmentId=number
            )
            node = await self.call("getURI", located)
            stream = await anyio.connect_tcp(node.endpoint, node.port)
            peer = WirePeer(await stack.enter_async_context(stream))
            await peer.ask(c.Hello(17, 5), c.Hello)
            table.peers[number] = peer
        table.token = token
        return table


class JavaTable:
    """A table as the client knows it. partitions: by the ends of their ranges. peers: a connection for each of them."""

    def __init__(self, config: pb.KeyValueTableConfig, partitions: dict[float, int]) -> None:
        self.config = config
        self.partitions = partitions
        self.peers: dict[int, WirePeer] = {}
        self.token = ""

    def partition(self, primary: bytes) -> int:
        """Return the partition of a primary key: that with the smallest end which is not below the hash."""
        end = min(each for each in self.partitions if each >= zlib.crc32(primary) / 2**32)
        return self.partitions[end]

    def segment(self, number: int) -> str:
        return f"s/{self.config.kvtName}_kvtable/{number}.#epoch.0"

    async def put(self, primary: bytes, *entries: tuple[bytes, bytes, int]) -> Message:
        """Send secondary keys, values and versions, all of one primary key."""
        number = self.partition(primary)
        sent = tuple([WireEntry(primary + key, version, value) for key, value, version in entries])
        await self.peers[number].send(c.UpdateTableEntries(1, self.segment(number), self.token, sent))
        return await self.peers[number].take()

    async def remove(self, primary: bytes, *keys: tuple[bytes, int]) -> Message:
        number = self.partition(primary)
        sent = tuple([KeyVersion(primary + key, version) for key, version in keys])
        await self.peers[number].send(c.RemoveTableKeys(1, self.segment(number), self.token, sent))
        return await self.peers[number].take()

    async def get(self, primary: bytes, *keys: bytes) -> list[bytes | None]:
        number = self.partition(primary)
        sent = tuple([KeyVersion(primary + key, ANY) for key in keys])
        command = c.ReadTable(1, self.segment(number), self.token, sent)
        found = await self.peers[number].ask(command, c.TableRead)
        assert [each.key for each in found.entries] == [primary + key for key in keys]
        return [None if each.version == ABSENT else each.value for each in found.entries]

    async def iterate(self, first: bytes, last: bytes, *, count: int, number: int) -> list[list[WireEntry]]:
        """Return the pages from one key to another: the client moves the first key, until a page is empty."""
        pages: list[list[WireEntry]] = []
        while True:
            command = c.ReadTableEntries(1, self.segment(number), self.token, count, b"", b"", first, last)
            page = await self.peers[number].ask(command, c.TableEntriesRead)
            keys = await self.peers[number].ask(
                c.ReadTableKeys(2, self.segment(number), self.token, count, b"", b"", first, last),
                c.TableKeysRead,
            )
            assert [each.key for each in keys.keys] == [each.key for each in page.entries]
            if not page.entries:
                return pages
            pages.append(list(page.entries))
            if page.entries[-1].key == last:
                return pages
            first = (int.from_bytes(page.entries[-1].key) + 1).to_bytes(len(last))


def info(name: str) -> pb.KeyValueTableInfo:
    return pb.KeyValueTableInfo(scope="s", kvtName=name)


@asynccontextmanager
async def serving(ep: Eventproc, token: str | None = None) -> AsyncIterator[JavaClient]:
    """Yield a client of a server of its own."""
    async with serve_endpoints(ep, Addresses(controller_port=0, segment_store_port=0)) as bound:
        channel = Channel("127.0.0.1", bound.controller_port)
        try:
            yield JavaClient(channel, token)
        finally:
            channel.close()


async def test_the_flow_of_the_client_from_the_creation_of_a_table_to_its_deletion(ep: Eventproc) -> None:
    async with serving(ep) as client, AsyncExitStack() as stack:
        assert await client.create("t") == pb.CreateKeyValueTableStatus.SUCCESS
        assert await client.list() == ["t"]
        table = await client.open(stack, "t")
        assert table.partitions == {1 / 3: 0, 2 / 3: 1, 1.0: 2}
        config = table.config
        assert (config.primaryKeyLength, config.secondaryKeyLength) == (4, 2)
        inserted = await table.put(b"anna", (b"01", b"red", ABSENT))
        assert isinstance(inserted, c.TableEntriesUpdated)
        assert isinstance(await table.put(b"anna", (b"01", b"lost", ABSENT)), c.TableKeyBadVersion)
        both = await table.put(b"anna", (b"02", b"green", ANY), (b"03", b"blue", ABSENT))
        assert isinstance(both, c.TableEntriesUpdated)
        assert await table.get(b"anna", b"03", b"01", b"09") == [b"blue", b"red", None]
        (version,) = inserted.versions
        assert isinstance(await table.put(b"anna", (b"01", b"RED", version)), c.TableEntriesUpdated)
        assert isinstance(await table.put(b"anna", (b"01", b"lost", version)), c.TableKeyBadVersion)
        assert isinstance(await table.put(b"anna", (b"09", b"lost", version)), c.TableKeyDoesNotExist)
        assert await table.get(b"anna", b"01", b"09") == [b"RED", None]

        # The client asks whether a key exists by a removal under the condition that it does not.
        assert isinstance(await table.remove(b"anna", (b"01", ABSENT)), c.TableKeyBadVersion)
        assert isinstance(await table.remove(b"anna", (b"09", ABSENT)), c.TableKeysRemoved)
        number = table.partition(b"anna")
        pages = await table.iterate(b"anna\0\0", b"anna\xff\xff", count=2, number=number)
        assert [[each.key for each in page] for page in pages] == [[b"anna01", b"anna02"], [b"anna03"]]
        assert isinstance(await table.remove(b"anna", (b"02", both.versions[0])), c.TableKeysRemoved)
        pages = await table.iterate(b"anna01", b"anna02", count=10, number=number)
        assert [[each.value for each in page] for page in pages] == [[b"RED"]]
        asked = c.GetTableSegmentInfo(1, table.segment(number), "")
        shown = await table.peers[number].ask(asked, c.TableSegmentInfo)
        assert (shown.entry_count, shown.key_length) == (2, 6)

        assert await client.delete("t") == pb.DeleteKVTableStatus.SUCCESS
        assert isinstance(await table.put(b"anna", (b"01", b"late", ANY)), c.NoSuchSegment)
        assert await client.list() == []
        assert await client.delete("t") == pb.DeleteKVTableStatus.TABLE_NOT_FOUND
        found = await client.call("getKeyValueTableConfiguration", info("t"))
        assert found.status == pb.KeyValueTableConfigResponse.TABLE_NOT_FOUND
        with pytest.raises(GRPCError) as refused:
            await client.call("getCurrentSegmentsKeyValueTable", info("t"))
        assert refused.value.status is Status.NOT_FOUND
        assert await client.create("t", partitions=1) == pb.CreateKeyValueTableStatus.SUCCESS
        again = await client.open(stack, "t")
        assert await again.get(b"anna", b"01") == [None]


async def test_pages_have_the_keys_of_a_partition_in_their_order(ep: Eventproc) -> None:
    async with serving(ep) as client, AsyncExitStack() as stack:
        await client.create("t", primary=1, secondary=1)
        table = await client.open(stack, "t")
        keys = [bytes((first, second)) for first in range(0, 256, 15) for second in (0, 127, 255)]
        for key in reversed(keys):
            assert isinstance(await table.put(key[:1], (key[1:], key, ABSENT)), c.TableEntriesUpdated)
        for first, last, count in ((b"\0\0", b"\xff\xff", 7), (b"\x0f\x01", b"\x87\x7f", 1), (b"a", b"b", 5)):
            found = []
            for number in table.partitions.values():
                pages = await table.iterate(first, last, count=count, number=number)
                assert all(len(page) <= count for page in pages)
                found += [each.key for page in pages for each in page]
                ordered = [each.key for page in pages for each in page]
                assert ordered == sorted(ordered)
            assert sorted(found) == [each for each in keys if first <= each <= last]


async def test_a_look_up_of_as_many_large_values_as_the_client_asks_for_together_is_answered(
    ep: Eventproc,
) -> None:
    async with serving(ep) as client, AsyncExitStack() as stack:
        await client.create("t", primary=2, secondary=0)
        table = await client.open(stack, "t")
        large = bytes(VALUE_BYTES)
        assert isinstance(await table.put(b"aa", (b"", large, ABSENT)), c.TableEntriesUpdated)
        assert await table.get(b"aa", *[b""] * 15) == [large] * 15


async def test_a_table_keeps_its_entries_and_versions_when_the_server_starts_again(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path) as ep:
        await ep.create_scope("s")
        async with serving(ep) as client, AsyncExitStack() as stack:
            await client.create("t")
            table = await client.open(stack, "t")
            first = await table.put(b"anna", (b"01", b"red", ABSENT))
            assert isinstance(first, c.TableEntriesUpdated)
    async with eventproc.open(tmp_path) as ep, serving(ep) as client, AsyncExitStack() as stack:
        assert await client.list() == ["t"]
        assert await client.create("t") == pb.CreateKeyValueTableStatus.TABLE_EXISTS
        table = await client.open(stack, "t")
        assert await table.get(b"anna", b"01") == [b"red"]
        second = await table.put(b"anna", (b"01", b"blue", first.versions[0]))
        assert isinstance(second, c.TableEntriesUpdated)
        assert second.versions > first.versions


async def test_what_cannot_be_a_table_is_refused_and_leaves_nothing(ep: Eventproc) -> None:
    statuses = pb.CreateKeyValueTableStatus
    async with serving(ep) as client:
        for name in ("", "a b", "_system", "a/b", "x" * 251):
            assert await client.create(name) == statuses.INVALID_TABLE_NAME
        assert await client.create("t", scope="missing") == statuses.SCOPE_NOT_FOUND
        numbers: list[dict[str, Any]] = [
            {"partitions": 0},
            {"partitions": -1},
            {"partitions": 257},
            {"primary": 0},
            {"primary": -1},
            {"secondary": -1},
            {"primary": 8 * 1024, "secondary": 1},
            {"primary": 2**31 - 1, "secondary": 2**31 - 1},
        ]
        for wrong in numbers:
            with pytest.raises(GRPCError) as refused:
                await client.create("t", **wrong)
            assert refused.value.status is Status.INVALID_ARGUMENT, wrong
        assert await client.list() == []
        assert await client.create("t", partitions=256, primary=8 * 1024, secondary=0) == statuses.SUCCESS
        assert await client.create("t", partitions=1) == statuses.TABLE_EXISTS
        assert len((await client.call("getCurrentSegmentsKeyValueTable", info("t"))).segmentRanges) == 256


async def test_tables_of_a_scope_are_listed_in_pages(ep: Eventproc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_value_table_calls, "PAGE_LENGTH", 2)
    await ep.create_scope("s-b")
    async with serving(ep) as client:
        for name in ("c", "a", "e", "b", "d"):
            await client.create(name)
        await client.create("other", scope="s-b")
        assert await client.list() == ["a", "b", "c", "d", "e"]
        assert await client.list("s-b") == ["other"]
        assert await client.list("missing") == ["SCOPE_NOT_FOUND"]


async def test_a_scope_with_tables_is_not_empty_and_its_recursive_deletion_deletes_them(
    ep: Eventproc,
) -> None:
    deleted, scope = pb.DeleteScopeStatus, pb.ScopeInfo(scope="s")
    async with serving(ep) as client, AsyncExitStack() as stack:
        await client.create("t")
        await client.create("u", partitions=1)
        table = await client.open(stack, "t")
        await table.put(b"anna", (b"01", b"red", ABSENT))
        assert (await client.call("deleteScope", scope)).status == deleted.SCOPE_NOT_EMPTY
        with pytest.raises(ScopeNotEmpty, match="and 2 key-value tables;"):
            await ep.delete_scope("s")
        shown = await ep.requests.preview(eventproc.DeleteScope("s"))
        assert shown.table_count == 2
        assert await table.get(b"anna", b"01") == [b"red"]
        assert (await client.call("deleteScopeRecursive", scope)).status == deleted.SUCCESS
        assert isinstance(await table.put(b"anna", (b"01", b"late", ANY)), c.NoSuchSegment)
        await ep.create_scope("s")
        assert await client.list() == []
        assert (await client.call("deleteScope", scope)).status == deleted.SUCCESS


async def test_a_reader_group_and_a_table_do_not_take_each_other_s_segments(ep: Eventproc) -> None:
    """The Rust client names the table of a reader group as the Java client names a partition."""
    async with serving(ep) as client, AsyncExitStack() as stack:
        await client.create("t")
        table = await client.open(stack, "t")
        peer, partition = table.peers[1], table.segment(1)
        refused = await peer.ask(c.DeleteTableSegment(1, partition, False, ""), c.ErrorMessage)
        assert (refused.code, refused.segment) == (c.ILLEGAL_ARGUMENT, partition)
        await peer.ask(c.CreateTableSegment(1, partition, ""), c.SegmentAlreadyExists)
        group = "s/readers_kvtable/1.#epoch.0"
        await peer.ask(c.CreateTableSegment(1, group, ""), c.SegmentCreated)
        with pytest.raises(GRPCError) as taken:
            await client.create("readers")
        assert taken.value.status is Status.ALREADY_EXISTS
        assert await client.list() == ["t"]
        await peer.ask(c.GetTableSegmentInfo(1, "s/readers_kvtable/0.#epoch.0", ""), c.NoSuchSegment)
        await peer.ask(c.DeleteTableSegment(1, group, True, ""), c.SegmentDeleted)
        assert await client.create("readers") == pb.CreateKeyValueTableStatus.SUCCESS


async def test_the_permission_on_a_table_allows_its_partitions_and_no_stream_of_their_name(
    ep: Eventproc,
) -> None:
    async with serving(ep) as client:
        await client.create("t")
        await client.create("u")
    await ep.create_stream("s/t_kvtable")
    writer = await ep.db.write(lambda tx: add_user(tx, "ann", (UPDATE, "s/t")))
    reader = await ep.db.write(lambda tx: add_user(tx, "bob", (READ, "s/t")))
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(serving(ep, writer))
        table = await client.open(stack, "t")
        assert isinstance(await table.put(b"anna", (b"01", b"red", ABSENT)), c.TableEntriesUpdated)
        peer, other = table.peers[0], "s/u_kvtable/0.#epoch.0"
        for refused in (
            c.ReadTable(7, other, table.token, ()),
            c.GetStreamSegmentInfo(7, table.segment(0), table.token),
            c.SetupAppend(7, bytes(16), table.segment(0), table.token),
            c.ReadTable(7, table.segment(0), "", ()),
        ):
            assert (await peer.ask(refused, c.AuthTokenCheckFailed)).request_id == 7
        with pytest.raises(GRPCError) as denied:
            await client.call("getURI", pb.SegmentId(streamInfo=pb.StreamInfo(scope="s", stream="u_kvtable")))
        assert denied.value.status is Status.PERMISSION_DENIED
        for name, request in (
            ("sealStream", pb.StreamInfo(scope="s", stream="t_kvtable")),
            ("getCurrentSegments", pb.StreamInfo(scope="s", stream="t_kvtable")),
            ("deleteKeyValueTable", info("t")),
        ):
            with pytest.raises(GRPCError) as denied:
                await client.call(name, request)
            assert denied.value.status is Status.PERMISSION_DENIED, name
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(serving(ep, reader))
        table = await client.open(stack, "t")
        assert await table.get(b"anna", b"01") == [b"red"]
        assert isinstance(await table.put(b"anna", (b"01", b"blue", ANY)), c.AuthTokenCheckFailed)
