"""A store at a glance: the busiest streams, what groups have not finished, and what waits."""

from __future__ import annotations

import eventproc
from eventproc.runtime.overview import SHOWN
from eventproc.testing import VirtualClock


async def test_the_busiest_streams_and_the_groups_most_behind_come_first() -> None:
    clock = VirtualClock()
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        streams = [await ep.create_stream(f"s/t{number}") for number in range(3)]
        for stream, count in zip(streams, (1, 60, 6), strict=True):
            async with stream.writer() as writer:
                await writer.write_many([(b"x", "k")] * count)
        await ep.create_group("s/few", ["s/t2"])
        work = await ep.create_share_group("s/work", ["s/t1"])
        async with work.consumer("c") as consumer:
            found = await consumer.poll(2)
            await consumer.reject(found)
            clock.advance(1_000)
            seen = await ep.overview()
        assert [each.name for each in seen.streams if each.name.startswith("s/t")] == ["s/t1", "s/t2", "s/t0"]
        assert seen.streams_count == 4, "with that of the dead letters"
        assert seen.events_per_second == round(sum(each.events_per_second for each in seen.streams), 3) > 1
        work_now, few = seen.groups
        assert (work_now.group, work_now.kind, work_now.events, work_now.dead_letters) == (
            "s/work",
            "share",
            58,
            2,
        )
        assert (few.group, few.kind, few.events, few.members, few.paused) == ("s/few", "readers", 6, 0, False)
        assert few.age_ms is not None and few.age_ms >= 1_000


async def test_totals_count_groups_that_are_not_shown() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write_many([(b"1", None), (b"2", None)])
        for number in range(SHOWN + 1):
            await ep.create_group(f"s/g{number}", [stream])
        work = await ep.create_share_group("s/work", [stream])
        async with work.consumer("c") as consumer:
            await consumer.reject(await consumer.poll(2))
            seen = await ep.overview()
        assert "s/work" not in [each.group for each in seen.groups]
        assert (seen.dead_letters, seen.unfinished_events) == (2, 2 * (SHOWN + 1))
        assert seen.unfinished_age_ms is not None


async def test_changes_and_transactions_that_wait_are_counted() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        assert (await ep.overview()).transactions_open == 0
        txn = await stream.begin()
        seen = await ep.overview()
        assert (seen.transactions_open, seen.requests_pending) == (1, 0)
        await txn.abort()
        assert (await ep.overview()).groups == ()
