"""The DataFrames of a spec: from slices of chunk files to typed rows, and rolled up. Most run no job here.

Every aggregation of a roll-up can be repeated on its own results, so the rows of many slices are merged into what one
aggregation over all of them would give (sums of doubles may differ in their last digits).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
from pyspark.sql import (
    Column,
    DataFrame,
    Observation,
    SparkSession,
    functions as F,  # noqa: N812 - as all of Spark's users know it
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from eventproc.ingestion import (
    DataSchema,
    DimensionType,
    Granularity,
    MetricType,
    TimestampFormat,
)
from eventproc.ingestion.fields import CARRIED, EVENT, CarriedField, PayloadField, parse_field
from eventproc.ingestion.intervals import FIXED_MS, MONTHS
from eventproc.spark.ingestion.payloads import (
    APPENDED,
    CARRIED_MAKERS,
    EVENT_TIME,
    MARKS,
    PAYLOAD,
    UNPARSEABLE,
    Path,
    PayloadReader,
)
from eventproc.spark.ingestion.unparseable import REASON
from eventproc.spark.partitioning import FileSlice, pack_into_tasks
from eventproc.spark.source_rows import frame_of
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ingestion import TIME, TIME_END_MS, TIME_MIN_MS

INTERVAL: Final = "__interval"
"""Column of a folder of written files: where the interval of the segment granularity begins, in ms."""

SESSION: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "false",
}
"""Settings of a session that makes rows. Without ANSI mode, an expression that fails on an event gives null instead of
failing the task, and a `long_sum` beyond 64 bits wraps around, as Druid's does."""

_WHY: Final = "__why"
_FIELD: Final = "__field_"
_UNPARSEABLE, _THROWN_AWAY = 1, 2


@attrs.frozen
class _Aggregate:
    """A metric's column type, what it makes of a field, and how two of its results are merged."""

    type: str
    make: Callable[[Column], Column]
    merge: Callable[[Column], Column]


_AGGREGATES: Final[Mapping[MetricType, _Aggregate]] = {
    MetricType.COUNT: _Aggregate("bigint", lambda _: F.count(F.lit(1)), F.sum),
    MetricType.LONG_SUM: _Aggregate("bigint", F.sum, F.sum),
    MetricType.LONG_MIN: _Aggregate("bigint", F.min, F.min),
    MetricType.LONG_MAX: _Aggregate("bigint", F.max, F.max),
    MetricType.DOUBLE_SUM: _Aggregate("double", F.sum, F.sum),
    MetricType.DOUBLE_MIN: _Aggregate("double", F.min, F.min),
    MetricType.DOUBLE_MAX: _Aggregate("double", F.max, F.max),
}

_TYPES: Final[Mapping[DimensionType, str]] = {
    DimensionType.STRING: "string",
    DimensionType.LONG: "bigint",
    DimensionType.DOUBLE: "double",
    DimensionType.BOOLEAN: "boolean",
}

_DATA_TYPES: Final[Mapping[str, DataType]] = {
    "string": StringType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestampType(),
}

_CARRIED_TYPES: Final[Mapping[str, DataType]] = {
    **dict.fromkeys(("key", "stream", "segment"), StringType()),
    **dict.fromkeys(("event_time", "timestamp", "offset", "number"), LongType()),
    "partition": IntegerType(),
    "headers": MapType(StringType(), StringType()),
}

_EVENT_TYPES: Final = {"payload": BinaryType(), **_CARRIED_TYPES}
"""All of an event."""

assert sorted(_CARRIED_TYPES) == sorted(CARRIED), "every field has a type"
assert _EVENT_TYPES.keys() == CARRIED_MAKERS.keys(), "every field has a maker"

_MARKS: Final = StructType(
    [
        StructField(UNPARSEABLE, StringType()),
        StructField(PAYLOAD, StringType()),
        StructField(APPENDED, LongType()),
        StructField(EVENT_TIME, LongType()),
    ]
)
"""The columns of MARKS, as Spark names their types."""


