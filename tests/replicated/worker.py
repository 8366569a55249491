"""A process that updates one shared ledger, and kills itself at a fault point.

    worker.py DIRECTORY LOG NAME [POINT COUNT]

For each number N on its stdin it adds N times one to the total and a line of its own, and prints how many lines it has
written so far. With a fault POINT it kills itself there, the COUNTth time.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import open_database
from eventproc.store.faults import NO_FAULTS, Faults
from eventproc.store.replicated import LogId
from eventproc.testing import KillAt
from tests.replicated.support import Add, Generate, Write, member


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def counting(line: str) -> Generate:
    return lambda _: [Add(), Write(line)]


async def main(directory: Path, log: LogId, name: str, faults: Faults) -> None:
    written = 0
    async with open_database(directory, migrations=SYSTEM_MIGRATIONS, faults=faults) as db:
        ledger = member(db, log)
        say("open")
        for command in sys.stdin:
            for _ in range(int(command)):
                line = f"{name}{written}"
                state = await ledger.update(counting(line))
                assert state.lines[-1] == line
                written += 1
            say(str(written))


if __name__ == "__main__":
    faults = KillAt(sys.argv[4], int(sys.argv[5])) if len(sys.argv) > 4 else NO_FAULTS
    anyio.run(main, Path(sys.argv[1]), LogId(int(sys.argv[2])), sys.argv[3], faults)
