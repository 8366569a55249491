"""The controller's calls of writers that note times, and the marks that readers of Pravega find."""

from __future__ import annotations

from collections.abc import Mapping

import anyio
import pytest

from eventproc import Eventproc, Stream, StreamCut
from eventproc.errors import InvalidArgument, NotFound
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.wire import commands as c
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.mark_bytes import decode_mark
from eventproc.store.model.time_marks import WRITER_SILENT_MS, WriterNote, live_notes
from eventproc.testing import check
from tests.server.controller_calls import call
from tests.server.wire_peer import WRITER, block, connected
from tests.support.memory import clock, timed_ep
from tests.support.virtual_time import anyio_backend, clock_of

__all__ = ["anyio_backend", "clock", "timed_ep"]

SUCCESS = pb.TimestampResponse.SUCCESS
INVALID_TIME = pb.TimestampResponse.INVALID_TIME
INVALID_POSITION = pb.TimestampResponse.INVALID_POSITION
STREAM = pb.StreamInfo(scope="s", stream="t")
MARKS = "s/_MARKt/0.#epoch.0"


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t")


async def note(
    ep: Eventproc, writer: str, time: int, cut: Mapping[SegmentId, int]
) -> pb.TimestampResponse.Status:
    position = pb.StreamCut(streamInfo=STREAM, cut={int(each): offset for each, offset in cut.items()})
    request = pb.TimestampFromWriter(writer=writer, timestamp=time, position=position)
    result: pb.TimestampResponse.Status = (await call(ep, "noteTimestampFromWriter")(request)).result
    return result


async def remove(ep: Eventproc, writer: str, stream: str = "t") -> pb.RemoveWriterResponse.Status:
    info = pb.StreamInfo(scope="s", stream=stream)
    request = pb.RemoveWriterRequest(writer=writer, stream=info)
    result: pb.RemoveWriterResponse.Status = (await call(ep, "removeWriter")(request)).result
    return result


async def write(stream: Stream, count: int) -> dict[SegmentId, int]:
    """Write events, and return the position of their writer."""
    async with stream.writer() as writer:
        await writer.write_many([(b"x", str(number)) for number in range(count)])
    return dict((await stream.tail()).offsets)


async def segments(ep: Eventproc, stream: str) -> list[int]:
    """Return the segments of a stream of marks, which a reader of Pravega asks for before it reads."""
    found = await call(ep, "getCurrentSegments")(pb.StreamInfo(scope="s", stream=stream))
    assert [(each.minKey, each.maxKey) for each in found.segmentRanges] == [(0.0, 1.0)]
    return [each.segmentId.segmentId for each in found.segmentRanges]


async def marks(ep: Eventproc) -> list[tuple[int, int, dict[int, int]]]:
    """Return the marks that a reader of Pravega finds in the stream of marks, which it reads by frames."""
    assert await segments(ep, "_MARKt") == [0]
    async with connected(ep) as peer:
        info = await peer.ask(c.GetStreamSegmentInfo(1, MARKS, ""), c.StreamSegmentInfo)
        data = b""
        if info.write_offset > info.start_offset:
            reply = await peer.ask(c.ReadSegment(MARKS, info.start_offset, 2**20, "", 2), c.SegmentRead)
            data = reply.data
    found: list[tuple[int, int, dict[int, int]]] = []
    while data:
        length = int.from_bytes(data[4:8], "big")
        assert data[:4] == bytes(4)
        mark = decode_mark(data[8 : 8 + length])
        found.append((mark.lower, mark.upper, {each.id: each.offset for each in mark.cut.ranges}))
        data = data[8 + length :]
    return found


async def test_the_first_note_makes_a_mark_and_a_later_one_of_the_same_second_follows_by_itself(
    ep: Eventproc, stream: Stream
) -> None:
    assert await marks(ep) == []  # a stream without marks has an empty stream of them
    first = await write(stream, 3)
    assert await note(ep, "a", 100, first) is SUCCESS
    assert await marks(ep) == [(100, 100, first)]
    second = await write(stream, 3)
    assert await note(ep, "a", 150, second) is SUCCESS
    third = await write(stream, 3)
    assert await note(ep, "a", 200, third) is SUCCESS
    assert await marks(ep) == [(100, 100, first)]
    await anyio.sleep(1.1)  # no further note: the host writes what is due, once
    assert await marks(ep) == [(100, 100, first), (200, 200, third)]


@pytest.mark.acceptance(
    "F6", differs="a mark follows from a note itself, not from a job every 10 s; its upper time never falls"
)
async def test_a_mark_has_the_lowest_time_of_the_writers_and_their_latest_position(
    ep: Eventproc, stream: Stream
) -> None:
    first = await write(stream, 1)
    second = await write(stream, 1)
    assert await note(ep, "a", 100, second) is SUCCESS
    await anyio.sleep(2)
    assert await note(ep, "b", 50, first) is SUCCESS  # it holds time up until it is as far
    assert await note(ep, "a", 400, second) is SUCCESS
    await anyio.sleep(2)
    assert await marks(ep) == [(100, 100, second)]
    assert await note(ep, "b", 300, first) is SUCCESS
    assert await marks(ep) == [(100, 100, second), (300, 400, second)]