class RowFrames:
    """Makes the DataFrames of one schema in one session, whose settings must be those of SESSION.

    inputs: the fields that are taken from payloads. beside: the column of what is taken from beside them, if anything
    is. columns: of the table, the time first.
    """

    def __init__(self, spark: SparkSession, schema: DataSchema) -> None:
        """Raises InvalidArgument if an expression of the schema is not valid SQL."""
        self._spark = spark
        self._schema = schema
        inputs, carried = _input_types(spark, schema)
        self.inputs = _struct({name: kind for name, (_, kind) in inputs.items()})
        self._paths = tuple(path for path, _ in inputs.values())
        fields = StructType([StructField(name, _CARRIED_TYPES[name]) for name in carried])
        self.beside = StructType([StructField(EVENT, fields)] if carried else [])
        self.columns = table_columns(schema)
        self._dimensions = [_column(each.name) for each in schema.dimensions]
        self._computed = {each.name: F.expr(each.expression) for each in schema.transforms}
        # Expressions are made once: each takes some calls into the JVM, and a task reads many slices.
        self._is_row = F.col(_WHY).isNull()
        self._counts = [
            F.count(F.lit(1)).alias("processed"),
            F.count(F.when(F.col(_WHY) == _THROWN_AWAY, 1)).alias("thrown_away"),
            F.count(F.when(F.col(_WHY) == _UNPARSEABLE, 1)).alias("unparseable"),
        ]
        self._typed = self._typed_columns()
        self._accepted: dict[tuple[int | None, int | None, int], Column] = {}
        self._keys = [F.col(TIME), *self._dimensions]
        self._metrics = [
            column.cast(_AGGREGATES[each.type].type).alias(each.name)
            for column, each in zip(self._made(), schema.metrics, strict=True)
        ]

    def read(self, groups: Sequence[Sequence[FileSlice]]) -> DataFrame:
        """Return the events of slices: the inputs, what is taken from beside them, and the marks of `payloads`."""
        return self._read(groups, self.beside)

    def _read(self, groups: Sequence[Sequence[FileSlice]], taken: StructType) -> DataFrame:
        tasks = pack_into_tasks(groups, self._spark.sparkContext.defaultParallelism)
        fields, beside = (to_arrow_schema(each, timezone="UTC") for each in (self.inputs, taken))
        reader = PayloadReader(fields, self._paths, beside)
        return frame_of(self._spark, reader, tasks, StructType([*self.inputs, *taken, *_MARKS]))

    def typed(
        self,
        events: DataFrame,
        *,
        min_ms: int | None = None,
        max_ms: int | None = None,
        early_ms: int = 0,
        counts: Observation | None = None,
    ) -> DataFrame:
        """Return a row for each accepted event: its time, its dimensions, and the fields of its metrics.

        min_ms: rows before are thrown away.
        max_ms, early_ms: so are rows at or after `max_ms` that are at least `early_ms` newer than their append. A group
        may read for longer than planned, and a row that was on time when it was appended stays on time.
        counts: observes `processed`, `thrown_away` and `unparseable`.
        """
        marked = self._marked(events, min_ms, max_ms, early_ms)
        if counts is not None:
            marked = marked.observe(counts, *self._counts)
        return marked.where(self._is_row)

    def unparseable(self, events: DataFrame, count_max: int) -> list[str]:
        """Return some of the payloads that are no rows. Runs a job."""
        marks = (_reason(), F.coalesce(F.col(PAYLOAD), F.lit("")).alias("payload"))
        found = self._marked(events, None, None, 0, keep=marks).where(F.col(_WHY) == _UNPARSEABLE)
        return [f"{row.reason}: {row.payload}".rstrip(": ") for row in found.limit(count_max).collect()]

    def unparseable_events(self, groups: Sequence[Sequence[FileSlice]]) -> DataFrame:
        """Return the events of slices that are no rows, with all that they carry, and the reason."""
        kinds = [StructField(name, kind) for name, kind in _EVENT_TYPES.items()]
        events = self._read(groups, StructType([StructField(EVENT, StructType(kinds))]))
        found = self._marked(events, None, None, 0, keep=(F.col(EVENT), _reason()))
        return found.where(F.col(_WHY) == _UNPARSEABLE).select(f"{EVENT}.*", REASON)

    def rolled_up(self, typed: DataFrame) -> DataFrame:
        """Return the rows of the table: aggregated if the schema says so."""
        if self._schema.rollup:
            return _aggregated(typed, self._keys, self._metrics)
        return typed.select(*self._keys, *self._metrics)

    def _made(self) -> list[Column]:
        metrics = self._schema.metrics
        if self._schema.rollup:
            return [_AGGREGATES[each.type].make(F.col(_FIELD + each.name)) for each in metrics]
        return [F.lit(1) if each.type is MetricType.COUNT else F.col(_FIELD + each.name) for each in metrics]

    def by_interval(self, rows: DataFrame) -> DataFrame:
        """Return the roll-up of table rows, with the interval of each, those of an interval together and in order."""
        interval = F.unix_millis(truncated(F.col(TIME), self._schema.segment_granularity))
        found = rows.withColumn(INTERVAL, interval).repartition(INTERVAL)
        if self._schema.rollup:
            merged = [_AGGREGATES[each.type].merge(_column(each.name)) for each in self._schema.metrics]
            named = [
                column.alias(each.name) for column, each in zip(merged, self._schema.metrics, strict=True)
            ]
            # Equal intervals are in one partition, so this aggregation needs no second exchange.
            found = _aggregated(found, [F.col(INTERVAL), F.col(TIME), *self._dimensions], named)
        return found.sortWithinPartitions(INTERVAL, TIME, *self._dimensions)

    def _marked(
        self,
        events: DataFrame,
        min_ms: int | None,
        max_ms: int | None,
        early_ms: int,
        keep: Sequence[Column] = (),
    ) -> DataFrame:
        """Return a typed row for each event, and in _WHY the reason if it is not accepted."""
        found = self._with_transforms(events) if self._schema.transforms else events
        window = min_ms, max_ms, early_ms
        if window not in self._accepted:
            self._accepted[window] = self._why(*window)
        return found.select(*self._typed, *keep, self._accepted[window])

    def _with_transforms(self, events: DataFrame) -> DataFrame:
        plain = [_column(name) for name in self.inputs.names if name not in self._computed]
        made = [column.alias(name) for name, column in self._computed.items()]
        kept = (F.col(name) for name in events.columns if name in (EVENT, *MARKS.names))
        return events.select(*plain, *made, *kept)

    def _typed_columns(self) -> list[Column]:
        schema = self._schema
        return [
            truncated(self._time(), schema.query_granularity).alias(TIME),
            *(
                self._value(each.field or each.name).try_cast(_TYPES[each.type]).alias(each.name)
                for each in schema.dimensions
            ),
            *(
                (F.lit(None) if each.field is None else self._value(each.field))
                .try_cast(_AGGREGATES[each.type].type)
                .alias(_FIELD + each.name)
                for each in schema.metrics
            ),
        ]

    def _value(self, field: str) -> Column:
        """Return the values of a field that the schema names: computed, of the payload, or carried beside it."""
        if field in self._computed or isinstance(found := parse_field(field), PayloadField):
            return _column(field)
        carried = F.col(EVENT).getField(found.name)
        if found.header is not None:
            return carried.getItem(found.header)
        return F.to_json(carried) if found.name == "headers" else carried

    def _time(self) -> Column:
        column = self._schema.timestamp.column
        return _time_of(self._schema.timestamp.format, None if column is None else self._value(column))

    def _why(self, min_ms: int | None, max_ms: int | None, early_ms: int) -> Column:
        at = self._time()
        refused = F.lit(False)
        if min_ms is not None:
            refused = refused | (F.unix_millis(at) < min_ms)
        if max_ms is not None:
            # The append is stored with the event, so replicas and replacements agree.
            bound = F.greatest(F.lit(max_ms), F.col(APPENDED) + early_ms)
            refused = refused | (F.unix_millis(at) >= bound)
        if self._schema.filter is not None:
            refused = refused | ~F.coalesce(F.expr(self._schema.filter), F.lit(False))
        wrong = F.col(UNPARSEABLE).isNotNull() | at.isNull()
        return F.when(wrong, _UNPARSEABLE).when(refused, _THROWN_AWAY).alias(_WHY)


