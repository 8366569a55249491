"""A process of the system tests: a program that uses eventproc as users do, in one of a few roles.

    python -m tests.system.worker BASE ROLE …        works on the directory BASE/store, keeps notes in BASE/journal

    write NAME [N]      writes the rows of NAME until its input ends, or N sends; "written N" from time to time
    disturbed NAME      the same while its threads disturb its files (interference.py); "fork NAME" on its input forks
    follow NAME         reads STREAM from its head to its end, notes what it reads; "seen N" from time to time
    scale SEED N        splits and merges STREAM N times, at random; "scaled EPOCH" each time
    live NAME [DEATH POINT COUNT]       whole lives of streams, one after the other (lifecycles.py)
    serve [DEATH POINT COUNT]           obeys commands on its input (`obey`); may become the host
    guest               the same, but never becomes the host

It says "open" when it has the directory open and "closed" at its end. What it logs, it says: "log …". DEATH is "kill"
or "stop": what it does to itself when it reaches the fault POINT for the COUNTth time.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import anyio.to_thread

import eventproc
from eventproc.cluster.host import CONTROLLER
from eventproc.store.faults import NO_FAULTS
from eventproc.store.model.errors import EventprocError, LockHeld
from eventproc.store.ownership import find_owner
from eventproc.testing import SignalAt
from eventproc.workflows.requests import DeleteScope
from tests.system.interference import Interference
from tests.system.lifecycles import run_lifecycles
from tests.system.protocol import STREAM, SayHandler, batches, key_of, mortality, payload_of, say

WRITTEN_EACH = 20
SEEN_EACH = 200


class SystemWorker:
    def __init__(self, base: Path, ended: Callable[[], bool] = lambda: False) -> None:
        self.directory = base / "store"
        self.journal = base / "journal"
        self._ended = ended

    async def write(self, name: str, sends: str = "") -> None:
        """Write the rows of `name`, noting after each send how many are acknowledged."""
        acks = os.open(self.journal / f"{name}.acks", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        async with eventproc.open(self.directory, create=False) as ep:
            say("open")
            async with (await ep.stream(STREAM)).writer() as writer:
                for sent, rows in enumerate(itertools.islice(batches(name), int(sends) if sends else None)):
                    if self._ended():
                        break
                    await writer.write_many((payload_of(name, row), key_of(name, row)) for row in rows)
                    os.write(acks, b"%d\n" % rows.stop)
                    if sent % WRITTEN_EACH == 0:
                        say(f"written {rows.stop}")
        os.close(acks)

    async def follow(self, name: str) -> None:
        """Note all events until the stream is sealed."""
        count = 0
        with (self.journal / f"{name}.seen").open("wb", buffering=0) as notes:
            async with (
                eventproc.open(self.directory, create=False) as ep,
                (await ep.stream(STREAM)).reader() as reader,
            ):
                say("open")
                async for batch in reader.batches():
                    notes.write(
                        b"".join(f"{event.key} {event.payload.decode()}\n".encode() for event in batch)
                    )
                    if count // SEEN_EACH != (count := count + len(batch)) // SEEN_EACH:
                        say(f"seen {count}")

    async def scale(self, seed: str, count: str) -> None:
        """Split and merge at random, two to six segments at a time being active."""
        choose = random.Random(int(seed))
        async with eventproc.open(self.directory, create=False) as ep:
            say("open")
            stream = await ep.stream(STREAM)
            for _ in range(int(count)):
                active = [segment.id for segment in await stream.segments()]
                place = choose.randrange(len(active))
                if len(active) < 2 or (len(active) < 6 and choose.random() < 0.6):
                    await stream.split(active[place], choose.choice([2, 3]))
                else:
                    await stream.merge(*active[max(place - 1, 0) : max(place - 1, 0) + 2])
                say(f"scaled {(await stream.describe()).epoch}")

    async def serve(self, mortal: SignalAt | None, *, host: bool) -> None:
        """Obey the commands on the input."""
        faults = mortal or NO_FAULTS
        async with eventproc.open(self.directory, create=False, host=host, faults=faults) as ep:
            say("open")
            if mortal is not None:
                mortal.arm()
            await obey(ep)

    async def live(self, name: str, mortal: SignalAt | None) -> None:
        """Run lifecycles of streams until death, or until the input ends."""
        faults = mortal or NO_FAULTS
        async with eventproc.open(self.directory, faults=faults) as ep:
            say("open")
            if mortal is not None:
                mortal.arm()
            with (self.journal / f"{name}.lives").open("ab", buffering=0) as notes:
                await run_lifecycles(ep, name, notes, self._ended)


async def obey(ep: eventproc.Eventproc) -> None:
    """Do each command of the input until it ends; print the result, or the class and text of the error."""
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        try:
            say(await _do(ep, line.split()))
        except EventprocError as error:
            say(f"{type(error).__name__} {error}")


async def _do(ep: eventproc.Eventproc, words: list[str]) -> str:
    match words:
        case ["hosting"]:
            owner = await ep.db.read(functools.partial(find_owner, name=CONTROLLER))
            return "yes" if owner is not None and owner.instance == ep.db.instance_id else "no"
        case ["split", name, timeout_ms]:
            stream = await ep.stream(name)
            first = (await stream.segments())[0].id
            await stream.split(first, timeout_ms=int(timeout_ms))
            return f"epoch {(await stream.describe()).epoch}"
        case ["streams", scope, count]:
            await ep.create_scope(scope)
            for number in range(int(count)):
                await ep.create_stream(f"{scope}/{number}")
            return "made"
        case ["delete", scope]:
            return (await ep.requests.submit(DeleteScope(scope))).id
        case ["wait", request_id, timeout_ms]:
            request = await ep.requests.wait(request_id, timeout_ms=int(timeout_ms))
            return f"{request.status} {request.finished_ms}"
        case ["write", name, payload]:
            async with (await ep.stream(name)).writer() as writer:
                await writer.write(payload.encode())
            return "written"
        case ["count", name]:
            return str((await (await ep.stream(name)).describe()).events)
        case ["holder", timeout_ms]:
            try:
                await ep.db.write(lambda tx: tx.mark_changed(), timeout_ms=int(timeout_ms))
            except LockHeld as held:
                return f"held {held.pid}"
            return "free"
        case unknown:
            raise ValueError(unknown)


def input_ended() -> Callable[[], bool]:
    """Return a function that returns whether the input has ended."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended.is_set


def main(base: str, role: str, *arguments: str) -> None:
    logging.basicConfig(handlers=[SayHandler()], level=logging.INFO)
    match role, *arguments:
        case "write", *rest:
            asyncio.run(SystemWorker(Path(base), input_ended()).write(*rest))
        case "disturbed", name:

            async def write_in_child(child: str, sends: int) -> None:
                await SystemWorker(Path(base)).write(child, str(sends))

            interference = Interference(Path(base) / "store", write_in_child)
            interference.start()
            asyncio.run(SystemWorker(Path(base), interference.ended.is_set).write(name))
            interference.join()
        case "follow", name:
            asyncio.run(SystemWorker(Path(base)).follow(name))
        case "scale", seed, count:
            asyncio.run(SystemWorker(Path(base)).scale(seed, count))
        case "live", name, *death:
            asyncio.run(SystemWorker(Path(base), input_ended()).live(name, mortality(*death)))
        case "serve" | "guest", *death:
            asyncio.run(SystemWorker(Path(base)).serve(mortality(*death), host=role == "serve"))
        case unknown:
            raise ValueError(unknown)
    say("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
