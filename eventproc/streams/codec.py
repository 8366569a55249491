"""Codecs: how payloads of a type become bytes and back."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from inspect import isclass
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Generic,
    Protocol,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    overload,
)

import attrs
from typing_extensions import TypeVar

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import EventprocError, InvalidArgument

if TYPE_CHECKING:
    from cattrs import Converter

P = TypeVar("P", default=bytes)

CLASS_CODECS_MAX: Final = 256
"""Classes whose codec is remembered for `codec_of`. Higher: memory; lower: a program with more classes makes codecs
again and again, at about 1 ms each."""


class Codec(Protocol[P]):
    """Converts payloads of one type to bytes and back. Any object with these two methods is one."""

    def encode(self, value: P, /) -> bytes:
        """Return the bytes of `value`. Whatever it raises reaches the caller as InvalidArgument."""
        ...

    def decode(self, payload: bytes, /) -> P:
        """Return the value of `payload`. Whatever it raises reaches the caller as InvalidArgument."""
        ...


@attrs.frozen
class PayloadCodec(Generic[P]):
    """A codec whose two functions raise InvalidArgument only, for a value or payload that is not of its type.

    encode: checks the class of a value, not the types of its fields and elements: `decode` checks those.
    """

    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]


_registered: list[tuple[Callable[[Any], bool], Callable[[Any], Codec[Any]]]] = []
"""Which types each registration serves, and what makes their codec; the last one first."""


def register_codec(
    payload: type[P] | Callable[[Any], bool], codec: Codec[P] | Callable[[type[P]], Codec[P]]
) -> None:
    """Use `codec` for every payload of a type, wherever `payload=` names the type and `codec=` is not passed.

    Call it at import time. The last registration that applies wins, also over the
    built-in codecs, except that `bytes` are always stored as they are.

    Args:
        payload: the type, or a function that returns True for each type that the codec serves.
        codec: an object with `encode(value) -> bytes` and `decode(bytes) -> value`, or a function that returns such
            an object for a type.

    Raises:
        InvalidArgument: `codec` is neither, or `payload` is neither a type nor a function.
    """
    given: object = payload
    if _is_type(given):
        applies: Callable[[Any], bool] = lambda kind: kind == given  # noqa: E731
    elif callable(given):
        applies = cast("Callable[[Any], bool]", given)
    else:
        raise invalid_argument("payload", given, "it must be a type, or a function that is True for a type")
    made: Any = codec
    if _is_codec(made):
        _registered.insert(0, (applies, lambda _: made))
    elif callable(made):
        _registered.insert(0, (applies, cast("Callable[[Any], Codec[Any]]", made)))
    else:
        reason = "it must have the methods encode and decode, or return such an object"
        raise invalid_argument("codec", made, reason)
    codec_of.cache_clear()


@overload
def codec_for(payload: None = None, codec: None = None) -> PayloadCodec[bytes]: ...
@overload
def codec_for(payload: type[P] | None = None, codec: Codec[P] | None = None) -> PayloadCodec[P]: ...
def codec_for(payload: type[Any] | None = None, codec: Codec[Any] | None = None) -> PayloadCodec[Any]:
    """Return the codec of payloads of a type.

    payload: the type; None: bytes. codec: used instead of the type's own.

    In this order: `codec`, bytes as they are, a registered codec, str as UTF-8, pydantic models and msgspec structs by
    their own JSON, and every type that cattrs can structure, as JSON. Raises InvalidArgument for another type.
    """
    if codec is not None:
        if not _is_codec(codec):
            raise invalid_argument("codec", codec, "it must have the methods encode and decode")
        return _guarded(codec, _name_of(payload) if payload is not None else type(codec).__name__)
    if payload is None or payload is bytes:
        return _BYTES
    for applies, make in _registered:
        if applies(payload):
            return _guarded(make(payload), _name_of(payload))
    if payload is str:
        return _TEXT
    if not _is_type(payload):
        raise invalid_argument("payload", payload, "it must be a type, such as bytes, str or a dataclass")
    if isclass(payload) and hasattr(payload, "model_validate_json") and hasattr(payload, "model_dump_json"):
        return _pydantic_codec(payload)
    if isclass(payload) and hasattr(payload, "__struct_fields__") and "msgspec" in sys.modules:
        return _msgspec_codec(payload)
    return _cattrs_codec(payload)


def decode_of(codec: PayloadCodec[P]) -> Callable[[bytes], P] | None:
    """Return how events decode their payloads; None if they are bytes, which need no call."""
    return None if codec is _BYTES else codec.decode


@lru_cache(CLASS_CODECS_MAX)
def codec_of(kind: type) -> PayloadCodec[Any]:
    """Return the codec of values of a class, which is remembered. Raises InvalidArgument."""
    return codec_for(kind)


def _is_codec(value: object) -> bool:
    return callable(getattr(value, "encode", None)) and callable(getattr(value, "decode", None))


def _is_type(value: object) -> bool:
    return isclass(value) or get_origin(value) is not None or hasattr(value, "__supertype__")


def _name_of(payload: object) -> str:
    return str(payload) if get_origin(payload) is not None else getattr(payload, "__name__", str(payload))


def _guarded(codec: Codec[P], name: str) -> PayloadCodec[P]:
    """Return the codec with its failures as InvalidArgument. name: of its type, for the errors."""

    def encode(value: P) -> bytes:
        try:
            data = cast("object", codec.encode(value))
        except (EventprocError, MemoryError):
            raise
        except Exception as error:
            raise _not_encoded(value, f"its codec cannot encode it: {error}") from error
        if not isinstance(data, bytes):
            raise _not_encoded(value, f"its codec returned {type(data).__name__}, not bytes")
        return data

    return PayloadCodec(encode, _decoding(codec.decode, name))


def _checked(
    kind: Any, encode: Callable[[Any], bytes], decode: Callable[[bytes], Any], form: str = "JSON"
) -> PayloadCodec[Any]:
    """Return the codec of `kind` that refuses values of another class before `encode` sees them."""
    classes, name = _classes_of(kind), _name_of(kind)

    def checked(value: Any) -> bytes:
        if not isinstance(value, classes):
            raise _not_encoded(value, f"this writer takes {name}")
        try:
            return encode(value)
        except MemoryError:
            raise
        except Exception as error:  # whatever the fields of the wrong type, or hooks, raise
            raise _not_encoded(value, f"it cannot be written as {form}: {error}") from error

    return PayloadCodec(checked, _decoding(decode, name))


def _decoding(decode: Callable[[bytes], P], name: str) -> Callable[[bytes], P]:
    def decoded(payload: bytes) -> P:
        try:
            return decode(payload)
        except (EventprocError, MemoryError):
            raise
        except Exception as error:
            shown = payload[:60].decode("utf-8", "replace")
            raise InvalidArgument(
                what="payload", value=shown, reason=f"it is not a {name}: {error}"
            ) from error

    return decoded


def _not_encoded(value: object, reason: str) -> InvalidArgument:
    return InvalidArgument(what="payload", value=type(value).__name__, reason=reason)


def _pydantic_codec(model: Any) -> PayloadCodec[Any]:
    return _checked(model, lambda value: value.model_dump_json().encode(), model.model_validate_json)


def _msgspec_codec(struct: Any) -> PayloadCodec[Any]:
    msgspec = sys.modules["msgspec"].json
    return _checked(struct, msgspec.Encoder().encode, msgspec.Decoder(struct).decode)


def _cattrs_codec(kind: Any) -> PayloadCodec[Any]:
    from decimal import Decimal
    from uuid import UUID

    from cattrs.errors import StructureHandlerNotFoundError
    from cattrs.preconf.json import make_converter

    converter = make_converter()
    for text in (UUID, Decimal):
        converter.register_unstructure_hook(text, str)
        converter.register_structure_hook(text, lambda value, into: into(value))
    # Its own hooks cannot read annotations that are text, as `from __future__ import annotations` makes them.
    converter.register_structure_hook_factory(_is_named_tuple, partial(_named_tuple_reader, converter))
    converter.register_unstructure_hook_factory(
        _is_named_tuple, lambda named: converter.get_unstructure_hook(_tuple_of(named))
    )
    try:
        converter.get_structure_hook(kind)
    except StructureHandlerNotFoundError as error:
        reason = f"{error} Pass codec=, or call eventproc.register_codec"
        raise invalid_argument("payload", kind, reason) from error
    except NameError:  # it names a class that is defined later
        pass

    def encode(value: Any) -> bytes:
        plain = converter.unstructure(value, kind)
        return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()

    return _checked(kind, encode, lambda payload: converter.structure(json.loads(payload), kind))


def _is_named_tuple(kind: Any) -> bool:
    return isclass(kind) and issubclass(kind, tuple) and hasattr(kind, "_fields")


def _named_tuple_reader(converter: Converter, kind: Any) -> Callable[[Any, Any], Any]:
    fields = _tuple_of(kind)
    read = converter.get_structure_hook(fields)
    return lambda value, _: kind(*read(value, fields))


def _tuple_of(kind: Any) -> Any:
    """Return the type of the plain tuple that has the elements of a named one."""
    hints = get_type_hints(kind, include_extras=True)
    return tuple[tuple(hints.get(field, Any) for field in kind._fields)]  # type: ignore[misc]


def _classes_of(kind: Any) -> tuple[type, ...]:
    """Return classes such that every value of the type is an instance of one of them; object if no class decides."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return tuple(each for member in get_args(kind) for each in _classes_of(member))
    if origin is Annotated:
        return _classes_of(get_args(kind)[0])
    if hasattr(kind, "__supertype__"):
        return _classes_of(kind.__supertype__)
    if kind is float:
        return (float, int)  # as type checkers have it
    found = kind if origin is None else origin
    try:
        isinstance(None, found)
    except TypeError:  # such as a Literal, a TypedDict or Any
        return (object,)
    return (found,)


def _same(payload: bytes) -> bytes:
    return payload


def _check_bytes(payload: object) -> bytes:
    if type(payload) is bytes:
        return payload
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise _not_encoded(payload, "this writer takes bytes; pass payload=, the type, to write others")


def _encode_text(payload: object) -> bytes:
    if not isinstance(payload, str):
        raise _not_encoded(payload, "this writer takes str")
    try:
        return payload.encode()
    except UnicodeEncodeError as error:
        shown = payload[:60].encode("ascii", "backslashreplace").decode("ascii")
        reason = "it contains half of a surrogate pair, which no text does"
        raise InvalidArgument(what="payload", value=shown, reason=reason) from error


def _decode_text(payload: bytes) -> str:
    try:
        return payload.decode()
    except UnicodeDecodeError as error:
        shown = payload[:60].decode("utf-8", "replace")
        raise InvalidArgument(what="payload", value=shown, reason="it is not UTF-8 text") from error


_BYTES: Final[PayloadCodec[bytes]] = PayloadCodec(_check_bytes, _same)
_TEXT: Final[PayloadCodec[str]] = PayloadCodec(_encode_text, _decode_text)
