"""Real processes that share one object: no update is lost or applied twice when one of them dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventproc.store.catalog import SYSTEM_MIGRATIONS
from eventproc.store.database import open_database
from eventproc.store.faults import WRITE_COMMIT, WRITE_COMMITTED
from tests.replicated import worker
from tests.replicated.support import Add, Write, make_ledger, member
from tests.support.child_process import ChildProcess

pytestmark = pytest.mark.subprocess

UPDATES = 200


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_two_processes_that_count_at_once_lose_nothing(tmp_path: Path) -> None:
    async with open_database(tmp_path / "store", migrations=SYSTEM_MIGRATIONS) as db:
        log = await make_ledger(db)
        script = Path(worker.__file__)
        with (
            ChildProcess.script(script, tmp_path / "store", log, "a") as one,
            ChildProcess.script(script, tmp_path / "store", log, "b") as two,
        ):
            assert [one.hear(), two.hear()] == ["open", "open"]
            one.say(str(UPDATES))
            two.say(str(UPDATES))
            assert [one.hear(), two.hear()] == [str(UPDATES)] * 2
        state = await member(db, log).fetch()
        assert state is not None
        assert state.total == len(state.lines) == 2 * UPDATES
        for name in "ab":
            own = [line for line in state.lines if line.startswith(name)]
            assert own == [f"{name}{number}" for number in range(UPDATES)], "each process in its own order"


@pytest.mark.parametrize(("point", "lines"), [(WRITE_COMMIT, 24), (WRITE_COMMITTED, 25)])
async def test_a_killed_process_leaves_every_update_whole_or_not_at_all(
    tmp_path: Path, point: str, lines: int
) -> None:
    async with open_database(tmp_path / "store", migrations=SYSTEM_MIGRATIONS) as db:
        log = await make_ledger(db)
        one = member(db, log)
        script = Path(worker.__file__)
        with ChildProcess.script(script, tmp_path / "store", log, "a", point, 25) as child:
            assert child.hear() == "open"
            child.say("100")
            assert child.hear() == "", "it died"
        state = await one.update(lambda _: [Add(), Write("mine")])
        assert state.lines == (*(f"a{number}" for number in range(lines)), "mine")
        assert state.total == lines + 1
