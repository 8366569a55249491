"""A handler whose annotations contradict its processor is refused when it is declared, with the remedy."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NewType, Protocol

import attrs
import pytest

import eventproc
from eventproc.processors import App, AppTx, Context
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.segments import Event
from tests.processors.support import STREAM, system

if TYPE_CHECKING:
    from decimal import Decimal


@attrs.frozen
class Order:
    item: str


@attrs.frozen
class Refund:
    item: str


Item = NewType("Item", str)


class HasPayload(Protocol):
    @property
    def payload(self) -> Order: ...


async def of_order(event: Event[Order]) -> None: ...
async def of_either(event: Event[Order | Refund]) -> None: ...
async def of_bytes(event: Event) -> None: ...
async def of_text(event: Event[str]) -> None: ...
async def of_any(event: Event[Any]) -> None: ...
async def of_object(event: object) -> None: ...
async def of_protocol(event: HasPayload) -> None: ...
async def of_quoted(event: "Event[Order]") -> None: ...  # noqa: UP037
async def of_unresolved(event: Event[Decimal]) -> None: ...
async def of_refund(event: Event[Refund]) -> None: ...
async def of_payload(order: Order) -> None: ...
async def of_list(events: list[Event[Order]]) -> None: ...
async def of_sequence(events: Sequence[Event[Order]]) -> None: ...
async def of_iterable(events: Iterable[Event[Order]]) -> None: ...
async def of_bare_list(events: list) -> None: ...  # type: ignore[type-arg]
async def of_refunds(events: list[Event[Refund]]) -> None: ...
async def of_tuple(events: tuple[Event[Order], ...]) -> None: ...
async def of_both(events: Event[Order] | list[Event[Order]]) -> None: ...
def on_thread(event: Event[Order], context: Context) -> None: ...
async def with_other_context(event: Event[Order], context: AppTx) -> None: ...
async def with_any_context(event: Event[Order], context: Any) -> None: ...


async def unannotated(event, context) -> None: ...  # type: ignore[no-untyped-def]


class Method:
    def handle(self, event: Event[Order]) -> None: ...

    def handle_with(self, factor: int, event: Event[Order]) -> None: ...

    async def __call__(self, event: Event[Order]) -> None: ...


class Stateful:
    async def process(self, event: Event[Order], context: Context) -> None: ...


class StatefulStatic:
    @staticmethod
    async def process(event: Event[Order]) -> None: ...


class StatefulBatch:
    async def process(self, events: Sequence[Event[Order]]) -> None: ...


@functools.wraps(of_order)
async def wrapped(*arguments: object) -> None: ...


def declare(handler: object, **options: object) -> None:
    App().add(handler, STREAM, **{"name": "p", "payload": Order, **options})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "handler",
    [
        *(of_order, of_either, of_bytes, of_any, of_object, of_protocol, of_quoted, of_unresolved, of_both),
        *(on_thread, with_any_context, unannotated, Method().handle, Method(), wrapped),
        *(functools.partial(Method().handle_with, 3), Stateful, StatefulStatic),
    ],
)
def test_handlers_of_one_event_that_fit_are_accepted(handler: object) -> None:
    declare(handler)


@pytest.mark.parametrize(
    "handler",
    [of_list, of_sequence, of_iterable, of_bare_list, of_both, of_object, unannotated, StatefulBatch],
)
def test_handlers_of_batches_that_fit_are_accepted(handler: object) -> None:
    declare(handler, batch=10)


def test_a_payload_type_that_a_codec_alone_knows_is_not_compared() -> None:
    class RefundCodec:
        def encode(self, value: Refund) -> bytes:
            return value.item.encode()

        def decode(self, payload: bytes) -> Refund:
            return Refund(payload.decode())

    App().add(of_refund, STREAM, codec=RefundCodec())
    with pytest.raises(InvalidArgument, match="batch"):
        App().add(of_list, STREAM, codec=RefundCodec())  # type: ignore[arg-type]


def test_a_new_type_is_compared_by_its_class() -> None:
    declare(of_text, payload=Item)


@pytest.mark.parametrize(
    "handler, options, reason",
    [
        (of_refund, {}, r"Event\[Refund\], but it gets Event\[Order\].* or pass the other type as payload="),
        (of_text, {"payload": bytes}, r"annotated Event\[str\], but it gets Event: .*payload="),
        (
            of_payload,
            {},
            r"'order' is annotated Order, but it gets Event\[Order\]: annotate 'order' as Event",
        ),
        (of_list, {}, r"but it gets Event\[Order\]: .*or pass batch="),
        (of_sequence, {}, r"Sequence\[Event\[Order\]\], but it gets Event\[Order\].*batch="),
        (
            of_order,
            {"batch": 10},
            r"Event\[Order\], but it gets list\[Event\[Order\]\].* or leave batch= out",
        ),
        (of_bytes, {"batch": 10}, r"annotated Event, but it gets list\[Event\[Order\]\]"),
        (of_refunds, {"batch": 10}, r"list\[Event\[Refund\]\], but it gets list\[Event\[Order\]\]"),
        (of_tuple, {"batch": 10}, r"but it gets list\[Event\[Order\]\]"),
        (Method().handle, {"payload": Refund}, r"but it gets Event\[Refund\]"),
        (Method(), {"payload": Refund}, r"but it gets Event\[Refund\]"),
        (functools.partial(Method().handle_with, 3), {"payload": Refund}, r"gets Event\[Refund\]"),
        (wrapped, {"payload": Refund}, r"but it gets Event\[Refund\]"),
        (Stateful, {"payload": Refund}, r"but it gets Event\[Refund\]"),
        (Stateful, {"batch": 2}, r"but it gets list\[Event\[Order\]\]"),
        (StatefulStatic, {"payload": Refund}, r"but it gets Event\[Refund\]"),
        (with_other_context, {}, "second parameter gets a Context, and 'context' is annotated AppTx"),
    ],
)
def test_handlers_that_do_not_fit_are_refused(
    handler: object, options: dict[str, object], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=rf"^handler 'p': .*{reason}"):
        declare(handler, **options)


def commit_orders(tx: AppTx, events: Sequence[Event[Order]]) -> None: ...
def commit_refunds(tx: AppTx, events: Sequence[Event[Refund]]) -> None: ...
def commit_one(tx: AppTx, event: Event[Order]) -> None: ...
def commit_nothing(tx: AppTx) -> None: ...


def test_an_on_commit_that_fits_is_accepted() -> None:
    declare(of_order, exactly_once=True, on_commit=commit_orders)
    declare(of_order, exactly_once=True, on_commit=lambda tx, events: None)


@pytest.mark.parametrize(
    "hook, reason",
    [
        (commit_refunds, r"but it gets list\[Event\[Order\]\]"),
        (commit_one, r"but it gets list\[Event\[Order\]\]"),
        (commit_nothing, "it must take a transaction and the list of events"),
    ],
)
def test_an_on_commit_that_does_not_fit_is_refused(hook: Callable[..., None], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"^on_commit 'p': .*{reason}"):
        declare(of_order, exactly_once=True, on_commit=hook)


@pytest.mark.parametrize("handler", [of_bytes, Stateful])
def test_a_bare_decorator_is_refused_with_the_remedy(handler: object) -> None:
    app = App()
    with pytest.raises(InvalidArgument, match=r'write @app.processor\("scope/stream"\)'):
        app.processor(handler)  # type: ignore[call-overload]
    assert app.processors == ()


async def test_an_empty_app_does_not_run() -> None:
    async with system() as ep:
        with pytest.raises(InvalidArgument, match=r'it is empty.*@app.processor\("scope/stream"\)'):
            async with ep.run(eventproc.App()):
                raise AssertionError("it must not start")
