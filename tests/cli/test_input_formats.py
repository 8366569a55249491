"""What `write` recognises by the content of its input, and what it refuses before anything is written."""

from __future__ import annotations

import bz2
import datetime
import decimal
import gzip
import io
import json
import lzma
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from click import ClickException
from hypothesis import given, strategies as st
from pyarrow import ipc, parquet

from eventproc.cli.input import arrow_tables
from tests.cli.conftest import Cli
from tests.cli.support import started
from tests.cli.test_input_rows import KeyedRow, all_rows, input_of

ROWS = [{"k": "ana", "n": 1}, {"k": None, "n": 2}]
JSON_ROWS = [(b'{"k":"ana","n":1}', "ana"), (b'{"k":null,"n":2}', None)]


def parquet_bytes(rows: Any = ROWS) -> bytes:
    file = io.BytesIO()
    parquet.write_table(rows if isinstance(rows, pyarrow.Table) else pyarrow.Table.from_pylist(rows), file)
    return file.getvalue()


def arrow_bytes(new: Callable[..., Any]) -> bytes:
    table = pyarrow.Table.from_pylist(ROWS)
    file = io.BytesIO()
    with new(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def rows_of(data: bytes, kind: str | None = None, key: str | None = None, size: int = 7) -> list[KeyedRow]:
    return all_rows(input_of(data, [size]), kind, key)


TABLES = {
    "parquet": parquet_bytes(),
    "arrow file": arrow_bytes(ipc.new_file),
    "arrow stream": arrow_bytes(ipc.new_stream),
    "json array": json.dumps(ROWS).encode(),
    "json array over lines": json.dumps(ROWS, indent=2).encode(),
    "json documents over lines": b"\n".join(json.dumps(row, indent=2).encode() for row in ROWS),
}


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES.keys())
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
def test_each_row_becomes_a_json_object(data: bytes, pack: Callable[[bytes], bytes], size: int) -> None:
    assert rows_of(pack(data), None, "k", size) == JSON_ROWS


@pytest.mark.parametrize("data", TABLES.values(), ids=TABLES.keys())
def test_a_file_is_recognised_whatever_its_name(shop: Cli, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "rows.txt"
    path.write_bytes(data)
    assert shop("write", "shop/orders", path, "--key", "k").ok() == "written 2\n"
    shop("write", "shop/orders", "--key", "k", stdin=data).ok()
    shop("write", "shop/orders", path, "--transaction").ok()
    found = [row["payload"] for row in shop("read", "shop/orders", "--output", "jsonl").rows()]
    assert sorted(found[3:]) == sorted([row.decode() for row, _ in JSON_ROWS] * 3)


@pytest.mark.parametrize(
    "text",
    [
        b"plain\ntext",
        b"[2026-01-02] started\n[2026-01-03] ended",
        b"[INFO] started",
        b"[1] note\nmore",
        b'{"a":1}\n{"a":2}',
        b'{"a":1}',
        b"[1,2]\n[3,4]",
        b"{ broken: yes }",
        b"{}\n",
        b'"a"',
        b"\xff\xfdlatin",
        b"PK",
        b"BZ",
        b"",
    ],
)
def test_lines_stay_lines(text: bytes) -> None:
    for size in (1, 100):
        assert [line for line, _ in rows_of(text, size=size)] == text.splitlines()


def test_a_byte_order_mark_is_not_part_of_the_first_line() -> None:
    assert rows_of(b"\xef\xbb\xbfa\nb") == [(b"a", None), (b"b", None)]
    assert rows_of(b"\xef\xbb\xbfa", "lines") == [(b"\xef\xbb\xbfa", None)]


def sqlite_bytes() -> bytes:
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE t(x)")
        return db.serialize()


def zip_bytes() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a", "b")
    return file.getvalue()


REFUSED = {
    "zstd -dc": b"\x28\xb5\x2f\xfd\x04\x00",
    "lz4 -dc": b"\x04\x22\x4d\x18\x64",
    "ZIP archive or a spreadsheet; unpack it, or save the sheet as CSV": zip_bytes(),
    "SQLite database; sqlite3 -csv": sqlite_bytes(),
    "UTF-16; iconv": "a\nb".encode("utf-16"),
    "not text; convert": b"text\x00binary",
    "Avro file; convert": b"Obj\x01\x04",
}


@pytest.mark.parametrize("reason, data", REFUSED.items())
def test_a_binary_input_is_refused_before_anything_is_written(
    shop: Cli, tmp_path: Path, reason: str, data: bytes
) -> None:
    path = tmp_path / "rows"
    path.write_bytes(data)
    for arguments, stdin in (([path], b""), ([], data), ([path, "--transaction"], b"")):
        said = shop("write", "shop/orders", *arguments, stdin=stdin)
        assert (said.code, said.out) == (1, "")
        assert reason in said.err
    assert len(shop("read", "shop/orders", "--output", "jsonl").rows()) == 3


@pytest.mark.parametrize("data", [*REFUSED.values(), parquet_bytes(), json.dumps(ROWS).encode()])
def test_format_lines_writes_any_bytes(data: bytes) -> None:
    assert b"\n".join(line for line, _ in rows_of(data, "lines")) == data.removesuffix(b"\n")


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json"])
def test_a_compressed_pipe_is_decompressed_for_a_named_format(kind: str) -> None:
    text = b"k,n\nana,1\n" if kind == "csv" else b'{"k":"ana","n":1}\n'
    assert [key for _, key in rows_of(gzip.compress(text), kind, "k")] == ["ana"]


def test_the_types_of_a_table_become_json() -> None:
    at = datetime.datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)
    table = pyarrow.table(
        {
            "at": pyarrow.array([at]),
            "naive": pyarrow.array([at.replace(tzinfo=None)]),
            "day": pyarrow.array([at.date()]),
            "time": pyarrow.array([at.time()]),
            "took": pyarrow.array([datetime.timedelta(seconds=1.5)]),
            "price": pyarrow.array([decimal.Decimal("1.10")]),
            "raw": pyarrow.array([b"\x00\xff"]),
            "many": pyarrow.array([[1, 2, None]]),
            "nested": pyarrow.array([{"price": decimal.Decimal("2.50"), "more": [{"raw": b"a"}]}]),
            "map": pyarrow.array([[("a", at.date())]], pyarrow.map_(pyarrow.string(), pyarrow.date32())),
            "text": pyarrow.array(["zwölf"]).dictionary_encode(),
            "nan": pyarrow.array([float("nan")]),
            "ratio": pyarrow.array([1.5], pyarrow.float32()),
            "big": pyarrow.array([2**63 - 1]),
            "flag": pyarrow.array([True]),
            "none": pyarrow.array([None], pyarrow.timestamp("us")),
        }
    )
    ((payload, _),) = rows_of(parquet_bytes(table))
    assert json.loads(payload) == {
        "at": "2026-01-02T03:04:05.000006+00:00",
        "naive": "2026-01-02T03:04:05.000006",
        "day": "2026-01-02",
        "time": "03:04:05.000006",
        "took": "P0DT1.500000S",
        "price": "1.10",
        "raw": "AP8=",
        "many": [1, 2, None],
        "nested": {"price": "2.50", "more": [{"raw": "YQ=="}]},
        "map": {"a": "2026-01-02"},
        "text": "zwölf",
        "nan": None,
        "ratio": 1.5,
        "big": 2**63 - 1,
        "flag": True,
        "none": None,
    }


