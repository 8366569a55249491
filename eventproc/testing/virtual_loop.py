"""Virtual time: the time of the running event loop, and a loop of asyncio that moves its clock to the next timer.

The loop uses public parts of asyncio only: the selector that a loop is given, and the loop's `time()`.
"""

from __future__ import annotations

import asyncio
import selectors
import sys
import threading
from collections.abc import Callable
from typing import Final

from eventproc.base.clock import SystemClock

THREAD_GRACE_S: Final = 0.01
"""Real time that a jump waits for other threads, which may hold the next result. Higher: tests of handlers on threads
are slower. Lower: time jumps while a short call runs on a thread."""

PAST_S: Final = 1e-6
"""How far a jump goes past its timer. asyncio calls a timer only after its time, and rounding hides shorter steps after
some months. Higher: time drifts. Lower: the limit comes sooner."""


class JumpingSelector(selectors.DefaultSelector):
    """A selector that never waits for a timer: if no file is ready, it moves `now_s` to when the timer is due.

    now_s: virtual time in seconds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        # Those of a Spark session or a debugger, which hold no result of this loop. Workers of a pool are no daemons.
        self._bystanders = {each for each in threading.enumerate() if each.daemon}
        self._bystanders.add(threading.current_thread())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the files that are ready. `timeout` None waits for them in real time."""
        if timeout is None:
            return super().select(None)
        others = not self._bystanders.issuperset(threading.enumerate())
        ready = super().select(THREAD_GRACE_S if others and timeout > 0 else 0)
        if not ready and timeout > 0:
            self.now_s += timeout + PAST_S
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time: an hour of sleeping takes no time. It begins at 0 s."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._jumping.now_s


def loop_ms() -> Callable[[], int]:
    """Return the clock of the running event loop in ms, callable from any thread; the machine's outside of a loop."""
    if "trio" in sys.modules:  # else no loop of trio runs
        import trio

        if trio.lowlevel.in_trio_run():
            clock = trio.lowlevel.current_clock()
            return lambda: round(clock.current_time() * 1000)
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return SystemClock().monotonic_ms
    return lambda: round(loop.time() * 1000)
