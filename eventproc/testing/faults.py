"""Faults at named points: simulated deaths of the process, real kills, errors of the disk, delays.

A simulated death raises `Died` in everything that runs, and nothing commits until `heal`. The database object survives,
as the disk does. Caches in memory hold only what can be read again.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.database import Database
from eventproc.store.database.files import DISK_ERRORS, disk_error
from eventproc.store.faults import (
    FILE_POINTS,
    WRITE_COMMIT,
    WRITE_COMMITTED,
    Died,
    Faults,
    Moment,
    Step,
    point_of,
)
from eventproc.store.inspection.database_file import PAGES_MAX, limit_pages
from eventproc.store.model.argument_checks import check_choice, check_int, invalid_argument
from eventproc.store.model.errors import EventprocError

Action: TypeAlias = Literal["die", "fail", "delay", "full", "busy"]
"""What a fault does; see `Fault`."""

ACTIONS: Final[tuple[Action, ...]] = ("die", "fail", "delay", "full", "busy")

SignalName: TypeAlias = Literal["kill", "stop"]
"""What happens to a process at a fault point: SIGKILL, or SIGSTOP."""

_SIGNALS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

DELAY_MS: Final = 1_000
"""Default of `Fault.ms`: long enough that other tasks get far ahead."""


def fault_points() -> tuple[str, ...]:
    """Return the names of all points at which a fault can be injected.

    Most are "<step>.<moment>": the step is a kind of database transaction, the moment one of "begun" (the caller asks
    for it), "commit" (its functions ran, and a death loses it), "committed" (durable, and the caller does not know).
    """
    return (*FILE_POINTS, *(point_of(step, moment) for step in Step for moment in Moment))


@attrs.frozen
class Fault:
    """One fault of a `FaultPlan`.

    Attributes:
        point: a name of `fault_points()`.
        action: "die" (default) ends the process. "full" and "busy" undo the database transaction with DiskFull or
            LockHeld, which the library retries where it can. "fail" is an error of the disk: the handle stops with
            DatabaseStopped. "delay" lets the step wait.
        nth: at which time that the point is reached, from 1. Default: the first.
        times: how often in a row. Default: once.
        ms: how long a delay lasts, in ms. Default: a second.

    Raises:
        InvalidArgument: an unknown point or action, or an action that is not possible at the point.
    """

    point: str
    action: Action = "die"
    nth: int = 1
    times: int = 1
    ms: int = DELAY_MS

    def __attrs_post_init__(self) -> None:
        check_point(self.point)
        check_choice("action", self.action, ACTIONS)
        check_int("nth", self.nth, least=1)
        check_int("times", self.times, least=1)
        check_int("ms", self.ms, least=0)
        _, _, moment = self.point.rpartition(".")
        if self.action == "delay" and (self.point in FILE_POINTS or moment == Moment.COMMIT):
            reason = f'{self.point} cannot wait: choose a step and its moment "begun" or "committed"'
            raise invalid_argument("action", self.action, reason)
        if self.action in DISK_ERRORS and self.point != WRITE_COMMIT and moment != Moment.COMMIT:
            reason = f'{self.point} lies outside of the database transaction: choose the moment "commit"'
            raise invalid_argument("action", self.action, reason)


class FaultPlan(Faults):
    """Injects faults at named points. Pass it as `eventproc.open_memory(faults=...)`, or to `World.start`.

    After a death every point raises `Died`, until `heal`.

    Args:
        faults: each a `Fault`, or a pair (point, action).

    Raises:
        InvalidArgument: see `Fault`.
    """

    def __init__(self, faults: Iterable[Fault | tuple[str, Action]] = ()) -> None:
        self.reached: Counter[str] = Counter()
        """How often each point was reached before the death."""
        self.dead = False
        self.on_death: Callable[[], object] | None = None
        """Called at the death."""
        self._planned: list[tuple[range, Fault]] = []
        for each in faults:
            self.add(each)

    def add(self, fault: Fault | tuple[str, Action]) -> None:
        """Plan one more fault. Its `nth` counts from now.

        Args:
            fault: a `Fault`, or a pair (point, action).

        Raises:
            InvalidArgument: see `Fault`.
        """
        fault = fault if isinstance(fault, Fault) else Fault(*fault)
        first = self.reached[fault.point] + fault.nth
        self._planned.append((range(first, first + fault.times), fault))

    def heal(self) -> None:
        """Continue as a new process: no point fails until the next fault is planned."""
        self.dead = False
        self._planned.clear()

    def reach(self, point: str) -> None:
        """See `Faults.reach`."""
        if self.dead:
            raise Died
        self.reached[point] += 1
        for times, fault in self._planned:
            if fault.point == point and self.reached[point] in times:
                self._act(fault)

    def delay_ms(self, point: str) -> int:
        """See `Faults.delay_ms`. A step asks before it reaches its first point, and after its last one."""
        coming = self.reached[point] + (point.rpartition(".")[2] == Moment.BEGUN)
        return sum(
            fault.ms
            for times, fault in self._planned
            if fault.point == point and fault.action == "delay" and coming in times
        )

    def _act(self, fault: Fault) -> None:
        if fault.action == "die":
            self.dead = True
            if self.on_death is not None:
                self.on_death()
            raise Died
        if fault.action in DISK_ERRORS:
            raise disk_error(fault.action, f"injected at {fault.point}")


class Deaths(FaultPlan):
    """Simulates one death of the process at a time. Pass it as `eventproc.open_memory(faults=...)`.

    After the death every fault point raises `Died`, until `heal`.
    """

    @property
    def commits(self) -> int:
        """Number of commits until now."""
        return self.reached[WRITE_COMMITTED]

    def die_at(self, point: str, nth: int = 1) -> None:
        """Die when a fault point is reached. Replaces a death that was planned before.

        Args:
            point: a name of `fault_points()`.
            nth: how often it is reached from now on, including the death; from 1.

        Raises:
            InvalidArgument: an unknown point.
        """
        self._planned.clear()
        self.add(Fault(point, nth=nth))

    def die_before_commit(self, nth: int = 1) -> None:
        """Die before the `nth` commit from now, which is lost."""
        self.die_at(WRITE_COMMIT, nth)

    def die_after_commit(self, nth: int = 1) -> None:
        """Die after the `nth` commit from now, which is durable and not acknowledged."""
        self.die_at(WRITE_COMMITTED, nth)


def check_point(point: str) -> None:
    """Raise InvalidArgument, with the most similar names, if there is no such fault point."""
    known = fault_points()
    if point not in known:
        similar = get_close_matches(str(point), known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, similar))}?" if similar else "fault_points() lists them"
        raise invalid_argument("point", point, f"there is no such fault point; {hint}")


class SignalAt(Faults):
    """Sends a signal to its own process when a fault point is reached. Pass it as `eventproc.open(faults=...)`.

    Args:
        point: name of the point, a name of `fault_points()`.
        nth: how often it is reached, including the signal; from 1.
        signal: "kill" (SIGKILL, default) or "stop" (SIGSTOP).
        armed: whether points count from the beginning. Default: True. A later `arm()` lets them count from then on.

    Raises:
        InvalidArgument: an unknown point or signal, or `nth` is less than 1.
    """

    def __init__(self, point: str, nth: int = 1, *, signal: SignalName = "kill", armed: bool = True) -> None:
        check_point(point)
        check_choice("signal", signal, _SIGNALS)
        check_int("nth", nth, least=1)
        self._point, self._left = point, nth
        self._signal = _SIGNALS[signal]
        self._armed = armed

    def arm(self) -> None:
        """Let points count from now on."""
        self._armed = True

    def reach(self, point: str) -> None:
        """See `Faults.reach`."""
        if self._armed and point == self._point:
            self._left -= 1
            if self._left == 0:
                # To this thread: sent to the process, another thread may take it, while this one goes on.
                signal.pthread_kill(threading.get_ident(), self._signal)


class KillAt(SignalAt):
    """Kills this process with SIGKILL when a fault point is reached.

    Args:
        point: a name of `fault_points()`.
        nth: how often it is reached, including the death; from 1.

    Raises:
        InvalidArgument: an unknown point.
    """

    def __init__(self, point: str, nth: int = 1) -> None:
        super().__init__(point, nth)


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
