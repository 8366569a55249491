"""Power loss keeps a prefix of the log: each is a past of the whole system, and the system goes on from it."""

from __future__ import annotations

import shutil
import struct
from itertools import pairwise
from pathlib import Path

import anyio

import eventproc
from eventproc.store import faults
from eventproc.testing import check
from eventproc.testing.checkers import settle_requests
from tests.system.lifecycles import SCOPE, LifecycleJournal
from tests.system.protocol import check_rows
from tests.system.support import WorkerProcesses, read_all

GROUPS = 24
SETTLED_EACH = 8
"""Of so many prefixes one is not only looked at: its requests are finished, as the next host would."""


TORN_EACH = 3
"""Of so many prefixes one has a part of the next frame behind it."""

WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


def frame_ends(wal: bytes) -> list[int]:
    """Return the length of the log up to each frame, from none; source: SQLite's "WAL-mode file format"."""
    (page_bytes,) = struct.unpack_from(">I", wal, 8)
    return list(range(WAL_HEADER_BYTES, len(wal) + 1, FRAME_HEADER_BYTES + page_bytes))


async def rows_of(ep: eventproc.Eventproc) -> dict[str, int]:
    """Assert that what is there holds together; return {stream: rows}."""
    await check(ep.db)
    found: dict[str, int] = {}
    scopes = {scope.name for scope in await ep.scopes()}
    for stream in await ep.streams(SCOPE) if SCOPE in scopes else []:
        name = stream.name.partition("/")[2]
        if not name.endswith("-ballast"):
            found[name] = check_rows(await read_all(ep, stream.name), {name: 0})[name]
    return found


def rows_in(directory: Path, *, settled: bool) -> dict[str, int]:
    """Return {stream: rows} of a directory before any host acts; settled: then let one finish what is asked for."""

    async def main() -> dict[str, int]:
        async with eventproc.open(directory, host=False) as ep:
            found = await rows_of(ep)
        if settled:
            async with eventproc.open(directory) as ep:
                await settle_requests(ep)
                after = await rows_of(ep)
            assert {name: rows for name, rows in after.items() if rows or name in found} == found
        return found

    return anyio.run(main)


def after_power_loss(processes: WorkerProcesses, wal: bytes, base: Path, *, settled: bool) -> dict[str, int]:
    """Open a copy of the directory whose log is `wal`; return {stream: rows}."""
    base.mkdir()
    shutil.copy(processes.directory / "eventproc.db", base)
    (base / "eventproc.db-wal").write_bytes(wal)
    return rows_in(base, settled=settled)


def test_every_prefix_of_the_log_is_a_past_that_holds_together(
    processes: WorkerProcesses, tmp_path: Path
) -> None:
    processes.found(durability="os")
    processes.live_until_killed("ada", faults.WRITE_COMMITTED, GROUPS)
    wal = (processes.directory / "eventproc.db-wal").read_bytes()
    pasts: list[dict[str, int]] = []
    for number, end in enumerate(frame_ends(wal)):
        settled, torn_bytes = number % SETTLED_EACH == 0, 1_000 if number % TORN_EACH == 0 else 0
        log = wal[: end + torn_bytes]
        pasts.append(after_power_loss(processes, log, tmp_path / f"cut-{end}", settled=settled))
    assert len(pasts) > GROUPS, "less than a frame for each group: this shows nothing"
    for before, after in pairwise(pasts):
        assert all(after.get(name, -1) >= rows for name, rows in before.items()), (before, after)
    journal = LifecycleJournal(processes.journal / "ada.lives")
    assert all(pasts[-1][name] >= rows for name, rows in journal.acked.items())
    assert max(pasts[-1].values()) > 0
    assert len({tuple(past.items()) for past in pasts}) > 3, "pasts with the same rows only"
    assert rows_in(processes.directory, settled=True) == pasts[-1]