def test_a_table_is_read_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_tables, "BATCH_ROWS", 10)
    numbers = [{"n": number} for number in range(95)]
    for data in (parquet_bytes(numbers), arrow_stream_of(numbers)):
        assert [json.loads(row)["n"] for row, _ in rows_of(data)] == list(range(95))


def arrow_stream_of(rows: list[dict[str, int]]) -> bytes:
    table = pyarrow.Table.from_pylist(rows)
    file = io.BytesIO()
    with ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize(
    "key, rows, reason",
    [
        ("x", ROWS, "column 'x': here has k, n"),
        ("n", [{"n": 1.5}], "row 1: field 'n' is float, a key is text or an integer"),
        ("n", [{"n": True}], "row 1: field 'n' is bool"),
    ],
)
def test_a_key_of_a_table_is_a_column_of_text_or_integers(key: str, rows: Any, reason: str) -> None:
    with pytest.raises(Exception, match=reason):
        rows_of(parquet_bytes(rows), None, key)


def test_an_integer_column_is_a_key() -> None:
    assert [key for _, key in rows_of(parquet_bytes(), None, "n")] == ["1", "2"]


def test_without_pyarrow_a_table_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for data in (TABLES["parquet"], TABLES["arrow file"], TABLES["arrow stream"]):
        with pytest.raises(
            ClickException, match=r"it is (Parquet|Arrow); .* pip install 'eventproc\[arrow\]'"
        ):
            rows_of(data)


@pytest.mark.parametrize(
    "data", [TABLES["parquet"][:50], TABLES["arrow file"][:50], TABLES["arrow stream"][:50], b"PAR1"]
)
def test_a_damaged_table_is_called_that(data: bytes) -> None:
    with pytest.raises(ClickException, match="here: cannot be read at its beginning"):
        rows_of(data)


@pytest.mark.parametrize(
    "text, reason",
    [
        (b'[{"a":1},', "the array has no end"),
        (b'[{"a":1} {"a":2}]', "element 1: a comma or ] is missing"),
        (b'[{"a":1}]\n[2]', "more follows the array; pass --format jsonl"),
        (b'[{"a":1},\n{"a":]', "element 2: not JSON"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b'["\xff"]', "not UTF-8"),
    ],
)
def test_json_that_is_damaged_is_called_that(text: bytes, reason: str) -> None:
    with pytest.raises(ClickException, match=reason):
        rows_of(text, "json")


@given(
    st.lists(
        st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=4)
    ),
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.sampled_from([None, 2]),
)
def test_the_elements_of_an_array_are_those_of_the_standard_library(
    values: list[object], sizes: list[int], indent: int | None
) -> None:
    text = json.dumps(values, indent=indent).encode()
    assert [json.loads(row) for row, _ in all_rows(input_of(text, sizes), "json")] == values


@pytest.mark.subprocess
def test_the_first_line_of_a_pipe_is_written_before_the_second_comes(shop: Cli) -> None:
    with started("-C", shop.directory, "write", "shop/orders") as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number, line in enumerate((b'{"a":1}\n', b"P\n"), start=1):
            writer.stdin.write(line)
            writer.stdin.flush()
            assert writer.stdout.readline() == f"written {number}\n".encode()
        writer.stdin.close()
