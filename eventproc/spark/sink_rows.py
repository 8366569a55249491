"""Converts rows of a DataFrame to events: maps columns to parts of an event, or rows to JSON. No database here."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Final

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eventproc.spark.sink_options import SinkOptions
from eventproc.spark.source_options import COLUMNS
from eventproc.store.chunks.chunk_file import SCHEMA, STAMP
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import position
from eventproc.streams.new_events import check_headers

POSITION: Final = "position"

EVENTS: Final = pa.schema(
    [*(SCHEMA.field(each) for each in ("payload", "key", "event_time", "headers")), (POSITION, pa.float64())]
)
"""Columns of the files of a sink's tasks: those of a chunk file without the append time, which is not known yet, and
the position of each event in the key space."""

_INTERVAL: Final = re.compile(r"\binterval\b(?!:)")
"""Matches an interval type, also when nested. A word that is followed by a colon is the name of a field."""


@attrs.frozen
class EventColumns:
    """The columns of a DataFrame that make its events. payload: None if each row becomes JSON."""

    payload: str | None
    key: str | None
    event_time: str | None
    headers: str | None

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> EventColumns:
        """Return the columns that the options select from a schema. Raises InvalidArgument, naming the column."""
        names = schema.fieldNames()
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise invalid_argument("column", twice[0], "the name occurs twice")
        as_events = "payload" in names
        if as_events and (strange := [each for each in names if each not in (*COLUMNS, *options.columns)]):
            reason = "with a payload column only key, event_time and headers are allowed; without one, rows become JSON"
            raise invalid_argument("column", strange[0], reason)
        found = cls(
            "payload" if as_events else None,
            options.key or ("key" if as_events and "key" in names else None),
            options.event_time or ("event_time" if as_events and "event_time" in names else None),
            "headers" if as_events and "headers" in names else None,
        )
        _check(schema, "payload", found.payload, (StringType, BinaryType), "a string or binary")
        _check(schema, "key", found.key, (StringType,), "a string; cast it")
        _check(schema, "event time", found.event_time, (TimestampType, TimestampNTZType), "a timestamp")
        _check(schema, "headers", found.headers, (MapType,), "a map of strings")
        for each in schema:
            shown = each.dataType.simpleString()
            if each.name == found.headers and not shown == "map<string,string>":
                raise invalid_argument(f"column {each.name}", shown, "it must be a map of strings")
            if not as_events and _INTERVAL.search(shown):
                raise invalid_argument(
                    f"column {each.name}", shown, "JSON has no intervals; cast it to a string"
                )
        return found

    def events(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to events with the columns EVENTS. The position of an event without a key is NaN.

        Raises InvalidArgument for a row that cannot be an event. Cost: about 0.3 us per event, 5 us as JSON or with
        headers.
        """
        payloads = _json(rows) if self.payload is None else rows.column(self.payload).cast(pa.binary())
        if payloads.null_count:
            raise invalid_argument(
                "column payload",
                None,
                "an event needs a payload; filter out rows without one, or make it empty",
            )
        _check_sizes(payloads)
        count = rows.num_rows
        keys = pa.nulls(count, pa.string()) if self.key is None else rows.column(self.key).cast(pa.string())
        times = pa.nulls(count, STAMP) if self.event_time is None else _times(rows.column(self.event_time))
        kind = EVENTS.field("headers").type
        headers = pa.nulls(count, kind) if self.headers is None else rows.column(self.headers).cast(kind)
        _check_headers(headers)
        columns = [payloads, keys, times, headers, pa.array(_positions(keys))]
        return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


def _check(
    schema: StructType, what: str, name: str | None, kinds: tuple[type[DataType], ...], wanted: str
) -> None:
    if name is None:
        return
    if name not in schema.fieldNames():
        raise invalid_argument(
            f"column of the {what}", name, f"the DataFrame has only {', '.join(schema.fieldNames())}"
        )
    if not isinstance(kind := schema[name].dataType, kinds):
        raise invalid_argument(f"column {name}", kind.simpleString(), f"it must be {wanted}")


def _check_sizes(payloads: pa.Array) -> None:
    _, ends, _ = payloads.buffers()
    sizes = np.diff(np.frombuffer(ends, np.int32, len(payloads) + 1, 4 * payloads.offset))
    if len(sizes) and (most := int(sizes.max())) > EVENT_BYTES_MAX:
        raise InvalidArgument(
            what="event", value=f"{most} bytes", reason=f"an event has at most {EVENT_BYTES_MAX}"
        )


def _check_headers(headers: pa.Array) -> None:
    if headers.null_count == len(headers):
        return
    for each in headers.to_pylist():
        if each:
            check_headers(dict(each))


def _times(column: pa.Array) -> pa.Array:
    """Convert timestamps to ms, rounded down. Timestamps without a zone count as UTC."""
    us = column.cast(pa.timestamp("us")).cast(pa.int64())
    ms = np.floor_divide(us.fill_null(0).to_numpy(), 1000)
    return pa.array(ms, mask=us.is_null().to_numpy(zero_copy_only=False)).cast(STAMP)


def _positions(keys: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the position of each key, NaN without one. Each distinct key is hashed once."""
    known = keys.dictionary_encode()
    where = np.array([*(position(key) for key in known.dictionary.to_pylist()), math.nan])
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = where[
        known.indices.fill_null(len(where) - 1).to_numpy(zero_copy_only=False)
    ]
    return found


def _json(rows: pa.RecordBatch) -> pa.Array:
    """Return each row as a JSON object without its null fields."""
    columns = [_plain_column(column) for column in rows.columns]
    names = rows.schema.names
    found = []
    for values in zip(*columns, strict=True):
        row = {name: value for name, value in zip(names, values, strict=True) if value is not None}
        found.append(json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode())
    return pa.array(found, pa.binary())


def _plain_column(column: pa.Array) -> Sequence[object]:
    values: list[object] = column.to_pylist()
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind):
        return values
    return [_plain(value, kind) for value in values]


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
        return value.isoformat() if value.tzinfo is None else f"{value.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, date | Decimal):
        return str(value)
    return value
