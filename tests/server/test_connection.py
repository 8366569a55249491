"""One connection of the segment store: peers that are slow or wrong, what they hold, and what is written once."""

from __future__ import annotations

import anyio
import pytest

from eventproc.runtime import Eventproc
from eventproc.server.frames import PIECE_BYTES, STALLED_S, ConnectionOver, MalformedFrame, MemoryBudget
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import FRAME_HEAD, Attribute
from eventproc.server.wire.connection import TRANSIENTS_MAX, WRITERS_MAX
from eventproc.store.transactions import create_txn, decide_and_commit
from tests.server.wire_peer import WRITER, WirePeer, block, connected, framed
from tests.support.reading import payloads_of
from tests.support.virtual_time import anyio_backend as anyio_backend

pytestmark = pytest.mark.usefixtures("stream")


SEGMENT = "s/t/0.#epoch.0"
LARGE = b"x" * 300_000
INT64_MAX = 2**63 - 1


async def payloads(ep: Eventproc, stream: str = "s/t") -> list[bytes]:
    return await payloads_of(await ep.stream(stream))


# Peers that are slow.


async def test_a_peer_that_takes_no_reply_is_closed_and_gets_no_further_byte(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        await peer.ask(block(LARGE, last=0), c.DataAppended)
        await peer.send(*(c.ReadSegment(SEGMENT, 0, len(LARGE), "", number) for number in range(3)))
        taken = await peer.stream.receive()
        assert len(taken) == PIECE_BYTES
        assert isinstance(await peer.wait_ended(), TimeoutError)
        with pytest.raises(anyio.EndOfStream):
            await peer.stream.receive()


async def test_a_peer_that_announces_a_frame_and_sends_none_of_it_holds_no_memory(ep: Eventproc) -> None:
    budget = MemoryBudget(2 * len(LARGE))
    async with connected(ep, budget) as silent, connected(ep, budget) as peer:
        await silent.stream.send(FRAME_HEAD.pack(c.AppendBlock.type, 2 * len(LARGE)))
        await peer.set_up(SEGMENT)
        with anyio.fail_after(STALLED_S / 2):
            await peer.ask(block(LARGE, last=0), c.DataAppended)
        assert isinstance(await silent.wait_ended(), TimeoutError)


async def test_a_peer_that_stops_within_a_frame_is_closed_and_another_takes_its_memory(ep: Eventproc) -> None:
    budget = MemoryBudget(2 * len(LARGE))
    async with connected(ep, budget) as silent, connected(ep, budget) as peer:
        await silent.stream.send(FRAME_HEAD.pack(c.AppendBlock.type, 2 * len(LARGE)) + LARGE)
        await peer.set_up(SEGMENT)
        await peer.send(block(LARGE, last=0))
        assert isinstance(await silent.wait_ended(), TimeoutError)
        assert isinstance(await peer.take(), c.DataAppended)


async def test_an_open_block_is_held_in_memory_until_its_end(ep: Eventproc) -> None:
    budget = MemoryBudget(len(LARGE) + 100)
    data = framed(LARGE)
    async with connected(ep, budget) as peer, connected(ep, budget) as other:
        await peer.set_up(SEGMENT)
        await other.set_up(SEGMENT, b"o" * 16)
        await peer.send(c.AppendBlock(WRITER, data + b"\xff\xff\xff\xff" + bytes(4)))  # ends with padding
        await anyio.wait_all_tasks_blocked()
        await other.send(block(LARGE, last=0, writer=b"o" * 16))
        await anyio.wait_all_tasks_blocked()
        assert await payloads(ep) == []
        await peer.ask(c.AppendBlockEnd(WRITER, len(data), b"", 1, 0, 1), c.DataAppended)
        assert isinstance(await other.take(), c.DataAppended)
    assert await payloads(ep) == [LARGE, LARGE]


async def test_a_block_whose_end_does_not_follow_ends_the_connection(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        await peer.send(c.AppendBlock(WRITER, framed(b"a")), c.SetupAppend(1, WRITER, SEGMENT))
        assert isinstance(await peer.wait_ended(), MalformedFrame)


async def test_a_connection_that_holds_memory_and_finds_none_is_closed(ep: Eventproc) -> None:
    budget = MemoryBudget(len(LARGE) + 100)
    async with connected(ep, budget) as peer:
        await peer.set_up(await create_transient(peer))
        await peer.send(c.ConditionalBlockEnd(WRITER, 0, 0, LARGE, 1))
        assert isinstance(await peer.wait_ended(), ConnectionOver)
    async with connected(ep, budget) as peer:
        await peer.set_up(SEGMENT)
        await peer.ask(block(LARGE, last=0), c.DataAppended)


async def test_a_transient_segment_that_nothing_is_added_to_ends_with_its_connection(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(await create_transient(peer))
        await peer.ask(c.ConditionalBlockEnd(WRITER, 0, 0, LARGE, 1), c.DataAppended)
        assert isinstance(await peer.wait_ended(), TimeoutError)


# Transactions.


async def begin(ep: Eventproc) -> str:
    """Begin a transaction in the current epoch of `s/t`; return its id."""
    stream, txn_id = await ep.stream("s/t"), f"{1:032x}"
    await ep.db.write(
        lambda tx: create_txn(
            tx, "s/t", stream.stream_id, txn_id, instance=ep.db.instance_id, lease_ms=600_000
        )
    )
    return txn_id


async def test_a_transaction_goes_on_after_its_epoch_was_truncated(ep: Eventproc) -> None:
    txn_id, stream = await begin(ep), await ep.stream("s/t")
    for _ in range(4):
        await stream.merge(*await stream.split((await stream.segments())[0].id))
        await stream.truncate(await stream.tail())
    async with connected(ep) as peer:
        name = f"{SEGMENT}#transaction.{txn_id}"
        await peer.set_up(name)
        await peer.ask(block(b"a", last=0), c.DataAppended)
    await ep.db.write(lambda tx: decide_and_commit(tx, stream.stream_id, txn_id))
    assert await payloads(ep) == [b"a"]


async def test_a_merge_into_a_segment_that_a_transaction_does_not_have_is_refused(ep: Eventproc) -> None:
    txn_id = await begin(ep)
    async with connected(ep) as peer:
        source = await fill_transient(peer, b"a")
        target = f"s/t/7.#epoch.0#transaction.{txn_id}"
        await peer.ask(c.MergeSegments(1, target, source), c.NoSuchSegment)


# Peers that ask for too much, or for what is not possible.


async def test_a_connection_keeps_a_limited_number_of_transient_segments(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        for _ in range(TRANSIENTS_MAX):
            await create_transient(peer)
        await peer.send(c.CreateTransientSegment(1, WRITER, SEGMENT))
        assert isinstance(await peer.wait_ended(), ConnectionOver)


async def test_a_connection_sets_up_a_limited_number_of_writers(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        for number in range(WRITERS_MAX):
            await peer.set_up(SEGMENT, number.to_bytes(16, "big"))
        await peer.set_up(SEGMENT, bytes(16))
        await peer.send(c.SetupAppend(1, WRITER, SEGMENT))
        assert isinstance(await peer.wait_ended(), ConnectionOver)


async def test_an_event_number_that_cannot_be_stored_ends_the_connection_alone(ep: Eventproc) -> None:
    async with connected(ep) as peer, connected(ep) as other:
        await peer.set_up(SEGMENT)
        await other.set_up(SEGMENT, b"o" * 16)
        await peer.send(block(b"a", last=INT64_MAX))
        assert isinstance(await peer.wait_ended(), MalformedFrame)
        await other.ask(block(b"b", last=INT64_MAX - 1, writer=b"o" * 16), c.DataAppended)
    assert await payloads(ep) == [b"b"]


@pytest.mark.parametrize(
    "segment",
    ["s/topic/0.#epoch.0", "s/topic/1.#epoch.0", "s/topic/2.#epoch.0", "_system/request/0.#epoch.0"],
)
async def test_topics_and_streams_of_the_system_are_not_written(ep: Eventproc, segment: str) -> None:
    await ep.create_topic("s/topic", partitions=2)
    async with connected(ep) as peer:
        for command in (
            c.SetupAppend(1, WRITER, segment),
            c.CreateTransientSegment(2, WRITER, segment),
            c.MergeSegments(3, segment, f"{segment}#transient.{'0' * 32}.{'0' * 32}"),
        ):
            refusal = await peer.ask(command, c.ErrorMessage)
            assert (refusal.request_id, refusal.code) == (command.request_id, c.ILLEGAL_ARGUMENT)
        await peer.send(block(b"a", last=0))
        assert isinstance(await peer.wait_ended(), MalformedFrame)


# Large events.


async def create_transient(peer: WirePeer) -> str:
    command = c.CreateTransientSegment(1, WRITER, SEGMENT)
    return (await peer.ask(command, c.SegmentCreated)).segment


async def fill_transient(peer: WirePeer, payload: bytes) -> str:
    name = await create_transient(peer)
    await peer.set_up(name)
    await peer.ask(c.ConditionalBlockEnd(WRITER, 0, 0, framed(payload), 1), c.DataAppended)
    return name


@pytest.mark.parametrize("number", [-(2**63), -1, INT64_MAX])
@pytest.mark.parametrize("is_large", [True, False], ids=["a large event", "a byte stream"])
async def test_bytes_with_a_number_that_no_event_has_end_the_connection(
    ep: Eventproc, number: int, is_large: bool
) -> None:
    async with connected(ep) as peer:
        await peer.set_up(await create_transient(peer) if is_large else SEGMENT)
        await peer.send(c.ConditionalBlockEnd(WRITER, number, 0, b"", 1))
        assert isinstance(await peer.wait_ended(), MalformedFrame)


async def test_a_merge_that_is_repeated_on_another_connection_appends_nothing(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        name = await fill_transient(peer, b"large")
        merged = await peer.ask(c.MergeSegments(1, SEGMENT, name), c.SegmentsMerged)
        assert await peer.ask(c.MergeSegments(1, SEGMENT, name), c.SegmentsMerged) == merged
    async with connected(ep) as peer:
        assert await peer.ask(c.MergeSegments(1, SEGMENT, name), c.SegmentsMerged) == merged
    assert await payloads(ep) == [b"large"]


async def test_a_merge_of_a_segment_that_went_with_its_connection_is_refused(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        name = await fill_transient(peer, b"large")
    async with connected(ep) as peer:
        assert (await peer.ask(c.MergeSegments(1, SEGMENT, name), c.NoSuchSegment)).segment == name
    assert await payloads(ep) == []


async def test_a_large_event_for_a_sealed_segment_frees_its_memory(ep: Eventproc) -> None:
    budget = MemoryBudget(2 * len(LARGE))
    async with connected(ep, budget) as peer:
        name = await fill_transient(peer, LARGE)
        await (await ep.stream("s/t")).seal()
        await peer.ask(c.MergeSegments(1, SEGMENT, name), c.SegmentIsSealed)
        await anyio.sleep(2 * STALLED_S)  # longer than a connection that holds memory may be silent
        await peer.ask(c.GetStreamSegmentInfo(1, SEGMENT), c.StreamSegmentInfo)


async def test_the_conditions_of_a_merge_are_those_of_appends(ep: Eventproc) -> None:
    def merge(source: str, old: int, new: int) -> c.MergeSegments:
        condition = Attribute(WRITER, c.REPLACE_IF_EQUALS, new, old)
        return c.MergeSegments(1, SEGMENT, source, "", (condition,))

    async with connected(ep) as peer:
        await peer.ask(merge(await fill_transient(peer, b"one"), c.NO_EVENT_NUMBER, 4), c.SegmentsMerged)
        again = await fill_transient(peer, b"one")  # by a client that has not heard of the merge
        await peer.ask(merge(again, c.NO_EVENT_NUMBER, 4), c.SegmentsMerged)
        late = await fill_transient(peer, b"late")
        assert not (await peer.ask(merge(late, 3, 5), c.SegmentAttributeUpdated)).is_updated
        await peer.ask(merge(late, 4, 6), c.SegmentsMerged)
        assert await peer.set_up(SEGMENT) == 6
        other = c.MergeSegments(1, SEGMENT, late, "", (Attribute(WRITER, 1, 7, 6),))
        await peer.ask(other, c.OperationUnsupported)
    assert await payloads(ep) == [b"one", b"late"]
