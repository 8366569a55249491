"""What an executor does: reads chunk files and makes Arrow batches of the requested schema. No database here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from socket import gethostname
from typing import Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eventproc.spark.json_payloads import parse_json
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.source_options import COLUMNS, ON_REQUEST, SourceOptions
from eventproc.store.chunks.arrow_buffers import numbers, repeated_text
from eventproc.store.chunks.chunk_file import ChunkReader, ChunkRows
from eventproc.store.chunks.ingest import SHARED
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ids import SegmentId, number_of

TYPES: Final[Mapping[str, DataType]] = {
    "payload": BinaryType(),
    "key": StringType(),
    "timestamp": TimestampType(),
    "scope": StringType(),
    "stream": StringType(),
    "segment": LongType(),
    "offset": LongType(),
    "number": LongType(),
    "event_time": TimestampType(),
    "headers": MapType(StringType(), StringType()),
    "partition": IntegerType(),
}
"""The columns of the format and their Spark types."""

assert tuple(TYPES) == COLUMNS, "every column has a type"

HEADER_LIST_TYPE: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
"""Headers as in Kafka's source and sink."""

MS_MAX: Final = 2**63 // 1000 - 1
"""Largest time in ms that Spark's microseconds can hold. A larger event time becomes null."""


ReadSlices: TypeAlias = Callable[[Sequence[FileSlice]], Iterator[pa.RecordBatch]]
"""Reads file slices in order, in a task of Spark. It is pickled."""


def schema_of(options: SourceOptions) -> StructType | str:
    """Return the schema that the options ask for: the fields of JSON payloads, then the format's own columns.

    A schema that was given as DDL is returned as DDL: only Spark can parse it. Raises InvalidArgument.
    """
    own = StructType(
        [StructField(each, _type_of(each, options.header_list)) for each in _own_columns(options)]
    )
    if options.schema is None:
        return own
    if options.schema.lstrip().startswith("{"):
        try:
            return StructType([*StructType.fromJson(json.loads(options.schema)), *own])
        except (ValueError, KeyError, TypeError):
            raise invalid_argument(
                "option schema", options.schema, "it must be DDL or the JSON of a schema"
            ) from None
    return ", ".join([options.schema, *(f"`{field.name}` {field.dataType.simpleString()}" for field in own)])


def _type_of(column: str, header_list: bool) -> DataType:
    return HEADER_LIST_TYPE if header_list and column == "headers" else TYPES[column]


def _own_columns(options: SourceOptions) -> tuple[str, ...]:
    usual = tuple(each for each in COLUMNS if each not in ON_REQUEST) if options.schema is None else ()
    return usual if options.columns is None else options.columns


@attrs.frozen
class RowLayout:
    """The columns of a DataFrame: `fields`, of the payload's JSON, then the format's own `columns`.

    header_list: whether headers are a list of names and bytes instead of a map.
    """

    fields: StructType
    columns: tuple[str, ...]
    mode: str = "permissive"
    header_list: bool = False

    @classmethod
    def of(cls, options: SourceOptions, schema: StructType) -> RowLayout:
        """Return the layout of `schema`: that of the options, or that of JSON payloads given by `.schema(...)`.

        Raises InvalidArgument if it is neither, or if a name occurs twice.
        """
        columns, names = _own_columns(options), schema.fieldNames()
        if options.schema is not None:
            if twice := sorted({each for each in names if names.count(each) > 1}):
                reason = "it is also a field of the schema; remove it from columns"
                raise invalid_argument("option columns", twice[0], reason)
            fields = StructType(schema.fields[: len(names) - len(columns)])
            return cls(fields, columns, options.mode, options.header_list)
        if schema == schema_of(options):
            return cls(StructType(), columns, options.mode, options.header_list)
        if all(name in COLUMNS for name in names):
            reason = "select columns with the option columns; .schema(...) describes JSON payloads"
            raise invalid_argument("schema", schema.simpleString(), reason)
        if options.columns is not None:
            reason = "give the schema of JSON payloads as the option schema when columns are selected, too"
            raise invalid_argument("schema", schema.simpleString(), reason)
        return cls(schema, (), options.mode)

    def schema(self) -> StructType:
        """Return the schema of the DataFrame."""
        own = [StructField(each, _type_of(each, self.header_list)) for each in self.columns]
        return StructType([*self.fields, *own])


