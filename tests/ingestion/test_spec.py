"""Specs: defaults, validation of the whole with a path for each problem, JSON and YAML, what depends on them."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from eventproc.errors import InvalidArgument, InvalidSpec
from eventproc.ingestion import (
    AutoscalerConfig,
    AutoscalerStrategy,
    DataSchema,
    Granularity,
    IoConfig,
    Metric,
    MetricType,
    SupervisorSpec,
    TimestampFormat,
    Transform,
    TuningConfig,
)
from eventproc.ingestion.druid_names import FIELDS, HEADER_PREFIX, INLINE, REFUSED, RENAMED
from eventproc.ingestion.fields import CarriedField, PayloadField, parse_field
from tests.ingestion.support import spec_of

MINIMAL = '{"io": {"streams": ["s/t"]}, "schema": {"datasource": "clicks"}}'

IN_YAML = """
io:
  streams: [shop/clicks]
  taskCount: 2
  taskDuration: PT30M
  completion_timeout: 10m
  lateMessageRejection: 1h
schema:
  datasource: clicks
  dimensions: [page, {name: amount, type: long}]
  metrics: [{name: events, type: count}, {name: total, type: long_sum, field: amount}]
  segmentGranularity: DAY
"""


def problems_of(plain: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidSpec) as refused:
        SupervisorSpec.of(plain)
    return {each.path: each.reason for each in refused.value.problems}


@pytest.mark.acceptance("S1", differs="priorities of servers do not exist: replicas answer no queries")
def test_a_minimal_spec_has_the_defaults() -> None:
    spec = SupervisorSpec.parse(MINIMAL)
    io = spec.io
    assert (spec.id, io.replicas, spec.first_task_count) == ("clicks", 1, 1)
    assert (io.task_duration_ms, io.start_delay_ms, io.period_ms) == (3_600_000, 5_000, 30_000)
    assert io.completion_timeout_ms == 1_800_000
    assert spec.stops_max(7) == 7
    assert SupervisorSpec.parse(spec.text()) == spec


@pytest.mark.acceptance("S1")
def test_every_problem_of_a_spec_is_named_with_its_path() -> None:
    plain = {
        "io": {
            "streams": ["clicks"],
            "taskCunt": 1,
            "replicas": -1,
            "period": "soon",
            "lateMessageRejection": 1,
        },
        "schema": {
            "metrics": [{"name": "n", "type": "mean"}],
            "timestamp": {"format": "unix"},
            "query_granularity": None,
        },
    }
    found = problems_of(plain)
    assert set(found) == {
        *("io.taskCunt", "io.period", "schema.datasource", "schema.metrics[0].type"),
        *("schema.timestamp.format", "schema.query_granularity"),
    }
    assert found["schema.timestamp.format"] == "it must be one of auto, iso, millis, seconds, not 'unix'"
    assert found["schema.query_granularity"].endswith("all, not None")
    assert "did you mean 'task_count'?" in found["io.taskCunt"]
    found = problems_of(
        {
            "io": {
                "streams": ["clicks", "s/t", "s/t"],
                "pattern": "(",
                "replicas": -1,
                "late_message_rejection_ms": 1,
                "late_message_rejection_start_ms": "2026-01-01",
            },
            "schema": {
                "datasource": "a b",
                "dimensions": ["x", "x"],
                "metrics": [{"name": "n", "type": "count", "field": "x"}],
            },
        }
    )
    assert set(found) >= {"io", "io.streams[0]", "io.streams", "io.pattern", "io.replicas", "schema"}
    assert set(found) >= {"schema.datasource", "schema.metrics[0].field"}


def test_a_time_in_iso_8601_is_exact_to_the_ms() -> None:
    spec = spec_of(late_message_rejection_start_ms="2004-04-13T01:45:07.393")
    assert spec.io.late_message_rejection_start_ms == 1_081_820_707_393


def test_a_time_is_no_duration_and_a_duration_is_no_time() -> None:
    io = {"streams": ["s/t"], "taskDuration": "2026-01-31", "lateMessageRejectionStartDateTime": "24h"}
    found = problems_of({"io": io, "schema": {"datasource": "clicks"}})
    assert "a text such as 30s" in found["io.taskDuration"]
    assert "a time such as 2026-01-31T12:00" in found["io.lateMessageRejectionStartDateTime"]


@pytest.mark.parametrize("time", ["1970-01-02", "1970-01-02T02:00:00+02:00", "'1970-01-02'", "86400000"])
def test_a_time_in_yaml_needs_no_quotes(time: str) -> None:
    text = IN_YAML.replace("lateMessageRejection: 1h", f"lateMessageRejectionStartDateTime: {time}")
    assert SupervisorSpec.parse(text).io.late_message_rejection_start_ms == 86_400_000


@pytest.mark.acceptance("S2")
def test_the_first_task_count_and_the_limit_of_stops_have_their_order() -> None:
    bounds: dict[str, object] = {"task_count_min": 2, "task_count_max": 10}
    assert spec_of(task_count=7, autoscaler={**bounds, "task_count_start": 3}).first_task_count == 7
    assert spec_of(autoscaler={**bounds, "task_count_start": 3}).first_task_count == 3
    assert spec_of(autoscaler=bounds).first_task_count == 2
    assert spec_of(autoscaler={**bounds, "stop_task_count_ratio": 0.5}).stops_max(10) == 5
    assert spec_of(autoscaler={**bounds, "stop_task_count_ratio": 0.05}).stops_max(10) == 1
    assert spec_of(autoscaler=bounds, stop_task_count=4).stops_max(10) == 4
    assert spec_of(autoscaler=bounds).stops_max(10) == 10


def test_a_file_may_be_yaml_with_the_names_and_durations_of_druid() -> None:
    spec = SupervisorSpec.parse(IN_YAML)
    assert (spec.io.task_count, spec.io.task_duration_ms) == (2, 1_800_000)
    assert spec.io.completion_timeout_ms == 600_000
    assert spec.io.late_message_rejection_ms == 3_600_000
    assert spec.schema.segment_granularity is Granularity.DAY
    assert [each.name for each in spec.schema.dimensions] == ["page", "amount"]
    assert spec.schema.metrics[1].type is MetricType.LONG_SUM


def test_a_text_that_is_no_spec_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="not valid JSON"):
        SupervisorSpec.parse("{")
    with pytest.raises(InvalidArgument, match="neither JSON nor YAML"):
        SupervisorSpec.parse("a: [")
    with pytest.raises(InvalidSpec, match="it must be an object"):
        SupervisorSpec.parse("[1]")


def test_only_what_rows_depend_on_changes_the_fingerprint() -> None:
    spec = spec_of()
    assert spec_of(task_count=3, period_ms=1_000).fingerprint == spec.fingerprint
    assert spec_of(schema={"dimensions": ["page", "user"]}).fingerprint != spec.fingerprint
    assert attrs.evolve(spec, suspended=True).fingerprint == spec.fingerprint


@pytest.mark.parametrize(
    "scaler, path",
    [
        ({"task_count_min": 3, "task_count_max": 2}, "io.autoscaler.task_count_max"),
        ({"task_count_min": 1, "task_count_max": 2, "task_count_start": 5}, "io.autoscaler.task_count_start"),
        (
            {"task_count_min": 1, "task_count_max": 2, "stop_task_count_ratio": 0.0},
            "io.autoscaler.stop_task_count_ratio",
        ),
        ({"task_count_max": 2}, "io.autoscaler.task_count_min"),
    ],
)
def test_an_autoscaler_that_cannot_be_is_refused(scaler: dict[str, object], path: str) -> None:
    plain = {"io": {"streams": ["s/t"], "autoscaler": scaler}, "schema": {"datasource": "clicks"}}
    assert path in problems_of(plain)


@pytest.mark.parametrize(
    "name", ["replicas", "period_ms", "start_delay_ms", "completion_timeout_ms", "early_message_rejection_ms"]
)
def test_more_replicas_or_longer_times_than_a_run_can_handle_are_refused(name: str) -> None:
    plain = {"io": {"streams": ["s/t"], name: 2**63 - 1}, "schema": {"datasource": "clicks"}}
    assert problems_of(plain)[f"io.{name}"].startswith("it must be at most")


IN_DRUIDS_NAMES = """
spec:
  dataSchema:
    dataSource: clicks
    timestampSpec: {column: at, format: posix}
    dimensionsSpec: {dimensions: [page, {type: float, name: price}]}
    metricsSpec: [{type: count, name: events}, {type: longSum, name: total, fieldName: amount}]
    granularitySpec: {segmentGranularity: DAY, queryGranularity: FIVE_MINUTE, rollup: false}
    transformSpec: {filter: "price > 0"}
  ioConfig:
    topic: shop/clicks
    taskCount: 2
    useEarliestSequenceNumber: true
    lateMessageRejectionPeriod: PT1H
    earlyMessageRejectionPeriod: P1D
    autoScalerConfig: {enableTaskAutoScaler: true, taskCountMin: 1, taskCountMax: 4, autoScalerStrategy: costBased}
  tuningConfig: {maxRowsPerSegment: 1000, intermediateHandoffPeriod: PT5M}
