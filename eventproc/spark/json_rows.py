"""Rows as JSON objects: column by column with Arrow, which takes a fifth of the time of Python row by row."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventproc.store.chunks.arrow_buffers import nulls_of, numbers, text_scalar, values_of
from eventproc.store.model.errors import InvalidArgument

_CONTROL: Final = pc.MatchSubstringOptions(r"[\x00-\x1f]")
_WHOLE: Final = pc.ReplaceSubstringOptions(r"^(-?\d+)$", r"\1.0")


def as_json(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its null fields, as binary.

    Times are UTC in ISO 8601; decimals and bytes (base64) are texts, and so are NaN and infinities.
    Raises InvalidArgument for a text that is not UTF-8.
    Cost: about 0.5 us per value; 5 us for maps, bytes, and texts of a column with control characters.
    """
    texts = _objects(rows.schema.names, rows.columns, rows.num_rows)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:  # Spark does not check what it casts to a string
        raise InvalidArgument(
            what="row",
            value="a text that is not UTF-8",
            reason="JSON cannot hold it; keep the column binary, which becomes base64",
        ) from None
    return texts.cast(pa.binary())


def _objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return `count` JSON objects without their null fields."""
    fields = [
        _join(text_scalar(f"{json.dumps(name, ensure_ascii=False)}:"), _as_texts(column))
        for name, column in zip(names, columns, strict=True)
    ]
    # Arrow drops a row of nulls only, so the first text is never null. The comma behind it is taken out again.
    first = pa.repeat(text_scalar("{"), count)
    present = pc.JoinOptions(null_handling="skip")
    opened = pc.call_function("binary_join_element_wise", [first, *fields, text_scalar(",")], present)
    assert len(opened) == count, "a row is an event"
    once = pc.ReplaceSubstringOptions("{,", "{", max_replacements=1)
    return _join(pc.call_function("replace_substring", [opened], once), text_scalar("}"))


def _arrays(column: pa.Array) -> pa.Array:
    """Return each list as a JSON array; null stays null."""
    items = _as_texts(column.flatten()).fill_null(text_scalar("null"))
    lengths = pc.call_function("list_value_length", [column])
    counts = np.where(nulls_of(lengths), 0, values_of(lengths, np.int32))
    ends = np.concatenate([np.zeros(1, np.int32), np.cumsum(counts, dtype=np.int32)])
    lists = pa.ListArray.from_arrays(numbers(ends, pa.int32()), items)
    joined = pc.call_function("binary_join", [lists, text_scalar(",")])
    return _where_valid(column, _join(text_scalar("["), joined, text_scalar("]")))


def _where_valid(column: pa.Array, texts: pa.Array) -> pa.Array:
    if not column.null_count:
        return texts
    return pc.call_function("if_else", [column.is_valid(), texts, pa.nulls(1, pa.string())[0]])


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """Return the parts one after the other; null if one of them is."""
    return pc.call_function("binary_join_element_wise", [*parts, text_scalar("")])


def _as_texts(column: pa.Array) -> pa.Array:
    """Return each value as JSON; null stays null."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind) and _all(pc.call_function("is_finite", [column])):
        return pc.call_function("replace_substring_regex", [column.cast(pa.string())], _WHOLE)
    if pa.types.is_timestamp(kind):
        at = column.cast(pa.timestamp("us", kind.tz and "UTC"))
        return _quoted(pc.call_function("strftime", [at], pc.StrftimeOptions(_format_of(kind))))
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_string(kind) and not _any(pc.call_function("match_substring_regex", [column], _CONTROL)):
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"')):
            column = pc.call_function(
                "replace_substring", [column], pc.ReplaceSubstringOptions(plain, escaped)
            )
        return _quoted(column)
    if pa.types.is_struct(kind):
        return _where_valid(column, _objects([field.name for field in kind], column.flatten(), len(column)))
    if pa.types.is_list(kind):
        return _arrays(column)
    return pa.array(
        [
            None
            if value is None
            else json.dumps(_plain(value, kind), separators=(",", ":"), ensure_ascii=False)
            for value in column.to_pylist()
        ],
        pa.string(),
    )


def _any(found: pa.Array) -> bool:
    return bool(pc.call_function("any", [found], pc.ScalarAggregateOptions(min_count=0)).as_py())


def _all(found: pa.Array) -> bool:
    return bool(pc.call_function("all", [found], pc.ScalarAggregateOptions(min_count=0)).as_py())


def _format_of(kind: pa.DataType) -> str:
    return "%Y-%m-%dT%H:%M:%S" if kind.tz is None else "%Y-%m-%dT%H:%M:%SZ"


def _quoted(texts: pa.Array) -> pa.Array:
    return _join(text_scalar('"'), texts, text_scalar('"'))


def _plain(value: object, kind: pa.DataType) -> object:
    """Return a value for JSON: maps and structs as objects, times in ISO 8601, decimals and bytes as text."""
    if pa.types.is_map(kind) and isinstance(value, list):
        return {str(key): _plain(item, kind.item_type) for key, item in value}
    if isinstance(value, Mapping):
        items = {field.name: _plain(value[field.name], field.type) for field in kind}
        return {name: item for name, item in items.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item, kind.value_type) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(pa.scalar(value)).replace("inf", "Infinity").replace("nan", "NaN")
    if isinstance(value, float) and pa.types.is_float32(kind):
        return float(str(np.float32(value)))  # the digits of the float32, not those of the nearest double
    if isinstance(value, datetime):
        at = value if value.tzinfo is None else value.astimezone(UTC)
        return f"{at.replace(tzinfo=None).isoformat(timespec='microseconds')}{'' if value.tzinfo is None else 'Z'}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time | Decimal):
        return str(value)
    return value
