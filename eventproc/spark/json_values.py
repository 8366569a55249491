"""One JSON payload as typed values, by the rules of Spark's `from_json`. The reference of `json_payloads`. No I/O."""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from functools import lru_cache, partial
from typing import Final
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pyarrow as pa

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

SECONDS_MAX: Final = (2**63 - 1) // 1_000_000
"""Largest time in seconds since 1970 that Spark's microseconds can hold."""

DECIMAL_DIGITS: Final = 1000
"""Digits with which numbers are rounded to decimals. A longer number does not fit a decimal of 38 digits anyway."""

NESTED_MAX: Final = 256
"""Levels of objects and lists in a payload. Reading a level takes up to three calls of the 1000 that Python allows."""

TOO_DEEP: Final = f"it is nested more than {NESTED_MAX} deep"

_STRINGS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_DAY: Final = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL | re.ASCII)
_MOMENT: Final = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?)?)?"
    r" *(Z|UTC|GMT|[+-]\d{1,2}(?::?\d{2})?|[A-Za-z]\w*(?:/[\w+-]+)+)?)?)?)?",
    re.ASCII,
)
_OFFSET: Final = re.compile(r"([+-])(\d{1,2})(?::?(\d{2}))?", re.ASCII)
_WORDS_OF_FLOATS: Final = {
    "NaN": "nan",
    **dict.fromkeys(("Infinity", "+INF", "INF"), "inf"),
    **dict.fromkeys(("-Infinity", "-INF"), "-inf"),
}
_OFFSET_HOURS_MAX: Final = 18


class MalformedPayload(ValueError):
    """A payload is not a JSON object in UTF-8."""


class _Misfit(ValueError):
    """A value does not fit its type."""


class _Number(str):
    """The text of a JSON number."""


class _Whole(_Number):
    """The text of a JSON number without a fraction or an exponent."""


def is_too_deep(payload: bytes) -> bool:
    """Return whether a payload is nested more than NESTED_MAX deep. Cost: two searches in one with few brackets."""
    if payload.count(b"[") + payload.count(b"{") <= NESTED_MAX:
        return False
    outside = np.frombuffer(_STRINGS.sub(b"", payload), np.uint8)
    steps = np.isin(outside, tuple(b"[{")).astype(np.int64) - np.isin(outside, tuple(b"]}"))
    return bool(steps.cumsum().max(initial=0) > NESTED_MAX)


_TEXTS_OF_NUMBERS: Final = json.JSONDecoder(parse_int=_Whole, parse_float=_Number)


def read_object(payload: bytes, decoder: json.JSONDecoder = _TEXTS_OF_NUMBERS) -> Mapping[str, object]:
    """Return the fields of a payload. The last of equal names counts.

    decoder: decides what numbers become; the default keeps their texts.
    Raises MalformedPayload.
    """
    if is_too_deep(payload):
        raise MalformedPayload(TOO_DEEP)
    try:
        found = decoder.decode(payload.decode())
    except ValueError as why:
        raise MalformedPayload(str(why)) from None
    if not isinstance(found, dict):
        raise MalformedPayload("it is not a JSON object")
    return found


