"""The spec of a supervisor: what to read, how its events become rows, and how many tasks read. Validated as a unit.

Source: docs/design/ingestion.md. The names and defaults are Druid's, except that times are in milliseconds.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self, cast

import attrs

from eventproc.ingestion.fields import EVENT, check_expression, parse_field
from eventproc.ingestion.spec_reader import Problems, parse_text, read_spec
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.ids import parse_segment
from eventproc.store.model.ingestion import TIME_END_MS
from eventproc.store.model.names import StreamName
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.records import to_plain

_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", re.ASCII)

REPLICAS_MAX: Final = 100
"""Tasks of a group. One transaction creates them, so that more would keep others from writing."""

POSITIVE: Final = {"least": 1}
NATURAL: Final = {"least": 0}
TIME: Final = {"least": 0, "most": TIME_END_MS}
POSITIVE_TIME: Final = {"least": 1, "most": TIME_END_MS}
"""Which numbers a field may have. Times with an upper limit are added to others, and the sums must fit 64 bits."""


class Granularity(enum.StrEnum):
    """A length of time, aligned in UTC."""

    NONE = "none"
    """One millisecond: times stay as they are."""
    SECOND = "second"
    MINUTE = "minute"
    FIVE_MINUTE = "five_minute"
    TEN_MINUTE = "ten_minute"
    FIFTEEN_MINUTE = "fifteen_minute"
    THIRTY_MINUTE = "thirty_minute"
    HOUR = "hour"
    SIX_HOUR = "six_hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"
    ALL = "all"
    """All times are one interval."""


class TimestampFormat(enum.StrEnum):
    """How the text or number of a timestamp is read."""

    AUTO = "auto"
    """ISO 8601, or a number of milliseconds."""
    ISO = "iso"
    MILLIS = "millis"
    SECONDS = "seconds"


class DimensionType(enum.StrEnum):
    """The type of a dimension's column."""

    STRING = "string"
    LONG = "long"
    DOUBLE = "double"
    BOOLEAN = "boolean"


class MetricType(enum.StrEnum):
    """How the values of a metric are aggregated. Rows without roll-up are aggregated alone."""

    COUNT = "count"
    """The number of events; has no field."""
    LONG_SUM = "long_sum"
    LONG_MIN = "long_min"
    LONG_MAX = "long_max"
    DOUBLE_SUM = "double_sum"
    DOUBLE_MIN = "double_min"
    DOUBLE_MAX = "double_max"


class AutoscalerStrategy(enum.StrEnum):
    """What decides how many groups read."""

    LAG = "lag"
    """Thresholds of the lag, over samples of some minutes."""
    COST = "cost"
    """The cost of lag against the cost of idle tasks, predicted from rates and idle time."""


class LagAggregate(enum.StrEnum):
    """How the lags of the partitions become one number."""

    SUM = "sum"
    MAX = "max"
    AVERAGE = "average"


@attrs.frozen(kw_only=True)
class TimestampSpec:
    """Where the time of a row comes from.

    column: field of the event, as that of a dimension. None (default): the event time, or if it has none, when the
    event was appended.
    """

    __repr__ = short_repr_of_fields

    column: str | None = None
    format: TimestampFormat = TimestampFormat.AUTO


@attrs.frozen(kw_only=True)
class Dimension:
    """A column whose values identify a row.

    field: of the event; None (default): as `name`. A field of its payload, or a path into it, such as "$.user.city".
    With a name such as "__event.key", what it carries beside the payload.
    """

    __repr__ = short_repr_of_fields

    name: str
    type: DimensionType = DimensionType.STRING
    field: str | None = None


@attrs.frozen(kw_only=True)
class Metric:
    """A column with an aggregate. field: of the event that is aggregated, as that of a dimension; None for a count."""

    __repr__ = short_repr_of_fields

    name: str
    type: MetricType
    field: str | None = None


@attrs.frozen(kw_only=True)
class Transform:
    """A field computed from the others. expression: of Spark SQL. name: takes the place of the payload's field."""

    __repr__ = short_repr_of_fields

    name: str
    expression: str