def _reason() -> Column:
    missing = "its timestamp is missing, cannot be parsed, or lies outside of the years 1 to 9999"
    return F.coalesce(F.col(UNPARSEABLE), F.lit(missing)).alias(REASON)


def truncated(time: Column, granularity: Granularity) -> Column:
    """Return the beginning of the interval of `granularity` that `time` lies in, a timestamp."""
    if granularity is Granularity.ALL:
        return F.timestamp_millis(F.lit(0))
    if granularity in MONTHS:
        return F.date_trunc(granularity.value, time)
    length_ms = F.lit(FIXED_MS.get(granularity, 1))
    return F.timestamp_millis(F.unix_millis(time) - F.pmod(F.unix_millis(time), length_ms))


def table_columns(schema: DataSchema) -> StructType:
    """Return the columns of the table that a schema describes, the time first."""
    types = {
        TIME: "timestamp",
        **{each.name: _TYPES[each.type] for each in schema.dimensions},
        **{each.name: _AGGREGATES[each.type].type for each in schema.metrics},
    }
    return _struct(types)


def _aggregated(rows: DataFrame, keys: list[Column], metrics: list[Column]) -> DataFrame:
    return rows.groupBy(*keys).agg(*metrics) if metrics else rows.select(*keys).distinct()


def _time_of(format_: TimestampFormat, value: Column | None) -> Column:
    """Return the time of an event, null if it cannot be parsed or lies outside of the years 1 to 9999.

    value: of the field that holds it; None: the event time, or if it has none, when the event was appended.
    """
    if value is None:
        return _time_at(F.coalesce(F.col(EVENT_TIME), F.col(APPENDED)), F.timestamp_millis)
    text = value.try_cast("string")
    iso = text.try_cast("timestamp")
    iso = _time_at(F.unix_micros(iso), F.timestamp_micros, per_ms=1_000)
    if format_ is TimestampFormat.ISO:
        return iso
    number = text.try_cast("decimal(28,6)")
    if format_ is TimestampFormat.SECONDS:
        micros = (number * F.lit(1_000_000)).try_cast("bigint")
        return _time_at(micros, F.timestamp_micros, per_ms=1_000)
    millis = _time_at(number.try_cast("bigint"), F.timestamp_millis)
    if format_ is TimestampFormat.MILLIS:
        return millis
    return F.when(text.rlike(r"^-?[0-9]+(\.[0-9]+)?$"), millis).otherwise(iso)


