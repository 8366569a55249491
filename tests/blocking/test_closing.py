"""Closing a directory while other threads use it, or left blocks open: it ends within bounds, and so do the threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import eventproc.blocking.loop
from eventproc.blocking import BlockingEventproc, open_blocking
from eventproc.processors import App
from eventproc.store.model.errors import Closed
from eventproc.store.segments import Event as StreamEvent

PATIENCE_S = 60

Begin = Callable[[], None]
Follow = Callable[[BlockingEventproc, Begin], None]


def follow_stream(ep: BlockingEventproc, begin: Begin) -> None:
    for _ in ep.stream("s/t").reader():
        begin()


def read_in_a_block(ep: BlockingEventproc, begin: Begin) -> None:
    with ep.stream("s/t").reader() as reader:
        for _ in reader.batches():
            begin()


def read_in_a_group(ep: BlockingEventproc, begin: Begin) -> None:
    with ep.create_group("s/g", ["s/t"]).reader("a") as reader:
        for _ in reader:
            begin()


def consume_shared(ep: BlockingEventproc, begin: Begin) -> None:
    with ep.create_share_group("s/q", ["s/t"]).consumer("a") as consumer:
        for _ in consumer:
            begin()


def poll_a_topic(ep: BlockingEventproc, begin: Begin) -> None:
    ep.create_topic("s/topic")
    with ep.create_group("s/c", ["s/topic"], on_deleted="drop").consumer("a") as consumer:
        begin()
        consumer.poll()


def watch_instances(ep: BlockingEventproc, begin: Begin) -> None:
    for _ in ep.cluster.changes():
        begin()


def post_for_ever(ep: BlockingEventproc, begin: Begin) -> None:
    with ep.stream("s/t").writer() as writer:
        while True:
            writer.post(b"more", key="k")
            begin()


@pytest.fixture
def closing(tmp_path: Path) -> BlockingEventproc:
    ep = open_blocking(tmp_path / "data", durability="os")
    ep.create_scope("s")
    with ep.create_stream("s/t").writer() as writer:
        writer.write(b"first", key="k")
    return ep


@pytest.mark.parametrize(
    "follow",
    [
        follow_stream,
        read_in_a_block,
        read_in_a_group,
        consume_shared,
        poll_a_topic,
        watch_instances,
        post_for_ever,
    ],
)
def test_closing_ends_a_thread_that_follows_for_ever(closing: BlockingEventproc, follow: Follow) -> None:
    begun, outcome = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            follow(closing, begun.set)
        except Closed as why:
            outcome.append(why)

    thread = threading.Thread(target=run)
    with closing as ep:
        thread.start()
        assert begun.wait(PATIENCE_S)
    thread.join(PATIENCE_S)
    assert outcome, "the thread learns that the directory was closed"
    with pytest.raises(Closed):
        ep.scopes()


def test_closing_with_blocks_that_were_not_left_ends(closing: BlockingEventproc) -> None:
    with closing as ep:
        stream = ep.stream("s/t")
        joint = ep.transaction().__enter__()
        joint.write("s/t", b"unfinished", key="k")
        for block in (stream.transaction(), stream.writer(), stream.reader()):
            block.__enter__()
    with pytest.raises(Closed):  # what it wrote will never be visible
        joint.__exit__(None, None, None)


def test_closing_leaves_a_handler_that_never_returns_after_named_bounds(
    closing: BlockingEventproc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(eventproc.blocking.loop, "CLOSE_S", 0.05)
    begun, polled, never, app = threading.Event(), threading.Event(), threading.Event(), App()

    def handle(event: StreamEvent) -> None:
        begun.set()
        never.wait()

    def consume(events: object) -> None:
        polled.set()
        never.wait()

    app.add(handle, "s/t", group="s/app")
    with closing as ep:
        topic = ep.create_topic("s/topic")
        with topic.writer() as writer:
            writer.write(b"first", key="k")
        consumer = ep.create_group("s/c", ["s/topic"], on_deleted="drop").consumer("a")

        def run() -> None:
            with suppress(Closed):
                consumer.run(consume)

        thread = threading.Thread(target=run)
        thread.start()
        ep.run(app, grace_ms=0).__enter__()
        assert begun.wait(PATIENCE_S) and polled.wait(PATIENCE_S)
    assert "its thread does not end" in caplog.text
    with pytest.raises(Closed):
        ep.scopes()
    never.set()
    thread.join(PATIENCE_S)
