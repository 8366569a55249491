"""JSON payloads as columns: what fits comes through, what does not is null, and no payload moves another's row."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from eventproc.spark.json_payloads import parse_json
from eventproc.store.model.errors import CorruptRecord

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("ratio", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def parsed(*payloads: bytes, mode: str = "permissive") -> list[tuple[object, ...]]:
    columns = parse_json(pa.array(payloads, pa.binary()), SCHEMA, mode=mode).columns
    assert [column.type for column in columns] == list(SCHEMA.types)
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


@pytest.mark.parametrize(
    "odd",
    [b"", b" ", b"null", b"[]", b"{", b"{}{}", b"1},{", b'{}},{"p":{}', b"\xff", b'"text"'],
    ids=repr,
)
def test_payload_that_is_not_an_object_is_a_row_of_nulls(odd: bytes) -> None:
    nothing = (None, None, None, None)
    assert parsed(b'{"id": 1}', odd, b'{"id": 3}') == [(1, *nothing[1:]), nothing, (3, *nothing[1:])]


def test_one_malformed_payload_among_thousands_takes_no_value_from_the_others() -> None:
    good = b'{"t": "2026-01-02T03:04:05", "dec": "12.34", "n": 1}'
    kinds = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("dec", pa.decimal128(10, 2)), ("n", pa.int64())])
    columns = parse_json(pa.array([*[good] * 700, b"oops", *[good] * 300], pa.binary()), kinds).columns
    assert [len(column) - column.null_count for column in columns] == [1000, 1000, 1000]


def test_malformed_payloads_are_dropped_or_kept_as_text() -> None:
    kinds = pa.schema([("_corrupt_record", pa.string()), ("id", pa.int64())])
    payloads = pa.array([b'{"id": 1}', b"oops", b'{"id": "x"}', b'{"id": 4}'], pa.binary())
    kept = parse_json(payloads, kinds)
    assert kept.columns[0].to_pylist() == [None, "oops", '{"id": "x"}', None]
    assert (kept.columns[1].to_pylist(), kept.kept) == ([1, None, None, 4], None)
    dropping = parse_json(payloads, kinds, mode="dropmalformed")
    assert dropping.kept is not None
    assert dropping.kept.to_pylist() == [0, 3]


@pytest.mark.parametrize("odd", [b"", b"{}{}", b"null", b'{"id": "one"}'], ids=repr)
def test_failfast_mode_fails_the_query(odd: bytes) -> None:
    with pytest.raises(CorruptRecord, match="mode is failfast"):
        parsed(b'{"id": 1}', odd, mode="failfast")


@pytest.mark.parametrize(
    "depth, expected", [(250, (1, None)), (2_000, (None, None)), (100_000, (None, None))]
)
@pytest.mark.parametrize("bracket", [b"[]", b"{}"])
def test_a_payload_that_is_nested_too_deeply_is_malformed_alone_and_among_others(
    bracket: bytes, depth: int, expected: tuple[object, object]
) -> None:
    opened, closed = (b"[", b"]") if bracket == b"[]" else (b'{"a":', b"}")
    deep = b'{"id": 1, "other": ' + opened * depth + b"1" + closed * depth + b"}"
    flat = b'{"id": 2, "name": "[[["}'
    assert parsed(deep)[0][:2] == expected
    assert parsed(deep, *[flat] * 20)[0][:2] == expected


ROWS = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "name": st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
        "tags": st.none() | st.lists(st.text(st.characters(codec="utf-8"), max_size=2), max_size=2),
        "more": st.lists(st.none() | st.booleans(), max_size=2),
    },
)


@given(st.lists(ROWS, min_size=1, max_size=5), st.booleans())
def test_columns_agree_with_the_json_module(rows: list[dict[str, object]], with_odd: bool) -> None:
    payloads = [json.dumps(row).encode() for row in rows]
    found = parsed(*payloads, *([b"odd"] if with_odd else []))
    assert found[: len(rows)] == [tuple(row.get(name) for name in SCHEMA.names) for row in rows]
