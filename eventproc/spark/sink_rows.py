"""Converts rows of a DataFrame to events: maps columns to parts of an event, or rows to JSON. No database here."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from eventproc.spark.json_rows import as_json
from eventproc.spark.sink_options import SinkOptions
from eventproc.spark.source_options import COLUMNS
from eventproc.spark.source_rows import HEADER_LIST_TYPE
from eventproc.store.chunks.arrow_buffers import nulls_of, numbers, values_of
from eventproc.store.chunks.chunk_file import SCHEMA, STAMP
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX, PARTITIONS_MAX
from eventproc.store.model.names import StreamName
from eventproc.store.model.routing import point
from eventproc.streams.new_events import as_key, check_headers

POINT: Final = "position"

EVENTS: Final = pa.schema(
    [*(SCHEMA.field(each) for each in ("payload", "key", "event_time", "headers")), (POINT, pa.float64())]
)
"""Columns of the files of a sink's tasks: those of a chunk file without the append time, which is not known yet, and
where each event goes: the point of its key, or PARTITION_POINT and the number of the partition that its row names."""

PARTITION_POINT: Final = 1.0
"""The first number behind the key space: events of a named partition are sorted behind those that keys route."""

KAFKA_COLUMNS: Final = (
    *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"),
)
"""The columns of Kafka's source and sink. A frame with `value` and only these is written as Kafka's sink does."""

_HEADER_TYPES: Final = ("map<string,string>", HEADER_LIST_TYPE.simpleString())

KNOWN_POINTS_MAX: Final = 16_384
"""Keys whose points a task remembers from one batch of Spark to the next, at about 200 bytes each: Spark sends batches
of 10,000 rows. With fewer, more keys are hashed again (0.3 us)."""

_known_point: Final = lru_cache(KNOWN_POINTS_MAX)(point)

_INTERVAL: Final = re.compile(r"\binterval\b(?!:)")
"""Matches an interval type, also when nested. A word that is followed by a colon is the name of a field."""


@attrs.frozen
class EventColumns:
    """The columns of a DataFrame that make its events.

    payload: None if each row becomes JSON. stream: names the stream of each row; None: all go to the same one.
    partition: names the partition of a topic that takes a row, null in rows whose keys decide.
    """

    payload: str | None
    key: str | None
    event_time: str | None
    headers: str | None
    stream: str | None = None
    partition: str | None = None

    @classmethod
    def of(cls, options: SinkOptions, schema: StructType) -> EventColumns:
        """Return the columns that the options select from a schema. Raises InvalidArgument, naming the column."""
        names, routes = schema.fieldNames(), options.stream_column
        if routes is None and options.stream is None:
            if not (
                "value" in names and "topic" in names and set(names) <= {*KAFKA_COLUMNS, *options.columns}
            ):
                reason = (
                    "it must name the stream to write to, or streamColumn the column with each row's stream"
                )
                raise invalid_argument("option stream", None, reason)
            routes = "topic"
        _check(schema, "stream", routes, (StringType,), 'a string, such as "shop/orders"')
        found = cls._of(options, schema)
        partition = options.partition
        if partition is None and found.payload == "payload" and "partition" in schema.fieldNames():
            partition = "partition"
        _check(schema, "partition", partition, (IntegerType, LongType), "an integer; cast it")
        return attrs.evolve(found, stream=routes, partition=partition)

    @classmethod
    def _of(cls, options: SinkOptions, schema: StructType) -> EventColumns:
        names = schema.fieldNames()
        if twice := sorted({each for each in names if names.count(each) > 1}):
            raise invalid_argument("column", twice[0], "the name occurs twice")
        as_events = "payload" in names
        if not as_events and "value" in names and set(names) <= {*KAFKA_COLUMNS, *options.columns}:
            return cls._of_kafka(options, schema)
        if as_events and (strange := [each for each in names if each not in (*COLUMNS, *options.columns)]):
            reason = (
                "with a payload column only key, event_time, headers and partition are allowed; without one, rows"
                " become JSON"
            )
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
        _check_header_type(schema, found.headers)
        for each in schema:
            shown = each.dataType.simpleString()
            if not as_events and _INTERVAL.search(shown):
                raise invalid_argument(
                    f"column {each.name}", shown, "JSON has no intervals; cast it to a string"
                )
        return found

    @classmethod
    def _of_kafka(cls, options: SinkOptions, schema: StructType) -> EventColumns:
        """Return the columns of a frame for Kafka's sink. Its timestamps are ignored."""
        names = schema.fieldNames()
        if not isinstance(kind := schema["value"].dataType, StringType | BinaryType):
            if options.key is not None:
                return cls(None, options.key, options.event_time, None)
            reason = (
                "the frame has Kafka's columns, and their value is the payload: cast it to a string or binary;"
                ' for rows as JSON name the key column, as in option("key", "key")'
            )
            raise invalid_argument("column value", kind.simpleString(), reason)
        key = options.key or ("key" if "key" in names else None)
        headers = "headers" if "headers" in names else None
        _check(schema, "key", key, (StringType, BinaryType), "a string or binary")
        _check(schema, "event time", options.event_time, (TimestampType, TimestampNTZType), "a timestamp")
        _check_header_type(schema, headers)
        return cls("value", key, options.event_time, headers)

    def by_stream(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield the rows of each stream, in their order; (None, all rows) if they need not say it.

        Raises InvalidArgument for a row that names no stream.
        """
        if self.stream is None:
            yield None, rows
            return
        names = rows.column(self.stream).dictionary_encode()
        if names.null_count:
            raise invalid_argument(f"column {self.stream}", None, "each row must name its stream")
        for index, name in enumerate(names.dictionary.to_pylist()):
            StreamName.parse(name)
            own = pc.call_function(
                "equal", [names.indices, numbers(np.array([index], np.int32), pa.int32())[0]]
            )
            yield name, rows if len(names.dictionary) == 1 else rows.filter(own)

    def events(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Convert rows to events with the columns EVENTS. The point of an event without key and partition is NaN.

        Raises InvalidArgument for a row that cannot be an event. Cost: about 0.3 us per event, 1 us as JSON, 5 us
        with headers.
        """
        payloads = as_json(rows) if self.payload is None else rows.column(self.payload).cast(pa.binary())
        if payloads.null_count:
            raise invalid_argument(
                "column payload",
                None,
                "an event needs a payload; filter out rows without one, or make it empty",
            )
        _check_sizes(payloads)
        count = rows.num_rows
        keys = pa.nulls(count, pa.string()) if self.key is None else _as_texts(rows.column(self.key))
        times = pa.nulls(count, STAMP) if self.event_time is None else _times(rows.column(self.event_time))
        kind = EVENTS.field("headers").type
        headers = pa.nulls(count, kind)
        if self.headers is not None:
            headers = _as_map(rows.column(self.headers)).cast(kind)
        _check_headers(headers)
        points = points_of(keys)
        if self.partition is not None:
            points = _in_partitions(points, rows.column(self.partition))
        columns = [payloads, keys, times, headers, numbers(points, pa.float64())]
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


def _check_header_type(schema: StructType, name: str | None) -> None:
    if name is not None and (shown := schema[name].dataType.simpleString()) not in _HEADER_TYPES:
        raise invalid_argument(f"column {name}", shown, f"it must be {' or '.join(_HEADER_TYPES)}")


def _as_texts(keys: pa.Array) -> pa.Array:
    """Return the texts of keys: those of Kafka are bytes."""
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array(map(as_key, keys.to_pylist()), pa.string())


def _as_map(headers: pa.Array) -> pa.Array:
    """Return headers as a map: those of Kafka are a list of names and bytes."""
    if pa.types.is_map(headers.type):
        return headers
    found = []
    for row in headers.to_pylist():
        names = [each["key"] for each in row or ()]
        if len(set(names)) < len(names):
            twice = next(each for each in names if names.count(each) > 1)
            reason = "it occurs twice, and an event has one header of each name; join or drop its values"
            raise invalid_argument("header", twice, reason)
        found.append(None if row is None else [(each["key"], _header_text(each)) for each in row])
    return pa.array(found, pa.map_(pa.string(), pa.string()))


def _header_text(header: Mapping[str, Any]) -> str:
    try:
        return (header["value"] or b"").decode()
    except UnicodeDecodeError:
        raise invalid_argument(
            "header", header["key"], "its bytes are not UTF-8; encode them, as in base64(value)"
        ) from None


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


def _in_partitions(
    points: np.ndarray[tuple[int], np.dtype[np.float64]], partitions: pa.Array
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the points with those of rows that name a partition behind the key space. Raises InvalidArgument."""
    partitions = partitions.cast(pa.int64())
    found, missing = values_of(partitions, np.int64), nulls_of(partitions)
    wrong = ~missing & ((found < 0) | (found >= PARTITIONS_MAX))
    if wrong.any():
        reason = f"the partitions of a topic are numbered from 0, and at most {PARTITIONS_MAX:,} are possible"
        raise invalid_argument("column partition", int(found[wrong.argmax()]), reason)
    return np.where(missing, points, PARTITION_POINT + found)


def points_of(keys: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the point of each key, NaN without one. Each distinct key is hashed once, and remembered."""
    known = keys.dictionary_encode()
    where = np.array([*map(_known_point, known.dictionary.to_pylist()), math.nan])
    missing = nulls_of(known.indices)
    indices = np.where(missing, len(where) - 1, values_of(known.indices, np.int32))
    found: np.ndarray[tuple[int], np.dtype[np.float64]] = where[indices]
    return found
