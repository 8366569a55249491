"""A reader whose lease ran out asks its group before it hands out what it took earlier: others may have it by now."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing

import anyio
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.testing import VirtualClock
from tests.support.virtual_time import anyio_backend as anyio_backend
from tests.support.virtual_time import clock_of

LEASE_MS = 1_000
GROUP = "s/g"


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write_many((b"%d" % number, "k") for number in range(10))
        yield ep


async def signs_of_life(ep: Eventproc) -> list[int]:
    rows = await ep.db.read(lambda tx: tx.execute("SELECT seen_ms FROM group_member").fetchall())
    return [seen_ms for (seen_ms,) in rows]


@pytest.mark.parametrize(("slept_ms", "asks"), [(LEASE_MS, False), (LEASE_MS + 1, True)])
async def test_a_reader_that_slept_asks_only_when_its_lease_ran_out(
    ep: Eventproc, slept_ms: int, asks: bool
) -> None:
    clock = clock_of(ep)
    group = await ep.create_reader_group("g", ["s/t"], lease_ms=LEASE_MS)
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        before = await signs_of_life(ep)
        clock.advance(slept_ms)
        assert (await anext(events)).payload == b"1"
        assert (await signs_of_life(ep) == [clock.monotonic_ms()]) == asks
        assert asks or await signs_of_life(ep) == before


async def test_without_a_lease_nobody_asks(ep: Eventproc) -> None:
    clock = clock_of(ep)
    group = await ep.create_reader_group("g", ["s/t"])
    async with group.reader("a") as reader, aclosing(aiter(reader)) as events:
        await anext(events)
        before = await signs_of_life(ep)
        clock.advance(10**9)
        assert (await anext(events)).payload == b"1"
        assert await signs_of_life(ep) == before


async def test_the_segments_of_a_reader_that_hangs_go_to_another_one(ep: Eventproc) -> None:
    group = await ep.create_reader_group("g", ["s/t"], lease_ms=LEASE_MS)
    async with group.reader("hung") as hung, aclosing(aiter(hung)) as in_hand:
        await anext(in_hand)
        async with group.reader("other") as other, aclosing(aiter(other)) as events:
            with anyio.fail_after(3 * LEASE_MS / 1000):
                assert (await anext(events)).payload == b"0"
