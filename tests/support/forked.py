"""A forked child of a process that uses eventproc: it opens the directory again, does something, and ends."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine

FORKED_S_MAX = 60
"""A mutex that was locked at the fork stays locked: the child is killed then."""


def run_forked(main: Callable[[], Coroutine[object, object, None]]) -> int:
    """Run `main` in a forked child whose output is lost; return its exit code."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(FORKED_S_MAX)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            asyncio.run(main())
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
