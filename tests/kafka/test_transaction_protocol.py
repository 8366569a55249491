"""Transactions in messages: every version, repeated and late calls, and producers that are wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from anyio import to_thread

import eventproc
from eventproc.errors import TransactionMovesProgress
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.kafka.listener import serving_kafka
from eventproc.testing import FaultPlan, VirtualClock
from eventproc.testing.crash import PATIENCE_S
from tests.kafka.group_peer import connecting
from tests.kafka.peer import PLAIN_BATCH, KafkaPeer
from tests.kafka.transaction_peer import TRANSACTION_CALLS, TransactionPeer
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

Connect = Callable[..., TransactionPeer]


@pytest.fixture
def name(unique: str) -> str:
    """The transactional id of a test, and its group."""
    return unique


@pytest.fixture
def connect(server: ServerProcess, name: str) -> Iterator[Connect]:
    """Opens connections of producers."""
    with connecting(TransactionPeer, name, server.kafka) as connect:
        yield connect


@pytest.fixture
def peer(connect: Connect) -> TransactionPeer:
    """A producer with an identity."""
    peer = connect()
    assert peer.begin() == 0
    return peer


async def test_each_call_of_a_transaction_is_answered_in_each_version_that_is_announced(
    peer: TransactionPeer, topic: str
) -> None:
    versions = peer.announced()
    assert versions.keys() >= TRANSACTION_CALLS
    for version in versions[22]:
        assert peer.begin(version) == 0
    for written, version in enumerate(versions[24]):
        assert peer.add(topic, 0, version=version) == [0]
        assert peer.write(topic, written, b"v") == 0
        assert peer.end(min(version, 3)) == 0
    for version in versions[25]:
        assert peer.add_group(version) == 0
        for commits in versions[28]:
            assert peer.commit_in(topic, {0: commits}, commits) == [0]
            assert peer.stable(topic)[0] == 88
        assert peer.end(committed=False) == 0
        assert peer.stable(topic) == (0, -1)
    for version in versions[26]:
        assert peer.add_group() == 0
        assert peer.commit_in(topic, {0: version}) == [0]
        assert peer.end(version) == 0
        assert peer.stable(topic, version=7) == (0, version)


async def test_a_fenced_producer_is_told_so_by_the_code_that_its_version_knows(
    peer: TransactionPeer, connect: Connect, topic: str
) -> None:
    assert peer.add(topic, 0) == [0]
    assert peer.write(topic, 0, b"never") == 0
    known = peer.producer
    assert connect().begin() == 0
    assert [peer.add(topic, 0, version=each) for each in range(4)] == [[47], [47], [90], [90]]
    assert [peer.add_group(each) for each in range(4)] == [47, 47, 90, 90]
    assert [peer.end(each) for each in range(4)] == [47, 47, 90, 90]
    assert [peer.commit_in(topic, {0: 1}, each) for each in range(4)] == [[47]] * 4
    assert [peer.begin(each, known=known) for each in (3, 4)] == [47, 90]
    assert peer.write(topic, 1, b"never") == 47
    assert peer.fetch(topic, 0)[1] == 0


async def test_repeated_calls_change_nothing(peer: TransactionPeer, topic: str) -> None:
    for first, committed in ((0, False), (2, True), (4, True)):
        for _ in range(2):
            assert peer.add(topic, 0) == [0]
            assert peer.write(topic, first, b"a") == 0
        for _ in range(2):
            assert peer.write(topic, first + 1, b"b") == 0
            assert peer.write(topic, first + 3, b"gap") == 45
        for _ in range(2):
            assert peer.add_group() == 0
            assert peer.commit_in(topic, {0: first // 2}) == [0]
        for _ in range(2):
            assert peer.end(committed=committed) == 0
        assert peer.end(committed=not committed) == 48
    while peer.fetch(topic, 0)[1] < 4:  # the host has not made the last one visible yet
        pass
    assert peer.fetch(topic, 4)[:2] == (0, 4)
    assert peer.stable(topic) == (0, 2)


async def test_an_identity_whose_answer_was_lost_is_given_again(
    peer: TransactionPeer, connect: Connect
) -> None:
    first = peer.producer
    assert peer.begin(known=first) == 0
    second = peer.producer
    assert second == (first[0], first[1] + 1)
    assert peer.begin(known=first) == 0
    assert peer.producer == second
    other = connect()
    assert other.begin() == 0
    assert peer.begin(known=second) == 90
    assert peer.begin(known=(1, 0)) == 49


async def test_only_its_producer_commits_a_transaction(
    peer: TransactionPeer, ep: Eventproc, topic: str
) -> None:
    assert peer.add(topic, 0) == [0]
    assert peer.write(topic, 0, b"v") == 0
    assert peer.add_group() == 0
    assert peer.commit_in(topic, {0: 0}) == [0]
    stream = await ep.stream(f"shop/{topic}")
    (found,) = await stream.transactions()
    assert found.group == f"shop/{peer.name}"
    with pytest.raises(TransactionMovesProgress):
        await stream.transaction_of(found.id).commit()
    assert peer.stable(topic)[0] == 88
    assert peer.end() == 0
    assert peer.stable(topic) == (0, 0)


async def test_a_topic_that_is_deleted_aborts_its_transaction_with_the_commits_of_groups(
    peer: TransactionPeer, ep: Eventproc, topic: str
) -> None:
    other = f"{topic}-other"
    await ep.create_topic(f"shop/{other}", partitions=1)
    assert peer.add(topic, 0) == [0]
    assert peer.write(topic, 0, b"never") == 0
    assert peer.add_group() == 0
    assert peer.commit_in(other, {0: 0}) == [0]
    stream = await ep.stream(f"shop/{topic}")
    await stream.seal()
    await stream.delete()
    assert peer.end() == 90
    assert peer.stable(other) == (0, -1)
    assert peer.begin(known=peer.producer) == 0
    assert peer.stable(other) == (0, -1)


async def test_a_reset_counts_although_an_older_transaction_is_committed_behind_it(
    peer: TransactionPeer, ep: Eventproc, topic: str
) -> None:
    assert peer.produce(topic, PLAIN_BATCH) == (0, 0)
    assert peer.commit(topic, {0: 1}) == [0]
    assert peer.add_group() == 0
    assert peer.commit_in(topic, {0: 2}) == [0]
    await (await ep.group(f"shop/{peer.group}")).reset("head")
    assert peer.end() == 0
    assert peer.stable(topic) == (0, 0)
    assert peer.add_group() == 0
    assert peer.commit_in(topic, {0: 2}) == [0]
    assert peer.commit(topic, {0: 1}, note="reset") == [0]  # as the admin clients of Kafka do
    assert peer.end() == 0
    assert peer.committed(topic, [0]) == {(topic, 0): (1, "reset")}
    assert peer.add_group() == 0
    assert peer.commit_in(topic, {0: 1}) == [0]
    assert peer.forget(topic, 0) == (0, [0])
    assert peer.end() == 0
    assert peer.committed(topic, [0]) == {(topic, 0): (-1, "")}


async def test_a_transaction_of_commits_alone_ends_with_its_time(peer: TransactionPeer, topic: str) -> None:
    assert peer.begin(timeout_ms=1_000) == 0
    assert peer.add_group() == 0
    assert peer.commit_in(topic, {0: 0}) == [0]
    assert peer.stable(topic)[0] == 88
    while peer.stable(topic)[0] == 88:
        pass
    assert peer.end() == 90
    assert peer.begin(known=peer.producer) == 0
    assert peer.stable(topic) == (0, -1)


async def test_a_wrong_call_is_refused_and_changes_nothing(
    peer: TransactionPeer, connect: Connect, topic: str
) -> None:
    with KafkaPeer(f"127.0.0.1:{peer.find(kind=1)[2]}"):
        pass
    assert peer.find(kind=2)[0] == 42
    assert peer.add(topic, 0, 7) == [55, 3]
    assert peer.write(topic, 0, b"never") == 48
    assert peer.end() == 48
    assert peer.commit_in(topic, {0: 1}) == [48]
    assert peer.add(topic, 0) == [0]
    assert peer.add_group() == 0
    peer.member_id, peer.generation = "nobody", 3
    assert peer.commit_in(topic, {0: 1}) == [25]
    connect().consume_alone(topic, 0)
    peer.member_id, peer.generation = "nobody", -1
    assert peer.commit_in(topic, {0: 1}) == [25]
    peer.group = "not valid!"
    assert peer.add_group() == 24
    assert connect("").begin() == 42
    assert connect("n" * 513).begin() == 42
    assert connect("other").begin(timeout_ms=0) == 50
    assert connect("other").begin(timeout_ms=2**31 - 1) == 50
    assert connect("other").begin(known=(1, 0)) == 49
    assert connect("other").end() == 49
    assert peer.end(committed=False) == 0
    assert peer.fetch(topic, 0)[1] == 0


async def test_a_partition_that_a_call_names_twice_is_added(peer: TransactionPeer, topic: str) -> None:
    assert peer.add(topic, 0, 0) == [0, 0]
    assert peer.write(topic, 0, b"v") == 0
    assert peer.end() == 0


async def test_the_groups_of_a_transaction_are_bounded(peer: TransactionPeer) -> None:
    codes = []
    for number in range(101):
        peer.group = f"{peer.name}-{number}"
        codes.append(peer.add_group())
    assert codes == [0] * 100 + [42]
    assert peer.end(committed=False) == 0


class _HeldCommit(FaultPlan):
    """Holds a commit of the database until `release` is set, once `holds` is. is_held: set meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.holds = False
        self.is_held, self.release = Event(), Event()

    def reach(self, point: str) -> None:
        if self.holds and point == "write.commit":
            self.holds = False
            self.is_held.set()
            self.release.wait(PATIENCE_S)


