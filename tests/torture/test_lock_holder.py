"""A process that is stopped, or dies, at a point of its choice inside a write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eventproc.store import faults
from eventproc.store.database.file_database import open_database
from eventproc.store.model.errors import LockHeld
from tests.support.child_process import ChildProcess
from tests.torture.conftest import TortureProcesses, hear, wait_dead
from tests.torture.worker import MIGRATIONS, write_row

DEADLINE_MS = 200
DEATH_AT = 7


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def wait_until_stopped(worker: ChildProcess) -> None:
    status = os.waitid(os.P_PID, worker.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert status is not None
    assert status.si_code == os.CLD_STOPPED


async def test_others_name_who_is_stopped_inside_write_lock_and_go_on_when_it_does(
    processes: TortureProcesses,
) -> None:
    with processes.start("sleeper", "stop", faults.WRITE_BEGUN, DEATH_AT) as sleeper:
        wait_until_stopped(sleeper)
        async with open_database(processes.directory, migrations=MIGRATIONS) as database:
            with pytest.raises(LockHeld) as caught:
                await database.write(lambda tx: write_row(tx, "refused", 0), timeout_ms=DEADLINE_MS)
            assert caught.value.pid == sleeper.pid
            assert caught.value.for_ms >= DEADLINE_MS
            assert caught.value.path.endswith("write.lock")
            sleeper.resume()
            await database.write(lambda tx: write_row(tx, "other", 0))
        hear(sleeper, "rows")
        assert sleeper.finish() == 0
    processes.check()
    written = {writer for writer, _ in processes.rows()}
    assert written == {"sleeper", "other"}


async def test_others_go_on_when_who_was_stopped_inside_write_lock_is_killed(
    processes: TortureProcesses,
) -> None:
    with processes.start("sleeper", "stop", faults.WRITE_BEGUN, DEATH_AT) as sleeper:
        wait_until_stopped(sleeper)
        async with open_database(processes.directory, migrations=MIGRATIONS) as database:
            with pytest.raises(LockHeld):
                await database.write(lambda tx: write_row(tx, "refused", 0), timeout_ms=DEADLINE_MS)
            wait_dead(sleeper)
            await database.write(lambda tx: write_row(tx, "other", 0))
    processes.check()
    assert ("other", 0) in processes.rows()
    assert ("refused", 0) not in processes.rows()


@pytest.mark.parametrize("point", [faults.WRITE_BEGUN, faults.WRITE_COMMIT, faults.WRITE_COMMITTED])
def test_a_death_at_any_point_of_a_write_loses_nothing_acknowledged(
    processes: TortureProcesses, point: str
) -> None:
    with processes.start("mortal", "kill", point, DEATH_AT) as mortal:
        while mortal.hear():
            pass
    processes.check()
    assert set(processes.outcomes("acked")) == {("mortal", number) for number in range(DEATH_AT - 1)}
    unacknowledged = processes.rows() - set(processes.outcomes("acked"))
    # Durable but unacknowledged, or absent: a batch that dies before its COMMIT leaves nothing.
    assert unacknowledged == ({("mortal", DEATH_AT - 1)} if point == faults.WRITE_COMMITTED else set())


def test_the_next_process_needs_no_help_after_a_death_inside_write_lock(
    processes: TortureProcesses, tmp_path: Path
) -> None:
    for life in range(3):
        with processes.start(f"mortal-{life}", "kill", faults.WRITE_COMMIT, DEATH_AT) as mortal:
            while mortal.hear():
                pass
        processes.check()
    with processes.start("heir") as heir:
        hear(heir, "rows")
        assert heir.finish() == 0
    processes.check()
    assert not list((processes.directory / "instances").iterdir()), "a sweep or a clean end left something"
