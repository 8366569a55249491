"""How long calls of handlers take: what other processes see of it, in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio
import pytest

import eventproc
from eventproc import App, Event
from eventproc.describe import CallDurations
from eventproc.testing import VirtualClock
from tests.support.virtual_time import in_virtual_time

GROUP = "s/g"
PUBLISHED_MS = 5_000
"""Longer than the pause between two looks at a status, and that until the next commit."""


async def _durations(
    handle: Callable[..., Awaitable[None]], events: int, after_ms: int, **options: object
) -> tuple[CallDurations | None, int | None]:
    """Process events, and return what another process then sees of the calls and of the age at the commit."""
    app = App()
    app.add(handle, "s/t", group=GROUP, **options)  # type: ignore[call-overload]
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write_many([(b"x", f"k{number % 3}") for number in range(events)])
        async with ep.run(app, grace_ms=0) as running:
            await anyio.sleep(after_ms / 1000)
            found = await ep.processor(GROUP)
            (shown,) = (await ep.overview()).groups
            assert (shown.calls, shown.commit_age_ms) == (found.calls, found.commit_age_ms)
            (member,) = found.members
            assert member.status is not None
            assert member.status.calls == found.calls
            (status,) = await running.status()
            assert status.calls is not None
            return found.calls, found.commit_age_ms


@pytest.mark.parametrize("order", ["key", "segment", None])
@in_virtual_time
async def test_median_and_high_percentile_are_those_of_the_calls(order: str | None) -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep(1 if event.number % 20 == 7 else 0.01)

    calls, age_ms = await _durations(handle, 100, 10_000 + PUBLISHED_MS, order=order)
    assert calls is not None
    assert (calls.count, calls.median_ms) == (100, 10)
    assert 1_000 <= calls.p99_ms <= 1_125
    assert calls.mean_ms == pytest.approx((5 * 1_000 + 95 * 10) / 100, rel=0.01)
    assert age_ms is not None
    assert age_ms >= 1_000


@in_virtual_time
async def test_batch_counts_as_one_call() -> None:
    async def handle(events: list[Event]) -> None:
        await anyio.sleep(0.2)

    calls, age_ms = await _durations(handle, 30, PUBLISHED_MS, batch=10, order="segment")
    assert calls is not None
    assert (calls.count, calls.mean_ms) == (3, 200)
    assert age_ms is not None
    assert age_ms >= 600


@in_virtual_time
async def test_calls_that_overrun_their_timeout_count() -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep_forever()

    retry = eventproc.RetryPolicy(attempts=1)
    calls, _ = await _durations(handle, 3, 3_000 + PUBLISHED_MS, timeout_ms=500, retry=retry)
    assert calls is not None
    assert calls.count == 3
    assert calls.p99_ms >= 500


@in_virtual_time
async def test_durations_are_published_with_commits_while_events_come() -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep(event.number % 7 / 100)

    app = App()
    app.add(handle, "s/t", group=GROUP)
    written_ms = 60_000
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer, ep.run(app, grace_ms=0):
            seen = set()
            for _ in range(written_ms // 1_000):
                await writer.write_many([(b"x", None)] * 30)
                await anyio.sleep(1)
                seen.add((await ep.processor(GROUP)).calls)
    assert len(seen) > written_ms / 1_000 / 4, "they follow, two seconds late"


@in_virtual_time
async def test_calls_of_long_ago_are_forgotten_when_there_are_new_ones() -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep(1 if event.payload == b"slow" else 0.01)

    app = App()
    app.add(handle, "s/t", group=GROUP)
    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer, ep.run(app) as running:
            await writer.write(b"slow")
            await running.wait_idle()
            await anyio.sleep(300)
            found = await ep.processor(GROUP)
            assert found.calls is not None
            assert found.calls.count == 1, "without calls the last ones are shown"
            await writer.write(b"quick")
            await running.wait_idle()
            await anyio.sleep(PUBLISHED_MS / 1_000)
            found = await ep.processor(GROUP)
            assert found.calls is not None
            assert (found.calls.count, found.calls.median_ms) == (1, 10)
