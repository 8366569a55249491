"""Processors of one group in several apps: joining, leaving, failing, and what they hand over to each other."""

from __future__ import annotations

from collections import Counter

import anyio
import pytest

from eventproc.groups import delete_group, ensure_group, join
from eventproc.groups.operations import reader_offline
from eventproc.processors import App, Context, ProcessorFailed, RetryPolicy, Running
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import AlreadyExists, DiskFull, NotFound
from eventproc.store.model.group_errors import NotAReaderGroup, ReaderOnline
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event
from tests.processors.support import (
    GROUP,
    OUT,
    STREAM,
    group,
    lag,
    payloads,
    progress,
    system,
    until_next,
    write,
)
from tests.processors.worker import settled, until
from tests.support.apps import run_until_idle

ENOUGH_MS = 3_600_000


def app_of(handler: object, **choices: object) -> App:
    app = App()
    app.add(handler, STREAM, group=GROUP, name="p", **choices)  # type: ignore[call-overload]
    return app


async def wide(ep: Eventproc, segments: int) -> None:
    """Give the stream, which has one segment, so many."""
    await (await ep.stream(STREAM)).split(0, segments)


async def shares(ep: Eventproc, readers: int) -> list[int]:
    """Return how many segments each member has, once `readers` are online and own their targets."""
    while True:
        found = await group(ep)
        settled = all(each.reached and each.owner == each.target for each in found.segments)
        if settled and len(found.members) == readers:
            return sorted(member.owned for member in found.members)
        await until_next()


async def nothing(event: Event) -> None:
    pass


@pytest.mark.acceptance(
    "D6",
    differs="segments move as soon as a reader joins or leaves, not every two minutes, and no processor is replaced",
)
async def test_reader_with_most_segments_gives_up_some_and_even_shares_stay() -> None:
    async with system() as ep:
        await wide(ep, 6)
        app = app_of(nothing)
        async with ep.run(app):
            assert await shares(ep, 1) == [6]
            async with ep.run(app):
                assert await shares(ep, 2) == [3, 3]
                before = {each.segment: each.owner for each in (await group(ep)).segments}
                async with ep.run(app):
                    assert await shares(ep, 3) == [2, 2, 2]
                    after = {each.segment: each.owner for each in (await group(ep)).segments}
                    assert sum(before[each] != after[each] for each in before) == 2, "no more than has to"
                    generation = (await group(ep)).generation
                    await write(ep, [f"k{n}" for n in range(50)])
                    while await lag(ep):
                        await until_next()
                    assert (await group(ep)).generation == generation, "even shares stay"
            assert await shares(ep, 1) == [6]
        assert await shares(ep, 0) == []


@pytest.mark.acceptance(
    "D6",
    differs="segments move as soon as a reader joins or leaves, not every two minutes, and no processor is replaced",
)
async def test_only_the_reader_with_most_segments_gives_one_to_a_reader_without_any() -> None:
    async with system() as ep:
        await wide(ep, 3)
        app = app_of(nothing)
        async with ep.run(app), ep.run(app):
            assert await shares(ep, 2) == [1, 2]
            before = (await group(ep)).segments
            (poor,) = {
                each.owner for each in before if [other.owner for other in before].count(each.owner) == 1
            }
            async with ep.run(app):
                assert await shares(ep, 3) == [1, 1, 1]
                after = {each.segment: each.owner for each in (await group(ep)).segments}
                kept = [each.segment for each in before if each.owner == after[each.segment]]
                assert len(kept) == 2, "one segment moved"
                assert poor in {after[segment] for segment in kept}, "the others keep theirs"


@pytest.mark.acceptance("D3", differs="a grace period bounds the wait; what still runs then is cancelled")
@pytest.mark.parametrize("order", ["segment", "key", None])
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_leaving_waits_for_what_runs_begins_nothing_more_and_makes_it_durable(
    order: str | None, exactly_once: bool
) -> None:
    gate, leaving = anyio.Event(), anyio.Event()
    begun: list[int] = []
    running = 0

    async def handle(event: Event, context: Context) -> None:
        begun.append(int(event.payload))
        context.emit(OUT, event.payload)
        await gate.wait()

    async with system() as ep:
        await write(ep, "abcabc")
        app = app_of(
            handle,
            order=order,
            concurrency=2,
            **({"exactly_once": True, "round_events": 2} if exactly_once else {}),
        )
        async with anyio.create_task_group() as tasks:

            async def leave() -> None:
                async with ep.run(app, grace_ms=ENOUGH_MS):
                    await until(lambda: bool(begun))
                    leaving.set()

            tasks.start_soon(leave)
            await leaving.wait()
            await settled()
            running = len(begun)
            gate.set()
        handled = 2 if exactly_once else running
        assert len(begun) == handled
        assert sorted(await payloads(ep)) == sorted(begun)
        assert await lag(ep) == 6 - handled


