"""The probes /healthz and /readyz: they write, ask for no credentials, and give reasons without names."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.rest import health_calls
from eventproc.testing import Fault, FaultPlan
from eventproc.testing.crash import PATIENCE_S
from tests.groups.support import eventually
from tests.server.rest_client import OWN, RestInMemory

WORKS = {"database": "UP", "host": "UP"}


@pytest.fixture
async def ep(tmp_path: Path) -> AsyncIterator[Eventproc]:
    async with eventproc.open(tmp_path / "streams", durability="os") as ep:
        yield ep


@pytest.fixture
async def rest(ep: Eventproc) -> RestInMemory:
    rest = RestInMemory(ep)

    async def has_host() -> bool:
        return (await rest.ok("GET", f"{OWN}/cluster"))["host"] is not None

    await eventually(ep, has_host)
    return rest


async def refusal(rest: RestInMemory, path: str = "/readyz") -> str:
    """Return the reason with which a probe fails."""
    answer = await rest.call("GET", path)
    assert answer.status == 503, answer
    detail: str = answer.body["detail"]
    return detail


async def test_a_server_that_works_passes_both_probes(rest: RestInMemory) -> None:
    for path in ("/healthz", "/readyz"):
        assert await rest.ok("GET", path) == WORKS


async def test_a_server_without_a_host_lives_and_is_not_ready(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "streams", durability="os", host=False) as ep:
        rest = RestInMemory(ep)
        assert await refusal(rest) == "host: no instance is the host now"
        assert await rest.ok("GET", "/healthz") == {"database": "UP", "host": "STARTING"}
        assert "eventproc_ready 0.0" in (await rest.text("/metrics", "text/plain"))[1].splitlines()


async def test_a_full_disk_is_not_ready_until_there_is_room(
    rest: RestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as full:
        full.setattr(health_calls, "FREE_BYTES_MIN", 1 << 60)
        assert "free some space" in await refusal(rest)
        assert await rest.ok("GET", "/healthz") == {**WORKS, "database": "DOWN"}
    assert await rest.ok("GET", "/readyz") == WORKS


async def test_a_write_that_fails_gives_a_reason_that_names_no_place_to_strangers() -> None:
    faults = FaultPlan()
    async with eventproc.open_memory(faults=faults, host=False) as ep:
        rest = RestInMemory(ep)
        faults.add(Fault("write.commit", "full", times=100))
        said = await refusal(rest)
        assert "database: DiskFull: The disk, or a quota on it, is full" in said
        assert ":memory:" not in said
        assert ":memory:" in (await rest.ok("GET", "/v1/health"))["details"]["database"]
        assert (await rest.ok("GET", "/healthz"))["database"] == "DOWN"
        faults.heal()
        assert (await rest.ok("GET", "/healthz"))["database"] == "UP"


async def test_a_database_that_has_stopped_needs_a_restart() -> None:
    faults = FaultPlan()
    async with eventproc.open_memory(faults=faults, host=False) as ep:
        rest = RestInMemory(ep)
        faults.add(Fault("write.commit", "fail"))
        for _ in range(2):
            assert (await refusal(rest, "/healthz")).startswith("database: DatabaseStopped: ")
        assert (await refusal(rest)).startswith("database: DatabaseStopped: ")


async def test_a_write_that_cannot_begin_says_so_in_time(
    rest: RestInMemory, ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health_calls, "WRITE_WAIT_MS_MAX", 20)
    began, goes_on = threading.Event(), threading.Event()

    def hold(_: object) -> None:
        began.set()
        assert goes_on.wait(PATIENCE_S)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ep.db.write, hold)
        assert await anyio.to_thread.run_sync(began.wait, PATIENCE_S)
        assert "database: LockHeld: Another process held a lock" in await refusal(rest)
        goes_on.set()
    assert await rest.ok("GET", "/readyz") == WORKS


async def test_callers_share_a_write_and_learn_that_it_hangs(
    rest: RestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()
    writes: list[str] = []

    def hang(_: object, name: str) -> None:
        writes.append(name)
        began.set()
        assert goes_on.wait(PATIENCE_S)

    answers: list[int] = []

    async def probe() -> None:
        answers.append((await rest.call("GET", "/readyz")).status)

    with monkeypatch.context() as hanging:
        hanging.setattr(health_calls, "count_up", hang)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(probe)
            assert await anyio.to_thread.run_sync(began.wait, PATIENCE_S)
            hanging.setattr(health_calls, "ANSWER_S_MAX", 0.01)
            assert "database: it has not answered for 0.01 s" in await refusal(rest)
            hanging.setattr(health_calls, "ANSWER_S_MAX", PATIENCE_S)
            tasks.start_soon(probe)
            await anyio.wait_all_tasks_blocked()
            goes_on.set()
    assert (answers, len(writes)) == ([200, 200], 1)
    assert await rest.ok("GET", "/readyz") == WORKS


async def test_a_check_whose_caller_leaves_is_made_again_for_the_others(
    rest: RestInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def hang(_: object, name: str) -> None:
        began.set()
        assert goes_on.wait(PATIENCE_S)

    answers: list[int] = []

    async def probe() -> None:
        answers.append((await rest.call("GET", "/readyz")).status)

    async with anyio.create_task_group() as staying, anyio.create_task_group() as leaving:
        monkeypatch.setattr(health_calls, "count_up", hang)
        leaving.start_soon(probe)
        assert await anyio.to_thread.run_sync(began.wait, PATIENCE_S)
        staying.start_soon(probe)
        await anyio.wait_all_tasks_blocked()
        leaving.cancel_scope.cancel()
        goes_on.set()
    assert answers == [200]
