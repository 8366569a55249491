"""Real processes that share one object: nothing is lost, nothing is there twice, whoever dies."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventproc.store.catalog import SYSTEM_MIGRATION
from eventproc.store.database import open_database
from tests.database.processes import Child
from tests.replicated import counting
from tests.replicated.ledgers import make_ledger, member

UPDATES = 200


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_two_processes_that_count_at_once_lose_nothing(tmp_path: Path) -> None:
    async with open_database(tmp_path / "store", migrations=[SYSTEM_MIGRATION]) as db:
        log = await make_ledger(db)
        script = Path(counting.__file__)
        with (
            Child.script(script, tmp_path / "store", log, "a") as one,
            Child.script(script, tmp_path / "store", log, "b") as two,
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
