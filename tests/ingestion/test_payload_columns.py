"""What ingestion reads in a payload depends on that payload alone, however the events are divided into blocks."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from eventproc.spark.ingestion.payloads import parse_payloads

FIELDS = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("whole", pa.int64()),
        pa.field("real", pa.float64()),
        pa.field("truth", pa.bool_()),
    ]
)

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-2, 2),
    st.floats(),
    st.sampled_from([0.5, -0.0, 1e300, 2.0**53]),
    st.sampled_from(
        ["", "x", "1", "1.50", " 2", "1_0", "true", "nan", "Infinity", "1e400", "ü", "\ud800", "\0"]
    ),
    st.lists(st.integers(0, 3), max_size=2),
)

OBJECTS = st.dictionaries(st.sampled_from([*FIELDS.names, "other"]), VALUES).map(
    lambda row: json.dumps(row).encode()
)

ODD = st.sampled_from(
    [
        b"",
        b"null",
        b"1",
        b"[]",
        b"{",
        b"{} {}",
        b'{"whole":1}\n{"whole":2}',
        b'{"whole":1,"whole":2}',
        b'{"real":Inf}',
        b'{"real":1.}',
        b'{"whole":01}',
        b'{"text":"\xff"}',
        b'{"text":"a\tb"}',
    ]
)


def _rows(payloads: list[bytes]) -> list[tuple[object, ...]]:
    columns, wrong = parse_payloads(pa.array(payloads, pa.binary()), FIELDS)
    texts = [[str(value) for value in column.to_pylist()] for column in columns]  # NaN differs from itself
    return list(zip(*texts, wrong.is_valid().to_pylist(), strict=True))


@given(kinds=st.lists(st.sampled_from([OBJECTS, OBJECTS, ODD]), min_size=1, max_size=4), data=st.data())
def test_a_row_depends_on_its_payload_alone(
    kinds: list[st.SearchStrategy[bytes]], data: st.DataObject
) -> None:
    payloads = [data.draw(kind) for kind in kinds]
    assert _rows(payloads) == [_rows([payload])[0] for payload in payloads]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ('{"text":1.5}', '{"text":1}'),
        ('{"whole":1.0}', '{"whole":9007199254740993}'),
        ('{"truth":1}', '{"truth":5}'),
    ],
)
def test_neighbours_of_another_type_change_nothing(first: str, second: str) -> None:
    alone = _rows([second.encode()])[0]
    assert _rows([first.encode(), second.encode()])[1] == alone


@pytest.mark.parametrize(
    "odd",
    [
        b'{"whole": 1, "other": ' + b"[" * 2_000 + b"]" * 2_000 + b"}",
        b'{"text": ' + b"1" * 5_000 + b"}",
        b'{"real": -NaN}',
    ],
    ids=["nested", "long integer", "signed NaN"],
)
def test_an_odd_payload_reads_alike_alone_and_among_others(odd: bytes) -> None:
    def row(payloads: list[bytes]) -> list[object]:
        columns, wrong = parse_payloads(pa.array(payloads, pa.binary()), FIELDS)
        return [str(column[-1].as_py()) for column in [*columns, wrong]]

    assert row([odd]) == row([b'{"text": "x", "whole": 1, "real": 0.5}'] * 20 + [odd])
