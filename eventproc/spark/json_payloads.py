"""Payloads of JSON as typed columns: a block at a time, and one by one where a block has what does not fit.

As Spark's own JSON source does it: a field that is not there, or does not fit its type, is null; a payload that is no
JSON object is a row of nulls, or fails the query where `mode` says so.
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
"""Each payload is parsed as the one field of an object of ours, so that none can be taken for two, or for none."""


def parse_json(payloads: pa.Array, schema: pa.Schema, *, fail_fast: bool) -> Sequence[pa.Array]:
    """Return a column for each field of `schema`, as long as `payloads`.

    About 1 us a payload of a few fields, ten times that where a block has to be parsed one by one. fail_fast: raise
    CorruptRecord for the first payload that does not fit, instead of nulls.
    """
    try:
        found = _parse_block(payloads, schema)
    except pa.ArrowInvalid:
        found = None
    if found is None:
        found = _parse_each(payloads, schema, fail_fast)
    return found


def _parse_block(payloads: pa.Array, schema: pa.Schema) -> Sequence[pa.Array] | None:
    """Return the columns, None when rows and payloads do not match. Raises ArrowInvalid for what does not fit."""
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
        return None  # "null" is no object: one by one decides what that means
    columns: Sequence[pa.Array] = rows.flatten()
    return columns


def _parse_each(payloads: pa.Array, schema: pa.Schema, fail_fast: bool) -> Sequence[pa.Array]:
    columns: list[list[object]] = [[] for _ in schema]
    for payload in payloads.to_pylist():
        try:
            row = json.loads(payload)
            if not isinstance(row, dict):
                raise ValueError("it is no JSON object")
        except (ValueError, RecursionError) as why:
            if fail_fast:
                raise _malformed(payload, str(why)) from None
            row = {}
        for column, field in zip(columns, schema, strict=True):
            value = _fitting(row.get(field.name), field.type)
            if value is None and fail_fast and row.get(field.name) is not None:
                raise _malformed(payload, f"its field {field.name} is no {field.type}")
            column.append(value)
    return [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]


def _malformed(payload: bytes, reason: str) -> CorruptRecord:
    return CorruptRecord(key=f"payload {payload[:80]!r}", reason=f"{reason}; mode is failfast")


def _fitting(value: object, kind: pa.DataType) -> object:
    """Return `value` as Arrow takes it for `kind`, None when it does not fit."""
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
