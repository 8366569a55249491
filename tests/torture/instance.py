"""One instance of the long torture: it writes many streams in several ways, scales them, and copies some.

    python -m tests.torture.instance BASE NAME SEED STREAMS [POINT COUNT]

It works on the store that BASE/address names until its input ends, and notes in BASE/journal/NAME.acks "STREAM WRITER
ROWS" after each acknowledged send. Commands on its input: "wait" answers "sent" after some more sends; "fork NAME" lets
a forked child write a few sends as NAME, and answers "forked". It says "open" and "closed", and logs into
BASE/journal/NAME.log.
POINT COUNT: it kills itself when it reaches the fault point for the COUNTth time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import anyio

import eventproc
from eventproc.store.faults import NO_FAULTS
from eventproc.store.model.errors import EventprocError, Pending, Rejected, Retryable
from eventproc.testing import SignalAt
from tests.support.forked import run_forked
from tests.system.protocol import batches, key_of, payload_of, say

SCOPE = "torture"
COPIES = f"{SCOPE}/copies"
COPIED = 5
"""The first streams, whose events a processor copies to COPIES, exactly once."""

COPIERS = f"{SCOPE}/copiers"

WRITERS = 4
SENDS_A_WRITER = 20
"""Sends after which a task closes its writer and chooses another stream."""

SENDS_A_WAIT = 25
FORKED_SENDS = 10
PAUSE_MS = 20
"""Between two scales: each opens an epoch, and the machine has other work."""


def name_of(number: int) -> str:
    return f"{SCOPE}/stream-{number}"


def copying_app() -> eventproc.App:
    app = eventproc.App()

    @app.processor(*(name_of(number) for number in range(COPIED)), group=COPIERS, exactly_once=True)
    async def copy(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit(COPIES, event.payload, key=event.key)

    return app


class TortureInstance:
    """What one process does until its input ends."""

    def __init__(
        self, base: Path, name: str, seed: str, streams: str, mortal: SignalAt | None = None
    ) -> None:
        self.ended = False
        self._base = base
        self._address = (base / "address").read_text()
        self._name = name
        self._random = Random(seed)
        self._streams = int(streams)
        self._mortal = mortal
        self._sends = 0
        self._sent = threading.Condition()
        self._acks = os.open(base / "journal" / f"{name}.acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def run(self) -> None:
        """Write, commit transactions, scale and copy at the same time."""
        async with eventproc.open(self._address, create=False, faults=self._mortal or NO_FAULTS) as ep:
            say("open")
            if self._mortal is not None:
                self._mortal.arm()
            async with ep.run(copying_app()), anyio.create_task_group() as tasks:
                for task in range(WRITERS):
                    tasks.start_soon(self._write, ep, f"{self._name}-w{task}")
                tasks.start_soon(self._transact, ep, f"{self._name}-t")
                tasks.start_soon(self._scale, ep)

    async def run_forked(self) -> None:
        """Write a few sends, in a forked child."""
        async with eventproc.open(self._address, create=False) as ep:
            await self._send(ep, self._name, batches(self._name), FORKED_SENDS)

    def obey(self) -> None:
        """Obey the commands on the input, in a thread of its own."""
        for line in sys.stdin:
            match line.split():
                case ["wait"]:
                    with self._sent:
                        goal = self._sends + SENDS_A_WAIT
                        self._sent.wait_for(partial(self._has_sent, goal))
                    say("sent")
                case ["fork", name]:
                    child = TortureInstance(self._base, name, name, str(self._streams))
                    code = run_forked(child.run_forked)
                    say("forked" if code == 0 else f"the forked child {name} ended with {code}")
                case unknown:
                    raise ValueError(unknown)
        self.ended = True

    def _has_sent(self, goal: int) -> bool:
        return self._sends >= goal or self.ended

    async def _write(self, ep: eventproc.Eventproc, name: str) -> None:
        for turn in itertools.count():
            if self.ended:
                return
            writer = f"{name}.{turn}"
            await self._send(ep, writer, batches(writer), SENDS_A_WRITER)

    async def _send(self, ep: eventproc.Eventproc, name: str, rows_of: Iterator[range], sends: int) -> None:
        """Send the rows of a writer to a stream. A send that fails may be there or not, and is the last one."""
        number = self._random.randrange(self._streams)
        stream = await ep.stream(name_of(number))
        try:
            async with stream.writer() as writer:
                for rows in itertools.islice(rows_of, sends):
                    await writer.write_many((payload_of(name, row), key_of(name, row)) for row in rows)
                    self._note(number, name, rows.stop)
                    if self.ended:
                        return
        except Retryable as why:  # the lock was held by an instance that was suspended
            logging.info("%s failed to write: %r", name, why)

    async def _transact(self, ep: eventproc.Eventproc, name: str) -> None:
        """Commit each send in a transaction. One that fails may have been committed: its writer ends there."""
        for turn in itertools.count():
            if self.ended:
                return
            writer, number = f"{name}.{turn}", self._random.randrange(self._streams)
            stream = await ep.stream(name_of(number))
            try:
                for rows in itertools.islice(batches(writer), 1 + self._random.randrange(4)):
                    async with stream.transaction(lease_ms=self._random.choice([1_000, None])) as txn:
                        for row in rows:
                            await txn.write(payload_of(writer, row), key=key_of(writer, row))
                    self._note(number, writer, rows.stop)
            except (Rejected, Retryable, Pending) as why:  # its lease ended while this instance was suspended
                logging.info("%s failed to commit: %r", writer, why)

    async def _scale(self, ep: eventproc.Eventproc) -> None:
        """Split and merge. Another instance may have scaled the stream meanwhile, and this request is refused."""
        while not self.ended:
            stream = await ep.stream(name_of(self._random.randrange(self._streams)))
            active = [segment.id for segment in await stream.segments()]
            place = self._random.randrange(len(active))
            try:
                if len(active) < 2 or (len(active) < 5 and self._random.random() < 0.6):
                    await stream.split(active[place])
                else:
                    await stream.merge(*active[max(place - 1, 0) : max(place - 1, 0) + 2])
            except (Rejected, Retryable, Pending) as why:
                logging.info("%s was not scaled: %r", stream.name, why)
            await anyio.sleep(PAUSE_MS / 1000)

    def _note(self, number: int, writer: str, rows: int) -> None:
        os.write(self._acks, f"{number} {writer} {rows}\n".encode())
        with self._sent:
            self._sends += 1
            self._sent.notify_all()


def main(base: str, name: str, seed: str, streams: str, point: str = "", count: str = "0") -> int:
    logging.basicConfig(filename=Path(base) / "journal" / f"{name}.log", level=logging.INFO)
    mortal = SignalAt(point, int(count), armed=False) if point else None
    instance = TortureInstance(Path(base), name, seed, streams, mortal)
    threading.Thread(target=instance.obey, daemon=True).start()
    try:
        asyncio.run(instance.run())
    except (EventprocError, BaseExceptionGroup):
        logging.exception("%s ended", name)
        return 1
    say("closed")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