async def test_notes_that_go_back_are_refused_and_change_nothing(ep: Eventproc, stream: Stream) -> None:
    first, second = await write(stream, 1), await write(stream, 1)
    assert await note(ep, "a", 100, second) is SUCCESS
    found = await marks(ep)
    await anyio.sleep(2)
    assert await note(ep, "a", 99, second) is INVALID_TIME
    assert await note(ep, "a", 101, first) is INVALID_POSITION
    assert await note(ep, "a", 100, second) is SUCCESS
    assert await marks(ep) == found


@pytest.mark.parametrize("position", [{}, {0: -1}, {0: 10_000}, {7: 0}, {0: 0, 7: 0}])
async def test_a_position_that_is_no_cut_of_the_stream_is_refused(
    ep: Eventproc, stream: Stream, position: dict[SegmentId, int]
) -> None:
    assert await note(ep, "a", 100, position) is INVALID_POSITION
    assert await marks(ep) == []


@pytest.mark.parametrize("writer", ["x" * 201, "a\0b"])
async def test_a_writer_whose_name_not_every_store_can_hold_is_refused(
    ep: Eventproc, stream: Stream, writer: str
) -> None:
    with pytest.raises(InvalidArgument, match="at most 200 characters"):
        await note(ep, writer, 100, {SegmentId(0): 0})
    assert await remove(ep, writer) is pb.RemoveWriterResponse.UNKNOWN_WRITER
    assert await marks(ep) == []


async def test_a_missing_stream_is_not_found_and_has_no_stream_of_marks(ep: Eventproc) -> None:
    with pytest.raises(NotFound):
        await note(ep, "a", 100, {SegmentId(0): 0})
    async with connected(ep) as peer:
        await peer.ask(c.GetStreamSegmentInfo(1, MARKS, ""), c.NoSuchSegment)
    with pytest.raises(NotFound):
        await segments(ep, "_MARKt")


@pytest.mark.acceptance(
    "F6", differs="a mark follows from a note itself, not from a job every 10 s; its upper time never falls"
)
async def test_a_writer_that_ends_or_falls_silent_holds_time_up_no_longer(
    ep: Eventproc, stream: Stream
) -> None:
    cut = await write(stream, 1)
    for writer, time in (("slow", 10), ("ended", 20), ("live", 30)):
        assert await note(ep, writer, time, cut) is SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [10]
    clock_of(ep).advance(WRITER_SILENT_MS - 1)
    for writer, time in (("ended", 20), ("live", 40)):
        assert await note(ep, writer, time, cut) is SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [10]
    clock_of(ep).advance(1_000)
    assert await note(ep, "live", 50, cut) is SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [10, 20]
    clock_of(ep).advance(1_000)
    assert await remove(ep, "ended") is pb.RemoveWriterResponse.SUCCESS
    await anyio.sleep(1)
    assert [mark[0] for mark in await marks(ep)] == [10, 20, 50]


async def test_the_last_note_of_a_writer_counts_when_it_is_removed(ep: Eventproc, stream: Stream) -> None:
    cut = await write(stream, 1)
    for time in (10, 20):
        assert await note(ep, "a", time, cut) is SUCCESS
    assert await remove(ep, "a") is pb.RemoveWriterResponse.SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [10, 20]
    assert await remove(ep, "a") is pb.RemoveWriterResponse.UNKNOWN_WRITER
    assert await remove(ep, "a", "missing") is pb.RemoveWriterResponse.STREAM_DOES_NOT_EXIST


