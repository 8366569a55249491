"""Windows of event time: an event is counted in each that is open, or is late; each has one result."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from eventproc import App, Context, Event, Eventproc, KeyState, NewEvent, RetryPolicy
from eventproc.errors import InvalidArgument
from eventproc.windows import Hopping, Sessions, Tumbling, Window
from tests.processors.support import GROUP, OUT, STREAM, events, system
from tests.support.apps import run_until_idle
from tests.support.reading import payloads_of

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)
LATE = "s/late"


@attrs.define
class Count:
    events: int = 0


class ModelCount(pydantic.BaseModel):
    events: int = 0


class StructCount(msgspec.Struct):
    events: int = 0


async def count(event: Event, window: Window[Any]) -> None:
    window.value.events += 1


async def report(window: Window[Any], context: Context) -> None:
    context.emit(OUT, f"{window.begins}/{window.ends} {window.value.events}", key=window.key)


def app_of(
    handler: Callable[..., Any] = count, windows: Any = None, *, value: Any = Count, **choices: Any
) -> App:
    app = App()
    choices = {"retry": AT_ONCE, "group": GROUP, "on_close": report, **choices}
    app.window(STREAM, Tumbling(10) if windows is None else windows, value=value, **choices)(handler)
    return app


async def write(ep: Eventproc, key: str, *times: int) -> None:
    async with (await ep.stream(STREAM)).writer() as writer:
        await writer.write_many(NewEvent(b"e%d" % time, key=key, event_time=time) for time in times)


async def results(ep: Eventproc) -> list[str]:
    return [f"{each.key} {each.payload.decode()}" for each in await events(ep)]


@pytest.mark.parametrize("kind", [Count, ModelCount, StructCount])
async def test_a_window_has_one_result_when_event_time_has_passed_its_end(kind: type[Any]) -> None:
    async with system() as ep:
        await write(ep, "a", 1, 5, 9)
        await run_until_idle(ep, app_of(value=kind))
        assert await results(ep) == []
        assert await ep.state(GROUP, dict[str, kind]).get("a") == {"0/10": kind(events=3)}  # type: ignore[valid-type]
        await write(ep, "a", 10)
        await run_until_idle(ep, app_of(value=kind))
        assert await results(ep) == ["a 0/10 3"]
        assert await ep.state(GROUP, dict[str, kind]).get("a") == {"10/20": kind(events=1)}  # type: ignore[valid-type]


async def test_a_key_without_open_windows_has_no_state() -> None:
    async with system() as ep:
        await write(ep, "a", 1)
        await write(ep, "b", 25)
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a 0/10 1"]
        assert [each.key for each in await ep.state(GROUP).list()] == ["b"]


async def test_a_window_stays_open_for_its_grace_period() -> None:
    async with system() as ep:
        await write(ep, "a", 1, 14)
        await run_until_idle(ep, app_of(windows=Tumbling(10, grace_ms=5)))
        await write(ep, "a", 2)
        await run_until_idle(ep, app_of(windows=Tumbling(10, grace_ms=5)))
        assert await results(ep) == []
        await write(ep, "a", 15)
        await run_until_idle(ep, app_of(windows=Tumbling(10, grace_ms=5)))
        assert await results(ep) == ["a 0/10 2"]


async def test_the_payload_of_a_late_event_is_encoded_again_by_its_codec() -> None:
    async def of_orders(event: Event[dict[str, int]], window: Window[Count]) -> None:
        window.value.events += event.payload["n"]

    async with system() as ep:
        late = await ep.create_stream(LATE)
        async with (await ep.stream(STREAM)).writer() as writer:
            await writer.write(b'{"n":2}', key="a", event_time=30)
        app = app_of(of_orders, payload=dict[str, int], late=LATE)
        async with ep.run(app) as running:
            await running.wait_idle()
            async with (await ep.stream(STREAM)).writer() as writer:
                await writer.write(b'{"n":3}', key="a", event_time=1)
            await running.wait_idle()
        assert await payloads_of(late) == [b'{"n":3}']


async def test_an_event_is_counted_in_each_hopping_window_that_is_open() -> None:
    async with system() as ep:
        await write(ep, "a", 7)
        await run_until_idle(ep, app_of(windows=Hopping(10, 5)))
        await write(ep, "a", 10)
        await run_until_idle(ep, app_of(windows=Hopping(10, 5)))
        assert await results(ep) == ["a 0/10 1"]
        await write(ep, "a", 8)
        await run_until_idle(ep, app_of(windows=Hopping(10, 5)))
        assert await ep.state(GROUP, dict[str, Count]).get("a") == {"5/15": Count(3), "10/20": Count(1)}


async def test_an_event_between_two_sessions_makes_them_one() -> None:
    def joined(one: Count, other: Count) -> Count:
        return Count(one.events + other.events)

    async with system() as ep:
        app = app_of(windows=Sessions(10, joined))
        await write(ep, "a", 0, 18)
        await run_until_idle(ep, app)
        assert await ep.state(GROUP, dict[str, Count]).get("a") == {"18/28": Count(1)}
        assert await results(ep) == ["a 0/10 1"]
        app = app_of(windows=Sessions(10, joined, grace_ms=100))
        await write(ep, "b", 30, 48, 39)
        await run_until_idle(ep, app)
        assert await ep.state(GROUP, dict[str, Count]).get("b") == {"30/58": Count(3)}


async def test_a_handler_may_return_the_value_and_emit_on_each_change() -> None:
    async def newest(event: Event, window: Window[int], context: Context) -> int:
        context.emit(OUT, f"{window.begins}: {window.value + 1}", key=event.key)
        return window.value + 1

    async with system() as ep:
        await write(ep, "a", 1, 2, 11)
        await run_until_idle(ep, app_of(newest, value=int, on_close=None))
        assert await results(ep) == ["a 0: 1", "a 0: 2", "a 10: 1"]
        assert await ep.state(GROUP, dict[str, int]).get("a") == {"10/20": 1}


async def test_plain_functions_fold_and_close_on_threads() -> None:
    def fold(event: Event, window: Window[Count]) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        window.value.events += 1

    def close(window: Window[Count], context: Context) -> None:
        context.emit(OUT, b"%d" % window.value.events, key=window.key)

    async with system() as ep:
        await write(ep, "a", 1, 2, 11)
        await run_until_idle(ep, app_of(fold, on_close=close))
        assert await results(ep) == ["a 2"]


async def test_the_result_of_a_window_is_one_step_with_its_sql() -> None:
    async def store(window: Window[Count], context: Context) -> None:
        row = (window.key, window.value.events)
        context.change_tables(lambda tx: tx.execute("INSERT INTO app_minutes VALUES (?, ?)", row))
        context.emit(OUT, b"1", key=window.key)
        if context.attempt == 1:
            raise ValueError("once")

    async with system() as ep:
        app = app_of(on_close=store)
        app.setup(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS app_minutes (key TEXT, events INTEGER)"))
        await write(ep, "a", 1, 2, 11)
        await run_until_idle(ep, app)
        assert await results(ep) == ["a 1"]
        assert await ep.query("SELECT * FROM app_minutes") == [("a", 2)]


async def test_the_values_of_windows_are_upgraded_with_their_class() -> None:
    @attrs.define
    class Sum:
        total: int = 0

    def upgrade(version: int, data: bytes) -> dict[str, Sum]:
        old = msgspec.json.decode(data, type=dict[str, dict[str, int]])
        return {span: Sum(each["events"]) for span, each in old.items()}

    async def add(event: Event, window: Window[Sum]) -> None:
        window.value.total += 1

    async def say(window: Window[Sum], context: Context) -> None:
        context.emit(OUT, b"%d" % window.value.total, key=window.key)

    async with system() as ep:
        await write(ep, "a", 1, 2)
        await run_until_idle(ep, app_of())
        await write(ep, "a", 3, 11)
        value = KeyState(dict[str, Sum], version=2, upgrade=upgrade)
        await run_until_idle(ep, app_of(add, value=value, on_close=say))
        assert await results(ep) == ["a 3"]


class Names:
    """Without a form in JSON."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self.names = set(names)


