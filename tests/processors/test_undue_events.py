"""Events that a state, a window or a join cannot take: those without a key, and those that are late."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from eventproc import App, NewEvent
from tests.processors import test_joins, test_key_state, test_windows
from tests.processors.support import GROUP, STREAM, events, system
from tests.support.apps import run_until_idle
from tests.support.reading import events_of

LATE = "s/late"


@pytest.mark.parametrize(
    "app_of",
    [test_key_state.app_of, test_joins.app_of, test_windows.app_of],
    ids=["key state", "join", "window"],
)
async def test_an_event_without_a_key_becomes_a_dead_letter_at_once(app_of: Callable[..., App]) -> None:
    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write_many([NewEvent(b"1", key="a", event_time=1), NewEvent(b"2", event_time=1)])
        await run_until_idle(ep, app_of())
        (letter,) = await ep.dead_letters(GROUP).list()
        assert (letter.payload, letter.attempts) == (b"2", 1)
        assert letter.error_type == "eventproc.processors.errors.KeyNeeded"


@pytest.mark.parametrize("app_of", [test_joins.app_of, test_windows.app_of], ids=["join", "window"])
async def test_late_events_become_dead_letters_or_go_to_a_stream_or_are_skipped(
    app_of: Callable[..., App],
) -> None:
    async with system() as ep:
        late = await ep.create_stream(LATE)
        await test_joins.write(ep, "a", "l25")
        await run_until_idle(ep, app_of())
        await test_joins.write(ep, "a", "r3")
        await run_until_idle(ep, app_of())
        (letter,) = await ep.dead_letters(GROUP).list()
        assert (letter.payload, letter.attempts) == (b"r3", 1)
        assert letter.error_type == "eventproc.processors.errors.EventLate"
        assert letter.error is not None
        assert "came when event time had reached 25 ms" in letter.error
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write(b"r4", key="a", event_time=4, headers={"from": "me"})
        await run_until_idle(ep, app_of(late=LATE))
        (passed,) = await events_of(late)
        assert (passed.payload, passed.key, passed.event_time) == (b"r4", "a", 4)
        assert passed.headers == {"from": "me"}
        await test_joins.write(ep, "a", "r5")
        await test_joins.write(ep, "new", "r6")
        await run_until_idle(ep, app_of(late="skip"))
        assert len(await ep.dead_letters(GROUP).list()) == 1
        assert await events(ep) == []
        assert [each.key for each in await ep.state(GROUP).list()] == ["a"]