suspended: true
"""


def test_a_spec_in_the_names_of_druid_is_read() -> None:
    spec = SupervisorSpec.parse(IN_DRUIDS_NAMES)
    assert (spec.id, spec.suspended, spec.io.streams) == ("clicks", True, ("shop/clicks",))
    assert (spec.io.late_message_rejection_ms, spec.io.early_message_rejection_ms) == (3_600_000, 86_400_000)
    assert spec.io.use_earliest_offset
    assert spec.io.autoscaler is not None
    assert spec.io.autoscaler.strategy is AutoscalerStrategy.COST
    schema = spec.schema
    assert (schema.timestamp.column, schema.timestamp.format) == ("at", TimestampFormat.SECONDS)
    assert [(each.name, each.type.value) for each in schema.dimensions] == [
        ("page", "string"),
        ("price", "double"),
    ]
    assert [(each.type.value, each.field) for each in schema.metrics] == [
        ("count", None),
        ("long_sum", "amount"),
    ]
    assert (schema.query_granularity, schema.rollup) == (Granularity.FIVE_MINUTE, False)
    assert schema.filter == "price > 0"
    assert (spec.tuning.max_rows_per_segment, spec.tuning.intermediate_handoff_ms) == (1_000, 300_000)


def test_what_druid_has_and_we_have_not_is_refused_with_what_to_write() -> None:
    found = problems_of(
        {
            "type": "kafka",
            "spec": {
                "ioConfig": {
                    "topic": "shop/clicks",
                    "streams": ["shop/clicks"],
                    "consumerProperties": {"bootstrap.servers": "x"},
                    "idleConfig": {"enabled": True},
                    "boundedStreamConfig": {},
                },
                "dataSchema": {"dataSource": "clicks", "granularitySpec": "day"},
                "tuningConfig": {"maxTotalRows": 7, "maxRowPerSegment": 8},
            },
        }
    )
    assert "stream of this directory" in found["type"]
    assert "of this directory" in found["spec.ioConfig.consumerProperties"]
    assert "idle_after_ms" in found["spec.ioConfig.idleConfig"]
    assert "write ranges" in found["spec.ioConfig.boundedStreamConfig"]
    assert found["spec.ioConfig.streams"] == "streams is given twice"
    assert found["spec.dataSchema.granularitySpec"] == "it must be an object, not 'day'"
    assert "max_rows_per_segment" in found["spec.tuningConfig.maxTotalRows"]
    assert "'max_rows_per_segment'" in found["spec.tuningConfig.maxRowPerSegment"]


def test_what_an_event_carries_beside_its_payload_is_named_below_one_reserved_name() -> None:
    spec = spec_of(
        schema={
            "timestamp": {"column": "__event.timestamp"},
            "dimensions": ["page", {"name": "trace", "field": "__event.headers.trace.id"}, "kafka.key"],
            "metrics": [{"name": "last", "type": "long_max", "field": "__event.number"}],
            "transforms": [
                {
                    "name": "who",
                    "expression": "`__event` . `key` || __event.headers['x'] || '__event.nothing'",
                },
                {"name": "kind", "expression": "a.__event || `__events` || __event_kind"},
            ],
            "filter": "__event.partition <> 3",
        }
    )
    assert SupervisorSpec.parse(spec.text()) == spec
    names = [each.field or each.name for each in spec.schema.dimensions]
    assert [parse_field(name) for name in names] == [
        PayloadField(("page",)),
        CarriedField("headers", "trace.id"),
        CarriedField("key"),
    ]
    assert parse_field("kafka.header.a") == CarriedField("headers", "a")
    assert parse_field("kafka.topic") == CarriedField("stream")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("user.city", ("user.city",)),
        ("$user", ("$user",)),
        ("$.user.city", ("user", "city")),
        ("$.tags[0][12].x-y", ("tags", 0, 12, "x-y")),
        ("""$['a.b']["c'd"].ü['it\\'s']""", ("a.b", "c'd", "ü", "it's")),
        ("$['__event']", ("__event",)),
    ],
)
def test_a_field_is_a_name_or_a_path_into_objects_and_arrays(text: str, path: tuple[str | int, ...]) -> None:
    schema = {"dimensions": [{"name": "x", "field": text}], "filter": f"`{text}` IS NOT NULL"}
    spec = spec_of(schema=schema)
    assert spec.schema.dimensions[0].field == text
    assert parse_field(text) == PayloadField(path)


