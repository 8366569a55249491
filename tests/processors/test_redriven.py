"""Redriven events and the app of their group: they are handled like others, or refused where they could not be."""

from __future__ import annotations

import attrs
import pytest

from eventproc import App, Event, ProcessorFailed, RetryPolicy
from eventproc.errors import NotSupported
from eventproc.groups import get_group
from eventproc.runtime import Eventproc
from tests.processors.support import GROUP, STREAM, finished, letters, system, write
from tests.support.apps import run_until_idle

ONCE = RetryPolicy(attempts=1)


@attrs.define
class Total:
    count: int = 0


class Sums:
    """An app with or without a state, whose handler fails as long as `fails`. calls: of either handler, by number."""

    def __init__(self) -> None:
        self.fails = True
        self.calls: list[int] = []

    def _call(self, event: Event) -> None:
        if self.fails and event.payload == b"1":
            raise ValueError("not now")
        self.calls.append(int(event.payload))

    def app(self, *, with_state: bool) -> App:
        app = App()

        async def plain(event: Event) -> None:
            self._call(event)

        async def add(event: Event, total: Total) -> None:
            self._call(event)
            total.count += 1

        if with_state:
            app.add(add, STREAM, group=GROUP, retry=ONCE, state=Total)
        else:
            app.add(plain, STREAM, group=GROUP, retry=ONCE)
        return app


async def read_by(ep: Eventproc) -> list[str]:
    return [each.name for each in (await ep.db.read(lambda tx: get_group(tx, GROUP))).streams]


async def test_no_event_is_redriven_past_the_state_of_its_key() -> None:
    sums = Sums()
    async with system() as ep:
        await write(ep, ["a", "a", "a"])
        await run_until_idle(ep, sums.app(with_state=True))
        with pytest.raises(NotSupported, match="s/g, whose processor keeps a state by key"):
            await ep.dead_letters(GROUP).redrive("all")
        assert await letters(ep) == [(1, "ValueError", 1)]
        sums.fails = False
        async with (await ep.stream(STREAM)).writer() as writer:  # what the error says
            await writer.write(b"1", key="a")
        await run_until_idle(ep, sums.app(with_state=True))
        assert await ep.dead_letters(GROUP).drop("all") == 1
        assert sums.calls == [0, 2, 1]
        assert await ep.state(GROUP, Total).get("a") == Total(3)
        assert await read_by(ep) == [STREAM]


async def test_a_processor_gets_a_state_once_what_was_redriven_before_is_finished() -> None:
    sums = Sums()
    async with system() as ep:
        await write(ep, ["a", "a"])
        await run_until_idle(ep, sums.app(with_state=False))
        assert await ep.dead_letters(GROUP).redrive("all") == 1
        with pytest.raises(ProcessorFailed, match="has not finished s/g-redrive"):
            await run_until_idle(ep, sums.app(with_state=True))
        sums.fails = False
        await run_until_idle(ep, sums.app(with_state=False))
        assert await read_by(ep) == [STREAM, "s/g-redrive"]
        await write(ep, ["b"])
        await run_until_idle(ep, sums.app(with_state=True))
        assert await read_by(ep) == [STREAM]
        assert sums.calls == [0, 1, 0]
        assert await ep.state(GROUP, Total).get("b") == Total(1)


async def test_an_app_starts_again_without_the_redrive_stream_that_was_deleted() -> None:
    sums = Sums()
    async with system() as ep:
        await write(ep, ["a", "a"])
        app = sums.app(with_state=False)
        await run_until_idle(ep, app)
        assert await ep.dead_letters(GROUP).redrive("all") == 1
        await run_until_idle(ep, app)
        redriven = await ep.stream("s/g-redrive")
        await redriven.seal()
        await redriven.delete()
        sums.fails = False
        async with ep.run(app) as running:
            assert await ep.dead_letters(GROUP).redrive("all") == 1
            await finished(running, 1)
        assert sums.calls == [0, 1]


@pytest.mark.parametrize("is_worker", [False, True])
async def test_a_group_that_was_deleted_gets_nothing_again_that_was_redriven_to_it(is_worker: bool) -> None:
    fails, calls, app = True, list[int](), App()

    async def handle(event: Event) -> None:
        if fails:
            raise ValueError("not now")
        calls.append(int(event.payload))

    if is_worker:
        app.worker(STREAM, share_group=GROUP, start="tail", retry=ONCE)(handle)
    else:
        app.add(handle, STREAM, group=GROUP, start="tail", retry=ONCE)
    async with system() as ep:
        async with ep.run(app) as running:
            await write(ep, ["a", "b"])
            await running.wait_idle()
            fails = False
            assert await ep.dead_letters(GROUP).redrive("0.0:0") == 1
            await running.wait_idle()
        assert calls == [0]
        group = await (ep.share_group(GROUP) if is_worker else ep.group(GROUP))
        await group.delete()
        async with ep.run(app) as running:
            assert await ep.dead_letters(GROUP).redrive("all") == 1
            await running.wait_idle()
        assert calls == [0, 1]
