"""What payloads may be: each kind of type comes back equal, or is refused where it is declared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Annotated, Any, cast

import pytest

import eventproc
from eventproc.errors import InvalidArgument
from eventproc.runtime import Eventproc
from eventproc.streams import codec as module
from eventproc.streams.codec import codec_for, codec_of, register_codec
from tests.streams.payload_types import (
    AT,
    ID,
    LINE,
    READABLE,
    UNREADABLE,
    FullOrder,
    Mixed,
    OrderLine,
    OrderModel,
    OrderStruct,
    PlainClass,
    Point,
    Row,
    UserId,
)


@pytest.mark.parametrize("payload, value", READABLE, ids=[str(payload) for payload, _ in READABLE])
def test_a_value_comes_back_equal(payload: Any, value: Any) -> None:
    codec = codec_for(payload)
    data = codec.encode(value)
    assert type(data) is bytes
    back = codec.decode(data)
    assert back == value
    assert type(back) is type(value) or (payload, value) == (float, 1)


@pytest.mark.parametrize("payload, reason", UNREADABLE, ids=[str(payload) for payload, _ in UNREADABLE])
def test_a_type_that_cannot_come_back_is_refused_where_it_is_declared(payload: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as found:
        codec_for(payload)
    assert "pass codec=, or call eventproc.register_codec" in str(found.value)


@pytest.mark.usefixtures("commit_path")
async def test_every_declaration_refuses_a_type_that_cannot_come_back() -> None:
    app = eventproc.App()

    async def handle(event: eventproc.Event[PlainClass]) -> None:
        raise AssertionError

    refused: list[str] = []
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        group = await ep.create_group("s/g", streams=["s/t"])
        for declare in (
            lambda: stream.writer(payload=PlainClass),
            lambda: stream.reader(payload=PlainClass),
            lambda: stream.transaction(payload=PlainClass),
            lambda: stream.transaction_of("x", payload=PlainClass),
            lambda: group.reader("r", payload=PlainClass),
            lambda: app.processor("s/t", payload=PlainClass)(handle),
        ):
            with pytest.raises(InvalidArgument) as found:
                declare()
            refused.append(str(found.value))
        for coroutine in (
            ep.create_stream("s/u", payload=PlainClass),
            ep.stream("s/t", payload=PlainClass),
            stream.begin(payload=PlainClass),
        ):
            with pytest.raises(InvalidArgument) as found:
                await coroutine
            refused.append(str(found.value))
        assert [each.name for each in await ep.streams()] == ["s/t"]
    assert len(refused) == 9
    assert len(set(refused)) == 1


@pytest.mark.usefixtures("commit_path")
async def test_a_codec_serves_a_type_that_could_not_come_back(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    group = await ep.create_group("s/g", streams=["s/t"])
    async with stream.writer(payload=str, codec=Reversed()) as writer:
        await writer.write("abc")
    async with stream.transaction(codec=Reversed()) as txn:
        await txn.write("def")
    async with stream.reader(codec=Reversed()) as reader:
        assert [event.payload async for event in reader.until(await stream.tail())] == ["abc", "def"]
    async with group.reader("r", codec=Reversed()) as taker:
        assert [event.payload async for event in taker.until(await stream.tail())] == ["abc", "def"]
    handled: list[str] = []
    app = eventproc.App()

    @app.processor("s/t", payload=str, codec=Reversed())
    async def handle(event: eventproc.Event[str]) -> None:
        handled.append(event.payload)

    async with ep.run(app) as running:
        await running.wait_idle()
    assert handled == ["abc", "def"]
    async with (await ep.stream("s/t", codec=Reversed())).reader() as reader:
        assert [event.payload async for event in reader.until(await stream.tail())] == ["abc", "def"]


MISMATCHES: list[tuple[Any, str, str]] = [
    (int, '"5"', "expected int, got str '5'"),
    (int, "5.7", "expected int, got float 5.7"),
    (int, "true", "expected int, got bool True"),
    (bool, "1", "expected bool, got int 1"),
    (float, '"1"', "expected float, got str '1'"),
    (list[str], '"abc"', "expected an array, got str 'abc'"),
    (list[int], '[1,"2",3.5]', r"\[1\]: expected int, got str '2'; \[2\]: expected int, got float 3.5"),
    (tuple[int, str], "[1]", "expected an array of 2, got an array"),
    (dict[int, int], '{"a":1}', r"\['a'\]: expected int, got str 'a'"),
    (OrderLine, "[]", "expected an object, got an array"),
    (OrderLine, '{"sku":1}', "sku: expected str, got int 1; count: missing"),
    (OrderLine, '{"sku":"a","count":1,"price":1.1}', "price: expected Decimal as text, got float 1.1"),
    (OrderLine | None, '{"count":1}', "sku: missing"),
    (FullOrder, '{"id":"x","lines":[{"sku":"a"}],"colour":"x"}', "id: expected UUID, got str 'x'"),
    (FullOrder, '{"id":"x","lines":[{"sku":"a"}],"colour":"x"}', r"lines\[0\].count: missing"),
    (FullOrder, '{"id":"x","lines":[{"sku":"a"}],"colour":"x"}', "colour: expected Colour, got str 'x'"),
    (list[Point], '[["a","b"]]', r"\[0\].x: expected int, got str 'a'; \[0\].at: expected datetime"),
    (Row, '{"a":"x"}', "a: expected int, got str 'x'"),
    (OrderModel, '{"id":"x"}', "id: expected uuid, got str 'x'; amount: missing"),
    (OrderStruct, '{"id":7,"tags":"x"}', "id: expected uuid, got int 7; tags: expected array, got str 'x'"),
    (OrderStruct, '{"tags":[1]}', r"id: missing; tags\[0\]: expected str, got int"),
    (
        Mixed,
        '{"model":{"id":"x"},"structs":[{}]}',
        r"model.id: expected uuid, got str 'x'; model.amount: missing",
    ),
    (Mixed, '{"model":{"id":"x"},"structs":[{}]}', r"structs\[0\].id: missing"),
]


@pytest.mark.parametrize("payload, text, reason", MISMATCHES)
def test_an_error_names_each_bad_field_and_what_was_expected(payload: Any, text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        codec_for(payload).decode(text.encode())


def test_an_error_is_bounded_in_length() -> None:
    many = json.dumps(["x" * 10_000] * 100).encode()
    with pytest.raises(InvalidArgument, match="and 95 more") as found:
        codec_for(list[int]).decode(many)
    assert len(str(found.value)) < 1_000
    deep = json.dumps({"k" * 100_000: "x"}).encode()
    with pytest.raises(InvalidArgument) as found:
        codec_for(dict[str, int]).decode(deep)
    assert len(str(found.value)) < 1_000


ENDLESS: dict[str, object] = {}
ENDLESS["self"] = ENDLESS

REFUSED_VALUES: list[tuple[Any, Any, str]] = [
    (OrderLine, OrderLine(1, "5"), "sku: expected str, got int 1; count: expected int, got str '5'"),  # type: ignore[arg-type]
    (
        FullOrder,
        FullOrder(ID, [OrderLine("a", True)], cast("Any", 7)),
        r"lines\[0\].count: expected int, got bool True; colour",
    ),
    (list[int], [1, "2"], r"\[1\]: expected int, got str '2'"),
    (list[str], ("a",), "it must be"),
    (Annotated[list[int], "of no moment"], "abc", "it must be"),
    (dict[str, int], [1], "it must be"),
    (OrderLine | None, 1, "it must be OrderLine"),
    (UserId, "1", "it must be"),
    (float, "1", "it must be"),
    (dict, ENDLESS, "recursion depth exceeded"),
    (dict[str, int], {1: 1}, "expected str, got int 1"),
    (dict, {"a": LINE}, r"\['a'\]: expected a value of JSON"),
    (Row, {"a": 1, "b": 2}, "with the keys a, lines"),
    (Row, {"lines": []}, "with the keys a, lines"),
]


@pytest.mark.parametrize("payload, value, reason", REFUSED_VALUES)
def test_a_writer_refuses_a_value_that_a_reader_would_refuse(payload: Any, value: Any, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        codec_for(payload).encode(value)


def test_a_writer_refuses_an_instance_of_a_subclass() -> None:
    class Special(OrderLine):
        """Would be read back as a OrderLine."""

    class SpecialModel(OrderModel):
        """Would be read back as a OrderModel."""

    with pytest.raises(InvalidArgument, match="expected OrderLine, got Special"):
        codec_for(OrderLine).encode(Special("a", 1))
    with pytest.raises(InvalidArgument, match="expected OrderModel, got SpecialModel"):
        codec_for(OrderModel).encode(SpecialModel(id=ID, amount=LINE.price))


@pytest.mark.parametrize("payload", [7, "str", Point(1, AT)])
def test_a_payload_type_that_is_no_type_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidArgument, match="it must be a type"):
        codec_for(payload)


@pytest.mark.parametrize(
    "payload", [str, int, OrderLine, FullOrder, Point, OrderModel, OrderStruct, list[int]]
)
def test_a_value_of_another_class_is_refused(payload: Any) -> None:
    codec: Any = codec_for(payload)
    with pytest.raises(InvalidArgument, match="it must be"):
        codec.encode(PlainClass())


@pytest.mark.parametrize("payload", [str, int, OrderLine, FullOrder, Point, OrderModel, OrderStruct])
def test_bytes_that_are_no_value_of_the_type_are_refused(payload: Any) -> None:
    with pytest.raises(InvalidArgument, match="it is not"):
        codec_for(payload).decode(b"\xff{")


class Reversed:
    """A codec of text, as a user writes one."""

    def encode(self, value: str) -> bytes:
        return value[::-1].encode()

    def decode(self, payload: bytes) -> str:
        return payload.decode()[::-1]


class FailingCodec:
    """A codec that fails."""

    def encode(self, value: PlainClass) -> bytes:
        raise KeyError("no such field")

    def decode(self, payload: bytes) -> PlainClass:
        raise KeyError("no such field")


class Wrong:
    """A codec that returns no bytes."""

    def encode(self, value: PlainClass) -> bytes:
        return "text"  # type: ignore[return-value]

    def decode(self, payload: bytes) -> PlainClass:
        return PlainClass()


@pytest.fixture
def registry() -> Iterator[None]:
    """Forgets what a test registers."""
    before = list(module._registered)
    yield
    module._registered[:] = before
    module._remembered_codec.cache_clear()


def test_a_codec_that_is_passed_goes_before_that_of_the_type() -> None:
    codec = codec_for(str, Reversed())
    assert codec.encode("abc") == b"cba"
    assert codec.decode(b"cba") == "abc"
    assert codec_for(codec=Reversed()).encode("abc") == b"cba"


def test_a_failing_user_codec_raises_invalid_argument() -> None:
    codec = codec_for(PlainClass, FailingCodec())
    with pytest.raises(InvalidArgument, match="its codec cannot encode it: 'no such field'"):
        codec.encode(PlainClass())
    with pytest.raises(InvalidArgument, match="it is not of type PlainClass: 'no such field'"):
        codec.decode(b"x")
    with pytest.raises(InvalidArgument, match="its codec returned str, not bytes"):
        codec_for(PlainClass, Wrong()).encode(PlainClass())


def test_something_without_the_two_methods_is_no_codec() -> None:
    with pytest.raises(InvalidArgument, match="encode and decode"):
        codec_for(str, json)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="encode and decode"):
        register_codec(PlainClass, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="it must be a type"):
        register_codec(7, FailingCodec())  # type: ignore[arg-type]


@pytest.mark.usefixtures("registry")
def test_a_registered_codec_serves_its_type_and_a_later_one_replaces_it() -> None:
    assert codec_of(str).encode("abc") == b"abc"
    register_codec(str, Reversed())
    assert codec_for(str).encode("abc") == codec_of(str).encode("abc") == b"cba"
    register_codec(PlainClass, FailingCodec())
    with pytest.raises(InvalidArgument, match="cannot encode"):
        codec_for(PlainClass).encode(PlainClass())
    register_codec(PlainClass, Wrong())
    with pytest.raises(InvalidArgument, match="not bytes"):
        codec_for(PlainClass).encode(PlainClass())


@pytest.mark.usefixtures("registry")
def test_a_codec_is_registered_for_all_types_that_a_function_accepts() -> None:
    made: list[Any] = []

    def make(payload: Any) -> Reversed:
        made.append(payload)
        return Reversed()

    register_codec(lambda payload: payload in (str, PlainClass), make)
    assert codec_for(str).encode("abc") == b"cba"
    assert codec_for(PlainClass).decode(b"cba") == "abc"  # type: ignore[comparison-overlap]
    assert codec_for(int).encode(7) == b"7"
    assert made == [str, PlainClass]


@pytest.mark.subprocess
def test_a_codec_imports_neither_pydantic_nor_msgspec() -> None:
    program = (
        "import sys; from eventproc.streams.codec import codec_for; codec_for(dict[str, int])\n"
        "print({'pydantic', 'msgspec'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
