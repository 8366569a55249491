"""Windows in time: what writers say about the time of their events, and what readers of a group see of it."""

from __future__ import annotations

from contextlib import AsyncExitStack, suppress

import anyio
import anyio.lowlevel
import pytest

from eventproc import Eventproc, GroupReader, ScalingPolicy, Stream, StreamCut, open_memory
from eventproc.errors import Closed, InvalidArgument, StreamReplaced, StreamSealed, WriterFenced
from eventproc.testing import VirtualClock, check, run_seeded
from eventproc.windows import TimeWindow
from tests.groups.support import eventually

UNKNOWN = TimeWindow(None, None)


async def read(reader: GroupReader, stream: Stream) -> list[int]:
    """Read all that the reader may, durably; return the event times."""
    times: list[int] = []
    async for event in reader.until(await stream.tail()):
        assert event.event_time is not None
        times.append(event.event_time)
    await reader.commit()
    return times


@pytest.fixture
def each_note_makes_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no note wait for a second after the one before."""
    monkeypatch.setattr("eventproc.store.marks.LOOK_PAUSE_MS", 0)


at_once = pytest.mark.usefixtures("each_note_makes_a_mark")


async def test_a_group_stands_between_the_times_that_its_writer_has_noted(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    group = await ep.create_group("g", ["s/t"])
    async with stream.writer() as writer, group.reader("r") as reader:
        await writer.write(b"a", event_time=10)
        assert await reader.time_window() == UNKNOWN
        await writer.note_time(20)
        assert await reader.time_window() == TimeWindow(None, 20)
        assert await read(reader, stream) == [10]
        assert await reader.time_window("s/t") == TimeWindow(20, None)
        await writer.post(b"b", event_time=25)  # durable before the note
        await writer.note_time(30)

        async def is_marked() -> bool:
            return await reader.time_window() == TimeWindow(20, 30)

        await eventually(ep, is_marked)  # a second after the first mark
        assert await read(reader, stream) == [25]
        assert await reader.time_window() == TimeWindow(30, None)
    async with group.reader("r") as reader:
        assert await reader.time_window() == TimeWindow(30, None)


@at_once
async def test_the_window_never_goes_back_while_the_stream_is_scaled_and_truncated(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    group = await ep.create_group("g", ["s/t"])
    lowers: list[int] = []
    uppers: list[int] = []
    unread: list[int] = []

    async def look(*readers: GroupReader) -> None:
        found = {await reader.time_window() for reader in readers}
        assert len(found) == 1  # it is the group's
        (window,) = found
        assert window.lower is not None or not lowers
        lowers.extend([] if window.lower is None else [window.lower])
        uppers.extend([] if window.upper is None else [window.upper])
        assert lowers == sorted(lowers) and uppers == sorted(uppers)
        assert not unread or not lowers or min(unread) >= lowers[-1]

    async def write(time: int) -> None:
        for writer, later in ((slow, 0), (fast, 5)):
            for key in range(8):
                await writer.write(b"x", key=str(key), event_time=time + later)
                unread.append(time + later)
            await writer.note_time(time + later)

    async with (
        stream.writer() as slow,
        stream.writer() as fast,
        group.reader("a") as first,
        group.reader("b") as second,
    ):
        for time in range(0, 80, 10):
            await write(time)
            await look(first, second)
            if time == 20:
                await stream.split(0)
            if time == 30:
                await stream.merge(*[each.id for each in await stream.segments()][:2])
            for reader in (first, second):
                for read_time in await read(reader, stream):
                    unread.remove(read_time)
                await look(first, second)
            if time in (10, 40, 50):
                await stream.truncate((await group.cuts())["s/t"])
                await look(first, second)
        assert len(set(lowers)) > 3
        # Truncated ahead of the group: it continues at the head.
        await write(90)
        await stream.truncate(await stream.tail())
        unread.clear()
        await look(first, second)
        assert lowers[-1] == 90


@at_once
async def test_a_truncation_far_ahead_in_one_segment_does_not_turn_time_back_in_another(
    ep: Eventproc,
) -> None:
    stream = await ep.create_stream("s/t", scaling=ScalingPolicy.fixed(2))
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader, stream.writer() as writer:
        for time in (10, 20):
            for key in range(20):
                await writer.write(b"x", key=str(key), event_time=time)
            await writer.note_time(time)
            assert len(await read(reader, stream)) == 20
            assert await reader.time_window() == TimeWindow(time, None)
        for key in range(20):  # not read
            await writer.write(b"x", key=str(key), event_time=30)
        kept, divided = [each.id for each in await stream.segments()]
        for _ in range(2):  # so that the history forgets the segment that is divided first
            await stream.split(divided)
            divided = max(each.id for each in await stream.segments())
        head = {**(await stream.tail()).offsets, kept: 0}
        await stream.truncate(StreamCut("s/t", stream.stream_id, head))
        assert await reader.time_window() == TimeWindow(20, None)
        await read(reader, stream)
        assert await reader.time_window() == TimeWindow(20, None)


@at_once
async def test_the_slowest_writer_counts_until_it_is_closed(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader, stream.writer() as fast:
        async with stream.writer(name="slow") as slow:
            await slow.note_time(10)
            await fast.note_time(100)
            assert await reader.time_window() == TimeWindow(10, None)
        await fast.note_time(110)

        async def is_free() -> bool:
            return await reader.time_window() == TimeWindow(110, None)

        await eventually(ep, is_free)


@at_once
async def test_time_passes_a_writer_that_was_closed_only_behind_its_last_event(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader, stream.writer() as fast:
        async with stream.writer() as slow:
            await slow.note_time(10)
            await fast.note_time(100)
            assert await reader.time_window() == TimeWindow(10, None)
            await slow.write(b"x", event_time=12)

        async def is_closed() -> bool:
            return await reader.time_window() == TimeWindow(10, 100)

        await eventually(ep, is_closed)
        assert await read(reader, stream) == [12]
        assert await reader.time_window() == TimeWindow(100, None)


@pytest.mark.parametrize("seed", range(4))
def test_a_writer_that_is_closed_while_it_notes_a_time_does_not_count(seed: int) -> None:
    run_seeded(_close_while_noting, seed=seed)


async def _close_while_noting() -> None:
    async with open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        group = await ep.create_group("s/g", ["s/t"])
        writer = await stream.writer()

        async def note() -> None:
            with suppress(Closed):
                await writer.note_time(20)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(note)
            await anyio.lowlevel.checkpoint()
            await writer.close()
        async with stream.writer() as other, group.reader("r") as reader:
            await anyio.sleep(1.1)  # the stream may have its next mark
            await other.write(b"a", event_time=10)
            await other.note_time(30)
            await anyio.sleep(1.1)
            await read(reader, stream)
            assert (await reader.time_window()).lower == 30


@at_once
async def test_a_fenced_writer_neither_notes_times_nor_takes_back_those_of_its_name(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader, stream.writer() as fast, stream.writer(name="w") as first:
        await first.write(b"x", event_time=10)
        await first.note_time(10)
        async with stream.writer(name="w") as second:
            await second.write(b"x", event_time=20)
            await second.note_time(20)
            with pytest.raises(WriterFenced):
                await first.note_time(1_000)
            await first.close()
            await fast.note_time(1_000)
            await read(reader, stream)
            assert await reader.time_window() == TimeWindow(20, None)


async def test_the_window_of_several_streams_is_unknown_where_it_is_unknown_in_one(ep: Eventproc) -> None:
    streams = [await ep.create_stream(name) for name in ("s/t", "s/u")]
    group = await ep.create_group("g", ["s/t", "s/u"])
    async with streams[0].writer() as one, streams[1].writer() as two, group.reader("r") as reader:
        await one.note_time(10)
        assert await reader.time_window("s/t") == TimeWindow(10, None)
        assert await reader.time_window() == UNKNOWN
        await two.note_time(7)
        assert await reader.time_window() == TimeWindow(7, None)


async def test_due_marks_of_many_streams_are_written_in_steps(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.marks.LOOKS_MAX", 2)
    names = [f"s/t{number}" for number in range(5)]
    writers = [(await ep.create_stream(name)).writer() for name in names]
    group = await ep.create_group("g", names)
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(group.reader("r"))
        for writer in writers:
            await stack.enter_async_context(writer)
            for time in (10, 20):  # the second one is due later
                await writer.note_time(time)

        async def is_marked() -> bool:
            return await reader.time_window() == TimeWindow(20, None)

        await eventually(ep, is_marked)


@at_once
async def test_producers_of_topics_note_times(ep: Eventproc) -> None:
    topic = await ep.create_topic("s/t", partitions=2)
    group = await ep.create_group("g", ["s/t"])
    async with topic.producer() as producer, group.reader("r") as reader:
        await producer.write(b"x", key="a", event_time=1)
        await producer.note_time(5)
        assert await reader.time_window() == TimeWindow(None, 5)
        await topic.add_partitions(3)
        await producer.write(b"x", partition=2, event_time=6)
        await producer.note_time(8)
        assert await reader.time_window() == TimeWindow(None, 5)


async def test_times_that_go_back_and_streams_of_others_are_refused(ep: Eventproc) -> None:
    stream, other = await ep.create_stream("s/t"), await ep.create_stream("s/u")
    group = await ep.create_group("g", ["s/t"])
    async with stream.writer(name="w") as writer, group.reader("r") as reader:
        await writer.note_time(-5)
        await writer.note_time(-5)
        with pytest.raises(InvalidArgument, match="noted a later one"):
            await writer.note_time(-6)
        with pytest.raises(InvalidArgument, match="does not read it"):
            await reader.time_window("s/u")
        with pytest.raises(InvalidArgument):
            await reader.time_window("u")
        assert await reader.time_window() == TimeWindow(-5, None)
    for call in (writer.note_time(1), reader.time_window()):
        with pytest.raises(Closed):
            await call
    async with other.writer() as writer:
        await other.seal()
        with pytest.raises(StreamSealed):
            await writer.note_time(1)


async def test_a_stream_that_is_created_again_starts_without_times(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader:
        async with stream.writer() as writer:
            await writer.note_time(1)
            await stream.seal()
            await stream.delete()
            await ep.create_stream("s/t")
            with pytest.raises(StreamReplaced):
                await writer.note_time(2)
        with pytest.raises(StreamReplaced):
            await reader.time_window()
    await group.delete()
    group = await ep.create_group("g", ["s/t"])
    async with group.reader("r") as reader:
        assert await reader.time_window() == UNKNOWN


@at_once
async def test_a_group_far_behind_the_marks_that_are_kept_does_not_know_the_time(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.marks.MARKS_BYTES_MAX", 400)
    stream = await ep.create_stream("s/t")
    group, behind = await ep.create_group("g", ["s/t"]), await ep.create_group("h", ["s/t"])
    async with stream.writer() as writer, group.reader("r") as reader, behind.reader("r") as far:
        for time in range(20):
            await writer.write(b"x", event_time=time)
            await writer.note_time(time)
            assert await read(reader, stream) == [time]
            assert await reader.time_window() == TimeWindow(time, None)
        window = await far.time_window()
        assert window.lower is None and window.upper is not None and 10 < window.upper < 19
        assert await read(far, stream) == list(range(20))
        assert await far.time_window() == TimeWindow(19, None)
    await check(ep.db)


@pytest.mark.parametrize(
    "kind, problem", [("time marks", "no record of them"), ("client log", "no log of marks")]
)
async def test_a_check_finds_records_of_marks_that_are_lost(kind: str, problem: str) -> None:
    async with open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.note_time(1)
        await check(ep.db)
        lost = await ep.db.write(lambda tx: tx.execute("DELETE FROM record WHERE kind = ?", (kind,)).rowcount)
        assert lost == 1
        with pytest.raises(AssertionError, match=problem):
            await check(ep.db)
