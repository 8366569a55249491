"""JSON payloads as typed columns: parsed block by block, and one by one where a block contains a misfit.

The rules are those of Spark's JSON source: a field that is missing or does not fit its type is null. A payload that is
not a JSON object is a row of nulls, or fails the query if `mode` is failfast.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from eventproc.store.model.errors import CorruptRecord

_WRAPPED: Final = "p"
"""Each payload is wrapped as the only field of an object, so that it always parses as exactly one row."""


def parse_json(payloads: pa.Array, schema: pa.Schema, *, fail_fast: bool) -> Sequence[pa.Array]:
    """Return a column of `len(payloads)` values for each field of `schema`.

    fail_fast: raise CorruptRecord at the first payload that does not fit, instead of returning nulls.
    Cost: about 1 us per payload of a few fields; ten times that if a block has to be parsed one by one.
    """
    try:
        found = _parse_block(payloads, schema)
    except pa.ArrowInvalid:
        found = None
    if found is None:
        found = _parse_each(payloads, schema, fail_fast)
    return found


def _parse_block(payloads: pa.Array, schema: pa.Schema) -> Sequence[pa.Array] | None:
    """Return the columns, or None if rows and payloads do not match. Raises ArrowInvalid for a misfit."""
    head, tail = (pa.scalar(text, pa.binary()) for text in (f'{{"{_WRAPPED}":'.encode(), b"}\n"))
    lines = pc.call_function("binary_join_element_wise", [head, payloads, tail, pa.scalar(b"")])
    _, ends, text = lines.buffers()
    borders = memoryview(ends).cast("i")
    begin, end = borders[lines.offset], borders[lines.offset + len(lines)]
    if begin == end:
        return None
    table = pyarrow.json.read_json(
        pa.BufferReader(text.slice(begin, end - begin)),
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=end - begin + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field(_WRAPPED, pa.struct(list(schema)))]),
            unexpected_field_behavior="ignore",
        ),
    )
    if table.num_rows != len(payloads):
        return None
    rows = table.column(_WRAPPED).combine_chunks()
    if rows.null_count:
        return None  # "null" is not an object: _parse_each decides its meaning
    columns: Sequence[pa.Array] = rows.flatten()
    return columns


def _parse_each(payloads: pa.Array, schema: pa.Schema, fail_fast: bool) -> Sequence[pa.Array]:
    columns: list[list[object]] = [[] for _ in schema]
    for payload in payloads.to_pylist():
        try:
            row = json.loads(payload)
            if not isinstance(row, dict):
                raise ValueError("it is not a JSON object")
        except (ValueError, RecursionError) as why:
            if fail_fast:
                raise _malformed(payload, str(why)) from None
            row = {}
        for column, field in zip(columns, schema, strict=True):
            value = _fitting(row.get(field.name), field.type)
            if value is None and fail_fast and row.get(field.name) is not None:
                raise _malformed(payload, f"its field {field.name} is not a {field.type}")
            column.append(value)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def _malformed(payload: bytes, reason: str) -> CorruptRecord:
    return CorruptRecord(key=f"payload {payload[:80]!r}", reason=f"{reason}; mode is failfast")


def _fitting(value: object, kind: pa.DataType) -> object:
    """Return `value` in the form that Arrow takes for `kind`, or None if it does not fit."""
    if value is None:
        return None
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value)
    if pa.types.is_temporal(kind) and isinstance(value, str):
        try:
            return pc.cast(pa.scalar(value), kind).as_py()
        except pa.ArrowInvalid:
            return None
    try:
        return pa.scalar(value, kind).as_py()
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError):
        return None
