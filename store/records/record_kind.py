"""Record kinds: the type of a record's values, its format number, the steps from older formats, its invariant."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import attrs

from eventproc.store.model.errors import CorruptRecord, InvariantBroken
from eventproc.store.records.codec import from_plain, to_json

T = TypeVar("T")

Upcast = Callable[[dict[str, object]], dict[str, object]]
"""One step from format n to format n + 1, on the plain JSON object."""


def _nothing_to_check(before: object, after: object) -> str | None:
    return None


@attrs.frozen(kw_only=True, eq=False)
class RecordKind(Generic[T]):
    """A kind of record. Any room may define its own kinds.

    name: unique among kinds; stored with each record.
    value: the attrs class of the values.
    format: number stored with each body.
    upcasts: for each older format n, the step from n to n + 1.
    invariant: called with (before, after), `before` None at creation. A returned sentence refuses the change with
        InvariantBroken, for every caller.
    immutable: whether values, and everything in them, never change. Then decoded values are cached and shared.
    """

    name: str
    value: type[T]
    format: int = 1
    upcasts: Mapping[int, Upcast] = attrs.field(factory=dict)
    invariant: Callable[[T | None, T], str | None] = _nothing_to_check
    immutable: bool = False

    def encode(self, value: T) -> bytes:
        """Return `value` as stored: the format number, a colon, JSON."""
        return b"%d:%b" % (self.format, to_json(value))

    def decode(self, key: str, body: bytes) -> T:
        """Return the value that was stored as `body` under `key`, upcast step by step.

        Raises CorruptRecord if the body is not valid, or has a newer format.
        """
        number, _, text = bytes(body).partition(b":")
        try:
            found, plain = int(number), json.loads(text.decode())
            if found > self.format:
                raise ValueError(
                    f"format {found} is newer than {self.format}, the newest format of this version"
                )
            for step in range(found, self.format):
                plain = self.upcasts[step](plain)
            return from_plain(plain, self.value)
        except (ValueError, KeyError) as error:
            raise CorruptRecord(key=f"{self.name} {key}", reason=str(error)) from error

    def verify(self, key: str, before: T | None, after: T) -> None:
        """Raise InvariantBroken if `after` may not follow `before` (None at creation)."""
        if (reason := self.invariant(before, after)) is not None:
            raise InvariantBroken(key=f"{self.name} {key}", reason=reason)
