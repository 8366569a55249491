"""Rows as JSON objects: column by column with Arrow, which takes less than a fifth of the time of Python row by row."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventproc.store.chunks.arrow_buffers import nulls_of, numbers, text_scalar, values_of
from eventproc.store.model.errors import InvalidArgument

_PRESENT: Final = pc.JoinOptions(null_handling="skip")
_TIME: Final = "12:00:00.000000"
_WHOLE: Final = pc.ReplaceSubstringOptions(r"^(-?\d+)$", r"\1.0")


def as_json(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its null fields, as binary.

    Times are UTC in ISO 8601; decimals and bytes (base64) are texts, and so are NaN and infinities.
    Raises InvalidArgument for a text that is not UTF-8.
    Cost: about 0.05 us per value; 5 us for maps, bytes, and texts of a column with control characters.
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
    pieces = _merged(_pieces_of_object(names, columns, count))
    joined = pc.call_function("binary_join_element_wise", [*pieces, text_scalar("")], _PRESENT)
    assert len(joined) == count, "a row is an event"
    return joined


def _pieces_of_object(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> list[str | pa.Array]:
    """Return what makes JSON objects if joined: texts that are the same in all rows, and arrays of texts, or null.

    The comma between two fields belongs to one that is null in some rows, if there is one: behind it if no field
    before it is in all rows, else before it.
    """
    first = next((at for at, column in enumerate(columns) if not column.null_count), None)
    if first is None:
        return [_objects_of_nullable(names, columns, count)]
    pieces: list[str | pa.Array] = ["{"]
    for at, (name, column) in enumerate(zip(names, columns, strict=True)):
        field = [f"{json.dumps(name, ensure_ascii=False)}:", *_pieces(column)]
        if at < first:
            pieces.append(_join(*_merged([*field, ","])))
        elif column.null_count:
            pieces.append(_join(*_merged([",", *field])))
        else:
            pieces += field if at == first else [",", *field]
    return [*pieces, "}"]


def _objects_of_nullable(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    """Return objects none of whose fields is in all rows: then the first comma is taken out again."""
    fields = [
        _join(*_merged([f",{json.dumps(name, ensure_ascii=False)}:", *_pieces(column)]))
        for name, column in zip(names, columns, strict=True)
    ]
    first = pa.repeat(text_scalar("{"), count)
    opened = pc.call_function("binary_join_element_wise", [first, *fields, text_scalar("")], _PRESENT)
    once = pc.ReplaceSubstringOptions("{,", "{", max_replacements=1)
    return _join(pc.call_function("replace_substring", [opened], once), text_scalar("}"))


def _merged(pieces: Sequence[str | pa.Array]) -> list[pa.Array | pa.Scalar]:
    """Return the pieces with neighbouring constants as one."""
    found: list[pa.Array | pa.Scalar] = []
    constant = ""
    for each in pieces:
        if isinstance(each, str):
            constant += each
            continue
        if constant:
            found.append(text_scalar(constant))
        found.append(each)
        constant = ""
    return [*found, text_scalar(constant)] if constant else found


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
    if pa.types.is_struct(column.type):
        # Its pieces are null where a field is, which the join below would make of the whole.
        names = [field.name for field in column.type]
        return _where_valid(column, _objects(names, column.flatten(), len(column)))
    pieces = _merged(_pieces(column))
    return pieces[0] if len(pieces) == 1 else _join(*pieces)


def _pieces(column: pa.Array) -> list[str | pa.Array]:
    """Return what makes the column's values as JSON if joined; an array with nulls where the column has them."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return [column.cast(pa.string())]
    if pa.types.is_floating(kind) and _all(pc.call_function("is_finite", [column])):
        return [_float_texts(column)]
    if pa.types.is_timestamp(kind):
        return ['"', _time_texts(column), '"' if kind.tz is None else 'Z"']
    if pa.types.is_date(kind) or pa.types.is_decimal(kind):
        return ['"', column.cast(pa.string()), '"']
    if pa.types.is_string(kind) and not (strange := _strange_bytes(column)).control:
        for plain, escaped in (("\\", "\\\\"), ('"', '\\"')) if strange.quote else ():
            column = pc.call_function(
                "replace_substring", [column], pc.ReplaceSubstringOptions(plain, escaped)
            )
        return ['"', column, '"']
    if pa.types.is_struct(kind):
        names, fields = [field.name for field in kind], column.flatten()
        if not column.null_count:
            return _pieces_of_object(names, fields, len(column))
        return [_where_valid(column, _objects(names, fields, len(column)))]
    if pa.types.is_list(kind):
        return [_arrays(column)]
    return [
        pa.array(
            [
                None
                if value is None
                else json.dumps(_plain(value, kind), separators=(",", ":"), ensure_ascii=False)
                for value in column.to_pylist()
            ],
            pa.string(),
        )
    ]


def _float_texts(column: pa.Array) -> pa.Array:
    """Return finite floats as JSON: whole ones end with .0, as Spark and Python write them."""
    texts = column.cast(pa.string())
    values = values_of(column, column.type.to_pandas_dtype())
    is_whole = (np.trunc(values) == values) & ~nulls_of(column)
    if not is_whole.any():
        return texts
    bits = pa.py_buffer(np.packbits(is_whole, bitorder="little"))
    whole = pa.Array.from_buffers(pa.bool_(), len(texts), [None, bits])
    ended = pc.call_function("replace_substring_regex", [texts.filter(whole)], _WHOLE)
    return pc.call_function("replace_with_mask", [texts, whole, ended])


def _time_texts(column: pa.Array) -> pa.Array:
    """Return times of timestamps in UTC, as 2026-01-31T12:00:00.000000."""
    us = column.cast(pa.timestamp("us", column.type.tz and "UTC")).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = us.cast(pa.string())  # with a space in place of the T
    if texts.null_count or not len(texts):
        between = pc.ReplaceSubstringOptions(" ", "T", max_replacements=1)
        return pc.call_function("replace_substring", [texts], between)
    _, ends, data = texts.buffers()
    borders = np.frombuffer(ends, np.int32, len(texts) + 1, 4 * texts.offset)
    changed = np.frombuffer(data, np.uint8).copy()
    changed[borders[1:] - (len(_TIME) + 1)] = ord("T")  # years may have more than four digits
    return pa.StringArray.from_buffers(len(texts), ends, pa.py_buffer(changed), None, 0, texts.offset)


@attrs.frozen
class _StrangeBytes:
    """Whether texts have control characters; whether they have quotes or backslashes."""

    control: bool
    quote: bool


def _strange_bytes(texts: pa.Array) -> _StrangeBytes:
    _, ends, data = texts.buffers()
    if data is None:
        return _StrangeBytes(False, False)
    borders = np.frombuffer(ends, np.int32, len(texts) + 1, 4 * texts.offset)
    found = np.frombuffer(data, np.uint8)[borders[0] : borders[-1]]
    quotes = (found == ord('"')) | (found == ord("\\"))
    return _StrangeBytes(bool((found < ord(" ")).any()), bool(quotes.any()))


def _all(found: pa.Array) -> bool:
    return bool(pc.call_function("all", [found], pc.ScalarAggregateOptions(min_count=0)).as_py())


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
