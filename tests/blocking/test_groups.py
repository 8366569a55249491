"""Reader groups without `await`: what is finished, what comes again, and that segments change hands between events."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.blocking import BlockingEventproc, BlockingGroup, BlockingStream
from eventproc.groups.session import SAVE_EVENTS
from eventproc.store.model.errors import Closed, InvalidArgument
from eventproc.store.model.group_errors import GroupStreamReplaced, ReaderOnline
from eventproc.windows import TimeWindow
from tests.support.child_process import run

GROUP = "shop/billing"


@pytest.fixture
def group(ep: BlockingEventproc, stream: BlockingStream) -> BlockingGroup:
    return ep.create_group("billing", ["shop/orders"])


def write(stream: BlockingStream, count: int, *, first: int = 0, key: str | None = "customer-42") -> None:
    with stream.writer() as writer:
        writer.write_many((b"%d" % number, key or str(number)) for number in range(first, first + count))


def numbers(events: Iterator[eventproc.Event], count: int | None = None) -> list[int]:
    return [int(event.payload) for event in islice(events, count)]


def test_events_are_read_up_to_a_cut_and_finished_by_leaving(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 2500)
    with group.reader("r1") as reader:
        assert numbers(reader.until(stream.tail())) == list(range(2500))
        write(stream, 3, first=2500)
        assert numbers(reader.until(stream.tail())) == [2500, 2501, 2502]
        assert group.describe().members[0].reader == reader.reader == "r1"
    assert group.cuts() == {"shop/orders": stream.tail()}
    with group.reader("r1") as reader:
        assert numbers(reader.until(stream.tail())) == []


def test_a_loop_may_be_left_and_the_next_one_goes_on_behind(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 20)
    with group.reader("r1") as reader:
        assert numbers(iter(reader), 4) == [0, 1, 2, 3]
        assert numbers(iter(reader), 2) == [4, 5]
        batch = next(reader.batches(until=stream.tail()))
        assert [int(event.payload) for event in batch] == list(range(6, 20))
    with group.reader("r1") as reader:
        assert numbers(reader.until(stream.tail())) == []


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
def test_leaving_by_an_exception_does_not_finish_the_event_in_hand(
    stream: BlockingStream, group: BlockingGroup, kind: type[BaseException]
) -> None:
    write(stream, 6)

    def read() -> None:
        with group.reader("r1") as reader:
            for event in reader:
                if event.payload == b"3":
                    raise kind

    with pytest.raises(kind):
        read()
    with group.reader("r1") as reader:
        assert numbers(reader.until(stream.tail())) == [3, 4, 5]


@pytest.mark.parametrize("before", [0, 2])
def test_an_event_that_cannot_be_decoded_is_not_finished(
    before: int, stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, before)
    with stream.writer() as writer:
        writer.write_many((each, "customer-42") for each in (b"no number", b"7"))
    tail, seen = stream.tail(), list[int]()
    with group.reader("r1", payload=int) as reader:
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="int"):
                seen.extend(event.payload for event in reader.until(tail))
    with group.reader("r1") as reader:
        assert [event.payload for event in reader.until(tail)] == [b"no number", b"7"]
    assert seen == list(range(before))


def test_an_interrupt_ends_a_reader_that_waits_and_the_directory_goes_on(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 3)
    seen: list[int] = []

    def read() -> None:
        with group.reader("r1") as reader:
            seen.extend(int(event.payload) for event in reader)

    def interrupt() -> None:
        while group.describe().events:  # the last one is finished when the next one is asked for
            pass
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        read()
    thread.join()
    assert seen == [0, 1, 2]
    write(stream, 1, first=3)
    with group.reader("r1") as reader:
        assert numbers(reader.until(stream.tail())) == [3]


def test_progress_is_durable_after_a_thousand_events_and_at_a_commit(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 2 * SAVE_EVENTS + 100)
    with group.reader("r1") as reader:
        events = iter(reader)
        numbers(events, 2 * SAVE_EVENTS + 1)
        assert group.describe().events == 100
        assert numbers(events, 10)[-1] == 2 * SAVE_EVENTS + 10
        reader.commit()
        assert group.describe().events == 89
        assert reader.position == {"shop/orders": dict(group.cuts()["shop/orders"].offsets)}
        assert numbers(events, 1) == [2 * SAVE_EVENTS + 11]


def test_progress_is_durable_a_second_later_while_an_event_is_in_flight(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 10)
    with group.reader("r1") as reader:
        events = iter(reader)
        for finished in (3, 6):
            numbers(events, 3 if finished == 6 else 4)
            while group.describe().events > 10 - finished:
                pass
            assert group.describe().events == 10 - finished


def test_a_segment_is_given_away_between_two_events_and_none_is_read_twice(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 4000, key=None)
    end = stream.tail()
    with group.reader("r1") as first:
        events = first.until(end)
        seen = numbers(events, 10)
        assert len(first.owned) == 2
        with group.reader("r2") as second:
            seen += numbers(events, 1)  # what was in hand is finished, and its segment may go
            with ThreadPoolExecutor() as threads:
                theirs = threads.submit(numbers, second.until(end))
                seen += numbers(events)
                found = theirs.result(60)
            assert {len(first.owned), len(second.owned)} == {1}
    assert found
    assert sorted(seen + found) == list(range(4000))


def test_a_reader_declared_offline_goes_on_as_a_new_member(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 100)
    with group.reader("r1") as reader:
        events = reader.until(stream.tail())
        assert numbers(events, 5) == [0, 1, 2, 3, 4]
        reader.commit()
        group.reader_offline("r1")
        rest = numbers(events)
        assert sorted({*rest}) == list(range(5, 100))
    assert group.describe().events == 0


def test_a_group_is_reset_to_a_checkpoint_while_it_is_read(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    write(stream, 10)
    with group.reader("r1") as reader:
        numbers(reader.until(stream.tail()))
        assert group.checkpoint("first").name == "first"
        write(stream, 5, first=10)
        assert numbers(reader.until(stream.tail())) == [10, 11, 12, 13, 14]
        group.reset(checkpoint="first")
        assert numbers(reader.until(stream.tail())) == [10, 11, 12, 13, 14]
    assert [each.name for each in group.checkpoints()] == ["first"]


def test_the_stream_of_each_event_is_known(ep: BlockingEventproc, stream: BlockingStream) -> None:
    other = ep.create_stream("shop/more")
    write(stream, 2)
    write(other, 1, first=2)
    with ep.create_group("both", ["shop/orders", "shop/more"]).reader("r1") as reader:
        found = {event.payload: event.stream for event in reader.until([stream.tail(), other.tail()])}
    assert found == {b"0": "shop/orders", b"1": "shop/orders", b"2": "shop/more"}


def test_invalid_arguments_are_refused(stream: BlockingStream, group: BlockingGroup) -> None:
    write(stream, 1)
    closed = group.reader("r1")
    closed.close()
    with pytest.raises(Closed):
        closed.commit()
    with group.reader("r1") as reader:
        with pytest.raises(ReaderOnline), group.reader("r1"):
            pass
        with pytest.raises(InvalidArgument):
            next(reader.until("tail"))  # type: ignore[arg-type]
        stream.seal()
        stream.delete()
        with pytest.raises(GroupStreamReplaced):
            numbers(iter(reader))


@pytest.mark.subprocess
def test_a_forked_child_leaves_its_parent_s_reader_alone(tmp_path: Path) -> None:
    code = """
        import os, sys
        import eventproc

        with eventproc.open_blocking(sys.argv[1]) as ep:
            ep.create_scope("shop")
            stream = ep.create_stream("shop/orders")
            with stream.writer() as writer:
                writer.write_many((b"%d" % number, "k") for number in range(4))
            group = ep.create_group("billing", ["shop/orders"])
            with group.reader("r1") as reader:
                events = iter(reader)
                next(events)
                if (child := os.fork()) == 0:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                else:
                    assert os.waitpid(child, 0)[1] == 0
                    print(int(next(events).payload), len(group.describe().members))
    """
    assert run(code, tmp_path / "data") == "1 1"


def test_the_awaited_and_the_blocking_form_share_a_group(tmp_path: Path) -> None:
    async def read() -> list[int]:
        async with eventproc.open(tmp_path / "data") as ep:
            group = await ep.group(GROUP)
            tail = await (await ep.stream("shop/orders")).tail()
            async with group.reader("r2") as reader:
                return [int(event.payload) async for event in reader.until(tail)]

    with eventproc.open_blocking(tmp_path / "data") as ep:
        ep.create_scope("shop")
        stream = ep.create_stream("shop/orders")
        write(stream, 10)
        group = ep.create_group("billing", ["shop/orders"])
        with group.reader("r1") as reader:
            assert numbers(iter(reader), 4) == [0, 1, 2, 3]
        with ThreadPoolExecutor() as threads:
            assert threads.submit(anyio.run, read).result(60) == [4, 5, 6, 7, 8, 9]


def test_a_writer_notes_times_behind_its_posted_events_and_a_reader_sees_between_which_it_is(
    stream: BlockingStream, group: BlockingGroup
) -> None:
    with stream.writer() as writer, group.reader("a") as reader:
        writer.post(b"1", event_time=10)
        writer.note_time(20)
        assert reader.time_window() == TimeWindow(None, 20)
        assert numbers(reader.until(stream.tail())) == [1]
        reader.commit()
        assert reader.time_window("shop/orders") == TimeWindow(20, None)
        with pytest.raises(InvalidArgument):
            writer.note_time(19)
