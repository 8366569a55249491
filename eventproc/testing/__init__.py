"""Tools for tests of programs that use eventproc.

| name | use |
| --- | --- |
| `VirtualRuntime`, `RunningApp` | run apps in memory and in virtual time; the pytest fixture `eventproc_runtime` |
| `check`, `violations` | check all invariants of a database |
| `order_violations` | check that a reader got each event of a key once and in order |
| `VirtualClock` | a clock that follows the event loop's time, which may be virtual, and can be moved by hand |
| `run_seeded`, `seeded_schedule` | run an async function so that the same seed gives the same schedule |
| `Deaths`, `run_until_death` | simulate the death of the process before or after any commit |
| `KillAt` | kill the real process at a named point |
| `disk_full` | simulate a full disk |
"""

from __future__ import annotations

from eventproc.testing.checkers import check, order_violations, violations
from eventproc.testing.clock import VirtualClock
from eventproc.testing.faults import Deaths, KillAt, disk_full, run_until_death
from eventproc.testing.seeds import run_seeded, seeded_schedule
from eventproc.testing.virtual_runtime import RunningApp, VirtualRuntime

__all__ = [
    "Deaths",
    "KillAt",
    "RunningApp",
    "VirtualClock",
    "VirtualRuntime",
    "check",
    "disk_full",
    "order_violations",
    "run_seeded",
    "run_until_death",
    "seeded_schedule",
    "violations",
]
