"""Byte streams and attributes: what clients write and read as bytes is what our readers see as events."""

from __future__ import annotations

from random import Random

import pytest

from eventproc.runtime import Eventproc
from eventproc.server.wire import commands as c
from eventproc.server.wire.connection import READ_BYTES_MAX
from tests.server.wire_peer import WRITER, WirePeer, block, connected
from tests.support.reading import events_of, payloads_of

pytestmark = pytest.mark.usefixtures("stream")


SEGMENT = "s/t/0.#epoch.0"
ATTRIBUTE = b"a" * 16


async def write(peer: WirePeer, number: int, at: int, data: bytes) -> int:
    """Append a block, and return where the segment ends then."""
    command = c.ConditionalBlockEnd(WRITER, number, at, data, 1)
    return (await peer.ask(command, c.DataAppended)).offset


async def ends_of(peer: WirePeer) -> tuple[int, int]:
    found = await peer.ask(c.GetStreamSegmentInfo(1, SEGMENT), c.StreamSegmentInfo)
    return found.start_offset, found.write_offset


async def read(peer: WirePeer, offset: int, most: int) -> bytes:
    return (await peer.ask(c.ReadSegment(SEGMENT, offset, most, "", 1), c.SegmentRead)).data


@pytest.mark.hunt(seeds=4)
async def test_bytes_are_read_from_any_offset_as_they_were_written(ep: Eventproc, seed: int) -> None:
    random = Random(seed)
    written = b""
    async with connected(ep) as peer:
        assert await peer.set_up(SEGMENT) == c.NO_EVENT_NUMBER
        for number in range(60):
            data = random.randbytes(random.choice([1, 2, 7, 100, 5_000, 70_000 if number % 20 == 0 else 3]))
            assert await write(peer, number, len(written), data) == len(written) + len(data)
            written += data
        assert await ends_of(peer) == (0, len(written))
        for _ in range(60):
            offset, most = random.randrange(len(written)), random.choice([8, 9, 1_000, READ_BYTES_MAX])
            found = await read(peer, offset, most)
            assert found
            assert found == written[offset : offset + len(found)]
        head = 0
        for _ in range(5):
            head = random.randrange(head, len(written))
            await peer.ask(c.TruncateSegment(1, SEGMENT, head), c.SegmentTruncated)
            assert await ends_of(peer) == (head, len(written))
            found = await read(peer, head, 100)
            assert found == written[head : head + len(found)]
            if head:
                gone = await peer.ask(c.ReadSegment(SEGMENT, head - 1, 9, "", 1), c.SegmentIsTruncated)
                assert gone.start_offset == head
    stream = await ep.stream("s/t")
    left = b"".join([event.payload for event in await events_of(stream)])
    assert written.endswith(left)
    assert len(left) >= len(written) - head


async def test_a_truncation_that_is_refused_changes_nothing_for_clients(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        await write(peer, 1, 0, b"abcdef")
        await (await ep.stream("s/t")).seal()
        await peer.ask(c.TruncateSegment(1, SEGMENT, 3), c.ErrorMessage)
        assert await ends_of(peer) == (0, 6)
        assert await read(peer, 0, 8) == b"abcdef"


async def test_a_truncation_whose_process_died_is_completed_by_its_repetition(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        stream = await ep.stream("s/t")
        await write(peer, 1, 0, b"abc")
        block_end = await stream.tail()
        await write(peer, 2, 3, b"def")
        await stream.truncate(block_end)
        assert await ends_of(peer) == (3, 6), "the death was before the head within the block was noted"
        await peer.ask(c.TruncateSegment(1, SEGMENT, 4), c.SegmentTruncated)
        assert await ends_of(peer) == (4, 6)


async def test_attributes_of_clients_leave_room_for_those_of_the_server(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.segments.attributes.ATTRIBUTES_MAX", 1)
    async with connected(ep) as peer:
        set_first = c.UpdateSegmentAttribute(1, SEGMENT, ATTRIBUTE, 5, c.NO_VALUE)
        assert (await peer.ask(set_first, c.SegmentAttributeUpdated)).is_updated
        refusal = await peer.ask(
            c.UpdateSegmentAttribute(1, SEGMENT, b"b" * 16, 5, c.NO_VALUE), c.ErrorMessage
        )
        assert "at most 1" in refusal.text
        await peer.set_up(SEGMENT)
        await write(peer, 1, 0, b"abcdef")
        await peer.ask(c.TruncateSegment(1, SEGMENT, 3), c.SegmentTruncated)
        assert await ends_of(peer) == (3, 6)


async def test_a_block_goes_where_its_client_expects_it_and_is_stored_once(ep: Eventproc) -> None:
    async with connected(ep) as peer, connected(ep) as other:
        await peer.set_up(SEGMENT)
        await write(peer, 1, 0, b"abc")
        await write(peer, 1, 0, b"abc")  # the client has not heard of it
        await other.set_up(SEGMENT, b"o" * 16)
        late = c.ConditionalBlockEnd(b"o" * 16, 1, 0, b"late", 7)
        assert (await other.ask(late, c.ConditionalCheckFailed)).request_id == 7
        await write(peer, 2, 3, b"de")
        assert await ends_of(peer) == (0, 5)
        assert await read(peer, 1, 100) == b"bcde"
        assert await peer.set_up(SEGMENT) == 2
    stream = await ep.stream("s/t")
    assert await payloads_of(stream) == [b"abc", b"de"]


async def test_events_of_our_writer_are_bytes_of_a_byte_stream(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        await write(peer, 1, 0, b"abc")
        async with (await ep.stream("s/t")).writer() as writer:
            await writer.write(b"our event", key="k")
        assert await read(peer, 2, 100) == b"cour event"


async def test_a_stream_with_events_is_no_byte_stream(ep: Eventproc) -> None:
    async with connected(ep) as peer:
        await peer.set_up(SEGMENT)
        await peer.ask(block(b"event", last=0), c.DataAppended)
        refusal = await peer.ask(c.ConditionalBlockEnd(WRITER, 1, 13, b"bytes", 7), c.ErrorMessage)
        assert (refusal.request_id, refusal.code) == (7, c.ILLEGAL_ARGUMENT)
        assert await ends_of(peer) == (0, 13)


async def test_an_attribute_is_set_if_it_has_the_expected_value_and_goes_with_its_stream(
    ep: Eventproc,
) -> None:
    def update(value: int, expected: int) -> c.UpdateSegmentAttribute:
        return c.UpdateSegmentAttribute(1, SEGMENT, ATTRIBUTE, value, expected)

    async def value(peer: WirePeer) -> int:
        command = c.GetSegmentAttribute(1, SEGMENT, ATTRIBUTE)
        return (await peer.ask(command, c.SegmentAttribute)).value

    async with connected(ep) as peer:
        assert await value(peer) == c.NO_VALUE
        assert not (await peer.ask(update(5, 1), c.SegmentAttributeUpdated)).is_updated
        assert (await peer.ask(update(5, c.NO_VALUE), c.SegmentAttributeUpdated)).is_updated
        assert (await peer.ask(update(-7, 5), c.SegmentAttributeUpdated)).is_updated
        assert await value(peer) == -7
        stream = await ep.stream("s/t")
        await stream.seal()
        await peer.ask(update(1, -7), c.SegmentIsSealed)
        await stream.delete()
        await peer.ask(c.GetSegmentAttribute(1, SEGMENT, ATTRIBUTE), c.NoSuchSegment)
        await ep.create_stream("s/t")
        assert await value(peer) == c.NO_VALUE
