"""What a record kind is: its type, its format number, the steps from older formats, its invariants."""

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
    """A kind of record. Whoever needs one makes one: there is no closed list.

    name: unique among kinds, stored. value: the attrs class. format: number written with each body.
    upcasts: from format n, the step to n + 1; there must be one for each older format.
    invariant: predicate over (before, after), `before` None at creation; a sentence refuses the change
    with InvariantBroken, wherever it came from. immutable: nobody changes a value, nor anything in it; then one that is
    known already may be given out again instead of decoding its body once more.
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

        Raises CorruptRecord when it cannot be one, or was written by a newer format.
        """
        number, _, text = bytes(body).partition(b":")
        try:
            found, plain = int(number), json.loads(text.decode())
            if found > self.format:
                raise ValueError(f"format {found} is newer than {self.format}, the newest known here")
            for step in range(found, self.format):
                plain = self.upcasts[step](plain)
            return from_plain(plain, self.value)
        except (ValueError, KeyError) as error:
            raise CorruptRecord(key=f"{self.name} {key}", reason=str(error)) from error

    def verify(self, key: str, before: T | None, after: T) -> None:
        """Raise InvariantBroken when `after` may not follow `before` (None: must not exist)."""
        if (reason := self.invariant(before, after)) is not None:
            raise InvariantBroken(key=f"{self.name} {key}", reason=reason)
