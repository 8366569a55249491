"""For tests of programs that embed eventproc, and for our own: deaths, seeds, virtual time, checkers.

`Deaths` lets a process die before or after any commit; `KillAt` kills a real one. `run_seeded` runs an
async function on trio so that the same seed gives the same schedule. `VirtualClock` follows trio's virtual
time. `check` reads a whole database and raises when an invariant does not hold.
"""

from __future__ import annotations

from eventproc.testing.checkers import check, violations
from eventproc.testing.clock import VirtualClock
from eventproc.testing.faults import Deaths, KillAt, disk_full, run_until_death
from eventproc.testing.order import order_violations
from eventproc.testing.seeds import run_seeded, seeded_schedule

__all__ = [
    "Deaths",
    "KillAt",
    "VirtualClock",
    "check",
    "disk_full",
    "order_violations",
    "run_seeded",
    "run_until_death",
    "seeded_schedule",
    "violations",
]
