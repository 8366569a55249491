"""The scalars of the segment store's protocol, and messages whose fields are declared as annotations.

A frame is `int32 type, int32 length, payload`, big-endian. The class of a message lists its fields in the order of the
wire; the annotation of each names its encoding. Fields with a default are optional tails: an older client may end the
frame before them. Encoding writes all fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeVar, cast, dataclass_transform, get_type_hints

import attrs

from eventproc.server.frames import MalformedFrame

FRAME_HEAD: Final = struct.Struct(">ii")
"""Type and length of a frame."""

PAYLOAD_BYTES_MAX: Final = 0x00FF_FFFF
"""Largest payload of a frame; clients refuse longer ones as well."""

STRING_BYTES_MAX: Final = 0xFFFF
"""Largest text: its length is an unsigned 16-bit number."""

_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")
_U16: Final = struct.Struct(">H")

UUID_BYTES: Final = 16

LIST_LENGTH_MAX: Final = 1 << 20
"""Elements of a list. A longer one would not fit a frame."""


class KeyVersion(NamedTuple):
    """A key of a table, and the version that it should have or has."""

    key: bytes
    version: int


class WireEntry(NamedTuple):
    """A key of a table with its version, and the value."""

    key: bytes
    version: int
    value: bytes


class Attribute(NamedTuple):
    """A condition of a merge: the writer `id` has the event number `old` last, and `new` afterwards."""

    id: bytes
    kind: int
    new: int
    old: int


class Reader:
    """Reads scalars from a payload. Raises MalformedFrame where there are too few bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """Bytes that are not read yet."""
        return len(self._data) - self._at

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise MalformedFrame(f"{count} bytes are needed, {self.left} are left")
        found = self._data[self._at : end]
        self._at = end
        return found

    def i32(self) -> int:
        """Return a signed 32-bit number."""
        value: int = _I32.unpack(self.take(4))[0]
        return value

    def i64(self) -> int:
        """Return a signed 64-bit number."""
        value: int = _I64.unpack(self.take(8))[0]
        return value

    def u8(self) -> int:
        """Return an unsigned byte."""
        return self.take(1)[0]

    def flag(self) -> bool:
        """Return a byte as bool."""
        return self.u8() != 0

    def text(self) -> str:
        """Return a text with its 16-bit length."""
        data = self.take(_U16.unpack(self.take(2))[0])
        try:
            return data.decode()
        except UnicodeDecodeError:
            raise MalformedFrame("a text is not UTF-8") from None

    def block(self) -> bytes:
        """Return bytes with their 32-bit length."""
        return self.take(self.i32())

    def rest(self) -> bytes:
        """Return what is left."""
        return self.take(self.left)

    def uuid(self) -> bytes:
        """Return the 16 bytes of a UUID."""
        return self.take(UUID_BYTES)

    def key(self) -> KeyVersion:
        """Return a key. Some clients leave out the version of an empty key."""
        inner = Reader(self.block())
        key = inner.block()
        return KeyVersion(key, inner.i64() if inner.left else -1)

    def entry(self) -> WireEntry:
        """Return a key with its value."""
        key, version = self.key()
        return WireEntry(key, version, Reader(self.block()).block())

    def attribute(self) -> Attribute:
        """Return the condition of a merge."""
        return Attribute(self.uuid(), self.u8(), self.i64(), self.i64())

    def event(self) -> bytes:
        """Return an event with its head."""
        head = self.take(FRAME_HEAD.size)
        return head + self.take(FRAME_HEAD.unpack(head)[1])

    def list_of(self, read: Callable[[], T]) -> tuple[T, ...]:
        """Return a list with its 32-bit length."""
        count = self.i32()
        if not 0 <= count <= min(LIST_LENGTH_MAX, self.left):
            raise MalformedFrame(f"a list has {count} elements, {self.left} bytes are left")
        return tuple([read() for _ in range(count)])


T = TypeVar("T")


