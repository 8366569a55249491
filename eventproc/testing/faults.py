"""Simulated deaths of the process, real kills, and full disks.

A simulated death raises `Died` in everything that runs, and nothing commits until `heal`. The database object survives,
as the disk does. Caches in memory hold only what can be read again.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from eventproc.store.database import Database
from eventproc.store.faults import WRITE_COMMIT, WRITE_COMMITTED, Died, Faults
from eventproc.store.inspection.database_file import PAGES_MAX, limit_pages
from eventproc.store.model.errors import EventprocError


class Deaths(Faults):
    """Simulates one death of the process. Pass it as `eventproc.open_memory(faults=...)`.

    After the death every fault point raises `Died`, until `heal`.
    reached: how often each point was reached before the death.
    """

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.dead = False
        self._at: tuple[str, int] | None = None

    @property
    def commits(self) -> int:
        """Number of commits until now."""
        return self.reached[WRITE_COMMITTED]

    def die_at(self, point: str, nth: int = 1) -> None:
        """Die when a fault point is reached.

        Args:
            point: name of the point, a constant of `eventproc.store.faults`.
            nth: how often it is reached from now on, including the death; from 1.
        """
        self._at = point, self.reached[point] + nth

    def die_before_commit(self, nth: int = 1) -> None:
        """Die before the `nth` commit from now, which is lost."""
        self.die_at(WRITE_COMMIT, nth)

    def die_after_commit(self, nth: int = 1) -> None:
        """Die after the `nth` commit from now, which is durable and not acknowledged."""
        self.die_at(WRITE_COMMITTED, nth)

    def heal(self) -> None:
        """Continue as a new process: no point fails until the next death is planned."""
        self.dead, self._at = False, None

    def reach(self, point: str) -> None:
        """See `Faults.reach`."""
        if self.dead:
            raise Died
        self.reached[point] += 1
        if self._at == (point, self.reached[point]):
            self.dead = True
            raise Died


class KillAt(Faults):
    """Kills this process with SIGKILL when a fault point is reached.

    Args:
        point: name of the point, a constant of `eventproc.store.faults`.
        nth: how often it is reached, including the death; from 1.
    """

    def __init__(self, point: str, nth: int = 1) -> None:
        self._point = point
        self._left = nth

    def reach(self, point: str) -> None:
        """See `Faults.reach`."""
        if point == self._point:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


async def run_until_death(main: Callable[[], Awaitable[object]]) -> bool:
    """Run an async function that may end by a simulated death.

    Errors of eventproc that follow from the death, such as that of a writer that does not know the result of its send,
    count as part of it.

    Args:
        main: the async function.

    Returns:
        Whether it ended by the death.

    Raises:
        BaseException: any other error of `main`, such as a failed assertion.
    """
    try:
        await main()
    except Died:
        return True
    except BaseExceptionGroup as group:
        died, rest = group.split(Died)
        if died is None or (rest is not None and rest.split(EventprocError)[1] is not None):
            raise
        return True
    return False


@asynccontextmanager
async def disk_full(db: Database) -> AsyncIterator[None]:
    """Simulate a full disk while the block runs: a transaction that needs another page raises DiskFull.

    Small writes that fit into existing pages succeed, as they may on a real disk.

    Args:
        db: the database of an open directory, `ep.db`.
    """
    await db.write(lambda tx: limit_pages(tx, 1))
    try:
        yield
    finally:
        await db.write(lambda tx: limit_pages(tx, PAGES_MAX))
