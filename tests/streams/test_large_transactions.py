"""A transaction of 100 MB: no step of it is large, before, in and after its commit; readers see it whole.

That no step takes long follows from that; benchmarks/transactions.py measures it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import attrs
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.store.database import Database, Tx
from eventproc.store.model.limits import PREPARE_BYTES, PREPARE_ROWS, PREPARED_ROWS
from eventproc.streams import Stream
from eventproc.streams.staging import STAGE_BYTES
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture
from tests.support.memory import stored_ep as stored_ep  # a fixture: ep

T = TypeVar("T")

EVENTS: Final = 100_000
EVENT_BYTES: Final = 1_000
KEYS: Final = 1_000
SEGMENTS: Final = 4

STEP_BYTES_MAX: Final = PREPARE_BYTES + STAGE_BYTES
STEP_ROWS_MAX: Final = 2 * max(PREPARED_ROWS, PREPARE_ROWS)
"""A row that moves is two: one that comes and one that goes."""


@pytest.fixture
async def stream(ep: Eventproc) -> Stream:
    return await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(SEGMENTS))


@attrs.define
class Steps:
    """What each function of a writing transaction said that it writes, and how many rows it changed itself."""

    size_bytes: list[int] = attrs.field(factory=list)
    rows: list[int] = attrs.field(factory=list)


@pytest.fixture
def steps(ep: Eventproc, monkeypatch: pytest.MonkeyPatch) -> Steps:
    """Watch every transaction of this process: its own, and those of its host."""
    found, write = Steps(), ep.db.write

    async def watched(
        _: Database, fn: Callable[[Tx], T], *, size_bytes: int = 0, timeout_ms: int | None = None, **how: Any
    ) -> T:
        def counted(tx: Tx) -> T:
            before = tx.total_changes()
            result = fn(tx)
            found.rows.append(tx.total_changes() - before)
            return result

        found.size_bytes.append(size_bytes)
        return await write(counted, size_bytes=size_bytes, timeout_ms=timeout_ms, **how)

    monkeypatch.setattr(type(ep.db), "write", watched)
    return found


def events() -> Iterator[tuple[bytes, str]]:
    for number in range(EVENTS):
        yield b"%0*d" % (EVENT_BYTES, number), f"k{number % KEYS}"


async def look_whole(stream: Stream) -> None:
    """Assert that the first moment in which something is visible shows everything, in the order of each key."""
    async with stream.reader() as reader:
        async for _ in reader.batches():
            assert (await stream.describe()).events == EVENTS
            break
    last: dict[str | None, int] = {}
    async with stream.reader() as reader:
        async for event in reader.until(await stream.tail()):
            number = int(event.payload)
            assert number == last.get(event.key, number % KEYS - KEYS) + KEYS
            last[event.key] = number
    assert len(last) == KEYS
    assert min(last.values()) == EVENTS - KEYS


async def largest_blob(ep: Eventproc) -> int:
    row = await ep.db.read(lambda tx: tx.execute("SELECT max(length(data)) FROM blob").fetchone())
    return int(row[0])


@pytest.mark.parametrize("scaled", [False, True])
async def test_100_mb_become_visible_together_in_small_steps(
    ep: Eventproc, stream: Stream, steps: Steps, scaled: bool
) -> None:
    async with stream.transaction() as txn:
        assert await txn.write_many(events()) == EVENTS
        await txn.flush()
        staged_steps = len(steps.size_bytes)
        assert staged_steps > EVENTS * EVENT_BYTES / STAGE_BYTES
        assert max(steps.size_bytes) <= STAGE_BYTES
        if scaled:
            for segment in await stream.segments():
                await stream.split(segment.id)
        assert (await stream.describe()).events == 0
        await txn.commit(wait=False)
        await look_whole(stream)
        await txn.commit()
    assert sum(each.count for each in txn.appended) == EVENTS
    assert max(steps.size_bytes) <= STEP_BYTES_MAX
    assert max(steps.rows) <= STEP_ROWS_MAX
    assert await largest_blob(ep) <= STEP_BYTES_MAX
    copied_bytes = sum(steps.size_bytes[staged_steps:])
    if scaled:
        assert copied_bytes > EVENTS * EVENT_BYTES
        assert len(txn.appended) == 2 * SEGMENTS
    else:
        assert copied_bytes == 0, "in the same epoch rows move, not bytes"
