"""Faults at named points: every point has a name, and each action does there what it says."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.store.faults import Died
from eventproc.store.model.errors import DatabaseStopped, DiskFull, InvalidArgument, LockHeld
from eventproc.testing import Fault, FaultPlan, KillAt, check, disk_full, fault_points, run_until_death

APPEND = "writer.append"


async def _append(ep: eventproc.Eventproc, payload: bytes) -> None:
    async with (await ep.stream("s/t")).writer() as writer:
        await writer.write(payload)


async def _count(ep: eventproc.Eventproc) -> int:
    return (await (await ep.stream("s/t")).describe()).events


async def _with_stream(ep: eventproc.Eventproc) -> eventproc.Eventproc:
    await ep.create_scope("s")
    await ep.create_stream("s/t")
    return ep


@pytest.mark.parametrize(("moment", "kept"), [("begun", 0), ("commit", 0), ("committed", 1)])
async def test_a_death_at_a_step_loses_what_is_not_committed(moment: str, kept: int) -> None:
    faults = FaultPlan()
    async with eventproc.open_memory(faults=faults) as ep:
        await _with_stream(ep)
        faults.add((f"{APPEND}.{moment}", "die"))
        assert await run_until_death(lambda: _append(ep, b"x"))
        faults.heal()
        assert await _count(ep) == kept
        await check(ep.db)


async def test_an_error_of_the_disk_undoes_the_step_only() -> None:
    for action, error in (("full", DiskFull), ("busy", LockHeld)):
        faults = FaultPlan()
        async with eventproc.open_memory(faults=faults) as ep:
            await _with_stream(ep)
            faults.add(Fault(f"{APPEND}.commit", action))  # type: ignore[arg-type]
            await _append_until_it_works(ep, error)
            assert await _count(ep) == 1


async def _append_until_it_works(ep: eventproc.Eventproc, expected: type[Exception]) -> None:
    failed = 0
    while True:
        try:
            await _append(ep, b"x")
        except expected:
            failed += 1
            continue
        assert failed <= 1
        return


async def test_a_failing_disk_stops_the_handle() -> None:
    faults = FaultPlan()
    async with eventproc.open_memory(faults=faults, host=False) as ep:
        faults.add(("scope.create.commit", "fail"))
        with pytest.raises(DatabaseStopped, match=r"injected at scope\.create\.commit"):
            await ep.create_scope("s")
        with pytest.raises(DatabaseStopped):
            await ep.create_scope("s")


async def test_what_is_no_death_is_raised() -> None:
    async def main() -> None:
        raise KeyError

    with pytest.raises(KeyError):
        await run_until_death(main)


async def test_a_full_disk_refuses_what_needs_room_and_nothing_is_broken() -> None:
    async with eventproc.open_memory() as ep:
        await _with_stream(ep)
        async with disk_full(ep.db):
            with pytest.raises(DiskFull):
                await _append(ep, bytes(100_000))
        await _append(ep, bytes(100_000))
        assert await _count(ep) == 1


@pytest.mark.parametrize("moment", ["begun", "committed"])
async def test_a_delayed_step_takes_longer(moment: str) -> None:
    async with eventproc.open_memory(
        faults=FaultPlan([Fault(f"scope.create.{moment}", "delay", ms=30)])
    ) as ep:
        began = anyio.current_time()
        await ep.create_scope("s")
        middle = anyio.current_time()
        await ep.create_scope("s2")
        assert middle - began >= 0.03


async def test_a_fault_happens_as_often_as_planned() -> None:
    faults = FaultPlan([Fault("scope.create.commit", "full", nth=2, times=2)])
    async with eventproc.open_memory(faults=faults) as ep:
        worked = []
        for number in range(5):
            try:
                await ep.create_scope(f"s{number}")
            except DiskFull:
                continue
            worked.append(number)
        assert worked == [0, 3, 4]


def test_an_unknown_point_is_refused_with_the_similar_names() -> None:
    with pytest.raises(InvalidArgument, match=r"did you mean 'writer\.append\.commit"):
        Fault("writer.apend.commit")
    with pytest.raises(InvalidArgument, match="fault_points"):
        KillAt("zzz")


@pytest.mark.parametrize(
    ("point", "action"),
    [("write.commit", "delay"), ("writer.append.commit", "delay"), ("writer.append.begun", "full")],
)
def test_an_action_that_is_not_possible_at_the_point_is_refused(point: str, action: str) -> None:
    with pytest.raises(InvalidArgument, match="choose"):
        Fault(point, action)  # type: ignore[arg-type]


def test_every_point_is_listed_once_and_accepts_a_death() -> None:
    points = fault_points()
    assert len(points) == len(set(points))
    for point in points:
        with pytest.raises(Died):
            FaultPlan([(point, "die")]).reach(point)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_points_are_reached_in_a_directory_too(tmp_path: Path) -> None:
    faults = FaultPlan()
    async with eventproc.open(tmp_path / "d", faults=faults) as ep:
        faults.add(("scope.create.commit", "full"))
        faults.add(Fault("scope.create.begun", "delay", nth=2, ms=20))
        with pytest.raises(DiskFull):
            await ep.create_scope("s")
        began = anyio.current_time()
        await ep.create_scope("s")
        assert anyio.current_time() - began >= 0.02
        assert [each.name for each in await ep.scopes()] == ["s"]