@attrs.frozen(kw_only=True)
class DataSchema:
    """How events become rows of a table.

    datasource: name of the table. filter: expression of Spark SQL that a row must satisfy; None: all rows.
    rollup: whether rows with equal time (in `query_granularity`) and dimensions become one.
    segment_granularity: intervals by which files are divided.
    """

    __repr__ = short_repr_of_fields

    datasource: str
    timestamp: TimestampSpec = attrs.field(factory=TimestampSpec)
    dimensions: tuple[Dimension, ...] = ()
    metrics: tuple[Metric, ...] = ()
    rollup: bool = True
    query_granularity: Granularity = Granularity.NONE
    segment_granularity: Granularity = Granularity.HOUR
    transforms: tuple[Transform, ...] = ()
    filter: str | None = None


@attrs.frozen(kw_only=True)
class AutoscalerConfig:
    """How the number of reading groups follows the load. Delays are between two changes of the number.

    task_count_start: number to begin with; None: `task_count_min`. stop_task_count_ratio: replaces `stop_task_count`
    by this share of the task count. lag_collection_interval_ms: pause between two samples of the lag; longer if
    lag_collection_range_ms would have more than 1,000 of them. The other fields are those of the strategies; see
    `lag_based` and `cost_based`.
    """

    task_count_min: int = attrs.field(metadata=POSITIVE)
    task_count_max: int
    enabled: bool = True
    task_count_start: int | None = attrs.field(default=None, metadata=POSITIVE)
    stop_task_count_ratio: float | None = None
    strategy: AutoscalerStrategy = AutoscalerStrategy.LAG
    min_scale_up_delay_ms: int = attrs.field(default=600_000, metadata=NATURAL)
    min_scale_down_delay_ms: int = attrs.field(default=600_000, metadata=NATURAL)
    lag_collection_interval_ms: int = attrs.field(default=30_000, metadata=POSITIVE)
    lag_collection_range_ms: int = 600_000
    lag_aggregate: LagAggregate = LagAggregate.SUM
    scale_out_threshold: int = attrs.field(default=6_000_000, metadata=NATURAL)
    trigger_scale_out_fraction: float = 0.3
    scale_out_step: int = attrs.field(default=2, metadata=POSITIVE)
    scale_in_threshold: int = attrs.field(default=1_000_000, metadata=NATURAL)
    trigger_scale_in_fraction: float = 0.9
    scale_in_step: int = attrs.field(default=1, metadata=POSITIVE)
    scale_action_period_ms: int = attrs.field(default=60_000, metadata=POSITIVE)
    lag_weight: float = 0.4
    idle_weight: float = 0.6


@attrs.frozen(kw_only=True)
class SegmentRange:
    """The events of one segment that a bounded supervisor reads: bytes [start, end), both at event boundaries.

    stream: "scope/stream". segment: "number.epoch", such as "2.1".
    """

    __repr__ = short_repr_of_fields

    stream: str
    segment: str
    start: int
    end: int


@attrs.frozen(kw_only=True)
class IoConfig:
    """What is read, and by how many tasks.

    streams: names "scope/stream", topics included; or pattern: a regular expression that matches whole names; or
    ranges: of segments. A supervisor with ranges is bounded: it reads exactly these events, and is then completed.
    task_count: groups that read, at most one per partition; None: the autoscaler's start, or 1.
    replicas: tasks per group, at most 100. task_duration_ms: how long a group reads before it publishes.
    stop_task_count: groups that may end simultaneously because their time is over; None: all.
    use_earliest_offset: whether a first run begins at the heads; otherwise at the tails. So does a stream that a later
        spec adds. Segments and streams that appear afterwards are always read from their heads.
    late_message_rejection_ms, late_message_rejection_start_ms, early_message_rejection_ms: rows older than a group's
    creation less this, older than this time, or newer than both the group's planned end and their append plus this,
    are thrown away.
    idle_after_ms: without lag and new events for so long, no new tasks are created; None: never.
    """

    __repr__ = short_repr_of_fields

    streams: tuple[str, ...] = ()
    pattern: str | None = None
    ranges: tuple[SegmentRange, ...] = ()
    task_count: int | None = attrs.field(default=None, metadata=POSITIVE)
    replicas: int = attrs.field(default=1, metadata={"least": 1, "most": REPLICAS_MAX})
    task_duration_ms: int = attrs.field(default=3_600_000, metadata=POSITIVE)
    start_delay_ms: int = attrs.field(default=5_000, metadata=TIME)
    period_ms: int = attrs.field(default=30_000, metadata=POSITIVE_TIME)
    completion_timeout_ms: int = attrs.field(default=1_800_000, metadata=POSITIVE_TIME)
    stop_task_count: int | None = attrs.field(default=None, metadata=POSITIVE)
    use_earliest_offset: bool = False
    late_message_rejection_ms: int | None = attrs.field(default=None, metadata=NATURAL)
    late_message_rejection_start_ms: int | None = None
    early_message_rejection_ms: int | None = attrs.field(default=None, metadata=TIME)
    idle_after_ms: int | None = attrs.field(default=None, metadata=POSITIVE)
    autoscaler: AutoscalerConfig | None = None


