"""Callbacks of threads all run on the event loop, in order, even if one of them fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from contextvars import ContextVar
from functools import partial
from typing import cast

import anyio
import pytest

from eventproc.store.database.connections import LoopCallbacks
from eventproc.testing.crash import PATIENCE_S


def leave(callbacks: LoopCallbacks, calls: Iterable[Callable[[], None]]) -> None:
    """Add the callbacks from another thread while the event loop is blocked."""

    def run() -> None:
        for call in calls:
            callbacks.call(call)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


async def test_a_wait_runs_what_a_thread_adds_and_ends() -> None:
    name: ContextVar[str] = ContextVar("name", default="unset")
    name.set("the waiting caller")
    with closing(LoopCallbacks()) as callbacks:
        for number in range(200):
            ran: list[tuple[int, str]] = []
            thread = threading.Thread(
                target=callbacks.call, args=(lambda ran=ran, number=number: ran.append((number, name.get())),)
            )
            thread.start()
            assert callbacks.wait(60)
            thread.join()
            assert ran == [(number, "unset")]


async def test_a_wait_without_a_callback_ends_and_later_ones_wake_the_event_loop() -> None:
    with closing(LoopCallbacks()) as callbacks:
        assert not callbacks.wait(0.001)
        done = anyio.Event()
        leave(callbacks, [done.set])
        await done.wait()


async def test_what_a_thread_adds_to_an_interrupted_wait_runs_later() -> None:
    with closing(LoopCallbacks()) as callbacks:
        done = anyio.Event()

        class InterruptedNap:
            def acquire(self, *, timeout: float) -> bool:
                leave(callbacks, [done.set])
                raise KeyboardInterrupt

        callbacks._nap = cast("threading.Lock", InterruptedNap())
        with pytest.raises(KeyboardInterrupt):
            callbacks.wait(60)
        with anyio.fail_after(PATIENCE_S):
            await done.wait()


async def test_a_raising_callback_is_logged_and_the_others_run(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> None:
        raise ValueError("on purpose")

    with closing(LoopCallbacks()) as callbacks:
        done = anyio.Event()
        leave(callbacks, [fail, done.set])
        await done.wait()
    assert "on purpose" in caplog.text


async def test_an_interrupted_callback_does_not_stop_the_others() -> None:
    def interrupted() -> None:
        raise asyncio.CancelledError

    loop = asyncio.get_running_loop()
    reported: list[object] = []
    handler = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reported.append(context["exception"]))
    try:
        with closing(LoopCallbacks()) as callbacks:
            done = anyio.Event()
            leave(callbacks, [interrupted, done.set])
            with anyio.fail_after(10):
                await done.wait()
    finally:
        loop.set_exception_handler(handler)
    assert [type(each) for each in reported] == [asyncio.CancelledError]


async def test_callbacks_do_not_run_in_the_context_of_the_opener() -> None:
    name: ContextVar[str] = ContextVar("name", default="unset")
    token = name.set("the opener")
    seen: list[str] = []
    with closing(LoopCallbacks()) as callbacks:
        done = anyio.Event()
        leave(callbacks, [lambda: seen.append(name.get()), done.set])
        await done.wait()
    name.reset(token)
    assert seen == ["unset"]


async def test_more_callbacks_than_the_pipe_holds_run_on_the_loop_in_order() -> None:
    with closing(LoopCallbacks()) as callbacks:
        ran: list[tuple[int, int]] = []
        done = anyio.Event()
        calls = [partial(lambda n: ran.append((n, threading.get_ident())), n) for n in range(70_000)]
        leave(callbacks, [*calls, done.set])
        assert ran == []
        await done.wait()
    assert ran == [(number, threading.get_ident()) for number in range(70_000)]


async def test_closing_runs_what_was_left() -> None:
    ran: list[int] = []
    callbacks = LoopCallbacks()
    callbacks.call(partial(ran.append, 1))
    callbacks.close()
    assert ran == [1]
