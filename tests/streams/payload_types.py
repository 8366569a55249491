"""Payload types of many kinds, and a value of each, for the tests of codecs."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import enum
import ipaddress
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    Optional,
    Protocol,
    Required,
    TypedDict,
    TypeVar,
)

import attrs
import msgspec
import pydantic
import pydantic.dataclasses

T = TypeVar("T")
UserId = NewType("UserId", int)


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mode(enum.StrEnum):
    FAST = "fast"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Price(enum.Enum):
    """Its values have no form in JSON."""

    LOW = Decimal("1.5")


class Point(NamedTuple):
    x: int
    at: datetime.datetime


class Route(NamedTuple):
    start: Point
    stops: list[Point]
    name: str = "direct"


class Chain(NamedTuple):
    number: int
    rest: Chain | None


Pair = collections.namedtuple("Pair", "left right")  # pyright: ignore[reportUntypedNamedTuple]


def define_locally() -> tuple[Any, Any]:
    """Return a NamedTuple and an attrs class that uses only types of the module."""

    class LocalPair(NamedTuple):
        left: int
        at: datetime.date

    @attrs.frozen
    class LocalOrder:
        id: uuid.UUID
        at: Point

    return LocalPair, LocalOrder


LocalPair, LocalOrder = define_locally()


def define_with_local_part() -> Any:
    """Return a class that names another one, which only this function knows."""

    @attrs.frozen
    class Part:
        x: int

    @attrs.frozen
    class WithLocalPart:
        part: Part

    return WithLocalPart


WithLocalPart = define_with_local_part()


@attrs.frozen
class OrderLine:
    sku: str
    count: int
    price: Decimal = Decimal("1.10")


@attrs.frozen
class Discount:
    percent: float


@attrs.frozen
class FullOrder:
    id: uuid.UUID
    lines: list[OrderLine]
    colour: Colour
    point: Point | None = None


@dataclasses.dataclass
class Everything:
    number: int
    raw: bytes
    id: uuid.UUID
    amount: Decimal
    at: datetime.datetime
    day: datetime.date
    time: datetime.time
    took: datetime.timedelta
    path: Path
    tags: frozenset[str]
    size: tuple[int, float]
    user: UserId
    kind: Literal["a", "b"]
    note: str | None
    more: dict[str, Any]


@dataclasses.dataclass
class Counted:
    """A field that a default sets, and not the constructor."""

    name: str
    seen: int = dataclasses.field(init=False, default=0)


@dataclasses.dataclass
class Empty:
    """No fields."""


@attrs.frozen
class Box(Generic[T]):
    value: T


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree]


@attrs.frozen
class Circle:
    kind: Literal["circle"]
    size: float


@attrs.frozen
class Square:
    kind: Literal["square"]
    size: float


@attrs.frozen
class SameAsLine:
    sku: str
    count: int


class Row(TypedDict, total=False):
    a: Required[int]
    lines: list[OrderLine]


class Directory(TypedDict):
    children: list[Directory]


class OrderModel(pydantic.BaseModel):
    id: uuid.UUID
    amount: Decimal


class AliasModel(pydantic.BaseModel):
    amount: int = pydantic.Field(alias="theAmount")


class WriteOnlyAlias(pydantic.BaseModel):
    amount: int = pydantic.Field(exclude=True)


class BoxModel(pydantic.BaseModel, Generic[T]):
    value: T


@pydantic.dataclasses.dataclass
class ModelClass:
    x: int
    at: datetime.datetime


class OrderStruct(msgspec.Struct):
    id: uuid.UUID
    tags: list[str]


class OpenedStruct(msgspec.Struct, tag=True):
    x: int


class ClosedStruct(msgspec.Struct, tag=True):
    x: int


@attrs.frozen
class Mixed:
    """Fields of every library."""

    model: OrderModel
    structs: list[OrderStruct]
    either: OpenedStruct | ClosedStruct
    at: ModelClass | None


class PlainClass:
    """A class without declared fields."""


class Named(Protocol):
    name: str


@dataclasses.dataclass
class HoldsPlain:
    lines: dict[str, list[PlainClass]]


class PlainModel(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(arbitrary_types_allowed=True)
    lines: list[PlainClass]


class PlainStruct(msgspec.Struct):
    lines: list[PlainClass]


@attrs.frozen
class HoldsCallable:
    call: Callable[[], int]


@attrs.frozen
class Untyped:
    x = attrs.field()  # type: ignore[var-annotated]


ID = uuid.UUID(int=7)
AT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
LINE = OrderLine("a", 1)
MODEL = OrderModel(id=ID, amount=Decimal("1.10"))
COUNTED = Counted("ana")
COUNTED.seen = 3

READABLE: list[tuple[Any, Any]] = [
    (bytes, b"\x00\xff"),
    (str, "zwölf"),
    (int, 7),
    (bool, True),
    (float, 1.5),
    (float, 1),
    (uuid.UUID, ID),
    (Decimal, Decimal("1.10")),
    (datetime.datetime, AT),
    (datetime.date, AT.date()),
    (datetime.time, AT.time()),
    (datetime.timedelta, datetime.timedelta.max),
    (datetime.timedelta, datetime.timedelta(microseconds=-1)),
    (Path, Path("/a")),
    (PurePosixPath, PurePosixPath("a")),
    (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1")),
    (Colour, Colour.RED),
    (Level, Level.LOW),
    (Mode, Mode.FAST),
    (Rights, Rights.READ | Rights.WRITE),
    (UserId, 7),
    (dict, {"a": [1, {"b": None}]}),
    (list, [1, "a"]),
    (Any, {"a": 1}),
    (dict[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (dict[bool, int], {False: 1}),
    (dict[float, int], {1.5: 1}),
    (dict[uuid.UUID, OrderLine], {ID: LINE}),
    (dict[Level, int], {Level.LOW: 1}),
    (dict[datetime.date, int], {AT.date(): 1}),
    (Mapping[str, OrderLine], {"a": LINE}),
    (collections.Counter[str], collections.Counter("aab")),
    (collections.defaultdict[str, int], collections.defaultdict(int, a=1)),
    (collections.OrderedDict[str, int], collections.OrderedDict(a=1)),
    (collections.deque[OrderLine], collections.deque([LINE])),
    (list[OrderLine], [LINE]),
    (list[bytes], [b"a", b""]),
    (list[bool], [True]),
    (set[int], {1}),
    (frozenset[OrderLine], frozenset([LINE])),
    (tuple[int, str], (1, "a")),
    (tuple[OrderLine, ...], (LINE,)),
    (tuple[()], ()),
    (Sequence[int], (1,)),
    (Annotated[int, "unit"], 1),
    (Literal["a", 1], 1),
    (Literal[Colour.RED], Colour.RED),
    (Optional[OrderLine], None),  # noqa: UP045
    (OrderLine | None, LINE),
    (int | str, "1"),
    (int | float, 1),
    (uuid.UUID | int | None, ID),
    (OrderLine | Discount, Discount(2.5)),
    (Circle | Square, Square("square", 1.5)),
    (list[int] | dict[str, int], {"a": 1}),
    (OrderLine | int, 7),
    (FullOrder, FullOrder(ID, [LINE], Colour.RED, Point(1, AT))),
    (
        Everything,
        Everything(
            7,
            b"\x00\xff",
            ID,
            Decimal("1.10"),
            AT,
            AT.date(),
            AT.time(),
            datetime.timedelta(days=-2, microseconds=5),
            Path("/a"),
            frozenset("ab"),
            (1, 2.5),
            UserId(7),
            "b",
            None,
            {"a": [1]},
        ),
    ),
    (Counted, COUNTED),
    (Empty, Empty()),
    (Box[int], Box(1)),
    (Box[OrderLine], Box(LINE)),
    (Tree, Tree(1, [Tree(2, [])])),
    (Row, {"a": 1, "lines": [LINE]}),
    (Row, {"a": 1}),
    (Directory, {"children": [{"children": []}]}),
    (Point, Point(1, AT)),
    (Route, Route(Point(1, AT), [Point(2, AT)])),
    (Chain, Chain(1, Chain(2, None))),
    (Pair, Pair(1, "a")),
    (list[Point], [Point(1, AT)]),
    (LocalPair, LocalPair(1, AT.date())),
    (LocalOrder, LocalOrder(ID, Point(1, AT))),
    (OrderModel, MODEL),
    (AliasModel, AliasModel(theAmount=1)),
    (BoxModel[int], BoxModel[int](value=1)),
    (ModelClass, ModelClass(1, AT)),
    (OrderModel | None, MODEL),
    (list[OrderModel], [MODEL]),
    (OrderStruct, OrderStruct(ID, ["a"])),
    (dict[str, OrderStruct], {"a": OrderStruct(ID, ["a"])}),
    (OpenedStruct | ClosedStruct, ClosedStruct(1)),
    (Mixed, Mixed(MODEL, [OrderStruct(ID, [])], ClosedStruct(1), ModelClass(1, AT))),
]
"""Types, and a value that comes back equal."""

UNREADABLE: list[tuple[Any, str]] = [
    (PlainClass, "it is of the type PlainClass, which JSON has no form for"),
    (list[PlainClass], r"'payload\[\]' is of the type PlainClass"),
    (HoldsPlain, r"'lines\[\]\[\]' is of the type PlainClass"),
    (PlainModel, "'lines' is PlainClass"),
    (PlainStruct, r"'lines\[\]' is PlainClass"),
    (HoldsCallable, "'call' is of the type Callable"),
    (Untyped, "the field 'x' has no annotation"),
    (Box, "'value' is of the type variable ~T; name the type"),
    (Named, "Named"),
    (object, "object"),
    (complex, "complex"),
    (type(None), "NoneType"),
    (bytearray, "bytearray"),
    (Callable[[], int], "Callable"),
    (type[int], "int"),
    (Exception, "Exception"),
    (Price, r"Decimal\('1.5'\) has no form in JSON"),
    (enum.Enum, "no members"),
    (dict[Point, int], "keys of a JSON object are text, which cannot become Point"),
    (dict[str | int, int], "keys of a JSON object are text"),
    (str | bytes, "str and bytes are both text in JSON"),
    (list[uuid.UUID | str], "UUID and str are both text in JSON"),
    (list[int] | tuple[str, ...], "are both an array in JSON"),
    (OrderLine | SameAsLine, "cannot tell OrderLine and SameAsLine apart"),
    (OrderModel | OrderLine, "are both an object in JSON"),
    (OrderModel | AliasModel, "give them a discriminator"),
    (WriteOnlyAlias, "excluded from writing"),
    (WithLocalPart, "name 'Part' is not defined where WithLocalPart is defined"),
]
"""Types whose values could not be read back, and what the refusal says."""
