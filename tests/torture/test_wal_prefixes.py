"""Power loss keeps a prefix of the log: with one file, every prefix is a consistent past."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from eventproc.store import faults
from eventproc.store.database import Tx
from eventproc.store.database.file_database import open_database
from tests.torture.conftest import TortureProcesses
from tests.torture.worker import MIGRATIONS

WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24
GROUPS = 25


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def read_numbers(tx: Tx) -> list[tuple[int, int]]:
    rows = tx.execute("SELECT number, part FROM row ORDER BY number, part").fetchall()
    return [(number, part) for number, part in rows]


def frame_ends(wal: bytes) -> list[int]:
    """Return the length of the log up to each frame, from none; source: SQLite's "WAL-mode file format"."""
    (page_bytes,) = struct.unpack_from(">I", wal, 8)
    return list(range(WAL_HEADER_BYTES, len(wal) + 1, FRAME_HEADER_BYTES + page_bytes))


def copy_with_log(processes: TortureProcesses, wal: bytes, base: Path) -> None:
    base.mkdir()
    shutil.copy(processes.database, base / processes.database.name)
    (base / f"{processes.database.name}-wal").write_bytes(wal)


async def rows_after_power_loss(processes: TortureProcesses, wal: bytes, base: Path) -> list[tuple[int, int]]:
    """Open a copy of the directory whose log is `wal`, and read it."""
    copy_with_log(processes, wal, base)
    async with open_database(base, migrations=MIGRATIONS) as database:
        return await database.read(read_numbers)


async def test_every_prefix_of_the_log_is_a_prefix_of_what_was_written(
    processes: TortureProcesses, tmp_path: Path
) -> None:
    with processes.start("mortal", "kill", faults.WRITE_COMMITTED, GROUPS) as mortal:
        while mortal.hear():
            pass
    wal = processes.database.with_name("eventproc.db-wal").read_bytes()
    ends = frame_ends(wal)
    assert len(ends) > GROUPS, "less than a frame for each group: this test shows nothing"
    seen: list[list[tuple[int, int]]] = []
    for end in ends:
        # A whole prefix, and one whose last frame was half written.
        for kind, length in (("cut", end), ("torn", min(end + 1000, len(wal)))):
            rows = await rows_after_power_loss(processes, wal[:length], tmp_path / f"{kind}-{end}")
            assert rows == [(number, part) for number in range(len(rows) // 2) for part in (0, 1)]
            seen.append(rows)
    assert seen == sorted(seen, key=len), "a longer log has fewer rows"
    assert len(seen[-1]) // 2 == len(processes.rows())
    assert set(processes.outcomes("acked")) <= processes.rows()
    assert [len(rows) // 2 for rows in dict.fromkeys(map(tuple, seen))] == list(range(GROUPS + 1))
