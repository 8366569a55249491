"""The scalars of the segment store's protocol, and messages whose fields are declared as annotations.

A frame is `int32 type, int32 length, payload`, big-endian. The class of a message lists its fields in the order of the
wire; the annotation of each names its encoding. Fields with a default are optional tails: an older client may end the
frame before them. Encoding writes all fields.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import (
    Any,
    ClassVar,
    Final,
    Generic,
    NamedTuple,
    Self,
    TypeVar,
    cast,
    dataclass_transform,
    get_type_hints,
)

import attrs

from eventproc.server.frames import MalformedFrame

T = TypeVar("T")

FRAME_HEAD: Final = struct.Struct(">ii")
"""Type and length of a frame."""

PAYLOAD_BYTES_MAX: Final = 0x00FF_FFFF
"""Largest payload of a frame; clients refuse longer ones as well."""

STRING_BYTES_MAX: Final = 0xFFFF
"""Largest text: its length is an unsigned 16-bit number."""

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
    """Takes bytes from a payload. Raises MalformedFrame where there are too few."""

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


@attrs.frozen
class Encoding(Generic[T]):
    """How a field is read from a payload, and the bytes that it is written as."""

    name: str
    read: Callable[[Reader], T]
    write: Callable[[T], bytes]
    is_list: bool = False


def _number(name: str, form: str) -> Encoding[int]:
    number = struct.Struct(form)
    return Encoding(name, lambda reader: number.unpack(reader.take(number.size))[0], number.pack)


def _as_it_is(name: str, read: Callable[[Reader], bytes]) -> Encoding[bytes]:
    """Return the encoding of bytes whose length is not written."""
    return Encoding(name, read, lambda value: value)


def list_of(one: Encoding[T]) -> Encoding[tuple[T, ...]]:
    """Return the encoding of a list with its 32-bit length."""

    def read(reader: Reader) -> tuple[T, ...]:
        count = I32.read(reader)
        if not 0 <= count <= min(LIST_LENGTH_MAX, reader.left):
            raise MalformedFrame(f"a list has {count} elements, {reader.left} bytes are left")
        return tuple([one.read(reader) for _ in range(count)])

    def write(values: tuple[T, ...]) -> bytes:
        return b"".join((I32.write(len(values)), *map(one.write, values)))

    return Encoding(one.name, read, write, is_list=True)


def _read_text(reader: Reader) -> str:
    try:
        return reader.take(_TEXT_LENGTH.read(reader)).decode()
    except UnicodeDecodeError:
        raise MalformedFrame("a text is not UTF-8") from None


def _write_text(value: str) -> bytes:
    data = value.encode()
    if len(data) > STRING_BYTES_MAX:
        data = data[:STRING_BYTES_MAX].decode(errors="ignore").encode()
    return _TEXT_LENGTH.write(len(data)) + data


def _read_key(reader: Reader) -> KeyVersion:
    inner = Reader(BLOCK.read(reader))
    key = BLOCK.read(inner)
    return KeyVersion(key, I64.read(inner) if inner.left else -1)


def _write_key(value: KeyVersion) -> bytes:
    return BLOCK.write(BLOCK.write(value.key) + I64.write(value.version))


def _read_entry(reader: Reader) -> WireEntry:
    return WireEntry(*_read_key(reader), BLOCK.read(Reader(BLOCK.read(reader))))


def _write_entry(value: WireEntry) -> bytes:
    return _write_key(KeyVersion(value.key, value.version)) + BLOCK.write(BLOCK.write(value.value))


def _read_event(reader: Reader) -> bytes:
    head = reader.take(FRAME_HEAD.size)
    return head + reader.take(FRAME_HEAD.unpack(head)[1])


_ATTRIBUTE: Final = struct.Struct(">16sBqq")
_TEXT_LENGTH: Final = _number("u16", ">H")

I32: Final = _number("i32", ">i")
I64: Final = _number("i64", ">q")
FLAG: Final = Encoding("flag", lambda reader: reader.take(1) != b"\0", lambda value: bytes((value,)))
TEXT: Final = Encoding("text", _read_text, _write_text)
"""A text with its 16-bit length; a longer one than the protocol can express is cut, between two characters."""

BLOCK: Final = Encoding[bytes](
    "block", lambda reader: reader.take(I32.read(reader)), lambda value: I32.write(len(value)) + value
)
"""Bytes with their 32-bit length."""

REST: Final = _as_it_is("rest", lambda reader: reader.take(reader.left))
UUID: Final = _as_it_is("uuid", lambda reader: reader.take(UUID_BYTES))
EVENT: Final = _as_it_is("event", _read_event)
"""An event with its head."""

KEY: Final = Encoding("key", _read_key, _write_key)
"""A key with its version, which some clients leave out of an empty key."""

ENTRY: Final = Encoding("entry", _read_entry, _write_entry)
ATTRIBUTE: Final = Encoding[Attribute](
    "attribute",
    lambda reader: Attribute(*_ATTRIBUTE.unpack(reader.take(_ATTRIBUTE.size))),
    lambda value: _ATTRIBUTE.pack(*value),
)


@attrs.frozen
class Message:
    """A command of the protocol. `type` is the type of its frame."""

    type: ClassVar[int]
    _fields: ClassVar[tuple[tuple[str, Encoding[Any], bool], ...]]

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
        parts = [encoding.write(getattr(self, name)) for name, encoding, _ in self._fields]
        return b"".join((FRAME_HEAD.pack(self.type, sum(map(len, parts))), *parts))


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


def _encoding(hint: Any) -> Encoding[Any]:
    (encoding,) = hint.__metadata__
    assert isinstance(encoding, Encoding)
    return encoding
