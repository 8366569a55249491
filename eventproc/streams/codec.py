"""Codecs: how payloads of a type become bytes and back."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from inspect import isclass
from typing import Any, Final, Generic, Protocol, cast, get_origin, overload

import attrs
from typing_extensions import TypeVar

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import EventprocError, InvalidArgument
from eventproc.store.model.policies import check_ttl
from eventproc.streams.payloads.mismatch import describe, type_name
from eventproc.streams.payloads.models import family_of

P = TypeVar("P", default=bytes)

CLASS_CODECS_MAX: Final = 256
"""Classes whose codec is remembered for `codec_of`. Higher: memory; lower: a program with more classes makes codecs
again and again, at about 1 ms each."""


class Codec(Protocol[P]):
    """Converts payloads of one type to bytes and back. Any object with these two methods is one.

    It may also have an attribute `ttl_ms`: how long groups deliver the events that it encodes after they were appended,
    in ms. An event's own `ttl_ms` precedes it, and it precedes that of the topic. None, or no attribute: as the topic
    says.
    """

    def encode(self, value: P, /) -> bytes:
        """Return the bytes of `value`. Whatever it raises reaches the caller as InvalidArgument."""
        ...

    def decode(self, payload: bytes, /) -> P:
        """Return the value of `payload`. Whatever it raises reaches the caller as InvalidArgument."""
        ...


@attrs.frozen
class PayloadCodec(Generic[P]):
    """A codec whose two functions raise InvalidArgument only, for a value or payload that is not of its type.

    made_of: the type, or the user's codec, that it was made of. Codecs of one type are equal.
    encode: checks the class of a value, not the types of its fields and elements: `decode` checks those.
    ttl_ms: time to live of the events that it encodes; None: as their topic says.
    """

    made_of: object
    encode: Callable[[P], bytes] = attrs.field(eq=False)
    decode: Callable[[bytes], P] = attrs.field(eq=False)
    ttl_ms: int | None = None


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
            an object for a type. Its attribute `ttl_ms`, if it has one, is the time to live of the events.

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
    _remembered_codec.cache_clear()


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
        return _guarded(codec, codec, type_name(payload) if payload is not None else type(codec).__name__)
    if payload is None or payload is bytes:
        return _BYTES
    for applies, make in _registered:
        if applies(payload):
            return _guarded(payload, make(payload), type_name(payload))
    if payload is str:
        return _TEXT
    if not _is_type(payload):
        raise invalid_argument("payload", payload, "it must be a type, such as bytes, str or a dataclass")
    return _built_in_codec(payload)


def chosen_codec(
    own: PayloadCodec[Any], payload: type[Any] | None, codec: Codec[Any] | None
) -> PayloadCodec[Any]:
    """Return the codec that a caller of a handle named, or else the handle's own. Raises as `codec_for`."""
    return own if payload is None and codec is None else codec_for(payload, codec)


def decode_of(codec: PayloadCodec[P]) -> Callable[[bytes], P] | None:
    """Return how events decode their payloads; None if they are bytes, which need no call."""
    return None if codec is _BYTES else codec.decode


def codec_of(kind: type) -> PayloadCodec[Any]:
    """Return the codec of values of a class, which is remembered. Raises InvalidArgument."""
    try:
        return _remembered_codec(kind)
    except TypeError:  # the class has no hash
        return codec_for(kind)


@lru_cache(CLASS_CODECS_MAX)
def _remembered_codec(kind: type) -> PayloadCodec[Any]:
    return codec_for(kind)


def _is_codec(value: object) -> bool:
    return callable(getattr(value, "encode", None)) and callable(getattr(value, "decode", None))


def _is_type(value: object) -> bool:
    return isclass(value) or get_origin(value) is not None or hasattr(value, "__supertype__")


def _guarded(made_of: object, codec: Codec[P], name: str) -> PayloadCodec[P]:
    """Return the codec with its failures as InvalidArgument. name: of its type, for the errors."""

    def encode(value: P) -> bytes:
        try:
            data = cast("object", codec.encode(value))
        except (EventprocError, MemoryError):
            raise
        except Exception as error:
            raise _not_encoded(value, f"its codec cannot encode it: {describe(error)}") from error
        if not isinstance(data, bytes):
            raise _not_encoded(value, f"its codec returned {type(data).__name__}, not bytes")
        return data

    ttl_ms: int | None = getattr(codec, "ttl_ms", None)
    kept_ms = None if ttl_ms is None else check_ttl(ttl_ms)
    return PayloadCodec(made_of, encode, _decoding(codec.decode, name), kept_ms)


def _built_in_codec(kind: Any) -> PayloadCodec[Any]:
    """Return the codec of `kind` as JSON, by the library that the type belongs to. Raises InvalidArgument."""
    # Here, because cattrs takes a tenth of a second to import.
    from eventproc.streams.payloads.json_codec import json_codec
    from eventproc.streams.payloads.kinds import classes_of

    name, family = type_name(kind), family_of(kind)
    try:
        write, read = json_codec(kind) if family is None else family.json_codec(kind)
    except (
        Exception
    ) as error:  # of the libraries, and of the user's classes while their annotations are resolved
        reason = f"its values cannot be read back: {describe(error)}"
        remedy = "pass codec=, or call eventproc.register_codec for it"
        raise InvalidArgument(what="payload", value=name, reason=f"{reason}; {remedy}") from error
    classes = classes_of(kind)

    def encode(value: Any) -> bytes:
        try:
            return write(value)
        except MemoryError:
            raise
        except Exception as error:  # whatever the fields of the wrong type, or hooks, raise
            reason = describe(error) if isinstance(value, classes) else f"it must be {name}"
            raise _not_encoded(value, reason) from error

    return PayloadCodec(kind, encode, _decoding(read, name))


def _decoding(decode: Callable[[bytes], P], name: str) -> Callable[[bytes], P]:
    def decoded(payload: bytes) -> P:
        try:
            return decode(payload)
        except (EventprocError, MemoryError):
            raise
        except Exception as error:
            shown = payload[:60].decode("utf-8", "replace")
            raise InvalidArgument(
                what="payload", value=shown, reason=f"it is not of type {name}: {describe(error)}"
            ) from error

    return decoded


def _not_encoded(value: object, reason: str) -> InvalidArgument:
    return InvalidArgument(what="payload", value=type(value).__name__, reason=reason)


def _same(payload: bytes) -> bytes:
    return payload


def _check_bytes(payload: object) -> bytes:
    if type(payload) is bytes:
        return payload
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise _not_encoded(payload, "it must be bytes; pass payload=, the type, to write others")


def _encode_text(payload: object) -> bytes:
    if not isinstance(payload, str):
        raise _not_encoded(payload, "it must be str")
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


_BYTES: Final[PayloadCodec[bytes]] = PayloadCodec(bytes, _check_bytes, _same)
_TEXT: Final[PayloadCodec[str]] = PayloadCodec(str, _encode_text, _decode_text)
