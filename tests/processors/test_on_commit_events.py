"""`on_commit` gets the events that the handler got: decoded, once each, of exactly the round that becomes durable."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import pytest

from eventproc.processors import App, AppTx, Context, RetryPolicy
from eventproc.runtime import Eventproc
from eventproc.store.segments import Event
from tests.processors.support import GROUP, OUT, STREAM, finish, lag, system


@attrs.frozen
class Order:
    number: int


class CountingCodec:
    """Encodes orders, and counts how often it decoded each."""

    def __init__(self) -> None:
        self.decoded: list[int] = []

    def encode(self, value: Order) -> bytes:
        return b"%d" % value.number

    def decode(self, payload: bytes) -> Order:
        self.decoded.append(int(payload))
        return Order(int(payload))


class Hook:
    """An `on_commit` that keeps what it gets, writes the numbers of the orders, and fails at first."""

    def __init__(self, failures: int = 0) -> None:
        self.rounds: list[Sequence[Event[Order]]] = []
        self.failures = failures

    def __call__(self, tx: AppTx, events: Sequence[Event[Order]]) -> None:
        self.rounds.append(events)
        tx.executemany("INSERT INTO app_order VALUES (?)", [(event.payload.number,) for event in events])
        if len(self.rounds) <= self.failures:
            raise OSError("the tables are not ready")


HANDLED: list[Event[Order]] = []


async def on_loop(event: Event[Order]) -> None:
    HANDLED.append(event)


def on_thread(event: Event[Order]) -> None:
    HANDLED.append(event)


async def in_batch(events: list[Event[Order]]) -> None:
    HANDLED.extend(events)


def batch_on_thread(events: list[Event[Order]]) -> None:
    HANDLED.extend(events)


async def emitting(event: Event[Order], context: Context) -> None:
    HANDLED.append(event)
    context.emit(OUT, event.payload)


def make_table(tx: AppTx) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS app_order (number)")


def app_with(
    handler: Callable[..., object], hook: Hook, codec: CountingCodec, batch: int | None = None
) -> App:
    app = App()
    app.setup(make_table)
    app.add(
        handler,
        STREAM,
        group=GROUP,
        payload=Order,
        codec=codec,
        batch=batch,
        exactly_once=True,
        on_commit=hook,
        retry=RetryPolicy(attempts=3, wait_ms=0, jitter_ms=0),
    )
    HANDLED.clear()
    return app


async def write(ep: Eventproc, count: int) -> None:
    stream = await ep.stream(STREAM)
    async with stream.writer(payload=Order, codec=CountingCodec()) as writer:
        await writer.write_many((Order(number), "ab"[number % 2]) for number in range(count))


async def rows(ep: Eventproc) -> list[int]:
    found = await ep.db.read(lambda tx: tx.execute("SELECT number FROM app_order ORDER BY number").fetchall())
    return [number for (number,) in found]


@pytest.mark.parametrize("failures", [0, 3])
@pytest.mark.parametrize(
    "handler, batch",
    [(on_loop, None), (on_thread, None), (in_batch, 4), (batch_on_thread, 4), (emitting, None)],
)
async def test_it_gets_the_decoded_events_of_the_handler(
    handler: Callable[..., object], batch: int | None, failures: int
) -> None:
    hook, codec = Hook(failures), CountingCodec()
    async with system() as ep:
        await write(ep, 10)
        await finish(ep, app_with(handler, hook, codec, batch))
        assert (await rows(ep), await lag(ep)) == (list(range(10)), 0)
    durable = [event for events in hook.rounds[failures:] for event in events]
    assert {id(event) for event in durable} == {id(event) for event in HANDLED}, "the same objects"
    assert sorted(codec.decoded) == list(range(10)), "each payload is decoded once, however often it runs"


async def test_it_gets_no_event_that_was_given_up() -> None:
    async def handle(event: Event[Order]) -> None:
        if event.payload.number == 2:
            raise ValueError("bad order")

    hook = Hook()
    async with system() as ep:
        await write(ep, 4)
        await finish(ep, app_with(handle, hook, CountingCodec()))
        assert (await rows(ep), await lag(ep)) == ([0, 1, 3], 0)


async def test_a_retried_event_comes_once_as_its_last_call_got_it() -> None:
    got: list[Event[Order]] = []

    async def handle(event: Event[Order], context: Context) -> None:
        got.append(event)
        if context.attempt < 3:
            raise OSError("not yet")

    hook = Hook()
    async with system() as ep:
        await write(ep, 1)
        await finish(ep, app_with(handle, hook, CountingCodec()))
        assert await rows(ep) == [0]
    ((event,),) = hook.rounds
    assert event is got[-1]


async def test_without_a_payload_type_it_gets_bytes() -> None:
    got: list[bytes] = []

    def hook(tx: AppTx, events: Sequence[Event]) -> None:
        got.extend(event.payload for event in events)

    async def handle(event: Event) -> None: ...

    app = App()
    app.add(handle, STREAM, group=GROUP, exactly_once=True, on_commit=hook)
    async with system() as ep:
        await write(ep, 2)
        await finish(ep, app)
    assert sorted(got) == [b"0", b"1"]