@pytest.mark.acceptance("D10", differs="a cancelled event is handled again by the next owner")
@pytest.mark.acceptance("D3")
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_call_that_outlasts_the_grace_period_is_cancelled_and_not_finished(
    exactly_once: bool,
) -> None:
    ended: list[int] = []
    patient = False

    async def handle(event: Event, context: Context) -> None:
        context.emit(OUT, event.payload, key=event.key)
        if event.key == "slow" and not patient:
            try:
                await anyio.sleep_forever()
            finally:
                ended.append(int(event.payload))

    async with system() as ep:
        await write(ep, ["fast", "slow", "fast"])
        app = app_of(handle, exactly_once=exactly_once)
        async with ep.run(app, grace_ms=10) as running:
            await until(lambda: running.in_flight == 1)
            await settled()
        assert ended == [1]
        assert await lag(ep) == (3 if exactly_once else 1)
        assert sorted(await payloads(ep)) == ([] if exactly_once else [0, 2])
        patient = True
        await run_until_idle(ep, app)
        assert sorted(await payloads(ep)) == [0, 1, 2]


async def test_a_cancellation_around_an_app_drains_it() -> None:
    finished: list[int] = []
    begun = anyio.Event()

    async def handle(event: Event) -> None:
        begun.set()
        await anyio.sleep(0.05)
        finished.append(int(event.payload))

    async with system() as ep:
        await write(ep, "a")
        with anyio.CancelScope() as scope:
            async with ep.run(app_of(handle)):
                await begun.wait()
                scope.cancel()
                await anyio.sleep_forever()
        assert scope.cancelled_caught
        assert finished == [0]
        assert await lag(ep) == 0


async def test_a_second_cut_ends_a_drain_at_once() -> None:
    begun = anyio.Event()
    left = anyio.Event()

    async def handle(event: Event) -> None:
        begun.set()
        await anyio.sleep_forever()

    async with system() as ep:
        await write(ep, "a")
        async with anyio.create_task_group() as tasks:
            apps: list[Running] = []

            async def leave() -> None:
                async with ep.run(app_of(handle), grace_ms=ENOUGH_MS) as running:
                    apps.append(running)
                    await begun.wait()
                left.set()

            tasks.start_soon(leave)
            await begun.wait()
            await settled()
            assert not left.is_set()
            apps[0].cancel_now()
            await left.wait()
        assert await lag(ep) == 1


@pytest.mark.acceptance("D5")
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_segments_of_a_failed_processor_continue_at_their_durable_progress(
    exactly_once: bool,
) -> None:
    times: Counter[int] = Counter()
    fail = True

    async def handle(event: Event, context: Context) -> None:
        nonlocal fail
        times[int(event.payload)] += 1
        context.emit(OUT, event.payload, key=event.key)
        if event.payload == b"7" and fail:
            fail = False
            raise ValueError("only in one of them")

    app = app_of(
        handle, order="segment", on_failure="stop", retry=RetryPolicy(attempts=1), exactly_once=exactly_once
    )
    async with system() as ep:
        await wide(ep, 4)
        failures: list[ProcessorFailed] = []

        async def one() -> None:
            try:
                await run_until_idle(ep, app)
            except ProcessorFailed as why:
                failures.append(why)

        await ep.db.write(lambda tx: ensure_group(tx, GROUP, [STREAM]))
        await write(ep, [f"k{n}" for n in range(20)])
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(one)
        assert len(failures) == 1
        assert await lag(ep) == 0
        assert sorted(set(await payloads(ep))) == list(range(20))
        if exactly_once:
            assert sorted(await payloads(ep)) == list(range(20))
    assert times[7] == 2


@pytest.mark.acceptance("D5")
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_failed_takeover_changes_nothing_and_the_next_one_succeeds(exactly_once: bool) -> None:
    """A process dies after four of ten events; the first transaction that takes over its segment fails."""
    handled: list[int] = []

    async def handle(event: Event, context: Context) -> None:
        handled.append(int(event.payload))
        context.emit(OUT, event.payload)

    def fail_to_take_over(tx: Tx) -> None:
        reader_offline(tx, GROUP, "dead")
        raise DiskFull(path="data")

    async def state() -> tuple[list[str | None], list[Progress]]:
        return [each.owner for each in (await group(ep)).segments], await progress(ep)

    async with system() as ep:
        await ep.db.write(lambda tx: ensure_group(tx, GROUP, [STREAM]))
        await write(ep, "a" * 10)
        async with join(ep.db, GROUP, "dead") as dead:
            await dead.refresh()
            (owned,) = dead.owned.values()
            durable = owned.progress.finish(0, 4, 4 * (FRAME_BYTES + 1))
            await ep.db.write(lambda tx: dead.move(tx, {owned: durable}))
            assert await state() == (["dead"], [durable])

            with pytest.raises(DiskFull):
                await ep.db.write(fail_to_take_over)
            assert await state() == (["dead"], [durable])

            async with ep.run(app_of(handle, exactly_once=exactly_once)) as running:
                await settled()
                assert handled == [], "the segment still belongs to the dead process"
                await ep.db.write(lambda tx: reader_offline(tx, GROUP, "dead"))
                await running.wait_idle()
        assert handled == await payloads(ep) == list(range(4, 10))
        assert [each.number for each in await progress(ep)] == [10]


