"""A process that runs workflows and writes is killed at each named point of a write; the next one goes on."""

from __future__ import annotations

from functools import partial

import pytest

import eventproc
from eventproc.store import faults
from eventproc.store.model.states import StreamState
from eventproc.testing import check
from eventproc.testing.checkers import settle_requests
from tests.system.lifecycles import SCOPE, LifecycleJournal
from tests.system.protocol import check_rows
from tests.system.support import WorkerProcesses, read_all

# How many of the point each of the successive lives survives: in the first workflow, later, much later.
LIVES = {
    faults.WRITE_BEGUN: (2, 17, 92),
    faults.WRITE_COMMIT: (3, 16, 89),
    faults.WRITE_COMMITTED: (4, 19, 95),
    faults.CHECKPOINT: (1, 2),
}


async def check_lives(ep: eventproc.Eventproc, journal: LifecycleJournal) -> None:
    """Assert that exactly the noted events exist."""
    await settle_requests(ep)
    await check(ep.db)
    there = {stream.name.partition("/")[2]: stream for stream in await ep.streams()}
    for name, rows in journal.acked.items():
        if name not in there:
            assert name in journal.deleting, f"{name} is gone"
            continue
        read = check_rows(await read_all(ep, f"{SCOPE}/{name}"), {name: rows})
        assert set(read) == {name}, f"{name} has rows of others"
        if name in journal.sealed:
            assert there[name].state is StreamState.SEALED
    for request in await ep.requests.list(limit=10_000):
        assert request.error is None, f"{request.kind} of {request.target} was refused: {request.error}"


@pytest.mark.parametrize("point", LIVES)
def test_the_next_process_finishes_what_a_death_at_a_point_of_a_write_left(
    processes: WorkerProcesses, point: str
) -> None:
    lives = LIVES[point]
    for number, count in enumerate(lives):
        name = f"life{number}"
        processes.live_until_killed(name, point, count)
        journal = LifecycleJournal(processes.journal / f"{name}.lives")
        processes.call(partial(check_lives, journal=journal))
        assert len(journal.acked) >= number, "its life was to be longer than those before"
        left = list((processes.directory / "instances").iterdir())
        assert not left, "the dead left something, or a clean end did"
