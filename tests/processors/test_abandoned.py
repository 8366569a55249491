"""User code that ignores its cancellation: it is abandoned, and the error names the processor and the event."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import pytest

from eventproc.errors import HandlerAbandoned, ProcessorFailed
from eventproc.processors import App, run
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event
from eventproc.testing.crash import PATIENCE_S
from tests.processors.support import GROUP, STREAM, group, lag, system, until_next, write
from tests.processors.worker import until

GRACE_MS = 10

CAUGHT = 3
"""Cancellations that such code catches."""


class Stubborn:
    """Code that ignores every cancellation until it is released; the first ones by catching them.

    Afterwards it waits behind a shield: in virtual time, no time would pass beside code that never waits.
    """

    def __init__(self) -> None:
        self.ignored = 0
        self._released = anyio.Event()

    async def run(self) -> None:
        while self.ignored < CAUGHT:
            try:
                await anyio.sleep_forever()
            except BaseException:
                self.ignored += 1
        with anyio.CancelScope(shield=True):
            await self._released.wait()

    def release(self) -> None:
        self._released.set()


@asynccontextmanager
async def with_stubborn(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Eventproc, Stubborn]]:
    """A system, and code that is released at the end, when its processor then leaves the group."""
    monkeypatch.setattr(run, "CANCELLED_MS", 50)
    async with system() as ep:
        stubborn = Stubborn()
        yield ep, stubborn
        assert stubborn.ignored == CAUGHT
        stubborn.release()
        while (await group(ep)).members:
            await until_next()


def app_of(handler: object, **choices: object) -> App:
    app = App()
    app.add(handler, STREAM, group=GROUP, name="mail", **choices)  # type: ignore[call-overload]
    return app


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_call_that_ignores_its_cancellation_is_abandoned_by_name(
    exactly_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with with_stubborn(monkeypatch) as (ep, stubborn):
        handled: list[str | None] = []

        async def handle(event: Event) -> None:
            if event.key == "stuck":
                await stubborn.run()
            handled.append(event.key)

        await write(ep, ["a", "stuck", "b"])
        app = app_of(handle, exactly_once=exactly_once)
        with pytest.raises(HandlerAbandoned) as raised:
            async with ep.run(app, grace_ms=GRACE_MS) as running:
                await until(lambda: running.in_flight == 1 and sorted(map(str, handled)) == ["a", "b"])
        assert isinstance(raised.value, ProcessorFailed)
        assert raised.value.processor == "mail"
        assert "s/t segment 0.0 event 1 (key 'stuck')" in str(raised.value)
        assert await lag(ep) == (3 if exactly_once else 1)  # what other calls finished is durable


async def test_a_block_that_failed_raises_its_own_error_and_logs_the_abandoned_call(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with with_stubborn(monkeypatch) as (ep, stubborn):

        async def handle(event: Event) -> None:
            await stubborn.run()

        async def fail() -> None:
            async with ep.run(app_of(handle), grace_ms=GRACE_MS) as running:
                await until(lambda: running.in_flight == 1)
                raise ValueError("of the block")

        await write(ep, ["a"])
        with pytest.raises(ValueError, match="of the block"):
            await fail()
    (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "processor mail was abandoned: the call of its handler for s/t segment 0.0" in logged.getMessage()


async def test_other_processors_of_the_app_end_in_order_beside_an_abandoned_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with with_stubborn(monkeypatch) as (ep, stubborn):
        handled: list[int] = []

        async def handle(event: Event) -> None:
            await stubborn.run()

        async def orderly(event: Event) -> None:
            handled.append(event.number)

        await write(ep, ["a"])
        app = app_of(handle)
        app.add(orderly, STREAM, group="s/orderly", name="orderly")
        with pytest.raises(HandlerAbandoned, match="mail"):
            async with ep.run(app, grace_ms=GRACE_MS) as running:
                await until(lambda: running.in_flight == 1 and handled == [0])
        assert (await (await ep.group("s/orderly")).describe()).events == 0
        assert (await (await ep.group("s/orderly")).describe()).members == ()


async def test_the_stop_of_a_handler_that_ignores_its_cancellation_is_abandoned_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(run, "WIND_UP_MS", 50)
    monkeypatch.setattr("eventproc.processors.engine.handling.WIND_UP_MS", 50)
    async with with_stubborn(monkeypatch) as (ep, stubborn):

        class Mailer:
            async def process(self, event: Event) -> None: ...

            async def stop(self) -> None:
                await stubborn.run()

        await write(ep, ["a"])
        with pytest.raises(HandlerAbandoned, match="the `stop` of its handler"):
            async with ep.run(app_of(Mailer), grace_ms=GRACE_MS) as running:
                await running.wait_idle()
        assert await lag(ep) == 0


async def test_a_call_on_a_thread_that_never_returns_ends_with_the_grace_period_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    begun, released = threading.Event(), threading.Event()

    def handle(event: Event) -> None:
        begun.set()
        released.wait()

    try:
        async with system() as ep:
            await write(ep, ["a"])
            async with ep.run(app_of(handle), grace_ms=GRACE_MS):
                await until(begun.is_set)
            assert await lag(ep) == 1
    finally:
        released.set()
    (logged,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert logged.getMessage().startswith(
        "processor mail: the call for s/t segment 0.0 event 0 (key 'a') was"
    )


PROGRAM = """
import asyncio
import anyio
import eventproc
from eventproc.processors import run

run.CANCELLED_MS = 50
app = eventproc.App()

@app.processor("s/t", group="g")
async def handle(event: eventproc.Event) -> None:
    while True:
        try:
            await anyio.sleep(3600)
        except BaseException:
            pass

async def main() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write(b"x")
        async with ep.run(app, grace_ms=10) as running:
            while not running.in_flight:
                await anyio.lowlevel.checkpoint()

asyncio.run(main())
"""


@pytest.mark.subprocess
def test_a_program_ends_with_the_error_although_its_handler_never_does() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 1
    assert "HandlerAbandoned: processor handle was abandoned" in done.stderr.splitlines()[-1]
    assert "was destroyed" not in done.stderr
    assert "asynchronous generator" not in done.stderr