def read_slices(layout: RowLayout, slices: Sequence[FileSlice]) -> Iterator[pa.RecordBatch]:
    """Yield the events of the slices, in order. Raises OSError if a file is gone because its hold has ended."""
    schema = to_arrow_schema(layout.schema(), timezone="UTC")
    fields = pa.schema(list(schema)[: len(layout.fields)])
    makers = [
        _header_list if layout.header_list and each == "headers" else MAKERS[each] for each in layout.columns
    ]
    for piece, rows in rows_of(slices):
        made = [make(piece, rows) for make in makers]
        kept = None
        if len(fields):
            parsed = parse_json(rows.batch.column("payload"), fields, mode=layout.mode)
            made, kept = [*parsed.columns, *made], parsed.kept
        batch = pa.RecordBatch.from_arrays(made, schema=schema)
        yield batch if kept is None else batch.take(kept)


def rows_of(slices: Sequence[FileSlice]) -> Iterator[tuple[FileSlice, ChunkRows]]:
    """Yield the events of the slices, in order, as they lie in their files. Raises as `read_slices`."""
    for piece in slices:
        with _opened(piece) as reader:
            for rows in reader.rows(
                offset=piece.offset, number=piece.number, start=piece.start, end=piece.end
            ):
                if (shown := rows.without_removed()).batch.num_rows:
                    yield piece, shown


def frame_of(
    spark: SparkSession, read: ReadSlices, tasks: Sequence[Sequence[FileSlice]], schema: StructType
) -> DataFrame:
    """Return what `read` makes of the slices of each task, one Spark task for each. schema: of that."""
    numbers = spark.range(0, len(tasks), 1, max(len(tasks), 1))
    return numbers.mapInArrow(_NumberedTasks(read, tuple(map(tuple, tasks))), schema)


@attrs.frozen
class _NumberedTasks:
    """What a Spark task runs: reads the slices of the tasks whose numbers it receives. Sent to executors."""

    read: ReadSlices
    tasks: tuple[tuple[FileSlice, ...], ...]

    def __call__(self, numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self.read(self.tasks[number])


def _opened(piece: FileSlice) -> ChunkReader:
    try:
        return piece.open()
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{piece.place}/{piece.path}: not found on {gethostname()}: its events are no longer held, or this machine"
            f" does not see it; {SHARED}"
        ) from None


def _stamps(column: pa.Array) -> pa.Array:
    """Convert times in ms to Spark's timestamps in us."""
    with suppress(pa.ArrowInvalid):  # a time outside of Spark's range
        return column.cast(pa.timestamp("us", tz="UTC"))
    ms = column.cast(pa.int64())
    fits = pc.call_function("less_equal", [pc.call_function("abs", [ms]), pa.scalar(MS_MAX)])
    ms = pc.call_function("if_else", [fits, ms, pa.scalar(None, pa.int64())])
    us = pc.call_function("multiply", [ms, pa.scalar(1000)])
    return us.cast(pa.timestamp("us", tz="UTC"))


def _header_list(_: FileSlice, rows: ChunkRows) -> pa.Array:
    column = rows.batch.column("headers")
    offsets = column.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    names, values = (each.slice(first, last - first) for each in (column.keys, column.items))
    kind = to_arrow_schema(StructType([StructField("headers", HEADER_LIST_TYPE)]))[0].type
    pairs = pa.StructArray.from_arrays([names, values.cast(pa.binary())], fields=list(kind.value_type))
    moved = pc.call_function("subtract", [offsets, pa.scalar(first, pa.int32())])
    return pa.ListArray.from_arrays(moved, pairs, type=kind, mask=column.is_null())


MAKERS: Final[Mapping[str, Callable[[FileSlice, ChunkRows], pa.Array]]] = {
    "payload": lambda _, rows: rows.batch.column("payload"),
    "key": lambda _, rows: rows.batch.column("key"),
    "timestamp": lambda _, rows: _stamps(rows.batch.column("timestamp")),
    "scope": lambda piece, rows: repeated_text(piece.stream.partition("/")[0], rows.batch.num_rows),
    "stream": lambda piece, rows: repeated_text(piece.stream.partition("/")[2], rows.batch.num_rows),
    "segment": lambda piece, rows: numbers(np.full(rows.batch.num_rows, piece.segment, np.int64), pa.int64()),
    "offset": lambda _, rows: numbers(rows.offsets(), pa.int64()),
    "number": lambda _, rows: numbers(rows.numbers(), pa.int64()),
    "event_time": lambda _, rows: _stamps(rows.batch.column("event_time")),
    "headers": lambda _, rows: rows.batch.column("headers"),
    "partition": lambda piece, rows: numbers(
        np.full(rows.batch.num_rows, number_of(SegmentId(piece.segment)), np.int32), pa.int32()
    ),
}
"""What makes each column of the events of a slice."""
