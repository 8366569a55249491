"""What ingestion reads in a payload depends on that payload alone, however the events are divided into blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

import eventproc.spark.ingestion.payloads as payloads_module
from eventproc.spark.ingestion.payloads import Path, parse_payloads
from eventproc.spark.json_payloads import parse_block

FIELDS = pa.schema(
    [
        pa.field("text", pa.string()),
        pa.field("whole", pa.int64()),
        pa.field("real", pa.float64()),
        pa.field("truth", pa.bool_()),
        pa.field("city", pa.string()),
        pa.field("age", pa.int64()),
        pa.field("tag", pa.string()),
        pa.field("price", pa.float64()),
    ]
)

PATHS: tuple[Path, ...] = (
    *(("text",), ("whole",), ("real",), ("truth",)),
    *(("user", "city"), ("user", "age"), ("tags", 1), ("items", 0, "price")),
)
"""Where they are in a payload."""

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

USERS = st.fixed_dictionaries({}, optional={"city": VALUES, "age": VALUES, "other": VALUES})
NESTED = st.fixed_dictionaries(
    {},
    optional={
        "user": st.one_of(VALUES, USERS),
        "tags": st.one_of(VALUES, st.lists(VALUES, max_size=3)),
        "items": st.one_of(VALUES, st.lists(st.fixed_dictionaries({"price": VALUES}), max_size=2)),
    },
)
FLAT = st.dictionaries(st.sampled_from([*FIELDS.names[:4], "other"]), VALUES)
OBJECTS = st.tuples(FLAT, NESTED).map(lambda rows: json.dumps(rows[0] | rows[1]).encode())
PLAIN = st.fixed_dictionaries(
    {"whole": st.integers(0, 9)},
    optional={
        "user": st.one_of(
            st.none(), st.fixed_dictionaries({}, optional={"city": st.text(), "age": st.integers(0, 9)})
        ),
        "tags": st.one_of(st.none(), st.lists(st.one_of(st.none(), st.text()), max_size=3)),
        "items": st.lists(st.fixed_dictionaries({"price": st.sampled_from([None, 0.5, 2.5])}), max_size=2),
    },
).map(lambda row: json.dumps(row).encode())
"""Objects whose values have one type each: Arrow reads most blocks of them."""

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
        b'{"user":{"age":1,"age":2}}',
        b'{"tags":["a",{"b":[]}]}',
    ]
)


def _rows(payloads: list[bytes]) -> list[tuple[object, ...]]:
    columns, wrong = parse_payloads(pa.array(payloads, pa.binary()), FIELDS, PATHS)
    texts = [[str(value) for value in column.to_pylist()] for column in columns]  # NaN differs from itself
    return list(zip(*texts, wrong.is_valid().to_pylist(), strict=True))


@given(kinds=st.lists(st.sampled_from([OBJECTS, PLAIN, ODD]), min_size=1, max_size=4), data=st.data())
def test_a_row_depends_on_its_payload_alone(
    kinds: list[st.SearchStrategy[bytes]], data: st.DataObject
) -> None:
    payloads = [data.draw(kind) for kind in kinds]
    assert _rows(payloads) == [_rows([payload])[0] for payload in payloads]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "utf-32"])
def test_an_object_in_another_encoding_than_utf_8_is_no_row(encoding: str) -> None:
    row = '{"whole":1}'
    assert _rows([row.encode(), row.encode(encoding)])[1][-1] is True


@given(payloads=st.lists(PLAIN, min_size=1, max_size=6))
def test_values_in_objects_and_arrays_are_those_at_their_paths(payloads: list[bytes]) -> None:
    found = []
    for payload in payloads:
        row = json.loads(payload)
        user, tags, items = (row.get(name) or {} for name in ("user", "tags", "items"))
        inner = user.get("city"), user.get("age"), tags[1] if len(tags) > 1 else None
        price = items[0]["price"] if items else None
        found.append((None, row["whole"], None, None, *inner, price, False))
    texts = [(*(str(value) for value in row[:-1]), row[-1]) for row in found]
    assert _rows(payloads) == texts


def test_a_block_of_objects_is_read_by_arrow_and_values_that_are_objects_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blocks: list[int] = []

    def noted(block: pa.Array, schema: pa.Schema) -> Sequence[pa.Array] | None:
        blocks.append(len(block))
        return parse_block(block, schema)

    monkeypatch.setattr(payloads_module, "parse_block", noted)
    rows = pa.array([b'{"user": {"city": "B", "age": 3, "more": [1]}, "tags": ["x", "y"]}'] * 50)
    fields = pa.schema(
        [pa.field(name, pa.string()) for name in ("city", "age", "tag", "user", "tags", "none")]
    )
    paths: tuple[Path, ...] = (
        ("user", "city"),
        ("user", "age"),
        ("tags", 1),
        ("user",),
        ("tags",),
        ("tags", 2),
    )
    by_path, _ = parse_payloads(rows, pa.schema(list(fields)[:3]), paths[:3])
    assert [column[49].as_py() for column in by_path] == ["B", "3", "y"] and blocks == [50]
    as_texts, _ = parse_payloads(rows, fields, paths)
    texts = ['{"city": "B", "age": 3, "more": [1]}', '["x", "y"]', None]
    assert [column[49].as_py() for column in as_texts] == ["B", "3", "y", *texts] and blocks == [50]


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
        columns, wrong = parse_payloads(pa.array(payloads, pa.binary()), FIELDS, PATHS)
        return [str(column[-1].as_py()) for column in [*columns, wrong]]

    assert row([odd]) == row([b'{"text": "x", "whole": 1, "real": 0.5}'] * 20 + [odd])