@attrs.frozen
class JsonRows:
    """Reads objects as rows of `fields`."""

    fields: pa.Schema
    _readers: Sequence[Callable[[object], object]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        object.__setattr__(self, "_readers", [_reader(each.type) for each in self.fields])

    def row(self, found: Mapping[str, object], misfits: list[str]) -> list[object]:
        """Return a value for each field. A value that does not fit is null, and adds its reason to `misfits`."""
        return [
            _read_field(found.get(field.name), field, read, misfits)
            for field, read in zip(self.fields, self._readers, strict=True)
        ]


@attrs.frozen
class _Partial:
    """A value of which parts did not fit and are null. why: the first of them."""

    value: object
    why: str


def _read_field(
    value: object, field: pa.Field, read: Callable[[object], object], misfits: list[str]
) -> object:
    if value is None:
        return None
    try:
        found = read(value)
    except _Misfit:
        misfits.append(f"its field {field.name} is not a {field.type}")
        return None
    if isinstance(found, _Partial):
        misfits.append(found.why)
        return found.value
    return found


def _reader(kind: pa.DataType) -> Callable[[object], object]:
    """Return the function that reads a value of a type. It raises _Misfit."""
    if pa.types.is_struct(kind):
        rows = JsonRows(pa.schema(list(kind)))
        return partial(_struct, rows)
    if pa.types.is_list(kind):
        return partial(_list, _reader(kind.value_type))
    if pa.types.is_map(kind):
        return partial(_map, _reader(kind.item_type))
    if pa.types.is_integer(kind):
        return partial(_integer, 1 << (kind.bit_width - 1))
    if pa.types.is_floating(kind):
        return partial(_float, kind)
    if pa.types.is_decimal(kind):
        return partial(_decimal, kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return _timestamp if kind.tz is not None else _local_timestamp
    for fits, read in _READERS.items():
        if fits(kind):
            return read
    return _unreadable


def _unreadable(value: object) -> object:
    raise _Misfit


def _struct(rows: JsonRows, value: object) -> object:
    if not isinstance(value, dict):
        raise _Misfit
    misfits: list[str] = []
    found = dict(zip(rows.fields.names, rows.row(value, misfits), strict=True))
    return _Partial(found, misfits[0]) if misfits else found


def _list(read: Callable[[object], object], value: object) -> object:
    if not isinstance(value, list):
        raise _Misfit
    why = None
    items: list[object] = []
    for each in value:
        item = None if each is None else read(each)
        if isinstance(item, _Partial):
            why = why or item.why
            item = item.value
        items.append(item)
    return _Partial(items, why) if why is not None else items


def _map(read: Callable[[object], object], value: object) -> object:
    if not isinstance(value, dict):
        raise _Misfit
    found = _list(read, list(value.values()))
    if isinstance(found, _Partial):
        assert isinstance(found.value, list), "the values of a map are a list"
        return _Partial(list(zip(map(encodable, value), found.value, strict=True)), found.why)
    assert isinstance(found, list), "the values of a map are a list"
    return list(zip(map(encodable, value), found, strict=True))


def _integer(bound: int, value: object) -> object:
    if not isinstance(value, _Whole) or len(value) > 20 or not -bound <= (number := int(value)) < bound:
        raise _Misfit
    return number


def _float(kind: pa.DataType, value: object) -> object:
    if isinstance(value, float):  # NaN and infinities, the only numbers that are not kept as text
        return value
    if isinstance(value, str) and not isinstance(value, _Number):
        if value not in _WORDS_OF_FLOATS:
            raise _Misfit
        return float(_WORDS_OF_FLOATS[value])
    if not isinstance(value, _Number):
        raise _Misfit
    # Not by way of a double, which would round twice.
    return pa.scalar(value[:]).cast(kind).as_py() if pa.types.is_float32(kind) else float(value)


def _boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _Misfit
    return value


def _string(value: object) -> object:
    if isinstance(value, str):
        return encodable(value)
    return encodable(_as_json(value))


def _as_json(value: object) -> str:
    """Return a value as compact JSON, with numbers as they were written."""
    if isinstance(value, _Number):
        return value[:]
    if isinstance(value, dict):
        items = (f"{json.dumps(key, ensure_ascii=False)}:{_as_json(item)}" for key, item in value.items())
        return f"{{{','.join(items)}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_as_json, value))}]"
    return json.dumps(value, ensure_ascii=False)


def encodable(text: str) -> str:
    """Return a text with a question mark for each lone surrogate, as Java writes it."""
    return text[:] if text.isascii() else text.encode(errors="replace").decode()


def _binary(value: object) -> object:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _Misfit
    try:
        return b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise _Misfit from None


def _decimal(precision: int, scale: int, value: object) -> object:
    if not isinstance(value, str):
        raise _Misfit
    text = value if isinstance(value, _Number) else value.replace(",", "")
    if not text.isascii() or "_" in text or text != text.strip():
        raise _Misfit
    try:
        with localcontext(prec=DECIMAL_DIGITS):
            found = Decimal(text).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    except InvalidOperation:
        raise _Misfit from None
    if not found.is_finite() or (found and found.adjusted() >= precision - scale):
        raise _Misfit
    return found


def _date(value: object) -> object:
    found = _DAY.fullmatch(_text(value))
    if found is None:
        raise _Misfit
    year, month, day = (int(each) if each is not None else 1 for each in found.groups())
    try:
        return date(year, month, day)
    except ValueError:
        raise _Misfit from None


def _timestamp(value: object) -> object:
    if isinstance(value, _Whole):
        if len(value) > 20 or abs(seconds := int(value)) > SECONDS_MAX:
            raise _Misfit
        return seconds * 1_000_000
    found, zone = _moment(value)
    return (found.replace(tzinfo=zone or UTC) - EPOCH) // timedelta(microseconds=1)


def _local_timestamp(value: object) -> object:
    found, zone = _moment(value)
    if zone is not None:
        raise _Misfit
    return (found.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def _moment(value: object) -> tuple[datetime, tzinfo | None]:
    """Return a time and its zone, if it has one. Raises _Misfit."""
    found = _MOMENT.fullmatch(_text(value))
    if found is None:
        raise _Misfit
    *parts, fraction, zone = found.groups()
    year, month, day = (int(each) if each is not None else 1 for each in parts[:3])
    hour, minute, second = (int(each) if each is not None else 0 for each in parts[3:])
    micros = int((fraction or "")[:6].ljust(6, "0"))
    try:
        return datetime(year, month, day, hour, minute, second, micros), _zone(zone)
    except ValueError:
        raise _Misfit from None


@lru_cache(maxsize=1000)
def _zone(text: str | None) -> tzinfo | None:
    if text is None:
        return None
    if text in ("Z", "UTC", "GMT"):
        return UTC
    if (found := _OFFSET.fullmatch(text)) is None:
        try:
            return ZoneInfo(text)
        except (OSError, ValueError, KeyError):
            raise _Misfit from None
    hours, minutes = int(found[2]), int(found[3] or 0)
    if 60 * hours + minutes > 60 * _OFFSET_HOURS_MAX or minutes > 59:
        raise _Misfit
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if found[1] == "-" else offset)


def _text(value: object) -> str:
    if not isinstance(value, str) or isinstance(value, _Number):
        raise _Misfit
    return value.strip()


_READERS: Final[Mapping[Callable[[pa.DataType], bool], Callable[[object], object]]] = {
    pa.types.is_boolean: _boolean,
    pa.types.is_string: _string,
    pa.types.is_binary: _binary,
    pa.types.is_date: _date,
}
