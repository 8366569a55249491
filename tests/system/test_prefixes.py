"""Power loss keeps a prefix of the log: each is a past of the whole system, and the system goes on from it."""

from __future__ import annotations

import itertools
import shutil
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import anyio

import eventproc
from eventproc.store import faults
from eventproc.testing import CrashDirectory, check
from eventproc.testing.checkers import settle_requests
from tests.system.protocol import batches, check_rows, key_of, payload_of, read_all, say

SCOPE = "lives"
SENDS = 3

GROUPS = 24
SETTLED_EACH = 8
"""Of so many prefixes one is not only looked at: its requests are finished, as the next host would."""


TORN_EACH = 3
"""Of so many prefixes one has a part of the next frame behind it."""

WAL_HEADER_BYTES = 32
FRAME_HEADER_BYTES = 24


async def live(ep: eventproc.Eventproc) -> None:
    """Make, write, scale, update and seal streams without end; say what is acknowledged, "STREAM ROWS"."""
    await ep.create_scope(SCOPE)
    for number in itertools.count():
        name = f"ada-{number}"
        stream, sends = await ep.create_stream(f"{SCOPE}/{name}"), batches(name)

        async def write(
            stream: eventproc.Stream = stream, name: str = name, sends: Iterator[range] = sends
        ) -> None:
            async with stream.writer() as writer:
                for rows in itertools.islice(sends, SENDS):
                    await writer.write_many((payload_of(name, row), key_of(name, row)) for row in rows)
                    say(f"{name} {rows.stop}")

        await write()
        await stream.split(0, 3)
        await write()
        active = [segment.id for segment in await stream.segments()]
        await stream.merge(active[1], active[2])
        await write()
        await stream.update(scaling=eventproc.ScalingPolicy.fixed(4))
        await write()
        await stream.seal()


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


def after_power_loss(directory: Path, wal: bytes, base: Path, *, settled: bool) -> dict[str, int]:
    """Open a copy of the directory whose log is `wal`; return {stream: rows}."""
    base.mkdir()
    shutil.copy(directory / "eventproc.db", base)
    (base / "eventproc.db-wal").write_bytes(wal)
    return rows_in(base, settled=settled)


def test_every_prefix_of_the_log_is_a_past_that_holds_together(tmp_path: Path) -> None:
    acked: dict[str, int] = {}
    directory = tmp_path / "store"
    with (
        CrashDirectory(directory, durability="os") as crash,
        crash.start(live, at=faults.WRITE_COMMITTED, nth=GROUPS) as mortal,
    ):
        while line := mortal.hear():
            name, rows = line.split()
            acked[name] = int(rows)
        mortal.wait_killed()
    wal = (directory / "eventproc.db-wal").read_bytes()
    pasts: list[dict[str, int]] = []
    for number, end in enumerate(frame_ends(wal)):
        settled, torn_bytes = number % SETTLED_EACH == 0, 1_000 if number % TORN_EACH == 0 else 0
        log = wal[: end + torn_bytes]
        pasts.append(after_power_loss(directory, log, tmp_path / f"cut-{end}", settled=settled))
    assert len(pasts) > GROUPS, "less than a frame for each group: this shows nothing"
    for before, after in pairwise(pasts):
        assert all(after.get(name, -1) >= rows for name, rows in before.items()), (before, after)
    assert all(pasts[-1][name] >= rows for name, rows in acked.items())
    assert max(pasts[-1].values()) > 0
    assert len({tuple(past.items()) for past in pasts}) > 3, "pasts with the same rows only"
    assert rows_in(directory, settled=True) == pasts[-1]
