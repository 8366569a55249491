"""A process of the system tests: a program that uses eventproc as users do, in one of a few roles.

    python -m tests.system.worker BASE ROLE …        works on the directory BASE/store, keeps notes in BASE/journal

    write NAME [N]      writes the rows of NAME until its input ends, or N sends; "written N" now and then
    disturbed NAME      the same while threads of it do harm; "fork NAME" on its input is done by harm.py
    follow NAME         reads STREAM from its head to its end, notes what it reads; "seen N" now and then
    scale SEED N        splits and merges STREAM N times, at random; "scaled EPOCH" each time
    live NAME [DEATH POINT COUNT]       whole lives of streams, one after the other (lives.py)
    serve [DEATH POINT COUNT]           does what its input says (commands.py), as host when it is its turn
    guest               the same, and is never the host

It says "open" when it has the directory open and "closed" at its end. What it logs, it says: "log …". DEATH is "kill"
or "stop": what it does to itself when it reaches the fault POINT for the COUNTth time.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import random
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import eventproc
from eventproc.store.faults import NO_FAULTS
from tests.system.commands import obey
from tests.system.harm import Harm
from tests.system.lives import live
from tests.system.rows import STREAM, batches, key_of, payload_of
from tests.system.say import SayHandler, say
from tests.torture.worker import Mortal

WRITTEN_EACH = 20
SEEN_EACH = 200


class Worker:
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

    async def serve(self, mortal: Mortal | None, *, host: bool) -> None:
        """Do what the input says."""
        faults = mortal or NO_FAULTS
        async with eventproc.open(self.directory, create=False, host=host, faults=faults) as ep:
            say("open")
            if mortal is not None:
                mortal.armed = True
            await obey(ep)

    async def live(self, name: str, mortal: Mortal | None) -> None:
        """Live until death, or the end of the input."""
        faults = mortal or NO_FAULTS
        async with eventproc.open(self.directory, faults=faults) as ep:
            say("open")
            if mortal is not None:
                mortal.armed = True
            with (self.journal / f"{name}.lives").open("ab", buffering=0) as notes:
                await live(ep, name, notes, self._ended)


def mortality(death: str = "", point: str = "", count: str = "0") -> Mortal | None:
    signals = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
    return Mortal(signals[death], point, int(count)) if death else None


def input_ended() -> Callable[[], bool]:
    """Return what says whether the input has ended."""
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
            asyncio.run(Worker(Path(base), input_ended()).write(*rest))
        case "disturbed", name:

            async def write_in_child(child: str, sends: int) -> None:
                await Worker(Path(base)).write(child, str(sends))

            harm = Harm(Path(base) / "store", write_in_child)
            harm.start()
            asyncio.run(Worker(Path(base), harm.ended.is_set).write(name))
            harm.join()
        case "follow", name:
            asyncio.run(Worker(Path(base)).follow(name))
        case "scale", seed, count:
            asyncio.run(Worker(Path(base)).scale(seed, count))
        case "live", name, *death:
            asyncio.run(Worker(Path(base), input_ended()).live(name, mortality(*death)))
        case "serve" | "guest", *death:
            asyncio.run(Worker(Path(base)).serve(mortality(*death), host=role == "serve"))
        case unknown:
            raise ValueError(unknown)
    say("closed")


if __name__ == "__main__":
    main(*sys.argv[1:])
