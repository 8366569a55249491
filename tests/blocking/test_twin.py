"""The blocking twin: the same names, the same results, the same errors, and an end in every case."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import nullcontext
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import anyio.to_thread
import attrs
import pytest

import eventproc
from eventproc.blocking import (
    BlockingEventproc,
    BlockingReader,
    BlockingStream,
)
from eventproc.store.model.errors import (
    Closed,
    ForkedError,
    IllegalTransition,
    NotFound,
    StoreMissing,
    StreamSealed,
    WriterFailed,
)
from eventproc.streams import EventWriter, NewEvent


def test_a_stream_is_created_used_and_deleted_without_await(
    ep: BlockingEventproc, stream: BlockingStream
) -> None:
    with stream.writer() as writer:
        for number in range(2500):
            writer.post(b"%d" % number, key=f"k{number % 7}")
        writer.write(b"last", key="k0", event_time=5, headers={"a": "b"})
        assert writer.events_written == 2501
    stream.split(0)
    stream.merge(*[each.id for each in stream.segments()][:2])
    assert [len(epoch.ids) for epoch in stream.epochs()] == [2, 3, 2]
    with stream.reader() as reader:
        events = list(reader.until(stream.tail()))
        cut = reader.cut()
    for key in {event.key for event in events}:
        mine = [event.payload for event in events if event.key == key]
        expected = [b"%d" % number for number in range(2500) if f"k{number % 7}" == key]
        assert mine == expected + ([b"last"] if key == "k0" else [])
    last = next(event for event in events if event.payload == b"last")
    assert (last.event_time, dict(last.headers)) == (5, {"a": "b"})
    stream.truncate(cut)
    assert stream.describe().events == 0
    stream.seal()
    with stream.reader() as reader:
        assert list(reader) == []
    stream.delete()
    with pytest.raises(NotFound):
        ep.stream("shop/orders")
    assert ep.streams() == []
    ep.delete_scope("shop")
    assert ep.scopes() == []


def test_batches_hold_the_events_of_many_posts(stream: BlockingStream) -> None:
    with stream.writer() as writer:
        assert writer.write_many((b"x" * 100, str(number)) for number in range(25_000)) == 25_000
    with stream.reader() as reader:
        sizes = [len(batch) for batch in reader.batches(until=stream.tail())]
    assert sum(sizes) == 25_000
    assert len(sizes) < 100


@pytest.mark.parametrize("left_by", [None, ValueError, KeyboardInterrupt])
def test_a_loop_may_be_left_at_any_event_and_the_next_one_goes_on_behind(
    stream: BlockingStream, left_by: type[BaseException] | None
) -> None:
    with stream.writer() as writer:
        writer.write_many((b"%d" % number, str(number)) for number in range(40))
    tail, seen = stream.tail(), []

    def read(reader: BlockingReader, count: int) -> None:
        for event in islice(reader.until(tail), count):
            seen.append(event.payload)
            if len(seen) % count == 0 and left_by is not None:
                raise left_by

    with stream.reader() as reader:
        for count in (1, 3, 30):
            with pytest.raises(left_by) if left_by else nullcontext():
                read(reader, count)
            with stream.reader(reader.cut()) as other:
                rest = [event.payload for event in other.until(tail)]
            assert sorted(map(int, seen + rest)) == list(range(40))
        rest = [event.payload for batch in reader.batches(until=tail) for event in batch]
        assert reader.cut() == tail
    assert sorted(map(int, seen + rest)) == list(range(40))


def test_a_later_loop_ends_an_earlier_one(stream: BlockingStream) -> None:
    with stream.writer() as writer:
        writer.write_many((b"%d" % number, "k") for number in range(3))
    tail = stream.tail()
    with stream.reader() as reader:
        earlier = reader.until(tail)
        assert next(earlier).payload == b"0"
        assert [event.payload for event in reader.until(tail)] == [b"1", b"2"]
        with pytest.raises(IllegalTransition, match="ended by a later one"):
            next(earlier)
        assert reader.cut() == tail


def test_posted_written_and_many_keep_the_order_of_the_calls(stream: BlockingStream) -> None:
    with stream.writer() as writer:
        writer.post(b"1", key="k")
        writer.write(b"2", key="k")
        writer.post(b"3", key="k")
        writer.write_many([(b"4", "k"), NewEvent(b"5", "k")])
        writer.post(b"6", key="k")
        writer.flush()
        writer.post(b"7", key="k")
    with stream.reader() as reader:
        assert [event.payload for event in reader.until(stream.tail())] == [b"%d" % n for n in range(1, 8)]


def test_events_posted_before_an_interrupted_call_are_written(
    stream: BlockingStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching, caught = EventWriter.post, threading.Event()
    main = threading.get_ident()

    async def post(writer: EventWriter[bytes], payload: bytes, **options: Any) -> None:
        if payload == b"5":
            signal.pthread_kill(main, signal.SIGINT)
            await anyio.to_thread.run_sync(caught.wait, abandon_on_cancel=True)
        await reaching(writer, payload, **options)

    monkeypatch.setattr(EventWriter, "post", post)
    with stream.writer() as writer:
        for number in range(10):
            writer.post(b"%d" % number, key="k")
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        caught.set()
        writer.flush()
        with stream.reader() as reader:
            found = [event.payload for event in reader.until(stream.tail())]
    assert found == [b"%d" % number for number in range(10)]


@attrs.frozen
class Order:
    number: int
    to: str


def test_payloads_may_have_a_type(stream: BlockingStream) -> None:
    with stream.writer(payload=Order) as writer:
        writer.post(Order(1, "é"), key="a")
    with stream.reader(payload=Order) as reader:
        assert [event.payload for event in reader.until(stream.tail())] == [Order(1, "é")]


def test_a_sealed_stream_refuses_the_writer_at_flush_and_at_the_end_of_the_block(
    stream: BlockingStream,
) -> None:
    with stream.writer() as writer:
        stream.seal()
        writer.post(b"late")
        with pytest.raises(StreamSealed):
            writer.flush()
    with pytest.raises(StreamSealed), stream.writer():
        pass


def test_after_a_failure_a_post_is_refused_and_says_why(stream: BlockingStream) -> None:
    def post_for_ever() -> None:  # until a post is refused, because an earlier one failed
        with stream.writer() as writer:
            stream.seal()
            for _ in cycle([None]):
                writer.post(b"late", key="k")

    with pytest.raises(WriterFailed, match="is sealed"):
        post_for_ever()


@pytest.mark.parametrize("why", [ValueError("mine"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_of_the_block_is_raised_unchanged(why: BaseException, tmp_path: Path) -> None:
    def fail() -> None:
        with eventproc.open_blocking(tmp_path / "data") as ep:
            ep.create_scope("s")
            with ep.create_stream("s/t").writer() as writer:
                writer.post(b"x")
                raise why

    with pytest.raises(type(why)) as caught:
        fail()
    assert caught.value is why
    with eventproc.open_blocking(tmp_path / "data") as ep:
        # What was posted before an ordinary error is written; an interrupt drops what was not handed over.
        assert ep.stream("s/t").describe().events == isinstance(why, Exception)


def _threads() -> list[threading.Thread]:
    """Return the threads that a program waits for when it ends."""
    return [thread for thread in threading.enumerate() if not thread.daemon]


@pytest.mark.parametrize("use", [BlockingEventproc.scopes, lambda ep: ep.create_scope("t")])
def test_after_the_end_of_its_block_the_directory_is_closed(
    use: Callable[[BlockingEventproc], object], tmp_path: Path
) -> None:
    threads = set(_threads())
    with eventproc.open_blocking(tmp_path / "data") as ep:
        ep.create_scope("s")
        writer = ep.create_stream("s/t").writer()
        with writer:
            writer.post(b"1")
        with pytest.raises(Closed):
            writer.post(b"2")
    with pytest.raises(Closed):
        use(ep)
    assert set(_threads()) <= threads


def test_a_directory_that_is_missing_is_refused(tmp_path: Path) -> None:
    threads = set(_threads())
    with pytest.raises(StoreMissing), eventproc.open_blocking(tmp_path / "data", create=False):
        pass
    assert set(_threads()) <= threads


def test_a_reader_waits_for_events_of_another_thread(stream: BlockingStream) -> None:
    def write() -> None:
        with stream.writer() as writer:
            writer.post(b"1")
        stream.seal()

    with stream.reader("tail") as reader:
        thread = threading.Thread(target=write)
        thread.start()
        assert [event.payload for event in reader] == [b"1"]
        thread.join()


@pytest.mark.subprocess
def test_a_forked_child_is_refused_and_does_not_hang(ep: BlockingEventproc) -> None:
    child = os.fork()
    if not child:
        try:
            ep.scopes()
        except ForkedError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert ep.scopes() == []


@pytest.mark.subprocess
@pytest.mark.parametrize("code", [None, 3])
def test_a_forked_child_that_leaves_the_blocks_ends_and_its_parent_continues(
    code: int | None, tmp_path: Path
) -> None:
    child, ended = -1, 1
    try:
        with eventproc.open_blocking(tmp_path / "data", durability="os") as ep:
            ep.create_scope("s")
            stream = ep.create_stream("s/t")
            with stream.writer() as writer, stream.reader() as reader:
                writer.post(b"of the parent")
                child = os.fork()
                if child:
                    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == (code or 7)
                    writer.write(b"later")
                    events = [event.payload for event in reader.until(stream.tail())]
                    assert events == [b"of the parent", b"later"]
                else:
                    signal.alarm(20)  # ends a child that hangs, with another exit code
                    with pytest.raises(ForkedError):
                        writer.post(b"of the child")
                    if code is not None:
                        sys.exit(code)
        ended = 7
    except SystemExit as why:
        ended = int(str(why.code))
    finally:
        if not child:
            os._exit(ended)