@attrs.frozen(kw_only=True)
class TuningConfig:
    """How tasks work.

    max_rows_per_segment: rows of one sequence, after which a task publishes and goes on reading.
    intermediate_handoff_ms: age of a sequence after which it does the same; None: only the task's duration counts.
    max_rows_in_memory: rows of one slice, after its roll-up, as far as the slice before it tells.
    max_bytes_in_memory: bytes of the events of one slice.
    task_timeout_ms: silence after which a task counts as hung, and is replaced.
    job_timeout_ms: how long the jobs of a task may make no progress, until they are cancelled and it is replaced. One
    Spark task of a job must end within it, also on a busy machine.
    reset_offset_automatically: whether events that were truncated before they were read are skipped; otherwise the
    supervisor becomes unhealthy, and names the gap.
    max_parse_exceptions: unparseable events after which a task fails; None: any number.
    max_saved_parse_exceptions: of them, the newest that are shown.
    unparseable_stream: "scope/stream" that gets each unparseable event once, when what was read beside it is published.
    None: they are only counted.
    """

    max_rows_per_segment: int = attrs.field(default=5_000_000, metadata=POSITIVE)
    intermediate_handoff_ms: int | None = attrs.field(default=None, metadata=POSITIVE)
    max_rows_in_memory: int = attrs.field(default=150_000, metadata=POSITIVE)
    max_bytes_in_memory: int = attrs.field(default=64 * 1024 * 1024, metadata=POSITIVE)
    task_timeout_ms: int = attrs.field(default=60_000, metadata=POSITIVE)
    job_timeout_ms: int = attrs.field(default=600_000, metadata=POSITIVE)
    reset_offset_automatically: bool = False
    max_parse_exceptions: int | None = attrs.field(default=None, metadata=NATURAL)
    max_saved_parse_exceptions: int = attrs.field(default=10, metadata=NATURAL)
    unparseable_stream: str | None = None


@attrs.frozen(kw_only=True)
class SupervisorSpec:
    """The spec of a supervisor: streams in, a table out.

    id: unique name of the supervisor; "" (default): the datasource. suspended: whether it ends its tasks and creates
    none. retention_ms: age, counted from the end of its interval, at which a worker drops an interval of the
    table, of any supervisor; None (default): never. compact_after_ms: such an age at which workers make few files of an
    interval that lies in several; None (default): never. Made directly, or with `parse` from a file;
    `ep.submit_supervisor` validates both.
    """

    __repr__ = short_repr_of_fields

    io: IoConfig
    schema: DataSchema
    tuning: TuningConfig = attrs.field(factory=TuningConfig)
    id: str = ""
    suspended: bool = False
    retention_ms: int | None = attrs.field(default=None, metadata=POSITIVE)
    compact_after_ms: int | None = attrs.field(default=None, metadata=POSITIVE)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the spec that a text in JSON or YAML describes, validated.

        Raises:
            InvalidSpec: with the path of every value that is not valid.
            InvalidArgument: the text is neither JSON nor YAML.
            NotSupported: it is YAML, and PyYAML is not installed.
        """
        return cls.of(parse_text(text))

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Return the spec in a file. Raises as `parse`, and OSError."""
        return cls.parse(Path(path).read_text(encoding="utf-8"))

    @classmethod
    def of(cls, plain: object) -> Self:
        """Return the spec that a plain value of JSON describes, validated. Raises InvalidSpec."""
        return read_spec(cls, plain, _name_in(plain)).validate()

    def validate(self) -> Self:
        """Return the spec with its id. Raises InvalidSpec with every problem."""
        spec = self if self.id else attrs.evolve(self, id=self.schema.datasource)
        problems = Problems()
        if self.id:
            _check_name(self.id, "id", problems)
        _check_name(spec.schema.datasource, "schema.datasource", problems)
        _check_io(spec.io, problems)
        _check_schema(spec.schema, problems)
        _check_unparseable_stream(spec, problems)
        _check_numbers(spec, "", problems)
        if spec.retention_ms is not None and spec.schema.segment_granularity is Granularity.ALL:
            problems.add(
                "retention_ms", "an interval of segment_granularity all never ends; choose a shorter one"
            )
        problems.check(spec.id or spec.schema.datasource)
        return spec

    def text(self) -> str:
        """Return the spec as JSON, as it is stored: fields with defaults are left out."""
        return json.dumps(to_plain(self), separators=(",", ":"), sort_keys=True)

    @property
    def fingerprint(self) -> str:
        """The hash of what the rows of a task depend on. Tasks of another fingerprint are replaced."""
        parts: list[object] = [to_plain(self.schema), to_plain(self.tuning)]
        if self.is_bounded:
            parts.append(to_plain(self.io.ranges))
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()[:15]

    @property
    def is_bounded(self) -> bool:
        """Whether it reads given ranges, and is then completed."""
        return bool(self.io.ranges)

    @property
    def stream_names(self) -> tuple[str, ...]:
        """The streams that it names, each once; none if it has a pattern."""
        return self.io.streams or tuple(dict.fromkeys(each.stream for each in self.io.ranges))

    @property
    def first_task_count(self) -> int:
        """The number of groups to begin with: the task count, or the autoscaler's start or minimum, or 1."""
        scaler = self.io.autoscaler
        if self.io.task_count is not None:
            return self.io.task_count
        if scaler is None or not scaler.enabled:
            return 1
        return scaler.task_count_start or scaler.task_count_min

    def stops_max(self, task_count: int) -> int:
        """Return how many groups may end simultaneously because their time is over."""
        scaler = self.io.autoscaler
        if scaler is not None and scaler.enabled and scaler.stop_task_count_ratio is not None:
            return max(1, int(task_count * scaler.stop_task_count_ratio))
        return self.io.stop_task_count or task_count