class NamesCodec:
    def encode(self, value: dict[str, Names]) -> bytes:
        return json.dumps({span: sorted(each.names) for span, each in value.items()}).encode()

    def decode(self, data: bytes) -> dict[str, Names]:
        return {span: Names(names) for span, names in json.loads(data).items()}


async def test_the_values_of_windows_may_have_a_codec_of_their_own() -> None:
    async def add(event: Event, window: Window[Names]) -> None:
        window.value.names.add(event.payload.decode())

    async def say(window: Window[Names], context: Context) -> None:
        context.emit(OUT, " ".join(sorted(window.value.names)).encode(), key=window.key)

    async with system() as ep:
        await write(ep, "a", 1, 2, 1, 11)
        value = KeyState(dict[str, Names], codec=NamesCodec())
        await run_until_idle(ep, app_of(add, value=value, on_close=say))
        assert await results(ep) == ["a e1 e2"]


class NeedsName:
    def __init__(self, name: str) -> None:
        self.name = name


ANY_CODEC: Any = NamesCodec()


async def wrong(window: Window[Count]) -> None: ...


def plain(event: Event, window: Window[Count]) -> None: ...


async def of_text(event: Event[str], window: Window[Count]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "choices", "what"),
    [
        (count, {"windows": 60_000}, "windows"),
        (count, {"value": None}, "value"),
        (count, {"value": KeyState(Count)}, "value"),
        (count, {"value": KeyState(dict[str, Count], ttl_ms=1)}, "value"),
        (count, {"value": KeyState(dict[str, NeedsName], codec=ANY_CODEC)}, "value"),
        (count, {"late": "late"}, "stream name"),
        (count, {"late": 5}, "late"),
        (count, {"late": STREAM}, "late"),
        (count, {"on_close": 5}, "on_close"),
        (count, {"on_close": wrong}, "on_close"),
        (count, {"on_failure": "skip"}, "on_failure"),
        (count, {"idle_ms": -5}, "idle_ms"),
        (plain, {"on_close": report}, "on_close"),
        (wrong, {}, "handler"),
        (of_text, {}, "handler"),
        (Count, {}, "window"),
    ],
)
def test_windows_that_cannot_be_declared_are_refused(
    handler: Callable[..., Any], choices: dict[str, Any], what: str
) -> None:
    with pytest.raises(InvalidArgument) as refused:
        app_of(handler, **choices)
    assert refused.value.what == what


async def test_events_after_a_reset_are_late_for_closed_windows_and_counted_again_in_open_ones() -> None:
    async with system() as ep:
        await write(ep, "a", 1, 10, 11)
        await run_until_idle(ep, app_of())
        group = await ep.group(GROUP)
        await group.reset("head")
        await run_until_idle(ep, app_of(late="skip"))
        state = ep.state(GROUP, dict[str, Count])
        assert await state.get("a") == {"10/20": Count(events=4)}
        await state.drop()
        await group.reset("head")
        await run_until_idle(ep, app_of(late="skip"))
        assert await state.get("a") == {"10/20": Count(events=2)}
        assert await results(ep) == ["a 0/10 1", "a 0/10 1"]
