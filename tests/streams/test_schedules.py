"""Schedules: one event for each tick over all processes, in a time zone, with a rule for ticks that were missed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice, pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import pytest
from cronsim import CronSim

import eventproc
from eventproc import PRESENT, App, Event, RetryPolicy, SealStream
from eventproc.describe import MissedTicks
from eventproc.errors import AlreadyExists, InvalidArgument, NotFound, ScopeNotEmpty, StreamSealed
from eventproc.store.model.limits import HEADERS_COUNT_MAX
from eventproc.store.model.schedules import last_tick_ms, next_tick_ms, ticks_now
from eventproc.testing import RunningApp, SimulatedWorld, VirtualRuntime
from tests.support.virtual_time import live, run_live

MINUTE_MS = 60_000
PARIS = ZoneInfo("Europe/Paris")
BACKENDS = ["asyncio", "trio"]


def local(*parts: int) -> int:
    """Return a time in Paris in ms; the first one, if the clock shows it twice."""
    return round(datetime(*parts, tzinfo=PARIS).timestamp() * 1000)  # type: ignore[misc,arg-type]


def ticks_after(cron: str, start_ms: int, count: int) -> list[int]:
    found = [start_ms]
    while len(found) <= count:
        found.append(next_tick_ms(cron, "Europe/Paris", found[-1]) or 0)
    return found[1:]


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_tick_appends_one_event_whose_event_time_it_is(backend: str) -> None:
    async def test(t: RunningApp) -> None:
        made = await t.ep.schedules.create(
            "s/minutely", cron="* * * * *", stream="s/t", payload="go", key="k", headers={"h": "x"}
        )
        first = t.clock.wall_ms() // MINUTE_MS * MINUTE_MS + MINUTE_MS
        assert (made.due_ms, made.payload, made.missed) == (first, b"go", MissedTicks.LATEST)
        assert await t.ep.schedules.next("s/minutely", count=3) == [first + n * MINUTE_MS for n in range(3)]
        await anyio.sleep(3 * MINUTE_MS / 1000)
        found = await t.events("s/t")
        assert [each.event_time for each in found] == [first + n * MINUTE_MS for n in range(3)]
        assert all(0 <= each.timestamp - (each.event_time or 0) <= 50 for each in found)
        assert {(each.payload, each.key) for each in found} == {(b"go", "k")}
        assert found[0].headers == {"h": "x", "ep-schedule": "s/minutely"}
        assert await t.ep.delayed.list() == []
        assert (await t.ep.requests.preview(SealStream("s/t", PRESENT))).delayed == 0  # a tick is no event

    run_live(test, backend=backend)


def test_daylight_saving_neither_leaves_out_nor_repeats_a_tick() -> None:
    # 29 March 2026: from 02:00 to 03:00. 25 October 2026: from 03:00 back to 02:00.
    assert ticks_after("30 2 * * *", local(2026, 3, 28, 12), 2) == [
        local(2026, 3, 29, 3),
        local(2026, 3, 30, 2, 30),
    ]
    assert ticks_after("30 2 * * *", local(2026, 10, 24, 12), 2) == [
        local(2026, 10, 25, 2, 30),
        local(2026, 10, 26, 2, 30),
    ]
    assert ticks_after("0 18 * * mon-fri", local(2026, 3, 27, 17), 2) == [
        local(2026, 3, 27, 18),
        local(2026, 3, 30, 18),
    ]
    each_half_hour = ticks_after("*/30 * * * *", local(2026, 10, 25, 1, 45), 6)
    assert [after - before for before, after in pairwise(each_half_hour)] == [30 * MINUTE_MS] * 5


@pytest.mark.parametrize(
    "cron", ["*/7 3-5 * * *", "0 0 1 * *", "30 2 * * sun", "15 4 L * *", "*/20 * * * * *"]
)
@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_last_tick_is_the_last_one_that_a_walk_forward_finds(cron: str, zone: str) -> None:
    start = datetime(2026, 3, 20, tzinfo=ZoneInfo(zone))
    walked = [round(each.timestamp() * 1000) for each in islice(CronSim(cron, start), 60)]
    for before, after in pairwise(walked):
        for until in (before, before + 1, after - 1):
            assert last_tick_ms(cron, zone, until) == before
            assert next_tick_ms(cron, zone, until) == after


@live
async def test_schedule_begun_in_a_repeated_hour_ticks_at_times_that_are_to_come(t: RunningApp) -> None:
    now_ms = local(2026, 10, 25, 2, 30) + 60 * MINUTE_MS  # the clock shows 02:30 for the second time
    t.clock.step_wall(now_ms - t.clock.wall_ms())
    made = await t.ep.schedules.create("s/c", cron="45 2 * * *", tz="Europe/Paris", stream="s/t")
    assert made.due_ms == local(2026, 10, 26, 2, 45)
    assert await t.ep.schedules.next("s/c", count=1) == [made.due_ms]
    await anyio.sleep(1)
    assert await t.events("s/t") == []
    assert last_tick_ms("45 2 * * *", "Europe/Paris", now_ms) == local(2026, 10, 25, 2, 45)


@pytest.mark.parametrize(
    ("missed", "happens", "then"), [("skip", [], 5), ("latest", [5], 6), ("all", [1, 2, 3, 4, 5], 6)]
)
def test_ticks_that_nobody_was_there_for_happen_as_the_rule_says(
    missed: str, happens: list[int], then: int
) -> None:
    rule = MissedTicks(missed)
    found, following = ticks_now("* * * * *", "UTC", rule, due_ms=MINUTE_MS, now_ms=5 * MINUTE_MS + 30_000)
    assert (found, following) == ([each * MINUTE_MS for each in happens], then * MINUTE_MS)
    on_time = ticks_now("* * * * *", "UTC", rule, due_ms=MINUTE_MS, now_ms=2 * MINUTE_MS - 1)
    assert on_time == ([MINUTE_MS], 2 * MINUTE_MS)


def test_many_missed_ticks_happen_in_steps() -> None:
    found, following = ticks_now("* * * * *", "UTC", MissedTicks.ALL, due_ms=0, now_ms=1_000 * MINUTE_MS)
    assert (len(found), following) == (100, 100 * MINUTE_MS)


async def leave_schedule(world: SimulatedWorld, cron: str, missed: str) -> int:
    """Create a schedule in a process that stops then, and return its first tick."""
    first = await world.start()
    await first.ep.create_scope("s")
    await first.ep.create_stream("s/t")
    made = await first.ep.schedules.create("s/c", cron=cron, stream="s/t", missed=missed)
    await first.stop()
    assert made.due_ms is not None
    return made.due_ms


@pytest.mark.parametrize(("late_ms", "happens"), [(10_000, True), (70_000, False)])
def test_a_tick_in_time_happens_though_the_one_before_it_was_missed(late_ms: int, happens: bool) -> None:
    async def test() -> None:
        async with SimulatedWorld(seed=1) as world:
            second_tick_ms = await leave_schedule(world, "0 * * * *", "skip") + 60 * MINUTE_MS
            world.clock.step_wall(second_tick_ms + late_ms - world.clock.wall_ms())
            second = await world.start()
            await anyio.sleep(1)
            assert [each.event_time for each in await world.events("s/t")] == [second_tick_ms] * happens
            await second.stop()

    VirtualRuntime().run(test)


@live
async def test_a_damaged_schedule_delays_no_event_of_its_stream(t: RunningApp) -> None:
    made = await t.ep.schedules.create("s/c", cron="* * * * *", stream="s/t")
    async with (await t.ep.stream("s/t")).writer() as writer:
        await writer.write(b"x", at=made.due_ms)
    lose = "UPDATE record SET body = x'00' WHERE kind = 'schedule'"
    await t.ep.db.write(lambda tx: tx.execute(lose).close())
    await anyio.sleep(60)
    assert [each.payload for each in await t.events("s/t")] == [b"x"]


@pytest.mark.parametrize(("missed", "count"), [("latest", 1), ("all", 180)])
def test_missed_ticks_are_made_up_for_when_a_process_is_there_again(missed: str, count: int) -> None:
    async def test() -> None:
        async with SimulatedWorld(seed=1) as world:
            due_ms = await leave_schedule(world, "* * * * *", missed)
            world.clock.step_wall(180 * MINUTE_MS)
            second = await world.start()
            await anyio.sleep(1)
            found = [each.event_time or 0 for each in await world.events("s/t")]
            assert len(found) == count
            assert found == [due_ms + (180 - count + n) * MINUTE_MS for n in range(count)]
            await anyio.sleep(MINUTE_MS / 1000)
            assert len(await world.events("s/t")) == count + 1
            await second.stop()

    VirtualRuntime().run(test)


@pytest.mark.parametrize("seed", range(5))
def test_a_tick_happens_once_through_deaths_and_suspended_hosts(seed: int) -> None:
    async def test() -> None:
        async with SimulatedWorld(seed=seed) as world:
            first = await world.start()
            await first.ep.create_scope("s")
            await first.ep.create_stream("s/t")
            await first.ep.schedules.create("s/c", cron="*/5 * * * * *", stream="s/t", missed="all")
            for _ in range(4):
                await anyio.sleep(12)
                other = await world.start(faults=[("delayed.delivery.commit", "die")] if seed % 2 else [])
                first.kill() if seed % 3 else first.suspend()
                first = other
                if not first.alive:
                    first = await world.start()
            await world.start()
            await anyio.sleep(30)
            found = [each.event_time or 0 for each in await world.events("s/t")]
            assert len(found) > 10
            assert [after - before for before, after in pairwise(found)] == [5_000] * (len(found) - 1)
            for each in world.instances:
                each.resume()

    VirtualRuntime(seed=seed).run(test)


def commits_for_missed_ticks(payload: bytes, *, schedules: int = 1) -> int:
    """Return how many commits an instance makes that appends twelve missed ticks of each schedule."""
    commits: list[int] = []

    async def test() -> None:
        async with SimulatedWorld(seed=1) as world:
            first = await world.start()
            await first.ep.create_scope("s")
            await first.ep.create_stream("s/t")
            for number in range(schedules):
                await first.ep.schedules.create(
                    f"s/c{number}", cron="* * * * *", stream="s/t", missed="all", payload=payload
                )
            await first.stop()
            world.clock.step_wall(12 * MINUTE_MS)
            second = await world.start()
            await anyio.sleep(1)
            assert [each.payload for each in await world.events("s/t")] == [payload] * 12 * schedules
            commits.append(world.commits[second.name])

    VirtualRuntime().run(test)
    return commits[0]


def test_missed_ticks_with_large_payloads_are_appended_in_small_transactions() -> None:
    # Four of a mebibyte fill a transaction.
    assert commits_for_missed_ticks(b"x" * 2**20) == commits_for_missed_ticks(b"x") + 2


def test_the_missed_ticks_of_several_schedules_share_a_transaction() -> None:
    # Each of fifty makes up for two of its ticks.
    assert commits_for_missed_ticks(b"x", schedules=50) == commits_for_missed_ticks(b"x") + 5


@live
async def test_a_schedule_is_created_once_replaced_paused_resumed_and_deleted(t: RunningApp) -> None:
    schedules = t.ep.schedules
    made = await schedules.create("s/c", cron="* * * * *", stream="s/t")
    assert await schedules.create("s/c", cron="* * * * *", stream="s/t") == made
    with pytest.raises(AlreadyExists, match="differs in cron, tz"):
        await schedules.create("s/c", cron="0 * * * *", tz="Europe/Paris", stream="s/t")
    hourly = await schedules.create("s/c", cron="0 * * * *", stream="s/t", replace=True)
    assert (hourly.created_ms, (hourly.due_ms or 0) % (60 * MINUTE_MS)) == (made.created_ms, 0)
    paused = await schedules.pause("s/c")
    assert (paused.paused, paused.due_ms, paused.failure) == (True, None, None)
    assert await schedules.create("s/c", cron="0 * * * *", stream="s/t") == paused
    await anyio.sleep(2 * 3600)
    assert await t.events("s/t") == []
    resumed = await schedules.resume("s/c")
    assert (resumed.paused, (resumed.due_ms or 0) > t.clock.wall_ms()) == (False, True)
    assert [each.name for each in await schedules.list("s")] == ["s/c"]
    await schedules.delete("s/c")
    assert await schedules.list() == []
    for call in (schedules.get, schedules.pause, schedules.resume, schedules.delete, schedules.next):
        with pytest.raises(NotFound):
            await call("s/c")


@live
async def test_the_events_of_a_schedule_have_room_for_its_name_among_their_headers(t: RunningApp) -> None:
    headers = {str(number): "" for number in range(HEADERS_COUNT_MAX)}
    with pytest.raises(InvalidArgument, match="headers"):
        await t.ep.schedules.create("s/c", cron="* * * * *", stream="s/t", headers=headers)
    del headers["0"]
    await t.ep.schedules.create("s/c", cron="* * * * *", stream="s/t", headers=headers)
    await anyio.sleep(MINUTE_MS / 1000)
    assert [each.headers for each in await t.events("s/t")] == [{**headers, "ep-schedule": "s/c"}]


@live
async def test_a_schedule_whose_stream_ends_says_so_and_goes_on_with_a_new_one(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    await t.ep.schedules.create("s/c", cron="* * * * *", stream="s/t")
    await stream.seal()
    await anyio.sleep(2 * MINUTE_MS / 1000)
    found = await t.ep.schedules.get("s/c")
    assert (found.due_ms, str(found.failure).partition(":")[0]) == (None, "s/t is sealed")
    with pytest.raises(StreamSealed):
        await t.ep.schedules.resume("s/c")
    await stream.delete()
    await t.ep.create_stream("s/t")
    resumed = await t.ep.schedules.resume("s/c")
    assert (resumed.failure, resumed.due_ms is not None) == (None, True)
    await anyio.sleep(MINUTE_MS / 1000)
    assert len(await t.events("s/t")) == 1


@live
async def test_a_scope_is_deleted_with_its_schedules_only_if_that_is_asked_for(t: RunningApp) -> None:
    await t.ep.create_scope("other")
    await t.ep.schedules.create("other/c", cron="* * * * *", stream="s/t")
    with pytest.raises(ScopeNotEmpty, match="0 streams, 0 groups and 1 schedule;"):
        await t.ep.delete_scope("other")
    await t.ep.delete_scope("other", recursive=True)
    assert await t.ep.schedules.list() == []
    await anyio.sleep(2 * MINUTE_MS / 1000)
    assert await t.events("s/t") == []


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_periodic_handler_runs_once_for_each_tick(backend: str) -> None:
    app, seen = App(), list[int]()

    @app.periodic("s/t", cron="*/10 * * * *", tz="Europe/Paris", retry=RetryPolicy(attempts=3, wait_ms=1_000))
    async def close(event: Event) -> None:
        assert event.event_time is not None
        if event.event_time not in seen and len(seen) == 1:
            seen.append(0)
            raise ConnectionError("not yet")
        seen.append(event.event_time)

    async def test(t: RunningApp) -> None:
        await anyio.sleep(30 * MINUTE_MS / 1000)
        await t.settled()
        ticks = [each for each in seen if each]
        assert len(ticks) == len(set(ticks)) == 3
        assert all(each % (10 * MINUTE_MS) == 0 for each in ticks)

    run_live(test, app, backend=backend)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_an_app_makes_its_stream_and_changes_its_schedule_when_it_starts(tmp_path: Path) -> None:
    def made(cron: str) -> App:
        app = App()

        @app.periodic("s/jobs", cron=cron, missed="skip")
        async def job(event: Event) -> None: ...

        return app

    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        async with ep.run(made("0 0 1 1 *")):
            assert (await ep.schedules.get("s/jobs")).stream == "s/jobs"
        async with ep.run(made("0 0 2 1 *")):
            found = await ep.schedules.get("s/jobs")
            assert datetime.fromtimestamp((found.due_ms or 0) / 1000, UTC).day == 2
            assert found.missed is MissedTicks.SKIP


def test_a_declaration_that_cannot_be_kept_is_refused_immediately() -> None:
    app = App()
    for cron, tz, missed in (
        ("x", "UTC", "all"),
        (f"{'9' * 5000} * * * *", "UTC", "all"),
        ("* * * * *", "Mars", "all"),
        ("* * * * *", "UTC", "some"),
    ):
        with pytest.raises(InvalidArgument):
            app.periodic("s/t", cron=cron, tz=tz, missed=missed)
    app.periodic("s/t", cron="* * * * *")(handle)
    with pytest.raises(AlreadyExists):
        app.periodic("s/t", cron="* * * * *")


async def handle(event: Event) -> None: ...
