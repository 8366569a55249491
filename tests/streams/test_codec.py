"""What payloads may be: each kind of type comes back equal, or is refused where it is declared."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from eventproc.errors import InvalidArgument
from eventproc.streams import codec as module
from eventproc.streams.codec import codec_for, codec_of, register_codec


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Item:
    name: str
    price: decimal.Decimal


@attrs.frozen
class Order:
    id: uuid.UUID
    items: list[Item]
    colour: Colour
    day: datetime.date


class Point(NamedTuple):
    x: int
    at: datetime.datetime


class Row(TypedDict):
    a: int


class Model(pydantic.BaseModel):
    id: uuid.UUID
    price: decimal.Decimal


class Struct(msgspec.Struct):
    id: uuid.UUID
    tags: list[str]


class Plain:
    """A class without declared fields."""


@dataclasses.dataclass
class HoldsPlain:
    plain: Plain


ID = uuid.UUID(int=7)
VALUES: list[tuple[Any, Any]] = [
    (bytes, b"\x00\xff"),
    (str, "zwölf"),
    (int, 7),
    (float, 1),
    (dict[str, int], {"a": 1}),
    (list[Point], [Point(1, datetime.datetime(2026, 1, 2))]),
    (int | None, None),
    (Row, {"a": 1}),
    (Item, Item("pear", decimal.Decimal("1.10"))),
    (Order, Order(ID, [Item("pear", decimal.Decimal("1.10"))], Colour.RED, datetime.date(2026, 1, 2))),
    (Point, Point(1, datetime.datetime(2026, 1, 2))),
    (uuid.UUID, ID),
    (decimal.Decimal, decimal.Decimal("1.10")),
    (Model, Model(id=ID, price=decimal.Decimal("1.10"))),
    (Struct, Struct(ID, ["a"])),
]


@pytest.mark.parametrize("payload, value", VALUES)
def test_a_value_comes_back_equal(payload: Any, value: Any) -> None:
    codec = codec_for(payload)
    data = codec.encode(value)
    assert type(data) is bytes
    back = codec.decode(data)
    assert back == value
    assert isinstance(value, float | int) or type(back) is type(value)


@pytest.mark.parametrize("payload", [Plain, HoldsPlain, list[Plain], complex, datetime.timedelta])
def test_a_type_that_cannot_come_back_is_refused_where_it_is_declared(payload: Any) -> None:
    with pytest.raises(InvalidArgument, match="register_codec"):
        codec_for(payload)


@pytest.mark.parametrize("payload", [7, "str", Point(1, datetime.datetime(2026, 1, 2))])
def test_a_payload_type_that_is_no_type_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidArgument, match="it must be a type"):
        codec_for(payload)


@pytest.mark.parametrize("payload, value", VALUES)
def test_a_value_of_another_class_is_refused(payload: Any, value: Any) -> None:
    if payload is not Row:  # no class decides
        codec: Any = codec_for(payload)
        with pytest.raises(InvalidArgument, match="this writer takes"):
            codec.encode(Plain())


@pytest.mark.parametrize("payload", [str, int, Item, Order, Point, uuid.UUID, Model, Struct])
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

    def encode(self, value: Plain) -> bytes:
        raise KeyError("no such field")

    def decode(self, payload: bytes) -> Plain:
        raise KeyError("no such field")


class Wrong:
    """A codec that returns no bytes."""

    def encode(self, value: Plain) -> bytes:
        return "text"  # type: ignore[return-value]

    def decode(self, payload: bytes) -> Plain:
        return Plain()


@pytest.fixture
def registry() -> Iterator[None]:
    """Forgets what a test registers."""
    before = list(module._registered)
    yield
    module._registered[:] = before
    codec_of.cache_clear()


def test_a_codec_that_is_passed_goes_before_that_of_the_type() -> None:
    codec = codec_for(str, Reversed())
    assert codec.encode("abc") == b"cba"
    assert codec.decode(b"cba") == "abc"
    assert codec_for(codec=Reversed()).encode("abc") == b"cba"


def test_a_failing_user_codec_raises_invalid_argument() -> None:
    codec = codec_for(Plain, FailingCodec())
    with pytest.raises(InvalidArgument, match="its codec cannot encode it: 'no such field'"):
        codec.encode(Plain())
    with pytest.raises(InvalidArgument, match="it is not a Plain: 'no such field'"):
        codec.decode(b"x")
    with pytest.raises(InvalidArgument, match="its codec returned str, not bytes"):
        codec_for(Plain, Wrong()).encode(Plain())


def test_something_without_the_two_methods_is_no_codec() -> None:
    with pytest.raises(InvalidArgument, match="encode and decode"):
        codec_for(str, json)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="encode and decode"):
        register_codec(Plain, 7)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="it must be a type"):
        register_codec(7, FailingCodec())  # type: ignore[arg-type]


@pytest.mark.usefixtures("registry")
def test_a_registered_codec_serves_its_type_and_a_later_one_replaces_it() -> None:
    assert codec_of(str).encode("abc") == b"abc"
    register_codec(str, Reversed())
    assert codec_for(str).encode("abc") == codec_of(str).encode("abc") == b"cba"
    register_codec(Plain, FailingCodec())
    with pytest.raises(InvalidArgument, match="cannot encode"):
        codec_for(Plain).encode(Plain())
    register_codec(Plain, Wrong())
    with pytest.raises(InvalidArgument, match="not bytes"):
        codec_for(Plain).encode(Plain())


@pytest.mark.usefixtures("registry")
def test_a_codec_is_registered_for_all_types_that_a_function_accepts() -> None:
    made: list[Any] = []

    def make(payload: Any) -> Reversed:
        made.append(payload)
        return Reversed()

    register_codec(lambda payload: payload in (str, Plain), make)
    assert codec_for(str).encode("abc") == b"cba"
    assert codec_for(Plain).decode(b"cba") == "abc"  # type: ignore[comparison-overlap]
    assert codec_for(int).encode(7) == b"7"
    assert made == [str, Plain]


@pytest.mark.subprocess
def test_a_codec_imports_neither_pydantic_nor_msgspec() -> None:
    program = (
        "import sys; from eventproc.streams.codec import codec_for; codec_for(dict[str, int])\n"
        "print({'pydantic', 'msgspec'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
