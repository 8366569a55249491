"""A process with one consumer of a share group: it notes each delivery, and each accepted event; see test_processes."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

import eventproc
from eventproc.errors import LockLost
from eventproc.shares import Delivery

PAUSE_S = 0.002
"""How long handling an event takes: long enough for faults to hit while many events are held."""


def say(line: str) -> None:
    os.write(1, line.encode() + b"\n")


async def main(base: Path, name: str) -> None:
    out = os.open(base / "delivered", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def note(what: str, event: Delivery) -> None:
        line = f"{what} {name} {event.event.segment}:{event.event.number} {event.deliveries}\n"
        os.write(out, line.encode())

    hang = base / f"hang-{name}"
    async with eventproc.open(base / "store", create=False, host=False) as ep:
        group = await ep.share_group("s/work")
        async with group.consumer(name) as consumer:
            say("online")
            while events := await consumer.poll(20):
                if hang.exists():  # it holds events meanwhile, and not the lock of all writers
                    hang.unlink()
                    say("hangs")
                    await anyio.to_thread.run_sync(sys.stdin.readline)
                for event in events:
                    note("delivered", event)
                    await anyio.sleep(PAUSE_S)
                try:
                    await consumer.accept(events)
                except LockLost:
                    say("lost")
                    continue
                for event in events:
                    note("accepted", event)
    say("ended")


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
