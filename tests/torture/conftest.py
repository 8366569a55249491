"""Support of the torture tests: a directory that many processes write, and the check of its rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.child_process import ChildProcess, run

WORKER = Path(__file__).with_name("worker.py")


class TortureProcesses:
    """The processes of one test on one directory, and the outcomes that they noted."""

    def __init__(self, base: Path) -> None:
        self.directory = base / "store"
        self.acks = base / "acks"

    @property
    def database(self) -> Path:
        return self.directory / "eventproc.db"

    def start(self, name: str, *mortal: object) -> ChildProcess:
        """Start a worker that writes as `name`; return when it has the directory open."""
        worker = ChildProcess.script(WORKER, self.directory, self.acks, name, *mortal)
        hear(worker, "open")
        return worker

    def look_from_outside(self) -> None:
        """Let a process that uses plain sqlite3 open the database, read it, and close it."""
        run(
            """
            import sqlite3, sys
            database = sqlite3.connect(sys.argv[1], timeout=10)
            database.execute("SELECT count(*) FROM row").fetchall()
            database.close()
            """,
            self.database,
        )

    def outcomes(self, outcome: str) -> Counter[tuple[str, int]]:
        lines = [line.split() for line in self.acks.read_text().splitlines()]
        return Counter((name, int(number)) for said, name, number in lines if said == outcome)

    def rows(self) -> set[tuple[str, int]]:
        """Return the writes in the database. Assert that each is complete and was written once.

        All processes must have ended.
        """
        with closing(sqlite3.connect(self.database)) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            parts = database.execute("SELECT writer, number, part FROM row").fetchall()
        writes = {(writer, number) for writer, number, _ in parts}
        expected = Counter((*write, part) for write in writes for part in (0, 1))
        assert Counter(parts) - expected == Counter(), "written twice"
        assert expected - Counter(parts) == Counter(), "written in part"
        return writes

    def check(self) -> None:
        """Assert that the database has every acknowledged write and no refused write."""
        acked, refused, rows = self.outcomes("acked"), self.outcomes("refused"), self.rows()
        assert max(acked.values(), default=1) == 1, "acknowledged twice"
        assert set(acked) - rows == set(), "acknowledged, but lost"
        assert set(refused) & rows == set(), "refused, but written"


def hear(worker: ChildProcess, expected: str) -> None:
    """Wait until the worker has said `expected`; its rows, and its forked children, may come between."""
    while (line := worker.hear()) != expected:
        assert line in ("open", "rows"), f"process {worker.pid} said {line!r} instead of {expected!r}"


def wait_dead(worker: ChildProcess) -> None:
    """Kill the worker, and wait for the end of its forked children: they have its output open, too."""
    worker.kill()
    while worker.hear():
        pass


@pytest.fixture
def processes(tmp_path: Path) -> TortureProcesses:
    return TortureProcesses(tmp_path)
