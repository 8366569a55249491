"""The clock that a test owns."""

from __future__ import annotations

import threading
import time

import anyio
import pytest

from eventproc.base.clock import new_id
from eventproc.testing import VirtualClock, VirtualRuntime, run_seeded, virtual_loop


async def _an_hour_passes() -> tuple[int, int]:
    clock = VirtualClock()
    wall, monotonic = clock.wall_ms(), clock.monotonic_ms()
    await anyio.sleep(3600)
    return clock.wall_ms() - wall, clock.monotonic_ms() - monotonic


def test_it_follows_virtual_time() -> None:
    assert run_seeded(_an_hour_passes, seed=0) == (3_600_000, 3_600_000)


def test_a_daemon_thread_from_before_does_not_slow_it_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_loop, "THREAD_GRACE_S", 5.0)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait, daemon=True)
    thread.start()
    try:
        began = time.perf_counter()
        VirtualRuntime(backend="asyncio").run(_an_hour_passes)
        assert time.perf_counter() - began < 5
    finally:
        ended.set()
        thread.join()


async def test_it_can_be_moved_by_hand() -> None:
    clock = VirtualClock(start_ms=1_000_000)
    before = clock.monotonic_ms()
    clock.advance(500)
    clock.step_wall(-10_000)
    assert 500 <= clock.monotonic_ms() - before < 5_000
    assert 990_500 <= clock.wall_ms() < 995_500


async def test_randomness_depends_on_the_seed_alone() -> None:
    drawn = [(clock.random_bytes(8), clock.random_bytes(8)) for clock in map(VirtualClock, (1, 1, 2))]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0][0] != drawn[0][1]
    assert len(new_id(VirtualClock(3))) == 36
