"""The thread behind the blocking classes: what an interrupt of the waiting thread does."""

from __future__ import annotations

import signal
import threading

import anyio
import pytest

from eventproc.blocking.loop import running_loop


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
