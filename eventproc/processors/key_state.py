"""The state of a processor by key, as its user declares it: the class of the values, and how they are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Generic, TypeVar, get_origin

import attrs

from eventproc.store.model.argument_checks import (
    check_function,
    check_int,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import DURATION_MS_MAX, EVENT_BYTES_MAX
from eventproc.store.model.names import StreamName
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.streams.codec import Codec, PayloadCodec, codec_for, codec_of
from eventproc.streams.payloads.mismatch import describe, type_name

V = TypeVar("V")

CACHE_BYTES: Final = 64 * 2**20
"""Default of the bytes of values that one process keeps at hand. Higher: memory, four times as much for small objects.
Lower: a key that returns after a pause is read again, with others in one statement."""


@attrs.frozen
class KeyState(Generic[V]):
    """How a processor keeps a value for each routing key of its stream.

    Attributes:
        value: The class of the values: an attrs or data class, a pydantic model, a msgspec struct, `dict`, or any other
            type that has a codec. Called without arguments, it makes the value of a key that has none.
        version: Raise it with each change of the class that cannot read what the one before wrote. Default: 1.
        upgrade: Called with an older version and the bytes that were stored under it; returns the value. None
            (default): a value of another version stops the processor.
        ttl_ms: How long a key keeps its value after its last event, in ms. None (default): for ever.
        cache_bytes: Bytes of values that a process keeps at hand. Default: 64 MiB.
        codec: Converts the values. None (default): the codec of `value`.
        changes: Full name of a stream to which each change that a call makes is appended, in the transaction that
            stores it: the value as its payload, under its key; an empty payload if the key has no value any more. With
            the event time of the event, or the timer. A value that expires, or is changed from outside, is not
            appended. None (default): to none.

    Raises:
        InvalidArgument: A value is of the wrong type or out of range, or the class has no codec, needs arguments, or
            makes an empty payload of a new value with `changes`.
    """

    __repr__ = short_repr_of_fields

    value: type[V]
    version: int = attrs.field(default=1, kw_only=True)
    upgrade: Callable[[int, bytes], V] | None = attrs.field(default=None, kw_only=True)
    ttl_ms: int | None = attrs.field(default=None, kw_only=True)
    cache_bytes: int = attrs.field(default=CACHE_BYTES, kw_only=True)
    codec: Codec[V] | None = attrs.field(default=None, kw_only=True)
    changes: str | None = attrs.field(default=None, kw_only=True)
    _codec: PayloadCodec[V] = attrs.field(init=False, eq=False)
    _reads_back: bool = attrs.field(init=False, eq=False)
    _new: bytes = attrs.field(init=False, eq=False)

    def __attrs_post_init__(self) -> None:
        from eventproc.streams.payloads.models import family_of  # few programs need it

        if not callable(self.value):
            raise invalid_argument("state", self.value, "it must be the class of the values")
        kind: Any = self.value
        codec = codec_of(kind) if self.codec is None else codec_for(self.value, self.codec)
        object.__setattr__(self, "_codec", codec)
        # These write what they do not read, such as None for an int: the next owner of the key could not go on.
        object.__setattr__(self, "_reads_back", codec.made_of != kind or family_of(kind) is not None)
        check_int("state version", self.version, least=1)
        check_int("state cache_bytes", self.cache_bytes, least=1, unit="bytes")
        if self.ttl_ms is not None:
            check_int("state ttl_ms", self.ttl_ms, least=1, most=DURATION_MS_MAX, unit="ms")
        if self.changes is not None:
            StreamName.parse(check_str("state changes", self.changes))
        if self.upgrade is not None:
            check_function("state upgrade", self.upgrade)
        try:
            data = self.encode(self.make())
        except Exception as why:  # of the user's class
            reason = f"its value for a new key cannot be made: {describe(why)}; give each field a default"
            raise invalid_argument("state", type_name(self.value), reason) from why
        object.__setattr__(self, "_new", data)
        if self.changes is not None and not data:
            reason = "with changes=, an empty payload is a key without a value; give a codec that writes some"
            raise invalid_argument("state", type_name(self.value), reason)

    @property
    def name(self) -> str:
        """The name of the class, for people."""
        return type_name(self.value)

    def make(self) -> V:
        """Return the value of a key that has none."""
        return self.value()

    def encode(self, value: V) -> bytes:
        """Return the bytes of a value, which can be read back. Raises InvalidArgument."""
        data = self._codec.encode(value)
        if len(data) > EVENT_BYTES_MAX:
            reason = f"it has {len(data)} bytes, and a state has at most {EVENT_BYTES_MAX}"
            raise invalid_argument("state", self.name, reason)
        if self._reads_back:
            self._codec.decode(data)
        return data

    def is_new(self, data: bytes) -> bool:
        """Return whether these are the bytes of the value of a key that has none: it is made again, so none is stored.

        Never of a class that makes another one each time, such as with the present time.
        """
        return data == self._new

    def reads(self, version: int) -> bool:
        """Return whether it reads what was stored under a version."""
        return version == self.version or (self.upgrade is not None and version < self.version)

    def decode(self, version: int, data: bytes) -> V:
        """Return the value of what was stored under a version. Raises InvalidArgument, and what `upgrade` raises."""
        if version == self.version:
            return self._codec.decode(data)
        if self.upgrade is None or not self.reads(version):
            reason = f"it has version {version}, and this program reads version {self.version}"
            raise invalid_argument("state", self.name, reason)
        return self.upgrade(version, data)


def as_key_state(state: object, processor: str | None = None) -> KeyState[Any] | None:
    """Return what `state=` of a processor declares: a class stands for its KeyState.

    Raises InvalidArgument, which names the processor.
    """
    if state is None or isinstance(state, KeyState):
        return state
    of = "" if processor is None else f"state of the processor {processor!r}"
    if not isinstance(state, type) and get_origin(state) is None:
        reason = "it must be a class, or an eventproc.KeyState"
        raise invalid_argument("state", state, f"{reason} ({of})" if of else reason)
    try:
        return KeyState(state)  # type: ignore[arg-type]
    except InvalidArgument as why:
        if not of:
            raise
        reason = f"{why.reason} ({of}; declare a KeyState to pass options such as codec=)"
        raise InvalidArgument(what=why.what, value=why.value, reason=reason) from why.__cause__
