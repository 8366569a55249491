"""A process that runs one processor on a stream, for the tests that kill and stop such processes.

    python -m tests.system.processing BASE NAME ORDER KIND GATE [DEATH POINT COUNT]

ORDER is "segment", "key" or "none". KIND is "once" (exactly once) or "least" (at least once). Calls for events that
count GATE and more ("-": none) say "gated" and wait for a line on the input. It notes in BASE/journal/NAME.handled
each event whose call is about to return, emits two events for each, and says "seen N" now and then, and "idle" when
nothing is left. It ends with its input, draining. DEATH POINT COUNT: see protocol.py.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from pathlib import Path

import anyio
import anyio.to_thread

import eventproc
from eventproc.processors.app import OrderName
from eventproc.store.faults import NO_FAULTS
from tests.system.protocol import SayHandler, mortality, say

SOURCE = "work/in"
TARGET = "work/out"
GROUP = "work/group"

SEEN_EACH = 250
YIELD_EACH = 17
"""One call in so many waits, so that calls for many keys run at the same time."""


class HandlerNotes:
    """What this process handled: "segment number payload key", a line each, without a buffer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._seen = 0

    def note(self, event: eventproc.Event) -> None:
        os.write(
            self._file,
            b"%d %d %s %s\n" % (event.segment, event.number, event.payload, (event.key or "").encode()),
        )
        self._seen += 1
        if self._seen % SEEN_EACH == 0:
            say(f"seen {self._seen}")


class HandlerGate:
    """Lets calls for events that count less than `begin` pass, and all once it is open."""

    def __init__(self, begin: str) -> None:
        self.opened = anyio.Event()
        self._begin = None if begin == "-" else int(begin)

    async def passed(self, event: eventproc.Event) -> None:
        if self._begin is not None and int(event.payload) >= self._begin and not self.opened.is_set():
            say("gated")
            await self.opened.wait()


def make_app(
    order: OrderName | None, notes: HandlerNotes, gate: HandlerGate, *, exactly_once: bool
) -> eventproc.App:
    app = eventproc.App()

    @app.processor(SOURCE, group=GROUP, order=order, exactly_once=exactly_once)
    async def work(event: eventproc.Event, context: eventproc.Context) -> None:
        await gate.passed(event)
        if event.number % YIELD_EACH == 0:
            await anyio.lowlevel.checkpoint()
        for part in (b"a", b"b"):
            context.emit(TARGET, event.payload + part, key=event.key)
        notes.note(event)

    return app


async def process(base: Path, name: str, order: OrderName | None, kind: str, begin: str, *death: str) -> None:
    mortal, gate = mortality(*death), HandlerGate(begin)
    notes = HandlerNotes(base / "journal" / f"{name}.handled")
    app = make_app(order, notes, gate, exactly_once=kind == "once")
    opening = eventproc.open(base / "store", create=False, faults=mortal or NO_FAULTS)
    async with opening as ep, ep.run(app) as running:
        say("open")
        if mortal is not None:
            mortal.arm()

        async def tell_idle() -> None:
            await running.wait_idle()
            say("idle")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell_idle)
            while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
                gate.opened.set()
            tasks.cancel_scope.cancel()
    say("closed")


def main(base: str, name: str, order: str, kind: str, gate: str = "-", *death: str) -> None:
    logging.basicConfig(handlers=[SayHandler()], level=logging.INFO)
    orders: dict[str, OrderName | None] = {"segment": "segment", "key": "key", "none": None}
    asyncio.run(process(Path(base), name, orders[order], kind, gate, *death))


if __name__ == "__main__":
    main(*sys.argv[1:])