def _time_at(units: Column, convert: Callable[[Column], Column], *, per_ms: int = 1) -> Column:
    """Return `units` since 1970 as a time, null outside of the years 1 to 9999. Spark would fail on the largest."""
    low, high = F.lit(TIME_MIN_MS * per_ms), F.lit(TIME_END_MS * per_ms)
    return F.when((units >= low) & (units < high), convert(units))


def _input_types(spark: SparkSession, schema: DataSchema) -> tuple[dict[str, tuple[Path, str]], list[str]]:
    """Return the fields to take from payloads with paths and types, and the names of those to take from beside them.

    Fields of payloads are texts unless a dimension or a metric says more.
    """
    computed = {each.name for each in schema.transforms}
    found: dict[str, str] = {}
    for metric in schema.metrics:
        if metric.field is not None and metric.field not in computed:
            kind = _AGGREGATES[metric.type].type
            found[metric.field] = kind if found.get(metric.field, kind) == kind else "double"
    for dimension in schema.dimensions:
        if (name := dimension.field or dimension.name) not in computed:
            found[name] = _TYPES[dimension.type]
    for transform in schema.transforms:  # they see the fields of the event, and not each other
        for name in _names_in(spark, transform.expression):
            found.setdefault(name, "string")
    for name in () if schema.filter is None else _names_in(spark, schema.filter):
        if name not in computed:
            found.setdefault(name, "string")
    if schema.timestamp.column is not None and schema.timestamp.column not in computed:
        found.setdefault(schema.timestamp.column, "string")
    fields = {name: parse_field(name) for name in found}
    carried = {each.name for each in fields.values() if isinstance(each, CarriedField)}
    inputs = {
        name: (each.path, found[name]) for name, each in fields.items() if isinstance(each, PayloadField)
    }
    return inputs, sorted(carried)


def _names_in(spark: SparkSession, expression: str) -> list[str]:
    """Return the fields of the event that a SQL expression names. Raises InvalidArgument."""
    java: Any = spark._jsparkSession  # PySpark does not wrap the parser
    try:
        leaves = java.sessionState().sqlParser().parseExpression(expression).collectLeaves()
    except Exception as why:
        reason = next((line for line in str(why).splitlines() if line.strip()), "")
        raise invalid_argument("expression", expression, f"it is not valid Spark SQL: {reason}") from None
    found: list[Any] = [leaves.apply(index) for index in range(leaves.size())]
    names = [each.nameParts() for each in found if each.getClass().getSimpleName() == "UnresolvedAttribute"]
    parts = [[str(each.apply(index)) for index in range(each.size())] for each in names]
    return [".".join(each[:2]) if each[0] == EVENT else each[0] for each in parts]


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def _struct(types: Mapping[str, str]) -> StructType:
    return StructType([StructField(name, _DATA_TYPES[kind]) for name, kind in types.items()])
