"""The JSON payloads of chunk files as columns, in a task of Spark. A payload that is no JSON object is kept and marked.

A block of payloads is parsed by Arrow, with the types that its first payloads suggest: a number that is written as a
text, as in events made from CSV files, is read as a text and converted. A block that mixes both is parsed payload by
payload, and so is one whose conversion would differ from that: replicas divide the same events differently, and must
find the same values.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from eventproc.spark.json_payloads import parse_block
from eventproc.spark.json_values import MalformedPayload, encodable, read_object
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.source_rows import MAKERS, rows_of
from eventproc.store.chunks.arrow_buffers import nulls_of, repeated_text, values_of
from eventproc.store.chunks.chunk_file import ChunkRows
from eventproc.store.model.ids import SegmentId, format_segment

Path: TypeAlias = tuple[str | int, ...]
"""Where a value is in a payload's object: names of fields and indices of arrays, from the outside to the inside."""

UNPARSEABLE: Final = "__unparseable"
"""Column: why the payload is not a row; null for a row."""

PAYLOAD: Final = "__payload"
"""Column: the beginning of an unparseable payload, as text."""

APPENDED: Final = "__appended_ms"
"""Column: when the event was appended, in ms."""

EVENT_TIME: Final = "__event_ms"
"""Column: the event time, in ms; null if it has none."""

SAMPLE_CHARS: Final = 200
"""Characters of an unparseable payload that are kept: enough to recognise its source."""

DIGITS_MAX: Final = 300
"""Characters of an integer that is read as one. A longer one stays a text: it could overflow a float, and Python
refuses one of 4300 digits."""

_PROBED: Final = 16
"""Payloads of a block whose types are looked at first."""

MARKS: Final = pa.schema(
    [
        pa.field(UNPARSEABLE, pa.string()),
        pa.field(PAYLOAD, pa.string()),
        pa.field(APPENDED, pa.int64()),
        pa.field(EVENT_TIME, pa.int64()),
    ]
)
"""The columns beside those of the payload's fields."""


