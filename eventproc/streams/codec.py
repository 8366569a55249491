"""Payloads: bytes as they are, or values of a type, through cattrs and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args, get_origin

import attrs

from eventproc.store.model.arguments import refused
from eventproc.store.model.errors import InvalidArgument

P = TypeVar("P")


@attrs.frozen
class Codec(Generic[P]):
    """How payloads of one type become bytes and back.

    encode raises InvalidArgument for a value of another class, or that cannot be written; decode for bytes that are
    none of the type. What a value consists of is written as it is found: `decode` looks at it, encode does not.
    """

    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]


def codec_for(kind: type[P]) -> Codec[P]:
    """Return the codec of `kind`: bytes, str (UTF-8), or whatever cattrs can structure (as JSON).

    Raises InvalidArgument for what is no type.
    """
    if kind is bytes:
        return Codec(_check_bytes, _same)  # type: ignore[arg-type]
    if kind is str:
        return Codec(_encode_text, _decode_text)  # type: ignore[arg-type]
    is_class = isinstance(cast("object", kind), type)
    if not is_class and get_origin(kind) is None and not hasattr(kind, "__supertype__"):
        reason = "it must be a type, such as bytes, str or a class of attrs"
        raise refused("kind of the payloads", kind, reason)
    from cattrs.preconf.json import make_converter

    converter = make_converter()
    classes = _classes_of(kind)
    name = str(kind) if get_origin(kind) is not None else getattr(kind, "__name__", str(kind))

    def encode(value: P) -> bytes:
        if not isinstance(value, classes):
            raise InvalidArgument(
                what="payload", value=type(value).__name__, reason=f"this writer takes {name}"
            )
        try:
            plain = converter.unstructure(value, kind)
            return json.dumps(plain, separators=(",", ":"), ensure_ascii=False).encode()
        except MemoryError:
            raise
        except Exception as error:  # whatever the fields of the wrong type, or hooks, raise
            reason = f"it cannot be written as JSON: {error}"
            raise InvalidArgument(what="payload", value=type(value).__name__, reason=reason) from error

    def decode(payload: bytes) -> P:
        try:
            return converter.structure(json.loads(payload), kind)
        except Exception as error:
            shown = payload[:60].decode("utf-8", "replace")
            raise InvalidArgument(
                what="payload", value=shown, reason=f"it is not a {name}: {error}"
            ) from error

    return Codec(encode, decode)


def _classes_of(kind: Any) -> tuple[type, ...]:
    """Return the classes of one of which every value of that type is; object, where no class tells."""
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
    raise InvalidArgument(
        what="payload",
        value=type(payload).__name__,
        reason="this writer takes bytes; give writer() a type for others",
    )


def _encode_text(payload: object) -> bytes:
    if not isinstance(payload, str):
        raise InvalidArgument(what="payload", value=type(payload).__name__, reason="this writer takes str")
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