@pytest.mark.acceptance(
    "D7", differs="the key is held where it is, the others overtake it; attempts bound it, not time"
)
async def test_a_waiting_event_lets_other_keys_pass_until_its_attempts_are_spent() -> None:
    order: list[tuple[str | None, int]] = []

    async def handle(event: Event, context: Context) -> None:
        order.append((event.key, context.attempt))
        if event.key == "busy":
            raise OSError("busy")

    async with system() as ep:
        await write(ep, ["busy", "a", "b"])
        retry = RetryPolicy(attempts=3, wait_ms=20, wait_ms_max=20, jitter_ms=0)
        await run_until_idle(ep, app_of(handle, retry=retry, on_failure="skip"))
    assert [each for each in order if each[0] == "busy"] == [("busy", 1), ("busy", 2), ("busy", 3)]
    assert {each[0] for each in order[: order.index(("busy", 2))]} == {"busy", "a", "b"}


@pytest.mark.acceptance(
    "D9", differs="the database knows which readers are alive; remaining readers are removed with their group"
)
async def test_a_reader_is_online_once_and_a_group_that_is_gone_takes_no_reader() -> None:
    async def enter(name: str) -> None:
        async with join(ep.db, name, "r"):
            pass

    async with system() as ep:
        await ep.db.write(lambda tx: ensure_group(tx, GROUP, [STREAM]))
        await ep.db.write(lambda tx: ensure_group(tx, GROUP, [STREAM]))
        with pytest.raises(AlreadyExists):
            await ep.db.write(lambda tx: ensure_group(tx, GROUP, [OUT]))
        async with join(ep.db, GROUP, "r") as first:
            with pytest.raises(ReaderOnline):
                await enter(GROUP)
            await ep.db.write(lambda tx: delete_group(tx, GROUP))
            with pytest.raises(NotFound):
                await first.refresh()
            with pytest.raises(NotFound):
                await enter(GROUP)
        with pytest.raises(NotFound):
            await enter("s/other")


@pytest.mark.parametrize("paused", [False, True])
async def test_a_processor_s_group_takes_no_readers_and_the_processor_handles_all(paused: bool) -> None:
    seen: list[bytes] = []

    async def handle(event: Event) -> None:
        seen.append(event.payload)

    async with system() as ep:
        async with ep.run(app_of(handle)):
            pass
        await write(ep, [None])
        if paused:
            await ep.pause_processor(GROUP)
        processors_own = await ep.group(GROUP)
        with pytest.raises(NotAReaderGroup, match=rf"{GROUP}.*read {STREAM} directly"):
            async with processors_own.reader("a"):
                pass
        assert (await group(ep)).members == ()
        await ep.resume_processor(GROUP)
        await run_until_idle(ep, app_of(handle), timeout_ms=ENOUGH_MS)
    assert seen == [b"0"]


async def test_a_group_that_was_deleted_under_a_processor_stops_it_with_its_name() -> None:
    async with system() as ep:

        async def run() -> None:
            async with ep.run(app_of(nothing)) as running:
                await shares(ep, 1)
                await ep.db.write(lambda tx: delete_group(tx, GROUP))
                await running.wait()

        with pytest.raises(ProcessorFailed, match=GROUP):
            await run()


async def test_keys_keep_their_order_when_segments_change_hands() -> None:
    seen: list[tuple[str | None, int]] = []
    gates = {n: anyio.Event() for n in range(1, 4)}

    async def handle(event: Event) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append((event.key, int(event.payload)))
        for n, gate in gates.items():
            if len(seen) >= 100 * n:
                gate.set()

    async with system() as ep:
        await wide(ep, 4)
        app = app_of(handle, concurrency=3)
        async with ep.run(app):
            await shares(ep, 1)
            await write(ep, [f"k{n % 10}" for n in range(400)])
            await gates[1].wait()
            async with ep.run(app):
                await gates[2].wait()
                async with ep.run(app) as running:
                    await gates[3].wait()
                    await running.wait_idle()
    for key in range(10):
        assert [number for each, number in seen if each == f"k{key}"] == list(range(key, 400, 10))