class Writer:
    """Collects the parts of a payload."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def i32(self, value: int) -> None:
        """Write a signed 32-bit number."""
        self.parts.append(_I32.pack(value))

    def i64(self, value: int) -> None:
        """Write a signed 64-bit number."""
        self.parts.append(_I64.pack(value))

    def u8(self, value: int) -> None:
        """Write an unsigned byte."""
        self.parts.append(bytes((value,)))

    def flag(self, value: bool) -> None:
        """Write a bool as byte."""
        self.u8(int(value))

    def text(self, value: str) -> None:
        """Write a text; a longer one than the protocol can express is cut, between two characters."""
        data = value.encode()
        if len(data) > STRING_BYTES_MAX:
            data = data[:STRING_BYTES_MAX].decode(errors="ignore").encode()
        self.parts += (_U16.pack(len(data)), data)

    def block(self, value: bytes) -> None:
        """Write bytes with their length."""
        self.parts += (_I32.pack(len(value)), value)

    def rest(self, value: bytes) -> None:
        """Write bytes that end the payload, or whose length is known."""
        self.parts.append(value)

    uuid = rest
    event = rest

    def key(self, value: KeyVersion) -> None:
        """Write a key with its version."""
        self.i32(4 + len(value.key) + 8)
        self.block(value.key)
        self.i64(value.version)

    def entry(self, value: WireEntry) -> None:
        """Write a key with its value."""
        self.key(KeyVersion(value.key, value.version))
        self.i32(4 + len(value.value))
        self.block(value.value)

    def attribute(self, value: Attribute) -> None:
        """Write the condition of a merge."""
        self.uuid(value.id)
        self.u8(value.kind)
        self.i64(value.new)
        self.i64(value.old)

    def list_of(self, values: tuple[T, ...], write: Callable[[T], None]) -> None:
        """Write a list with its length."""
        self.i32(len(values))
        for each in values:
            write(each)


@attrs.frozen
class Encoding:
    """How a field is read and written: the methods of `Reader` and `Writer` of this name."""

    name: str
    is_list: bool = False

    def read(self, reader: Reader) -> object:
        """Read a value."""
        one = cast("Callable[[], object]", getattr(reader, self.name))
        return reader.list_of(one) if self.is_list else one()

    def write(self, writer: Writer, value: object) -> None:
        """Write a value."""
        one = cast("Callable[[object], None]", getattr(writer, self.name))
        if self.is_list:
            writer.list_of(cast("tuple[object, ...]", value), one)
        else:
            one(value)


@attrs.frozen
class Message:
    """A command of the protocol. `type` is the type of its frame."""

    type: ClassVar[int]
    _fields: ClassVar[tuple[tuple[str, Encoding, bool], ...]]

    @classmethod
    def decode(cls, payload: bytes) -> Self:
        """Return the message of a payload. Raises MalformedFrame; bytes behind the last field are ignored."""
        reader = Reader(payload)
        values: list[object] = []
        for _, encoding, is_optional in cls._fields:
            if is_optional and not reader.left:
                break
            values.append(encoding.read(reader))
        return cls(*values)

    def encode(self) -> bytes:
        """Return the frame."""
        writer = Writer()
        for name, encoding, _ in self._fields:
            encoding.write(writer, getattr(self, name))
        payload = b"".join(writer.parts)
        return FRAME_HEAD.pack(self.type, len(payload)) + payload


M = TypeVar("M", bound=Message)

MESSAGES: Final[dict[int, type[Message]]] = {}
"""{type of the frame: class of the message}"""


@dataclass_transform(frozen_default=True)
def message(number: int | None = None) -> Callable[[type[M]], type[M]]:
    """Register a class of messages under the type of its frames; without a number it is a part of others."""

    def register(kind: type[M]) -> type[M]:
        made = attrs.frozen(kind)
        hints = get_type_hints(made, include_extras=True)
        if number is None:
            return made
        made.type = number
        made._fields = tuple(
            (field.name, _encoding(hints[field.name]), field.default is not attrs.NOTHING)
            for field in attrs.fields(cast("Any", made))
        )
        assert number not in MESSAGES, f"two messages have type {number}"
        MESSAGES[number] = made
        return made

    return register


def _encoding(hint: Any) -> Encoding:
    (encoding,) = hint.__metadata__
    assert isinstance(encoding, Encoding)
    return encoding