@attrs.frozen
class PayloadReader:
    """Reads file slices. Sent to executors.

    fields: columns to take from payloads; those of `beside` and MARKS follow. paths: where each field is.
    beside: a column of structs for what is taken from beside the payloads, or none.
    """

    fields: pa.Schema
    paths: tuple[Path, ...]
    beside: pa.Schema

    def __call__(self, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
        """Yield the events of the slices, in order."""
        schema = pa.schema([*self.fields, *self.beside, *MARKS])
        for piece, rows in rows_of(slices):
            payloads = rows.batch.column("payload")
            columns, wrong = parse_payloads(payloads, self.fields, self.paths)
            stamps = (rows.batch.column(name).cast(pa.int64()) for name in ("timestamp", "event_time"))
            carried = [_carried(each.type, piece, rows) for each in self.beside]
            made = [*columns, *carried, wrong, _samples(payloads, wrong), *stamps]
            yield pa.RecordBatch.from_arrays(made, schema=schema)


def parse_payloads(
    payloads: pa.Array, fields: pa.Schema, paths: Sequence[Path]
) -> tuple[list[pa.Array], pa.Array]:
    """Return a column for each field, and why each payload is no JSON object: null for those that are.

    paths: where each field is. One that is missing or does not fit its type is null; an object or an array is a text of
    JSON. Without fields the payloads are not looked at.
    Cost: about 1 us per payload of a few fields; ten times that in a block of mixed types, or with a field that is an
    object or an array.
    """
    nothing = pa.nulls(len(payloads), pa.string())
    if not len(fields) or not len(payloads):
        return [pa.nulls(len(payloads), field.type) for field in fields], nothing
    found = None
    if (suggested := _suggested(payloads, fields, paths)) is not None:
        with suppress(pa.ArrowInvalid):
            found = parse_block(payloads, suggested)
    if suggested is None or found is None:
        return _parse_each(payloads, fields, paths)
    columns = dict(zip(suggested.names, found, strict=True))
    return [
        _converted(_inner(columns[str(path[0])], path[1:]), field.type)
        for field, path in zip(fields, paths, strict=True)
    ], nothing


def _carried(kind: pa.StructType, piece: FileSlice, rows: ChunkRows) -> pa.Array:
    columns = [CARRIED_MAKERS[each.name](piece, rows).cast(each.type) for each in kind]
    return pa.StructArray.from_arrays(columns, fields=list(kind))


CARRIED_MAKERS: Final[Mapping[str, Callable[[FileSlice, ChunkRows], pa.Array]]] = {
    **{name: MAKERS[name] for name in ("payload", "key", "headers", "partition", "offset", "number")},
    "event_time": lambda _, rows: rows.batch.column("event_time").cast(pa.int64()),
    "timestamp": lambda _, rows: rows.batch.column("timestamp").cast(pa.int64()),
    "stream": lambda piece, rows: repeated_text(piece.stream, rows.batch.num_rows),
    "segment": lambda piece, rows: repeated_text(
        format_segment(SegmentId(piece.segment)), rows.batch.num_rows
    ),
}
"""What makes the payload, and each field that an event carries beside it. Times are in ms, as in a reader's event."""


def _suggested(payloads: pa.Array, fields: pa.Schema, paths: Sequence[Path]) -> pa.Schema | None:
    """Return the types that the first payloads have at the paths, or None if Arrow could not read them alike."""
    found: dict[Path, pa.DataType] = {}
    for payload in payloads.slice(0, _PROBED).to_pylist():
        row, reason = _read(payload)
        if reason is not None:
            return None
        for path in paths:
            if isinstance(value := _value_at(row, path), dict | list):
                return None
            if value is not None:
                found.setdefault(path, _type_of(value))
    kinds = [found.get(path, field.type) for path, field in zip(paths, fields, strict=True)]
    if not all(_is_faithful(kind, field.type) for kind, field in zip(kinds, fields, strict=True)):
        return None
    kind = _joined(list(zip(paths, kinds, strict=True)))
    return None if kind is None else pa.schema(list(kind))


def _joined(leaves: Sequence[tuple[Path, pa.DataType]]) -> pa.DataType | None:
    """Return the type of a value that has these types at these paths in it, or None if it would have two types."""
    kinds = {kind for path, kind in leaves if not path}
    if kinds:
        return kinds.pop() if len(kinds) == 1 and not any(path for path, _ in leaves) else None
    if all(isinstance(path[0], int) for path, _ in leaves):
        item = _joined([(path[1:], kind) for path, kind in leaves])
        return None if item is None else pa.list_(item)
    inner: dict[str | int, list[tuple[Path, pa.DataType]]] = {}
    for path, kind in leaves:
        inner.setdefault(path[0], []).append((path[1:], kind))
    joined = {name: _joined(each) for name, each in inner.items()}
    if None in joined.values() or not all(isinstance(name, str) for name in joined):
        return None
    return pa.struct(list(joined.items()))


def _inner(column: pa.Array, path: Path) -> pa.Array:
    """Return what a column of objects or arrays has at a path; null where that is missing."""
    for step in path:
        if isinstance(step, str):
            column = column.flatten()[column.type.get_field_index(step)]
        else:
            borders = values_of(column.offsets, np.int32)
            places = borders[:-1] + np.int32(step)
            present = (places < borders[1:]) & ~nulls_of(column)
            bits = pa.py_buffer(np.packbits(present, bitorder="little"))
            taken = pa.Array.from_buffers(pa.int32(), len(column), [bits, pa.py_buffer(places)])
            column = column.values.take(taken)
    return column


def _is_faithful(read: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values read as `read` and converted are those that `_fitting` makes of the values themselves.

    Not so: 1 read as 1.0 is another text, 2**53 + 1 read as a float is another integer, 5 is no truth value.
    """
    if read == kind or pa.types.is_string(read):
        return True
    if pa.types.is_string(kind):
        return not bool(pa.types.is_floating(read))
    return bool(pa.types.is_boolean(read) if pa.types.is_integer(kind) else pa.types.is_floating(kind))


def _type_of(value: object) -> pa.DataType:
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int):
        return pa.int64()
    if isinstance(value, float):
        return pa.float64()
    return pa.string()


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the column as `kind`; values that do not fit are null. Each distinct text is converted once."""
    if column.type == kind:
        return column
    if not pa.types.is_string(column.type):
        try:
            return pc.cast(column, kind)
        except pa.ArrowInvalid:
            return pa.array([_fitting(value, kind) for value in column.to_pylist()], kind)
    coded = column.dictionary_encode()
    values = pa.array([_fitting(value, kind) for value in coded.dictionary.to_pylist()], kind)
    return values.take(coded.indices)


def _parse_each(
    payloads: pa.Array, fields: pa.Schema, paths: Sequence[Path]
) -> tuple[list[pa.Array], pa.Array]:
    columns: list[list[object]] = [[] for _ in fields]
    wrong: list[str | None] = []
    for payload in payloads.to_pylist():
        row, reason = _read(payload)
        wrong.append(reason)
        for column, field, path in zip(columns, fields, paths, strict=True):
            column.append(_fitting(_value_at(row, path), field.type))
    made = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    return made, pa.array(wrong, pa.string())


def _value_at(row: object, path: Path) -> object:
    for step in path:
        if isinstance(row, dict):
            row = row.get(step)
        elif isinstance(row, list) and isinstance(step, int) and step < len(row):
            row = row[step]
        else:
            return None
    return row


def _read(payload: bytes) -> tuple[Mapping[str, object], str | None]:
    """Return the fields of a payload, or none and why it is no JSON object."""
    try:
        return read_object(payload, _DECODER), None
    except MalformedPayload as why:
        return {}, str(why)


def _integer(text: str) -> int | str:
    return int(text) if len(text) <= DIGITS_MAX else text


_DECODER: Final = json.JSONDecoder(parse_int=_integer)


def _fitting(value: object, kind: pa.DataType) -> object:
    """Return `value` as Arrow takes it for `kind`, or None if it does not fit."""
    if value is None:
        return None
    if pa.types.is_string(kind):
        return encodable(value) if isinstance(value, str) else json.dumps(value)
    try:
        if pa.types.is_boolean(kind):
            return (
                value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())
            )
        number = float(value)  # type: ignore[arg-type]
        if pa.types.is_floating(kind):
            return number
        exact = int(value) if isinstance(value, int | str) and str(value).lstrip("+-").isdigit() else None
        if exact is None:
            exact = int(number) if math.isfinite(number) and number == int(number) else None
        return exact if exact is not None and -(2**63) <= exact < 2**63 else None
    except (TypeError, ValueError, OverflowError):
        return None


def _samples(payloads: pa.Array, wrong: pa.Array) -> pa.Array:
    if wrong.null_count == len(wrong):
        return pa.nulls(len(wrong), pa.string())
    return pa.array(
        [
            None if reason is None else payload[: 4 * SAMPLE_CHARS].decode(errors="replace")[:SAMPLE_CHARS]
            for payload, reason in zip(payloads.to_pylist(), wrong.to_pylist(), strict=True)
        ],
        pa.string(),
    )
