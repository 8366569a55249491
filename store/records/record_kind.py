"""Record kinds: the type of a record's values, its format number, the steps from older formats, its invariant.

Values are attrs instances, stored as JSON because a person with only the `sqlite3` shell can read it in an emergency.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar

import attrs
import cattrs
from cattrs.preconf.json import make_converter

from eventproc.store.model.errors import CorruptRecord, InvariantBroken

T = TypeVar("T")

_CONVERTER = make_converter(omit_if_default=True, forbid_extra_keys=True, detailed_validation=False)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_plain(value: object) -> Any:
    """Return `value`, of attrs instances, as a value of JSON types, without fields that have their default."""
    return _CONVERTER.unstructure(value)


def to_json(value: object) -> bytes:
    """Return `value`, an attrs instance, as compact UTF-8 JSON, without fields that have their default."""
    return _ENCODE(to_plain(value)).encode()


def from_json(body: bytes, kind: type[T]) -> T:
    """Return the `kind` that `to_json` wrote as `body`. Raises ValueError that names the mismatch."""
    return from_plain(json.loads(body.decode()), kind)  # `loads` of bytes would detect their encoding first


def from_plain(plain: object, kind: type[T]) -> T:
    """Return `plain`, a value of JSON types, as a `kind`. Raises ValueError that names the mismatch."""
    try:
        return _CONVERTER.structure(plain, kind)
    except (
        cattrs.BaseValidationError,
        cattrs.ForbiddenExtraKeysError,
        AttributeError,  # JSON of another shape, such as a list instead of an object
        KeyError,
        TypeError,
        ValueError,
    ) as error:
        raise ValueError(f"not a {kind.__name__}: {error}") from error


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
        except (ValueError, KeyError, AttributeError, TypeError) as error:  # an upcast meets any shape
            raise CorruptRecord(key=f"{self.name} {key}", reason=str(error)) from error

    def verify(self, key: str, before: T | None, after: T) -> None:
        """Raise InvariantBroken if `after` may not follow `before` (None at creation)."""
        if (reason := self.invariant(before, after)) is not None:
            raise InvariantBroken(key=f"{self.name} {key}", reason=reason)