def message_times(io: IoConfig, now_ms: int) -> tuple[int | None, int | None]:
    """Return the times, from and before, of the rows that a group accepts if it is created at `now_ms`. None: any.

    A row at or after the second time is accepted, too, if it is less than the early period newer than its append.
    """
    min_ms, max_ms = io.late_message_rejection_start_ms, None
    if io.late_message_rejection_ms is not None:
        min_ms = now_ms - io.late_message_rejection_ms
    if io.early_message_rejection_ms is not None:
        max_ms = min(now_ms + io.task_duration_ms + io.early_message_rejection_ms, TIME_END_MS)
    return min_ms, max_ms


def _name_in(plain: object) -> str:
    found = cast("dict[str, object]", plain).get("id") if isinstance(plain, dict) else None
    return str(found) if found else "a supervisor"


def _check_name(name: str, path: str, problems: Problems) -> None:
    if not _ID.fullmatch(name):
        problems.add(path, "it must be letters, digits, _, - and ., at most 128")


def _check_io(io: IoConfig, problems: Problems) -> None:
    if [bool(io.streams), io.pattern is not None, bool(io.ranges)].count(True) != 1:
        problems.add("io", "it must have exactly one of streams, pattern and ranges")
    _check_ranges(io, problems)
    for index, name in enumerate(io.streams):
        _check_stream(name, f"io.streams[{index}]", problems)
    if len(set(io.streams)) < len(io.streams):
        problems.add("io.streams", "each stream may be named once")
    if io.pattern is not None:
        try:
            re.compile(io.pattern)
        except re.error as error:
            problems.add("io.pattern", f"not a regular expression: {error}")
    if io.late_message_rejection_ms is not None and io.late_message_rejection_start_ms is not None:
        problems.add(
            "io", "it may have only one of late_message_rejection_ms and late_message_rejection_start_ms"
        )
    if io.autoscaler is not None:
        _check_autoscaler(io.autoscaler, "io.autoscaler", problems)


def _check_stream(name: str, path: str, problems: Problems) -> None:
    try:
        StreamName.parse(name)
    except InvalidArgument as error:
        problems.add(path, error.reason)


def _check_ranges(io: IoConfig, problems: Problems) -> None:
    seen: set[tuple[str, int]] = set()
    for index, found in enumerate(io.ranges):
        path = f"io.ranges[{index}]"
        _check_stream(found.stream, f"{path}.stream", problems)
        try:
            key = found.stream, parse_segment(found.segment)
        except InvalidArgument as error:
            problems.add(f"{path}.segment", error.reason)
        else:
            if key in seen:
                problems.add(f"{path}.segment", "each segment may have one range")
            seen.add(key)
        if not 0 <= found.start <= found.end:
            problems.add(path, f"start must be at least 0 and at most end, not {found.start} and {found.end}")
    if io.ranges and io.idle_after_ms is not None:
        problems.add("io.idle_after_ms", "leave it out: a supervisor with ranges ends by itself")


