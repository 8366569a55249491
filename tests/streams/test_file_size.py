"""The database file after its events are gone: it becomes smaller in the background, and writers go on."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.store.segments.free_pages import FREE_BYTES_MAX, FREE_BYTES_MIN, surplus_pages
from tests.support.child_process import PATIENCE_S

PAGE = 16_384
MIB = 2**20


@pytest.fixture
def anyio_backend() -> str:
    """A directory runs on asyncio only."""
    return "asyncio"


@pytest.mark.parametrize(
    ("used", "free", "expected"),
    [
        (1 * MIB, 0, 0),
        (1 * MIB, FREE_BYTES_MIN, 0),
        (1 * MIB, 200 * MIB, 200 * MIB - FREE_BYTES_MIN),
        (200 * MIB, 40 * MIB, 0),
        (200 * MIB, 60 * MIB, 20 * MIB),
        (2_000 * MIB, 100 * MIB, 100 * MIB - FREE_BYTES_MAX),
    ],
)
def test_a_fifth_of_the_used_pages_stays_free_between_two_bounds(used: int, free: int, expected: int) -> None:
    assert surplus_pages((used + free) // PAGE, free // PAGE, PAGE) == expected // PAGE


@pytest.mark.parametrize("deleted", [False, True])
async def test_the_file_shrinks_after_a_truncation_or_a_deletion_while_writers_go_on(
    tmp_path: Path, deleted: bool
) -> None:
    async with eventproc.open(tmp_path / "home", durability="os") as ep:
        await ep.create_scope("s")
        stream, other = await ep.create_stream("s/big"), await ep.create_stream("s/other")
        async with stream.writer() as writer:
            for _ in range(60):
                await writer.write_many((b"x" * 100_000, "k") for _ in range(10))
        file = tmp_path / "home" / "eventproc.db"
        assert file.stat().st_size > 50 * MIB
        await stream.truncate(await stream.tail())
        if deleted:
            await stream.seal()
            await stream.delete()
        written = 0
        async with other.writer() as writer:
            with anyio.fail_after(PATIENCE_S):
                while file.stat().st_size > FREE_BYTES_MIN + 8 * MIB:
                    await writer.write(b"%d" % written)
                    written += 1
        async with other.reader() as reader:
            seen = [int(event.payload) async for event in reader.until(await other.tail())]
        assert seen == list(range(written))