@pytest.mark.parametrize(
    "text", ["$.", "$[0]", "$.a[-1]", "$.a..b", "$.a[*]", "$.a[?(@.b)]", "$['a]", "$.a b"]
)
def test_a_path_of_another_form_is_refused(text: str) -> None:
    schema = {"datasource": "x", "dimensions": [{"name": "a", "field": text}], "filter": f"`{text}` = 1"}
    found = problems_of({"io": {"streams": ["s/t"]}, "schema": schema})
    assert set(found) == {"schema.dimensions[0].field", "schema.filter"}
    assert "$.tags[0]" in found["schema.filter"]


def test_a_misspelt_field_beside_the_payload_is_refused_with_those_that_exist() -> None:
    found = problems_of(
        {
            "io": {"streams": ["s/t"]},
            "schema": {
                "datasource": "clicks",
                "timestamp": {"column": "kafka.timestamp"},
                "dimensions": ["__event.kye", {"name": "key", "field": "__event.key.x"}, "__event"],
                "metrics": [{"name": "n", "type": "long_sum", "field": "__event.header.n"}],
                "transforms": [
                    {"name": "a", "expression": "'it''s' || __event.offsets"},
                    {"name": "b", "expression": "`__event.key`"},
                    {"name": "c", "expression": "__EVENT.key"},
                    {"name": "d", "expression": "to_json(__event)"},
                    {"name": "e", "expression": "`kafka.key`"},
                    {"name": "__event.x", "expression": "`my __event.x`"},
                ],
                "filter": "__event.Key = 'x'",
            },
        }
    )
    assert set(found) == {
        *(f"schema.dimensions[{n}].field" for n in range(3)),
        *(f"schema.transforms[{n}].expression" for n in range(5)),
        *("schema.timestamp.column", "schema.metrics[0].field", "schema.transforms[5].name", "schema.filter"),
    }
    assert "__event.key, __event.headers," in found["schema.dimensions[0].field"]
    assert "__event.offset, " in found["schema.transforms[0].expression"]
    assert "without quotes" in found["schema.transforms[4].expression"]
    assert "__event.event_time or __event.timestamp" in found["schema.timestamp.column"]


@pytest.mark.parametrize("io", [{"streams": ["s/t", "s/odd"]}, {"pattern": "s/.*"}])
def test_a_stream_of_unparseable_events_that_the_supervisor_reads_is_refused(io: dict[str, object]) -> None:
    plain = {"io": io, "schema": {"datasource": "x"}, "tuning": {"unparseable_stream": "s/odd"}}
    assert "return to it" in problems_of(plain)["tuning.unparseable_stream"]
    plain["tuning"] = {"unparseable_stream": "odd"}
    assert "tuning.unparseable_stream" in problems_of(plain)


def test_every_name_of_druid_that_is_read_has_its_field() -> None:
    classes = {
        each.__name__: {field.name for field in attrs.fields(each)}
        for each in (SupervisorSpec, IoConfig, AutoscalerConfig, DataSchema, Metric, TuningConfig, Transform)
    }
    assert {name for name, _ in (*RENAMED, *REFUSED, *INLINE)} == set(classes)
    assert all(field in classes[name] for (name, _), field in RENAMED.items())
    assert not RENAMED.keys() & REFUSED.keys()
    assert all(isinstance(parse_field(each), CarriedField) for each in (*FIELDS, f"{HEADER_PREFIX}x"))
