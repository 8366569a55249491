"""Converts attrs values to JSON and back, with one cattrs converter.

The format is JSON because a person with only the `sqlite3` shell can read it in an emergency.
"""

from __future__ import annotations

import json
from typing import Final, TypeVar

import cattrs
from cattrs.preconf.json import make_converter

T = TypeVar("T")

_CONVERTER = make_converter(omit_if_default=True, forbid_extra_keys=True, detailed_validation=False)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


def to_json(value: object) -> bytes:
    """Return `value`, an attrs instance, as compact UTF-8 JSON, without fields that have their default."""
    return _ENCODE(_CONVERTER.unstructure(value)).encode()


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
