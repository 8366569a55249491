"""A state appends its changes to a stream. Applied in order, they give the state."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import eventproc
from eventproc import App, Context, Event, Eventproc, KeyState, NewEvent, RetryPolicy
from eventproc.errors import InvalidArgument
from eventproc.windows import Timer, Tumbling, Window
from tests.processors.support import GROUP, OUT, STREAM, events, system, write
from tests.support.apps import run_until_idle

TOTAL = KeyState(dict[str, int], changes=OUT)
AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


async def add(event: Event, total: dict[str, int], context: Context) -> None:
    total["sum"] = total.get("sum", 0) + int(event.payload)
    if int(event.payload) == 3:
        context.forget_state()


def add_on_thread(event: Event, total: dict[str, int], context: Context) -> None:
    total["sum"] = total.get("sum", 0) + int(event.payload)
    if int(event.payload) == 3:
        context.forget_state()


async def process(ep: Eventproc, handler: Callable[..., object], state: Any = TOTAL, **choices: Any) -> None:
    app = App()
    app.add(handler, STREAM, group=GROUP, state=state, retry=AT_ONCE, **choices)
    await run_until_idle(ep, app)


async def changes(ep: Eventproc) -> list[tuple[str | None, Any]]:
    return [(each.key, json.loads(each.payload) if each.payload else None) for each in await events(ep, OUT)]


@pytest.mark.parametrize("handler", [add, add_on_thread])
async def test_each_change_of_a_value_is_an_event_and_a_key_without_one_an_empty_payload(
    handler: Callable[..., object],
) -> None:
    async with system() as ep:
        await write(ep, ["a", "a", "a", "a", "a", "a"])
        await process(ep, handler)
        sums = [0, 1, 3, None, 4, 9]
        assert await changes(ep) == [("a", None if each is None else {"sum": each}) for each in sums]


async def test_what_the_handler_emits_comes_before_the_change_of_the_same_call() -> None:
    async def tell(event: Event, total: dict[str, int], context: Context) -> None:
        total["sum"] = int(event.payload)
        context.emit(OUT, b"0", key=event.key)

    async with system() as ep:
        await write(ep, ["a", "a"])
        await process(ep, tell)
        assert [value for _, value in await changes(ep)] == [0, {"sum": 0}, 0, {"sum": 1}]


async def test_a_call_that_changes_nothing_or_fails_appends_nothing() -> None:
    async def once(event: Event, total: dict[str, int], context: Context) -> None:
        total["sum"] = total.get("sum", 7)
        if context.attempt == 1:
            raise ValueError("now and then")

    async with system() as ep:
        await write(ep, ["a", "a", "b", "a"])
        await process(ep, once)
        assert sorted(await changes(ep), key=str) == [("a", {"sum": 7}), ("b", {"sum": 7})]


async def test_a_value_that_is_only_given_more_time_appends_nothing() -> None:
    async def keep(event: Event, total: dict[str, int]) -> None:
        total["sum"] = 7

    async with system() as ep:
        await write(ep, ["a", "a", "a"])
        await process(ep, keep, KeyState(dict[str, int], ttl_ms=60_000, changes=OUT))
        assert await changes(ep) == [("a", {"sum": 7})]


async def test_a_change_has_the_time_of_its_event_or_timer() -> None:
    async def note(event: Event, total: dict[str, int], context: Context) -> None:
        total["sum"] = 1
        if event.key == "a":
            context.call_at(30)

    async def forget(timer: Timer, total: dict[str, int], context: Context) -> None:
        context.forget_state()

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write_many(
                [NewEvent(b"", key="a", event_time=20), NewEvent(b"", key="b", event_time=40)]
            )
        await process(ep, note, on_timer=forget)
        found = [(each.key, each.payload, each.event_time) for each in await events(ep, OUT)]
        assert found == [("a", b'{"sum":1}', 20), ("b", b'{"sum":1}', 40), ("a", b"", 30)]


async def test_each_change_of_the_windows_of_a_key_is_an_event_too() -> None:
    app = App()
    kept = KeyState(dict[str, int], changes=OUT)

    @app.window(STREAM, Tumbling(10), group=GROUP, value=kept)
    async def count(event: Event, window: Window[int]) -> int:
        return window.value + 1

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write_many(NewEvent(b"", key="a", event_time=each) for each in (1, 2, 11))
        await run_until_idle(ep, app)
        values = [value for _, value in await changes(ep)]
        assert values == [{"0/10": 1}, {"0/10": 2}, {"0/10": 2, "10/20": 1}, {"10/20": 1}]


async def test_a_compacted_topic_of_the_changes_is_a_table_of_the_state() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM)
        topic = await ep.create_topic(OUT, compaction=eventproc.CompactionPolicy(min_age_ms=0))
        await write(ep, ["a", "b", "a", "b", "b", "a", "c"])
        await process(ep, add)
        await topic.compact()
        found = await changes(ep)
        table = dict(found)
        assert len(found) == len(table)
        kept = await ep.state(GROUP, dict[str, int]).list()
        assert {key: value for key, value in table.items() if value is not None} == {
            each.key: each.value for each in kept
        }


async def test_a_stream_of_changes_that_is_missing_fails_the_processor_and_names_it() -> None:
    async with system() as ep:
        await write(ep, ["a"])
        with pytest.raises(eventproc.ProcessorFailed, match="s/missing"):
            await process(ep, add, KeyState(dict[str, int], changes="s/missing"))


@pytest.mark.parametrize(
    ("stream", "reason"),
    [(STREAM, "its changes would be events of s/t again"), ("no name", "no name"), (5, "state changes")],
)
def test_a_stream_that_cannot_take_the_changes_is_refused(stream: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        App().add(add, STREAM, group=GROUP, state=KeyState(dict[str, int], changes=stream))


@pytest.mark.parametrize("kind", [str, bytes])
def test_changes_of_values_that_look_as_if_the_key_had_none_are_refused(kind: type[Any]) -> None:
    with pytest.raises(InvalidArgument, match="an empty payload is a key without a value"):
        KeyState(kind, changes=OUT)
