"""Deaths, kills and full disks, at places that a test counts instead of naming.

A death is `Died`: everything that runs ends with it, and nothing commits any more until `heal`. The
database object survives, as the disk would; caches in memory that went with the process hold nothing that
cannot be read again.
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
    """Lets the process die, once, at a chosen place; after that every point it reaches is deadly.

    reached: how often each point was reached alive, since the beginning.
    """

    def __init__(self) -> None:
        self.reached: Counter[str] = Counter()
        self.dead = False
        self._at: tuple[str, int] | None = None

    @property
    def commits(self) -> int:
        """Groups made durable so far."""
        return self.reached[WRITE_COMMITTED]

    def die_at(self, point: str, nth: int = 1) -> None:
        """Die when `point` is reached for the `nth` time from now, counted from 1."""
        self._at = point, self.reached[point] + nth

    def die_before_commit(self, nth: int = 1) -> None:
        """Die before the `nth` commit from now: it is lost."""
        self.die_at(WRITE_COMMIT, nth)

    def die_after_commit(self, nth: int = 1) -> None:
        """Die after the `nth` commit from now, before anyone is told: it is durable, unacknowledged."""
        self.die_at(WRITE_COMMITTED, nth)

    def heal(self) -> None:
        """Be a new process: nothing fails any more."""
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
    """Kills this process, as kill -9 does, when a point is reached for the nth time."""

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
    """Run `main`; return whether it died of an injected death. What else it raises is raised.

    What others were told because of the death, such as a writer that could not tell what became of its
    events, died with it. Failed assertions, and anything else that is none of our errors, are raised.
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
    """Let the database not grow while the block runs: what needs another page fails as on a full disk.

    Small writes that fit into pages it has go on, as they may on a disk.
    """
    await db.write(lambda tx: limit_pages(tx, 1))
    try:
        yield
    finally:
        await db.write(lambda tx: limit_pages(tx, PAGES_MAX))