async def test_writers_that_end_together_take_one_look_at_all_notes(
    ep: Eventproc, stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut = await write(stream, 1)
    looks: list[int] = []

    def live(notes: Mapping[str, WriterNote], now_ms: int) -> dict[str, WriterNote]:
        looks.append(len(notes))
        return live_notes(notes, now_ms)

    monkeypatch.setattr("eventproc.store.marks.live_notes", live)
    for number in range(30):
        assert await note(ep, f"{number}", 10 + number, cut) is SUCCESS
    clock_of(ep).advance(500)
    for number in range(30):
        assert await remove(ep, f"{number}") is pb.RemoveWriterResponse.SUCCESS
    assert len(looks) <= 3  # after the first note, for the last notes, and for the last writer
    assert [mark[0] for mark in await marks(ep)] == [10, 39]


async def test_marks_follow_when_the_clock_is_set_back(ep: Eventproc, stream: Stream) -> None:
    cut = await write(stream, 1)
    for time in (10, 20):  # the second one is due later
        assert await note(ep, "a", time, cut) is SUCCESS
    clock_of(ep).step_wall(-3_600_000)
    await anyio.sleep(2)
    assert [mark[0] for mark in await marks(ep)] == [10, 20]
    clock_of(ep).step_wall(-3_600_000)
    assert await note(ep, "a", 30, cut) is SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [10, 20, 30]


async def test_a_silent_writer_holds_time_up_no_longer_when_the_clock_is_set_back(
    ep: Eventproc, stream: Stream
) -> None:
    cut = await write(stream, 1)
    for writer, time in (("silent", 10), ("live", 20)):
        assert await note(ep, writer, time, cut) is SUCCESS
    clock_of(ep).step_wall(-3_600_000)
    for wait_ms, time, expected in ((0, 30, [10]), (WRITER_SILENT_MS - 1, 40, [10]), (1_000, 50, [10, 50])):
        clock_of(ep).advance(wait_ms)
        assert await note(ep, "live", time, cut) is SUCCESS
        assert [mark[0] for mark in await marks(ep)] == expected


async def test_marks_follow_the_segments_of_a_stream_that_is_split(ep: Eventproc, stream: Stream) -> None:
    before = await write(stream, 2)
    await stream.split(0)
    after = await write(stream, 20)
    assert await note(ep, "a", 10, before) is SUCCESS
    clock_of(ep).advance(1_000)
    assert await note(ep, "b", 30, after) is SUCCESS
    assert await note(ep, "a", 20, after) is SUCCESS
    assert await note(ep, "b", 40, before) is INVALID_POSITION
    await anyio.sleep(2)
    assert await marks(ep) == [(10, 10, before), (20, 30, after)]


async def test_a_truncation_keeps_the_last_mark_that_the_head_has_passed(
    ep: Eventproc, stream: Stream
) -> None:
    cuts = [await write(stream, 1) for _ in range(5)]
    for number, cut in enumerate(cuts):
        clock_of(ep).advance(1_000)
        assert await note(ep, "a", number, cut) is SUCCESS
    await stream.split(0)
    await stream.split("1.1")
    newest = await write(stream, 5)
    await stream.truncate(StreamCut("s/t", stream.stream_id, cuts[3]))
    assert [mark[0] for mark in await marks(ep)] == [3, 4]
    await stream.truncate(await stream.tail())
    assert [mark[0] for mark in await marks(ep)] == [4]
    clock_of(ep).advance(1_000)
    assert await note(ep, "a", 9, newest) is SUCCESS  # its earlier position is not known any more
    assert await note(ep, "b", 9, cuts[4]) is INVALID_POSITION
    assert [mark[0] for mark in await marks(ep)] == [4, 9]


async def test_a_stream_that_is_created_again_has_no_marks(ep: Eventproc, stream: Stream) -> None:
    cut = await write(stream, 1)
    for time in (100, 200):
        assert await note(ep, "a", time, cut) is SUCCESS
    await stream.seal()
    await stream.delete()
    await check(ep.db)
    again = await ep.create_stream("s/t")
    assert await marks(ep) == []
    assert await note(ep, "a", 5, await write(again, 1)) is SUCCESS
    assert [mark[0] for mark in await marks(ep)] == [5]


async def test_clients_cannot_write_marks(ep: Eventproc, stream: Stream) -> None:
    assert await note(ep, "a", 1, await write(stream, 1)) is SUCCESS
    async with connected(ep) as peer:
        for command in (
            c.SetupAppend(1, WRITER, MARKS),
            c.CreateTransientSegment(2, WRITER, MARKS),
            c.TruncateSegment(3, MARKS, 10),
        ):
            refusal = await peer.ask(command, c.ErrorMessage)
            assert refusal.text.endswith("only the controller writes marks of time")
    assert len(await marks(ep)) == 1


async def test_a_transactional_writer_notes_the_time_of_a_commit(ep: Eventproc, stream: Stream) -> None:
    for time, size, split in ((0, 1, False), (100, 1, False), (200, 1, True), (300, 200, False)):
        clock_of(ep).advance(1_000)
        begun = await call(ep, "createTransaction")(pb.CreateTxnRequest(streamInfo=STREAM, lease=10_000))
        txn = pb.TxnRequest(streamInfo=STREAM, txnId=begun.txnId, writerId="w", timestamp=time)
        async with connected(ep) as peer:
            number = begun.activeSegments[0].segmentId.segmentId
            name = f"s/t/{number & 0xFFFF}.#epoch.{number >> 32}"
            name += f"#transaction.{begun.txnId.highBits:016x}{begun.txnId.lowBits:016x}"
            await peer.set_up(name)
            for each in range(size):  # a transaction of many blocks is committed by the host
                await peer.ask(block(b"x", last=each), c.DataAppended)
        if split:  # it needs two more epochs, which the host opens
            await stream.split(0)
        await call(ep, "commitTransaction")(txn)
        await call(ep, "commitTransaction")(txn)  # a repeated call
        assert (await call(ep, "checkTransactionState")(txn)).state == pb.TxnState.COMMITTED
        found = await marks(ep)
        assert [mark[:2] for mark in found] == [(each, each) for each in (100, 200, 300) if each <= time]
        if time:
            assert found[-1][2] == dict((await stream.tail()).offsets)
