"""Delayed events: durable when they are written, appended once when they are due, listed, cancelled and moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import PRESENT, App, Context, DeleteStream, Event, NewEvent, SealStream
from eventproc.describe import DelayedEvent
from eventproc.errors import InvalidArgument, NotFound, StreamSealed
from eventproc.testing import RunningApp, SimulatedWorld, VirtualRuntime
from tests.support.virtual_time import live, run_live

MINUTE_MS = 60_000
BACKENDS = ["asyncio", "trio"]


class NoOffset(tzinfo):
    """A zone that does not know how far it is from UTC."""

    def utcoffset(self, when: datetime | None) -> None:
        return None

    dst = tzname = utcoffset


async def appended(t: RunningApp, stream: str = "s/t") -> list[tuple[bytes, int]]:
    """Return payload and time of each event, in the order of appending."""
    return [(each.payload, each.timestamp) for each in await t.events(stream)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_event_is_appended_when_it_is_due_and_not_before(backend: str) -> None:
    async def test(t: RunningApp) -> None:
        began_ms = t.clock.wall_ms()
        async with (await t.ep.stream("s/t")).writer() as writer:
            far = await writer.write(b"a year", delay_ms=365 * 24 * 60 * MINUTE_MS, key="k")
            minute = await writer.write(b"a minute", delay_ms=MINUTE_MS, key="k")
            at = datetime.fromtimestamp(began_ms / 1000, UTC) + timedelta(seconds=30)
            await writer.write(b"half", at=at)
            await writer.write(b"passed", at=began_ms - 5)
            await writer.write(b"now", key="k")
        assert (far.stream, far.payload, far.key, minute.due_ms) == (
            "s/t",
            b"a year",
            "k",
            began_ms + MINUTE_MS,
        )
        await anyio.sleep(MINUTE_MS / 1000 + 0.05)
        found = await appended(t)
        assert [payload for payload, _ in found] == [b"now", b"passed", b"half", b"a minute"]
        for (_, time_ms), due_ms in zip(
            found[2:], (began_ms + MINUTE_MS // 2, began_ms + MINUTE_MS), strict=True
        ):
            assert due_ms <= time_ms <= due_ms + 50
        assert await t.ep.delayed.list() == [far]

    run_live(test, backend=backend)


@live
async def test_a_delayed_event_keeps_all_that_a_written_one_has(t: RunningApp) -> None:
    async with (await t.ep.stream("s/t")).writer() as writer:
        told = await writer.write(
            b"x", key="k\0é", event_time=-7, headers={"h": "ü\0"}, delay_ms=5, ttl_ms=60_000
        )
        direct = await writer.write(b"x", key="k\0é", event_time=-7, headers={"h": "ü\0"}, ttl_ms=60_000)
    assert [each async for each in _all(t)] == [told]
    await t.settled()
    _, later = await t.events("s/t")
    assert later._replace(offset=direct.offset, number=direct.number, timestamp=direct.timestamp) == direct


async def _all(t: RunningApp) -> AsyncIterator[DelayedEvent[bytes]]:
    after = None
    while page := await t.ep.delayed.list(stream="s/t", after=after, limit=1):
        yield page[0]
        after = page[0].id


@live
async def test_many_are_appended_in_the_order_in_which_they_are_due_and_then_in_that_of_writing(
    t: RunningApp,
) -> None:
    numbers = range(3_000)
    async with (await t.ep.stream("s/t")).writer() as writer:
        written = await writer.write_many(
            NewEvent(b"%d" % number, key="k", delay_ms=1_000 + number % 7) for number in numbers
        )
        assert (written, writer.events_written) == (3_000, 3_000)
    await t.settled()
    found = [int(each.payload) for each in await t.events("s/t")]
    assert found == sorted(numbers, key=lambda number: (number % 7, number))


@live
async def test_a_repeated_sequence_delays_nothing_twice(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    both = [NewEvent(b"later", delay_ms=10), NewEvent(b"now")]
    for _ in range(2):
        async with stream.writer(name="w") as writer:
            await writer.write_many([NewEvent(b"only later", delay_ms=20)], sequence=1)
            await writer.write_many(both, sequence=2)
    await t.settled()
    assert [each for each, _ in await appended(t)] == [b"now", b"later", b"only later"]


@live
async def test_a_posted_event_is_delayed_too_and_a_typed_one_keeps_its_value(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t", payload=dict[str, int])
    async with stream.writer() as writer:
        await writer.post({"a": 1}, delay_ms=10)
        told = await writer.write({"a": 2}, delay_ms=20)
    assert told.payload == {"a": 2}
    await t.settled()
    assert [each for each, _ in await appended(t)] == [b'{"a":1}', b'{"a":2}']


@live
async def test_a_cancelled_event_is_never_appended_and_a_moved_one_at_its_new_time(t: RunningApp) -> None:
    async with (await t.ep.stream("s/t")).writer() as writer:
        first = await writer.write(b"1", delay_ms=MINUTE_MS)
        second = await writer.write(b"2", delay_ms=MINUTE_MS)
        third = await writer.write(b"3", delay_ms=MINUTE_MS)
    assert await t.ep.delayed.get(first.id) == first
    assert await t.ep.delayed.cancel(first.id) == first
    moved = await t.ep.delayed.move(second.id, delay_ms=2 * MINUTE_MS)
    sooner = await t.ep.delayed.move(third.id, at=t.clock.wall_ms() + 1_000)
    assert (moved.id, moved.due_ms) == (second.id, t.clock.wall_ms() + 2 * MINUTE_MS)
    await t.settled()
    assert await appended(t) == [(b"3", sooner.due_ms), (b"2", moved.due_ms)]
    for call in (t.ep.delayed.get, t.ep.delayed.cancel, partial(t.ep.delayed.move, delay_ms=1)):
        with pytest.raises(NotFound, match=f"delayed event '{second.id}'"):
            await call(second.id)


@live
async def test_an_event_whose_stream_was_sealed_stays_with_the_reason_and_blocks_no_other(
    t: RunningApp,
) -> None:
    stream, other = await t.ep.stream("s/t"), await t.ep.create_stream("s/other")
    async with stream.writer() as writer, other.writer() as others:
        stuck = await writer.write(b"stuck", delay_ms=10)
        await others.write(b"fine", delay_ms=20)
    assert (await t.ep.requests.preview(SealStream("s/t", PRESENT))).delayed == 1
    await stream.seal()
    await t.settled()
    assert [each for each, _ in await appended(t, "s/other")] == [b"fine"]
    found = await t.ep.delayed.get(stuck.id)
    assert (found.due_ms, str(found.failure).partition(":")[0]) == (None, "s/t is sealed")
    assert (await t.ep.requests.preview(DeleteStream("s/t", PRESENT))).delayed == 1
    await t.ep.delayed.cancel(stuck.id)
    async with other.writer() as late:
        await other.seal()
        with pytest.raises(StreamSealed):
            await late.write(b"x", delay_ms=5)


@live
async def test_a_damaged_stream_delays_no_other_one_and_its_events_are_appended_after_its_repair(
    t: RunningApp,
) -> None:
    stream, other = await t.ep.stream("s/t"), await t.ep.create_stream("s/other")
    async with stream.writer() as writer, other.writer() as others:
        stuck = await writer.write(b"stuck", delay_ms=10)
        await others.write(b"fine", delay_ms=20)
    lose = "UPDATE segment SET segment = segment + ? WHERE stream_id = ?"
    await t.ep.db.write(lambda tx: tx.execute(lose, (77, stream.stream_id)).close())
    await anyio.sleep(1)
    await t.ep.db.write(lambda tx: tx.execute(lose, (-77, stream.stream_id)).close())
    assert [each for each, _ in await appended(t, "s/other")] == [b"fine"]
    assert str((await t.ep.delayed.get(stuck.id)).failure).startswith("no segment 's/t")
    await t.ep.delayed.move(stuck.id, delay_ms=5)
    await t.settled()
    assert [each for each, _ in await appended(t)] == [b"stuck"]


@live
async def test_the_events_of_a_deleted_stream_go_with_it(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    async with stream.writer() as writer:
        await writer.write_many(NewEvent(b"x", delay_ms=MINUTE_MS) for _ in range(30))
    await stream.seal()
    assert (await t.ep.requests.preview(DeleteStream("s/t", PRESENT))).delayed == 30
    await stream.delete()
    await t.ep.create_stream("s/t")
    await t.settled()
    assert await t.ep.delayed.list() == []
    assert await t.events("s/t") == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delay_ms": -1}, "delay_ms"),
        ({"delay_ms": 1.5}, "delay_ms"),
        ({"at": datetime(2030, 1, 1)}, "no time zone"),
        ({"at": datetime(2030, 1, 1, tzinfo=NoOffset())}, "no time zone"),
        ({"at": -1}, "at"),
        ({"at": "tomorrow"}, "at"),
        ({"at": 5, "delay_ms": 5}, "delay_ms says already"),
    ],
)
@live
async def test_a_time_that_is_none_is_refused_and_nothing_is_written(
    t: RunningApp, options: dict[str, Any], reason: str
) -> None:
    async with (await t.ep.stream("s/t")).writer() as writer:
        for call in (writer.write, writer.post):
            with pytest.raises(InvalidArgument, match=reason):
                await call(b"x", **options)
        with pytest.raises(InvalidArgument, match=reason):
            await writer.write_many([NewEvent(b"x", **options)])
    assert await t.ep.delayed.list() == []


@live
async def test_transactions_refuse_a_delayed_event_instead_of_committing_it_now(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    for event in (NewEvent(b"x", delay_ms=5), NewEvent(b"x", at=5)):
        async with stream.transaction() as one, t.ep.transaction() as joint:
            with pytest.raises(InvalidArgument, match="no delayed events"):
                await one.write_many([event])
            with pytest.raises(InvalidArgument, match="no delayed events"):
                await joint.write_many(stream, [event])
    assert (await t.events("s/t"), await t.ep.delayed.list()) == ([], [])


@pytest.mark.parametrize("backend", BACKENDS)
def test_handlers_emit_with_a_delay_in_the_transaction_of_their_progress(backend: str) -> None:
    app, seen = App(), list[tuple[str, int]]()

    @app.processor("s/t", group="s/reminders")
    async def remind(event: Event, context: Context) -> None:
        seen.append((event.payload.decode(), event.timestamp))
        left = int(event.payload)
        if left:
            context.emit("s/t", str(left - 1), key=event.key, delay_ms=MINUTE_MS)

    async def test(t: RunningApp) -> None:
        await t.write("s/t", b"3", key="k")
        await t.settled()
        assert [payload for payload, _ in seen] == ["3", "2", "1", "0"]
        assert all(0 <= after - before - MINUTE_MS <= 50 for (_, before), (_, after) in pairwise(seen))

    run_live(test, app, backend=backend)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "point", ["delayed.delivery.begun", "delayed.delivery.commit", "writer.append.commit"]
)
def test_each_is_appended_once_by_whichever_instance_lives(seed: int, point: str) -> None:
    async def test() -> None:
        async with SimulatedWorld(seed=seed) as world:
            maker = await world.start()
            await maker.ep.create_scope("s")
            await maker.ep.create_stream("s/t")
            await maker.stop()
            first = await world.start(faults=[(point, "die")] if seed % 2 else [])
            async with (await world.ep.stream("s/t")).writer() as writer:
                await writer.write_many(
                    NewEvent(b"%d" % n, key=f"{n % 5}", delay_ms=n * 100) for n in range(50)
                )
            await anyio.sleep(2)
            if first.alive:
                first.kill() if seed % 3 else first.suspend()
            await world.start()
            await anyio.sleep(20)
            first.resume()
            await world.settled()
            found = [int(each.payload) for each in await world.events("s/t")]
            assert sorted(found) == list(range(50))
            assert found == sorted(found)

    VirtualRuntime(seed=seed).run(test)


def test_large_headers_bound_what_one_transaction_appends() -> None:
    async def test() -> None:
        async with SimulatedWorld(seed=1) as world:
            writing = await world.start(host=False)
            await world.start(faults=[("delayed.delivery.committed", "die")])
            await writing.ep.create_scope("s")
            async with (await writing.ep.create_stream("s/t")).writer() as writer:
                headers = {"h": "x" * 60_000}
                await writer.write_many(NewEvent(b"", headers=headers, delay_ms=9) for _ in range(100))
            await anyio.sleep(1)
            assert 0 < len(await world.events("s/t")) < 100

    VirtualRuntime(seed=1).run(test)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_event_waits_while_no_process_runs_and_is_appended_by_the_next_one(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        async with (await ep.create_stream("s/t")).writer() as writer:
            told = await writer.write(b"x", delay_ms=50)
    async with eventproc.open(tmp_path) as ep, (await ep.stream("s/t")).reader() as reader:
        with anyio.fail_after(20):
            event = await anext(aiter(reader))
        assert (event.payload, event.timestamp >= (told.due_ms or 0)) == (b"x", True)
        assert await ep.delayed.list() == []