def _check_autoscaler(scaler: AutoscalerConfig, path: str, problems: Problems) -> None:
    if scaler.task_count_max < scaler.task_count_min:
        problems.add(f"{path}.task_count_max", f"it must be at least task_count_min, {scaler.task_count_min}")
    start = scaler.task_count_start
    if start is not None and not scaler.task_count_min <= start <= scaler.task_count_max:
        problems.add(f"{path}.task_count_start", "it must lie between task_count_min and task_count_max")
    for name in ("stop_task_count_ratio", "trigger_scale_out_fraction", "trigger_scale_in_fraction"):
        value = getattr(scaler, name)
        if value is not None and not 0 < value <= 1:
            problems.add(f"{path}.{name}", "it must be above 0 and at most 1")
    if scaler.lag_collection_range_ms < scaler.lag_collection_interval_ms:
        problems.add(f"{path}.lag_collection_range_ms", "it must be at least lag_collection_interval_ms")


def _check_schema(schema: DataSchema, problems: Problems) -> None:
    names = [*(each.name for each in schema.dimensions), *(each.name for each in schema.metrics)]
    for name in sorted({each for each in names if names.count(each) > 1}):
        problems.add("schema", f"column {name!r} is defined twice")
    if "__time" in names:
        problems.add(
            "schema", "the column __time holds the time of a row, and cannot be a dimension or metric"
        )
    for index, metric in enumerate(schema.metrics):
        if (metric.type is MetricType.COUNT) == (metric.field is not None):
            needs = "has no field" if metric.type is MetricType.COUNT else "needs a field"
            problems.add(f"schema.metrics[{index}].field", f"a {metric.type.value} {needs}")
    _check_fields(schema, problems)
    if schema.segment_granularity is Granularity.NONE:
        problems.add("schema.segment_granularity", "it must be longer than a millisecond")


def _check_fields(schema: DataSchema, problems: Problems) -> None:
    computed = {each.name for each in schema.transforms}
    fields = {
        "schema.timestamp.column": schema.timestamp.column,
        **{
            f"schema.dimensions[{n}].field": each.field or each.name
            for n, each in enumerate(schema.dimensions)
        },
        **{f"schema.metrics[{n}].field": each.field for n, each in enumerate(schema.metrics)},
    }
    for path, field in fields.items():
        if field is not None and field not in computed:
            _check_valid(parse_field, field, path, problems)
    for n, each in enumerate(schema.transforms):
        _check_valid(check_expression, each.expression, f"schema.transforms[{n}].expression", problems)
        if each.name.partition(".")[0] == EVENT:
            problems.add(
                f"schema.transforms[{n}].name", f"names below {EVENT} are reserved; choose another one"
            )
    if schema.filter is not None:
        _check_valid(check_expression, schema.filter, "schema.filter", problems)


def _check_valid(check: Callable[[str], object], text: str, path: str, problems: Problems) -> None:
    try:
        check(text)
    except InvalidArgument as error:
        problems.add(path, f"{error.reason}, not {text!r}")


def _check_unparseable_stream(spec: SupervisorSpec, problems: Problems) -> None:
    path, name = "tuning.unparseable_stream", spec.tuning.unparseable_stream
    if name is None:
        return
    _check_stream(name, path, problems)
    if name in spec.stream_names or _matches(spec.io.pattern, name):
        problems.add(path, f"the supervisor reads {name}, so these events would return to it without end")


def _matches(pattern: str | None, name: str) -> bool:
    try:
        return pattern is not None and re.fullmatch(pattern, name) is not None
    except re.error:  # which is a problem of its own
        return False


def _check_numbers(value: Any, path: str, problems: Problems) -> None:
    """Note each number of the value, and of the values in it, that lies outside the limits of its field."""
    for each in attrs.fields(type(value)):
        held, at = getattr(value, each.name), f"{path}{each.name}"
        least, most = (each.metadata.get(limit) for limit in ("least", "most"))
        if attrs.has(type(held)):
            _check_numbers(held, f"{at}.", problems)
        elif held is not None and least is not None and held < least:
            problems.add(at, f"it must be at least {least}, not {held}")
        elif held is not None and most is not None and held > most:
            problems.add(at, f"it must be at most {most}, not {held}")
