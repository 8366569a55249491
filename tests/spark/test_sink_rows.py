"""Rows as events, and the sink's options: what becomes what, and what is refused, without Spark."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from eventproc.spark.sink_options import SinkOptions, parse_sink_options
from eventproc.spark.sink_rows import EVENTS, EventColumns
from eventproc.store.model.errors import EventprocError, InvalidArgument
from eventproc.store.model.limits import EVENT_BYTES_MAX
from eventproc.store.model.routing import point


def columns_of(
    rows: pa.RecordBatch,
    *,
    key: str | None = None,
    event_time: str | None = None,
    partition: str | None = None,
) -> EventColumns:
    schema = from_arrow_schema(rows.schema)
    assert isinstance(schema, StructType)
    options = SinkOptions(address=Path(), stream="s/t", key=key, event_time=event_time, partition=partition)
    return EventColumns.of(options, schema)


def events_of(rows: pa.RecordBatch, **columns: str) -> list[dict[str, object]]:
    found = columns_of(rows, **columns).events(rows)
    assert found.schema == EVENTS
    return [dict(each) for each in found.to_pylist()]


def test_event_columns_are_used_and_source_columns_are_ignored() -> None:
    rows = pa.record_batch(
        {
            "payload": pa.array([b"a", b""]),
            "key": pa.array(["é", None]),
            "event_time": pa.array([-1, None], pa.timestamp("us", "UTC")),
            "headers": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
            "offset": pa.array([1, 2]),
        }
    )
    first, second = events_of(rows)
    assert first.pop("event_time") == datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)
    assert first == {"payload": b"a", "key": "é", "headers": [("a", "1")], "position": point("é")}
    assert math.isnan(second.pop("position"))  # type: ignore[arg-type]  # a float
    assert second == {"payload": b"", "key": None, "event_time": None, "headers": None}


def test_columns_of_kafka_are_understood() -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.record_batch(
        {
            "key": pa.array([b"k", None]),
            "value": pa.array([b"a", b""]),
            "topic": ["t", "t"],
            "headers": pa.array([[{"key": "h", "value": b"1"}], None], headers),
        }
    )
    first, second = events_of(rows)
    assert (first["payload"], first["key"], first["headers"]) == (b"a", "k", [("h", "1")])
    assert (second["payload"], second["key"], second["headers"]) == (b"", None, None)
    binary = events_of(pa.record_batch({"key": pa.array([b"\xff", None, b"k"]), "value": ["x", "y", "z"]}))
    assert [each["key"] for each in binary] == ["data:;base64,/w==", None, "k"]


def test_partition_of_a_topic_decides_where_an_event_goes_unless_it_is_kafkas() -> None:
    partitions = pa.array([7, None], pa.int64())
    as_events = pa.record_batch({"payload": ["a", "b"], "key": ["k", "k"], "partition": partitions})
    as_json = pa.record_batch({"id": ["a", "b"], "to": partitions})
    of_kafka = pa.record_batch({"value": ["a", "b"], "key": ["k", "k"], "partition": partitions})
    assert [each["position"] for each in events_of(as_events)] == [8.0, point("k")]
    assert [each["position"] for each in events_of(as_json, partition="to", key="id")] == [8.0, point("b")]
    assert [each["position"] for each in events_of(of_kafka)] == [point("k")] * 2
    assert [each["position"] for each in events_of(of_kafka, partition="partition")] == [8.0, point("k")]
    for wrong in (-1, 2**40):
        with pytest.raises(InvalidArgument, match="numbered from 0"):
            events_of(pa.record_batch({"payload": ["a"], "partition": [wrong]}))


@pytest.mark.parametrize(
    ("pairs", "said"),
    [
        ([("a", b"1"), ("b", b"2"), ("a", b"3")], "'a'.*occurs twice"),
        ([("a", b"\xff")], "'a'.*not UTF-8"),
    ],
)
def test_headers_in_a_list_that_an_event_cannot_have_are_refused(
    pairs: list[tuple[str, bytes]], said: str
) -> None:
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    given = [[{"key": name, "value": value} for name, value in pairs]]
    with pytest.raises(InvalidArgument, match=said):
        events_of(pa.record_batch({"payload": ["x"], "headers": pa.array(given, headers)}))


def test_value_that_is_no_payload_is_refused_unless_a_key_is_named() -> None:
    rows = pa.record_batch({"key": ["k"], "value": [1.5]})
    with pytest.raises(InvalidArgument, match=r'option\("key", "key"\)'):
        columns_of(rows)
    (event,) = events_of(rows, key="key")
    assert (event["payload"], event["key"]) == (b'{"key":"k","value":1.5}', "k")


def test_row_of_nulls_and_odd_texts_are_json() -> None:
    texts = ['"\\\\', "a\nb\u2028", None, "{,"]
    found = events_of(pa.record_batch({'a"b': texts, "n": pa.nulls(4, pa.int64())}))
    assert [json.loads(bytes(each["payload"])) for each in found] == [  # type: ignore[call-overload]  # bytes
        {} if each is None else {'a"b': each} for each in texts
    ]


def test_nested_rows_become_json_as_python_writes_them() -> None:
    inner = pa.struct([("x", pa.int64()), ("y", pa.list_(pa.string()))])
    kind = pa.struct(
        [("a", pa.list_(inner)), ("b", pa.struct([("c", pa.float64())])), ("d", pa.list_(pa.int8()))]
    )
    rows: list[object] = [
        {
            "a": [{"x": 1, "y": ["{,", '"\\', None, "[,"]}, None, {"x": None, "y": []}],
            "b": {"c": None},
            "d": [1],
        },
        None,
        {"a": [], "b": None, "d": None},
        {"a": None, "b": {"c": 2.5}, "d": [None, 3]},
    ]
    column = pa.array([{"a": None, "b": None, "d": [9]}, *rows], kind).slice(1)

    def filled(value: object) -> object:
        if isinstance(value, dict):
            return {name: filled(item) for name, item in value.items() if item is not None}
        return [filled(item) for item in value] if isinstance(value, list) else value

    events = events_of(pa.record_batch({"row": column, "n": pa.array(range(4))}))
    texts = [json.loads(cast("bytes", each["payload"])) for each in events]
    assert texts == [filled({"row": row, "n": at}) for at, row in enumerate(rows)]


def test_items_of_a_list_without_null_items_lose_only_their_null_fields() -> None:
    rows: list[object] = [[{"x": 1, "y": None}, {"x": None, "y": 2}], [{"x": 3, "y": 4}]]
    kind = pa.list_(pa.struct([("x", pa.int64()), ("y", pa.int64())]))
    events = events_of(pa.record_batch({"items": pa.array(rows, kind)}))
    assert [json.loads(cast("bytes", each["payload"])) for each in events] == [
        {"items": [{"x": 1}, {"y": 2}]},
        {"items": [{"x": 3, "y": 4}]},
    ]


def test_null_fields_are_omitted_wherever_they_stand() -> None:
    values: list[list[object]] = [["a", 'b"', "c"], [1.0, 2.5, 3.0], [{"x": 1}, {"x": None}, {"x": 3}]]
    kinds = [pa.string(), pa.float64(), pa.struct([("x", pa.int64())])]
    for absent in product([set(), {1}, {0, 1, 2}], repeat=3):
        columns = [
            [None if at in nulls else value for at, value in enumerate(column)]
            for column, nulls in zip(values, absent, strict=True)
        ]
        arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
        found = events_of(pa.RecordBatch.from_arrays(arrays, names=["s", "f", "o"]))
        wanted = [
            {
                name: {} if value == {"x": None} else value
                for name, value in zip(["s", "f", "o"], row, strict=True)
                if value is not None
            }
            for row in zip(*columns, strict=True)
        ]
        texts = [cast("bytes", each["payload"]).decode() for each in found]
        assert texts == [json.dumps(each, separators=(",", ":")) for each in wanted]


def test_float32_keeps_its_digits_in_json() -> None:
    found = events_of(pa.record_batch({"a": pa.array([0.1, 1e20], pa.float32())}))
    assert [each["payload"] for each in found] == [b'{"a":0.1}', b'{"a":1e+20}']


def test_texts_that_are_not_utf8_are_refused_in_rows_of_json() -> None:
    ends = pa.py_buffer(np.array([0, 1, 2], np.int32))
    texts = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"a\xff")])
    for column in (texts, pa.StructArray.from_arrays([texts], names=["b"])):
        with pytest.raises(InvalidArgument, match="not UTF-8"):
            events_of(pa.record_batch({"a": column}))


def test_times_of_day_are_texts_in_json() -> None:
    rows = pa.record_batch({"at": pa.array([3_723_000_004_000, None], pa.time64("ns"))})
    found = EventColumns(None, None, None, None).events(rows).column("payload")
    assert found.to_pylist() == [b'{"at":"01:02:03.000004"}', b"{}"]


def test_rows_without_a_payload_become_json_without_nulls() -> None:
    rows = pa.record_batch(
        {
            "carrier": ["UA", None],
            "delay": [2.5, math.nan],
            "high": [-math.inf, None],
            "day": [date(2013, 1, 1), None],
            "at": pa.array([0, None], pa.timestamp("us", "America/New_York")),
            "local": pa.array([0, None], pa.timestamp("us")),
            "price": [Decimal("1.50"), None],
            "raw": [b"\xff", None],
            "more": pa.array(
                [{"a": [1, None], "b": [("x", 1.0)], "c": None}, None],
                pa.struct(
                    [("a", pa.list_(pa.int64())), ("b", pa.map_(pa.string(), pa.float64())), ("c", pa.int8())]
                ),
            ),
        }
    )
    first, second = (json.loads(bytes(each["payload"])) for each in events_of(rows, key="carrier"))  # type: ignore[call-overload]  # bytes
    assert first == {
        "carrier": "UA",
        "delay": 2.5,
        "high": "-Infinity",
        "day": "2013-01-01",
        "at": "1970-01-01T00:00:00.000000Z",
        "local": "1970-01-01T00:00:00.000000",
        "price": "1.50",
        "raw": "/w==",
        "more": {"a": [1, None], "b": {"x": 1.0}},
    }
    assert second == {"delay": "NaN"}


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("payload", [None]),
        ("payload", ["x" * (EVENT_BYTES_MAX + 1)]),
        ("key", ["k" * 100_000]),
        ("headers", [[("h" * 100_000, "")]]),
    ],
)
def test_row_that_cannot_be_an_event_is_refused(column: str, values: list[object]) -> None:
    kinds = {"headers": pa.map_(pa.string(), pa.string())}
    given = {"payload": pa.array([b"x"]), column: pa.array(values, kinds.get(column, pa.string()))}
    rows = pa.record_batch(given)
    with pytest.raises(InvalidArgument):
        columns_of(rows).events(rows)


@pytest.mark.parametrize(
    ("rows", "columns", "named"),
    [
        ({"payload": ["x"], "colour": ["y"]}, {}, "colour"),
        ({"payload": [1]}, {}, "payload"),
        ({"id": [1]}, {"key": "id"}, "cast it"),
        ({"id": [1]}, {"key": "none"}, "none"),
        ({"id": [1]}, {"event_time": "id"}, "timestamp"),
        ({"payload": ["x"], "partition": ["1"]}, {}, "column partition.*cast it"),
        (
            {"payload": ["x"], "headers": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))},
            {},
            "map<string,string>",
        ),
        (
            {"took": [[timedelta(seconds=1)]], "interval": [{"interval": 1}]},
            {},
            "took.*JSON has no intervals",
        ),
    ],
)
@pytest.mark.acceptance("Q16")
def test_column_of_the_wrong_type_is_refused_by_name(
    rows: Mapping[str, list[object]], columns: Mapping[str, str], named: str
) -> None:
    with pytest.raises(InvalidArgument, match=named):
        columns_of(pa.record_batch(rows), **columns)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"stream": "s/t"}, "path"),
        ({}, "CREATE TEMPORARY VIEW"),
        ({"path": "/d", "stream": "nothing"}, "nothing"),
        ({"path": "/d", "stream": "_system/request"}, "_system"),
        ({"path": "/d", "stream": "s/t", "keys": "k"}, "did you mean 'key'"),
        ({"path": "/d", "topic": "t"}, "did you mean 'stream'"),
        ({"path": "/d", "stream": "s/t", "sink": "x"}, "give both sink and batch"),
        ({"path": "/d", "stream": "s/t", "sink": "x", "batch": "-1"}, "whole number"),
        ({"path": "/d", "stream": "s/t", "sink": "x", "batch": str(2**63)}, "whole number"),
        ({"path": "/d", "stream": "s/t", "sink": "", "batch": "1"}, "characters"),
    ],
)
def test_invalid_option_is_refused_by_name(options: Mapping[str, str], named: str) -> None:
    with pytest.raises(EventprocError, match=named):
        parse_sink_options(options, streaming=False, overwrite=False)


def test_batch_numbers_of_two_queries_do_not_collide() -> None:
    options = {"path": "/d", "stream": "s/t"}
    assert parse_sink_options(
        {**options, "Sink": "x", "queryName": "q", "checkpointLocation": "/c"},
        streaming=True,
        overwrite=False,
    ) == SinkOptions(address=Path("/d"), stream="s/t", sink="x", checkpoint="/c")
    with pytest.raises(InvalidArgument, match="batch"):
        parse_sink_options({**options, "batch": "1"}, streaming=True, overwrite=False)
    with pytest.raises(InvalidArgument, match="append"):
        parse_sink_options(options, streaming=False, overwrite=True)
    assert parse_sink_options(options, streaming=True, overwrite=True).stream == "s/t"  # complete mode
