"""The attendant: one task per opening that serves the transactions of running blocks.

It writes a block's transaction to the database when the block takes longer than BEGIN_AFTER_MS, so that other processes
see it; then it pings at the intervals that the transaction asks for. It also stages full batches. So entering a block
starts no task, and a block may be entered in one task and left in another.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from heapq import heappop, heappush
from itertools import count
from math import ceil
from typing import Final, TypeAlias

import anyio
import attrs

from eventproc.store.database import SharedSlot
from eventproc.store.model.errors import EventprocError

BEGIN_AFTER_MS: Final = 100
"""How long a block may run before its transaction is written to the database. Higher: other processes list it later;
lower: more short transactions cost an additional commit."""

TICK_MS: Final = 20
"""Calls that are due within this time are made together. Higher: they come later; lower: more wake-ups, at 30 us each,
while many short blocks run."""

RETRY_MS: Final = 1_000
"""Pause after an error that the work of a block did not expect. Lower: more lines of log; higher: a lease may end."""

LOG: Final = logging.getLogger(__name__)

Work: TypeAlias = Callable[[], Awaitable[float | None]]
"""What the attendant does for a block; it handles errors itself. Returns in how many ms to do it again, None: never."""


@attrs.frozen(eq=False)
class AttendedBlock:
    """A running block, as the attendant knows it.

    begin: writes its transaction to the database. attend: does so, and pings from the second call on.
    """

    stream_id: int
    begin: Callable[[], Awaitable[object]]
    attend: Work


class TransactionAttendant:
    """Serves the blocks that run. `run` is a task of the opening; everything else is called on the event loop.

    running: blocks whose transaction may not be in the database yet, or must be pinged.
    """

    def __init__(self) -> None:
        self.running: dict[AttendedBlock, None] = {}
        self._due: list[tuple[int, int, AttendedBlock, Work]] = []  # a heap by tick
        self._numbers = count()  # so that equal ticks never compare blocks
        self._idle: anyio.Event | None = None

    def enter(self, block: AttendedBlock) -> None:
        """Serve the block from now on."""
        self.running[block] = None
        self._schedule(BEGIN_AFTER_MS, block, block.attend)

    def leave(self, block: AttendedBlock) -> None:
        """Begin no further work for the block. Work that has begun goes on."""
        self.running.pop(block, None)

    def start_soon(self, block: AttendedBlock, work: Work) -> None:
        """Do `work` for the block in the background, unless the block ends first."""
        self._schedule(0, block, work)

    async def begin_all(self, stream_id: int) -> None:
        """Write the transactions of the stream's running blocks to the database, in shared commits."""
        async with anyio.create_task_group() as tasks:
            for each in self.running:
                if each.stream_id == stream_id:
                    tasks.start_soon(_begin, each)

    async def run(self) -> None:
        """Serve until cancelled."""
        async with anyio.create_task_group() as tasks:
            while True:
                now_tick = int(_now_ms() // TICK_MS)
                while self._due and self._due[0][0] <= now_tick:
                    _, _, block, work = heappop(self._due)
                    if block in self.running:
                        tasks.start_soon(self._do, block, work)
                self._idle = anyio.Event()
                pause_ms = self._due[0][0] * TICK_MS - _now_ms() if self._due else None
                with anyio.move_on_after(None if pause_ms is None else pause_ms / 1000):
                    await self._idle.wait()

    async def _do(self, block: AttendedBlock, work: Work) -> None:
        again_ms: float | None = RETRY_MS
        try:
            again_ms = await work()
        except Exception:  # the other blocks of this opening must not lose their pings
            LOG.exception("a transaction could not be attended; trying again in %g s", RETRY_MS / 1000)
        if again_ms is not None:
            self._schedule(again_ms, block, work)

    def _schedule(self, after_ms: float, block: AttendedBlock, work: Work) -> None:
        tick = ceil((_now_ms() + after_ms) / TICK_MS) if after_ms else 0
        if self._idle is not None and (not self._due or tick < self._due[0][0]):
            self._idle.set()
        heappush(self._due, (tick, next(self._numbers), block, work))


async def _begin(block: AttendedBlock) -> None:
    with suppress(EventprocError):  # the next call of the block raises it
        await block.begin()


TRANSACTION_ATTENDANT: Final = SharedSlot(TransactionAttendant)


def _now_ms() -> float:
    return anyio.current_time() * 1000