@asynccontextmanager
async def serving(ep: Eventproc) -> AsyncIterator[str]:
    """Serve the scope shop in this process while the block runs; yield the address."""
    await ep.create_scope("shop")
    local = "127.0.0.1"
    async with serving_kafka(ep.db, Authority(ep.db), "shop", (local, 0), local) as (host, port):
        yield f"{host}:{port}"


async def test_a_member_does_not_read_past_an_end_that_waits_for_its_commit(tmp_path: Path) -> None:
    held, clock = _HeldCommit(), VirtualClock()
    async with eventproc.open(tmp_path, clock=clock, faults=held) as ep, serving(ep) as address:
        await ep.create_topic("shop/orders")
        with ThreadPoolExecutor(2) as threads, connecting(TransactionPeer, "copier", address) as connect:
            run = partial(asyncio.get_running_loop().run_in_executor, threads)
            producer, member = connect(), connect()
            assert await run(member.produce, "orders", PLAIN_BATCH) == (0, 0)
            assert await run(partial(producer.begin, timeout_ms=1_000)) == 0
            assert await run(producer.add_group) == 0
            assert await run(producer.commit_in, "orders", {0: 2}) == [0]
            held.holds = True
            ending = run(producer.end)
            await to_thread.run_sync(held.is_held.wait, PATIENCE_S)
            clock.advance(2_000)  # the time of the transaction is over
            reading = run(member.stable, "orders")
            await asyncio.wait([reading], timeout=0.5)
            held.release.set()
            # The second pair: a commit of the host was held instead, and the end came too late.
            assert (await ending, await reading) in [(0, (0, 2)), (90, (0, -1))]
