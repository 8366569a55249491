"""Payloads: bytes as they are, or values of a type, through cattrs and JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import attrs

from eventproc.store.model.errors import InvalidArgument

P = TypeVar("P")


@attrs.frozen
class Codec(Generic[P]):
    """How payloads of one type become bytes and back.

    encode raises InvalidArgument for a value of another type, decode for bytes that are none.
    """

    encode: Callable[[P], bytes]
    decode: Callable[[bytes], P]


def codec_for(kind: type[P]) -> Codec[P]:
    """Return the codec of `kind`: bytes, str (UTF-8), or whatever cattrs can structure (as JSON)."""
    if kind is bytes:
        return Codec(_check_bytes, _same)  # type: ignore[arg-type]
    if kind is str:
        return Codec(_encode_text, bytes.decode)  # type: ignore[arg-type]
    from cattrs.preconf.json import make_converter

    converter = make_converter()

    def encode(value: P) -> bytes:
        if not _is_instance(value, kind):
            name = getattr(kind, "__name__", str(kind))
            raise InvalidArgument(
                what="payload", value=type(value).__name__, reason=f"this writer takes {name}"
            )
        return json.dumps(
            converter.unstructure(value, kind), separators=(",", ":"), ensure_ascii=False
        ).encode()

    def decode(payload: bytes) -> P:
        try:
            return converter.structure(json.loads(payload), kind)
        except Exception as error:
            name = getattr(kind, "__name__", str(kind))
            shown = payload[:60].decode("utf-8", "replace")
            raise InvalidArgument(
                what="payload", value=shown, reason=f"it is not a {name}: {error}"
            ) from error

    return Codec(encode, decode)


def _is_instance(value: object, kind: Any) -> bool:
    return isinstance(value, kind) if isinstance(kind, type) else True


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
    return payload.encode()
