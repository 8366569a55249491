"""The thread behind the blocking classes: what an interrupt of the waiting thread does."""

from __future__ import annotations

import signal
import threading

import anyio
import pytest

import eventproc.blocking.loop
from eventproc.blocking.loop import running_loop
from eventproc.store.model.errors import Closed


def test_an_interrupt_of_the_caller_cancels_its_call() -> None:
    ended: list[str] = []

    async def interrupt_and_wait() -> None:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            ended.append("cancelled")
            raise

    # The block ends with the interrupt, which may come before the caller waits: whatever is under way goes.
    with pytest.raises(KeyboardInterrupt), running_loop() as loop:
        loop.call(interrupt_and_wait)
    assert ended == ["cancelled"]


def test_closing_cancels_a_call_of_another_thread_that_never_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(eventproc.blocking.loop, "CLOSE_S", 0.01)
    begun, outcome = threading.Event(), list[BaseException]()

    async def wait_forever() -> None:
        begun.set()
        await anyio.sleep_forever()

    def call() -> None:
        try:
            loop.call(wait_forever)
        except BaseException as why:
            outcome.append(why)

    thread = threading.Thread(target=call)
    with running_loop() as loop:
        thread.start()
        assert begun.wait(60)
    thread.join(60)
    assert isinstance(outcome[0], Closed)
    assert "cancelling" in caplog.text
