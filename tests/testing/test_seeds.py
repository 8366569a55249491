"""Seeded schedules: this fails first when trio changes the private names that `testing.seeds` stands on."""

from __future__ import annotations

import anyio
import trio._core._run as trio_run

from eventproc.testing import run_seeded


async def _order_of_tasks() -> tuple[int, ...]:
    seen: list[int] = []

    async def note(number: int) -> None:
        for _ in range(3):
            await anyio.lowlevel.checkpoint()
            seen.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(6):
            tasks.start_soon(note, number)
    return tuple(seen)


async def _an_hour() -> float:
    before = anyio.current_time()
    await anyio.sleep(3600)
    return anyio.current_time() - before


def test_trio_still_has_the_private_names_that_seed_it() -> None:
    assert isinstance(trio_run._ALLOW_DETERMINISTIC_SCHEDULING, bool)
    assert callable(trio_run._r.shuffle)


def test_the_same_seed_gives_the_same_schedule() -> None:
    assert len({run_seeded(_order_of_tasks, seed=7) for _ in range(5)}) == 1


def test_other_seeds_give_other_schedules() -> None:
    assert len({run_seeded(_order_of_tasks, seed=seed) for seed in range(20)}) >= 19


def test_time_is_virtual() -> None:
    assert run_seeded(_an_hour, seed=1) >= 3600


def test_seeding_ends_with_the_run() -> None:
    before = trio_run._r.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING
    run_seeded(_order_of_tasks, seed=1)
    assert (trio_run._r.getstate(), trio_run._ALLOW_DETERMINISTIC_SCHEDULING) == before
