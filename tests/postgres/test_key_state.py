"""The states of keys on a PostgreSQL store: two openings share them while the stream scales."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

import eventproc
from eventproc import App, Event, KeyState
from eventproc.errors import ProcessorFailed
from eventproc.testing import check

pytestmark = pytest.mark.subprocess

COUNT = 1_500
KEYS = 120


@attrs.define
class Total:
    count: int = 0


def app_of(state: KeyState[Total]) -> App:
    app = App()

    @app.processor("s/in", group="totals", state=state)
    async def add(event: Event, total: Total) -> None:
        total.count += 1

    return app


def key_of(number: int) -> str:
    return f"k\0{number * number % KEYS}"


async def test_two_openings_count_each_event_once_while_the_stream_scales(url: str) -> None:
    state = KeyState(Total, cache_bytes=1)
    async with eventproc.open(url) as first, eventproc.open(url) as second:
        await first.create_scope("s")
        stream = await first.create_stream("s/in")
        async with first.run(app_of(state)) as running, second.run(app_of(state)):
            async with stream.writer() as writer:
                for number in range(COUNT):
                    await writer.post(b"", key=key_of(number))
                    if number == COUNT // 3:
                        await stream.split(0)
                    elif number == 2 * COUNT // 3:
                        await stream.merge(*[each.id for each in await stream.segments()])
            await running.wait_idle(timeout_ms=60_000)
        kept = await second.state("s/totals", Total).list(limit=KEYS)
        assert {each.key: each.value.count for each in kept} == Counter(map(key_of, range(COUNT)))
        assert [each.key for each in kept] == sorted(each.key for each in kept)
        await check(first.db)


async def test_states_expire_are_refused_by_version_and_dropped(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/in")
        async with stream.writer() as writer:
            await writer.write(b"", key="ana")
        async with ep.run(app_of(KeyState(Total, version=2, ttl_ms=3_600_000))) as running:
            await running.wait_idle(timeout_ms=60_000)
        with pytest.raises(ProcessorFailed, match="key 'ana' has version 2"):
            await ep.run(app_of(KeyState(Total)))
        kept = ep.state("s/totals", Total)
        assert (await kept.describe()).keys == 1
        raw = ep.state("s/totals")
        found = await raw.list()
        assert await raw.drop(["ana", "bob"]) == 1
        await raw.restore(found)
        assert await raw.list() == found
        assert await kept.drop() == 1
