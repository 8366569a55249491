"""Joins by event time: each left event meets each right event near it once, unless one of them is late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from eventproc import App, Context, Event, Eventproc, NewEvent, ProcessorFailed, RetryPolicy
from eventproc.errors import InvalidArgument
from eventproc.windows import Pair, Single
from tests.processors.support import GROUP, OUT, STREAM, events, system
from tests.support.apps import run_until_idle

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


def is_left(event: Event) -> bool:
    return event.payload.startswith(b"l")


async def join(pair: Pair, context: Context) -> None:
    assert (pair.left, pair.right) == (b"l%d" % pair.left_time, b"r%d" % pair.right_time)
    context.emit(OUT, pair.left + b" " + pair.right, key=pair.key)


async def give_up(single: Single, context: Context) -> None:
    assert single.payload == b"%s%d" % (b"l" if single.is_left else b"r", single.time)
    context.emit(OUT, single.payload, key=single.key)


def app_of(handler: Callable[..., Any] = join, **choices: Any) -> App:
    app = App()
    choices = {
        "is_left": is_left,
        "within_ms": 10,
        "on_single": give_up,
        "retry": AT_ONCE,
        "group": GROUP,
        **choices,
    }
    app.join(STREAM, **choices)(handler)
    return app


async def write(ep: Eventproc, key: str, *names: str) -> None:
    """Append events such as "l5": a left one, whose time is 5."""
    async with (await ep.stream(STREAM)).writer() as writer:
        await writer.write_many(NewEvent(each.encode(), key=key, event_time=int(each[1:])) for each in names)


async def results(ep: Eventproc) -> list[str]:
    return [f"{each.key} {each.payload.decode()}" for each in await events(ep)]


async def kept_keys(ep: Eventproc) -> list[str]:
    return [each.key for each in await ep.state(GROUP).list()]


async def test_a_pair_is_joined_in_whichever_order_it_comes() -> None:
    async with system() as ep:
        await write(ep, "a", "l5", "r9")
        await write(ep, "b", "r5", "l9")
        await run_until_idle(ep, app_of())
        assert sorted(await results(ep)) == ["a l5 r9", "b l9 r5"]


async def test_each_left_event_meets_each_right_one() -> None:
    async with system() as ep:
        await write(ep, "a", "l1", "l2", "r3", "r4", "l5")
        await write(ep, "b", "r1")
        await run_until_idle(ep, app_of())
        found = [each for each in await results(ep) if each.startswith("a")]
        assert found == ["a l1 r3", "a l2 r3", "a l1 r4", "a l2 r4", "a l5 r3", "a l5 r4"]
        assert await kept_keys(ep) == ["a", "b"]


async def test_partners_are_at_most_within_ms_apart() -> None:
    async with system() as ep:
        await write(ep, "a", "l10", "r20", "r0", "r21")
        await write(ep, "b", "l20", "l9")
        await write(ep, "c", "r10", "l21")
        await run_until_idle(ep, app_of(grace_ms=100))
        assert sorted(await results(ep)) == ["a l10 r0", "a l10 r20"]


async def test_an_event_without_a_partner_is_given_up_once() -> None:
    async with system() as ep:
        await write(ep, "a", "l1", "l2", "r12")
        await write(ep, "b", "r3")
        await write(ep, "clock", "l23")  # what is at 3 has until 3 + 10 + 10
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a l2 r12", "a l1"]
        assert await kept_keys(ep) == ["a", "b", "clock"]
        await write(ep, "clock", "l24")
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a l2 r12", "a l1", "b r3"]
        await write(ep, "clock", "l33")
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a l2 r12", "a l1", "b r3"]
        assert await kept_keys(ep) == ["clock"]


async def test_without_on_single_an_event_is_forgotten_silently() -> None:
    async with system() as ep:
        await write(ep, "a", "l1")
        await write(ep, "clock", "l50")
        await run_until_idle(ep, app_of(on_single=None))
        assert await results(ep) == []
        assert await kept_keys(ep) == ["clock"]


@pytest.mark.parametrize(("grace_ms", "in_time"), [(None, 20), (5, 25)])
async def test_an_event_is_late_after_within_ms_unless_grace_ms_says_otherwise(
    grace_ms: int | None, in_time: int
) -> None:
    async with system() as ep:
        await write(ep, "a", "l30")
        await run_until_idle(ep, app_of(late="skip", grace_ms=grace_ms))
        await write(ep, "a", f"r{in_time}", f"r{in_time - 1}")
        await write(ep, "b", "l20", "r19")
        await run_until_idle(ep, app_of(late="skip", grace_ms=grace_ms))
        assert await results(ep) == [f"a l30 r{in_time}"]


@attrs.define
class Half:
    order: str | None = None
    paid: int | None = None


@attrs.define
class OwnCodec:
    """A codec for which JSON has no form."""

    def encode(self, value: complex) -> bytes:
        return str(value).encode()

    def decode(self, payload: bytes) -> complex:
        return complex(payload.decode())


async def test_payloads_are_of_the_declared_type_and_belong_to_each_call() -> None:
    async def paid(pair: Pair[Half], context: Context) -> None:
        context.emit(OUT, f"{pair.left.order} {pair.right.paid}")
        pair.left.order = "changed"

    async with system() as ep:
        stream = await ep.stream(STREAM, payload=Half)
        async with stream.writer() as writer:
            await writer.write(Half(order="figs"), key="7", event_time=0)
            await writer.write(Half(paid=3), key="7", event_time=1)
            await writer.write(Half(paid=4), key="7", event_time=2)
            await writer.write(Half(order="pears"), key="7", event_time=3)
        app = app_of(
            paid, payload=Half, is_left=lambda event: event.payload.order is not None, on_single=None
        )
        await run_until_idle(ep, app)
        found = [each.payload for each in await events(ep)]
        assert found == [b"figs 3", b"figs 4", b"pears 3", b"pears 4"]


async def test_payloads_may_have_a_codec_of_their_own() -> None:
    async def add(pair: Pair[complex], context: Context) -> None:
        context.emit(OUT, str(pair.left + pair.right))

    async with system() as ep:
        stream = await ep.stream(STREAM, codec=OwnCodec())
        async with stream.writer() as writer:
            await writer.write(1j, key="a", event_time=0)
            await writer.write(2 + 1j, key="a", event_time=1)
        app = app_of(add, codec=OwnCodec(), is_left=lambda event: not event.payload.real, on_single=None)
        await run_until_idle(ep, app)
        assert [each.payload for each in await events(ep)] == [b"(2+2j)"]


async def test_payloads_may_be_any_bytes() -> None:
    async def both(pair: Pair, context: Context) -> None:
        context.emit(OUT, pair.left + pair.right)

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            for time, payload in enumerate([b"l\xff\x00", b"r\xfe", b"r\xc3\xa4"]):
                await writer.write(payload, key="a", event_time=time)
        await run_until_idle(ep, app_of(both))
        found = [each.payload for each in await events(ep)]
        assert found == [b"l\xff\x00r\xfe", b"l\xff\x00r\xc3\xa4"]


async def test_plain_functions_join_and_give_up_on_threads() -> None:
    emitted: list[bytes] = []

    def pair_up(pair: Pair) -> None:
        with pytest.raises(RuntimeError):
            asyncio.get_running_loop()
        emitted.append(pair.left + pair.right)

    def drop(single: Single, context: Context) -> None:
        context.emit(OUT, single.payload, key=single.key)

    async with system() as ep:
        await write(ep, "a", "l1", "r2", "l50", "l99")
        await run_until_idle(ep, app_of(pair_up, on_single=drop))
        assert emitted == [b"l1r2"]
        assert await results(ep) == ["a l50"]


async def test_a_plain_function_that_returns_an_awaitable_fails() -> None:
    async def work(pair: object) -> None:
        raise AssertionError(f"it is never awaited for {pair}")

    def pair_up(pair: Pair) -> object:
        return work(pair)

    def drop(single: Single, context: Context) -> object:
        return work(single)

    async with system() as ep:
        await write(ep, "a", "l1", "r2", "l50", "l99")
        with pytest.raises(ProcessorFailed, match="on_close or on_single returned an awaitable"):
            await run_until_idle(ep, app_of(pair_up, on_single=drop))
        (letter,) = await ep.dead_letters(GROUP).list()
        assert letter.payload == b"r2"
        assert letter.error_type == "eventproc.processors.handler.NotAwaitedError"


async def test_an_async_handler_may_take_no_context_and_have_a_plain_on_single() -> None:
    pairs: list[tuple[str, int, int]] = []

    async def pair_up(pair: Pair) -> None:
        pairs.append((pair.key, pair.left_time, pair.right_time))

    def drop(single: Single, context: Context) -> None:
        context.emit(OUT, single.payload, key=single.key)

    async with system() as ep:
        await write(ep, "a", "l1", "r2", "l50", "l99")
        await run_until_idle(ep, app_of(pair_up, on_single=drop))
        assert pairs == [("a", 1, 2)]
        assert await results(ep) == ["a l50"]


async def test_a_call_that_fails_is_repeated_without_doubling_pairs() -> None:
    async def fail_at_the_second(pair: Pair, context: Context) -> None:
        context.change_tables(lambda tx: tx.execute("INSERT INTO app_pairs VALUES (?)", (str(pair.left),)))
        await join(pair, context)
        if context.attempt == 1 and pair.left == b"l2":
            raise ValueError("once")

    async def fail_once(single: Single, context: Context) -> None:
        await give_up(single, context)
        if context.attempt == 1:
            raise ValueError("once")

    async with system() as ep:
        app = app_of(fail_at_the_second, on_single=fail_once)
        app.setup(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS app_pairs (name TEXT)"))
        await write(ep, "a", "l1", "l2", "r3", "r30", "r90")
        await run_until_idle(ep, app)
        assert await results(ep) == ["a l1 r3", "a l2 r3", "a r30"]
        assert await ep.query("SELECT count(*) FROM app_pairs") == [(2,)]


async def test_an_event_whose_attempts_are_spent_is_no_partner() -> None:
    async def refuse_r3(pair: Pair, context: Context) -> None:
        if pair.right == b"r3":
            raise ValueError("never")
        await join(pair, context)

    async with system() as ep:
        await write(ep, "a", "l1", "r3", "r4", "l5")
        await run_until_idle(ep, app_of(refuse_r3))
        assert await results(ep) == ["a l1 r4", "a l5 r4"]
        (letter,) = await ep.dead_letters(GROUP).list()
        assert letter.payload == b"r3"


async def test_a_join_continues_where_the_process_before_it_ended() -> None:
    async with system() as ep:
        await write(ep, "a", "l1")
        await write(ep, "b", "r1")
        await run_until_idle(ep, app_of())
        await write(ep, "a", "r5")
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a l1 r5"]
        await write(ep, "a", "l60")
        await run_until_idle(ep, app_of())
        assert await results(ep) == ["a l1 r5", "b r1"]
        assert await kept_keys(ep) == ["a"]


async def wrong(pair: Pair, context: Context, more: int) -> None: ...


def plain(pair: Pair) -> None: ...


async def of_event(event: Event) -> None: ...


async def of_text(pair: Pair[str]) -> None: ...


async def of_union(pair: Pair[bytes] | Pair[str]) -> None: ...


async def later(event: Event) -> bool:
    return True


def named_only(single: Single, *, context: Context) -> None: ...


def left_of_text(event: Event[str]) -> bool:
    return True


def test_a_handler_may_be_annotated_with_more_than_it_gets() -> None:
    assert [each.options.name for each in app_of(of_union).processors] == ["of_union"]
    assert [each.options.name for each in app_of(of_text, payload=str).processors] == ["of_text"]


@pytest.mark.parametrize(
    ("handler", "choices", "what", "reason"),
    [
        (join, {"is_left": None}, "is_left", "it must be a function"),
        (join, {"is_left": later}, "is_left", "plain"),
        (join, {"is_left": lambda: True}, "is_left", "take an event"),
        (join, {"is_left": named_only}, "is_left", "take an event"),
        (join, {"is_left": left_of_text}, "is_left", "annotate 'event' as Event"),
        (join, {"within_ms": -1}, "within_ms", "int of ms"),
        (join, {"within_ms": "10"}, "within_ms", "int of ms"),
        (join, {"within_ms": None}, "within_ms", "int of ms"),
        (join, {"grace_ms": -1}, "grace_ms", "int of ms"),
        (join, {"grace_ms": 1.5}, "grace_ms", "int of ms"),
        (join, {"late": "late"}, "stream name", "scope/stream"),
        (join, {"late": 5}, "late", "'dead_letter', 'skip', or a stream"),
        (join, {"late": STREAM}, "late", "another stream"),
        (join, {"on_single": 5}, "on_single", "a function of a Single and a Context"),
        (join, {"on_single": Single}, "on_single", "a function of a Single and a Context"),
        (join, {"on_single": plain}, "on_single", "must take a Single and a Context"),
        (join, {"on_single": named_only}, "on_single", "must take a Single and a Context"),
        (join, {"on_failure": "skip"}, "on_failure", "catch its errors in it"),
        (join, {"idle_ms": -5}, "idle_ms", "int of ms"),
        (plain, {}, "on_single", "plain, as the handler is"),
        (wrong, {}, "handler", "it must take a Pair, and a Context if it wants one"),
        (of_event, {}, "handler", "annotate 'event' as Pair"),
        (of_text, {}, "handler", "annotate 'pair' as Pair"),
        (Single, {}, "join", "a function of a Pair"),
        (5, {}, "join", "a function of a Pair"),
    ],
)
def test_joins_that_cannot_be_declared_are_refused(
    handler: Callable[..., Any], choices: dict[str, Any], what: str, reason: str
) -> None:
    app = App()
    options: dict[str, Any] = {"is_left": is_left, "within_ms": 10, "on_single": give_up, **choices}
    with pytest.raises(InvalidArgument, match=reason) as refused:
        app.join(STREAM, **options)(handler)
    assert refused.value.what == what
    assert app.processors == ()
