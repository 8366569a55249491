"""Days of use in virtual time, and nothing grows, also of what is kept for a day.

    python -m tests.torture.virtual_days DAYS                       `make virtual-days DAYS=4`

Two instances in memory run the app of `mixed_use`, and its client uses it, less often than in `everything`: a day
takes some minutes. From the second fifth of the days to the last one, neither the rows of a table may grow nor the
memory of the process. Jobs and transactions that ended are kept for a day: with fewer than four days, these still grow.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import anyio

from eventproc.testing import SimulatedWorld, VirtualRuntime, check
from tests.support.samples import PARTS, SamplesByPart, mebibytes
from tests.support.torture import say
from tests.torture.mixed_use import MixedUse, app, rows_by_table

INSTANCES: Final = 2
DAY_S: Final = 86_400
END_S: Final = 3_600
"""Virtual time that the app may take at the end."""

SLOWED: Final = 300
"""Each minute a batch of events, each five minutes a transaction and a job, ten times a day a scale."""

SAMPLE_S: Final = 1_201
"""Pause between two samples: at another time than the ticks and the client."""

BOUNDED: Final = {"table extent: rows", "table blob: rows"}
"""These may grow: an internal stream keeps a mebibyte of finished requests, which are those of weeks here."""

ALLOWANCES: Final = {" rows": 32.0, " MiB": 4.0}
"""How much a measure may grow besides a fifth, by its unit."""


async def live(days: float) -> None:
    """Live through the days. Raises AssertionError, TimeoutError."""
    samples, seconds = SamplesByPart(), days * DAY_S
    async with SimulatedWorld() as world:
        began = anyio.current_time()

        def note(measure: str, value: float) -> None:
            samples.note(measure, int((anyio.current_time() - began) / seconds * PARTS), value)

        use = MixedUse(world.ep, seconds, note, slowed=SLOWED, tick_s=1_800)

        async def sample() -> None:
            while not use.is_over:
                await anyio.sleep(SAMPLE_S)
                for table, rows in await world.ep.db.read(lambda tx: list(rows_by_table(tx))):
                    note(f"table {table}: rows", rows)
                note("process: MiB", mebibytes(os.getpid()))

        instances = [await world.start() for _ in range(INSTANCES)]
        await use.create()
        for each in instances:
            await each.run(app)
        async with anyio.create_task_group() as readers:
            readers.start_soon(use.read)
            async with anyio.create_task_group() as clients:
                clients.start_soon(use.run)
                clients.start_soon(sample)
            with anyio.fail_after(END_S):
                await use.wait_done()
            readers.cancel_scope.cancel()
        await check(world.ep.db)
    for line in samples.lines():
        say(line)
    growing = [each for each in samples.growing(ALLOWANCES) if each not in BOUNDED]
    assert not growing, f"these grow: {', '.join(growing)}"
    say(f"{days:g} days: {use.counts}, {use.written.total()} events; all accounts are exact")


if __name__ == "__main__":
    VirtualRuntime().run(live, float(sys.argv[1]))
