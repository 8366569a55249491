"""The option `schema` beside Spark's own `from_json`, on values of all types and on malformed payloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pytest
from pyspark.sql import (
    SparkSession,
    functions as F,  # noqa: N812 - its usual name
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from eventproc.spark import json_payloads
from eventproc.spark.json_payloads import parse_json
from tests.spark.json_corpus import ALL, PAYLOADS, SCHEMAS

MALFORMED_HERE: Final = {
    b"{'id': 3}": "single quotes are not JSON",
    b'{"id":1} x': "text behind the object",
    b'{"id":1}{"id":2}': "a second object",
    b"": "there is no object",
}
"""Payloads that Spark reads and the option calls malformed."""

MEANT: Final = {
    "byte": {b'{"v":128}': "Spark wraps it to -128"},
    "string": dict.fromkeys(
        (b'{"v":%s}' % each for each in (b"1e3", b"123456789.12", b"1e60", b"1e999", b"NaN", b"-Infinity")),
        "Spark prints numbers as Java does; here they stay as written",
    ),
    "date": dict.fromkeys((b'{"v":"5"}', b'{"v":"1700000000"}'), "Spark takes it for a number of days"),
    "timestamp": dict.fromkeys(
        (b'{"v":9223372036854775807}', b'{"v":99999999999999}'),
        "Spark's microseconds overflow, or Python has no such year",
    ),
}
"""By type: values that Spark reads otherwise, and why this is meant."""


def spark_rows(spark: SparkSession) -> dict[str, list[tuple[str | None, ...]]]:
    """Return what `from_json` makes of all payloads under each schema; one job."""
    payloads = (*PAYLOADS, *MALFORMED_HERE)
    rows = spark.createDataFrame([(n, bytearray(each)) for n, each in enumerate(payloads)], "n int, p binary")
    text = F.col("p").cast("string")
    parsed = rows.coalesce(1).select(
        "n", *(F.from_json(text, schema).alias(f"s{n}") for n, schema in enumerate(SCHEMAS))
    )
    table = parsed.toArrow().sort_by("n")
    found = {}
    for number, schema in enumerate(SCHEMAS):
        structs = table.column(f"s{number}").combine_chunks()
        found[schema] = as_texts(structs.flatten())
    return found


def our_rows(schema: str, payloads: Sequence[bytes]) -> list[tuple[str | None, ...]]:
    """Return what the option makes of payloads."""
    fields = StructType.fromDDL(schema)
    assert isinstance(fields, StructType), "a list of fields"
    kinds = to_arrow_schema(fields, timezone="UTC")
    return as_texts(parse_json(pa.array(payloads, pa.binary()), kinds).columns)


def as_texts(columns: Sequence[pa.Array]) -> list[tuple[str | None, ...]]:
    """Return rows as texts, because Python has no dates beyond the year 9999."""
    return list(zip(*([_as_text(each) for each in column] for column in columns), strict=True))


def _as_text(value: pa.Scalar) -> str | None:
    if not value.is_valid:
        return None
    if pa.types.is_date(value.type) or pa.types.is_timestamp(value.type):
        return str(value.value)
    if pa.types.is_struct(value.type):
        return str([_as_text(each) for each in value.values()])
    if pa.types.is_map(value.type) or pa.types.is_list(value.type):
        return str([_as_text(each) for each in value.values])
    return repr(value.as_py())


def differing(schema: str, theirs: list[tuple[str | None, ...]]) -> Iterator[bytes]:
    payloads = (*PAYLOADS, *MALFORMED_HERE)
    for payload, our, their in zip(payloads, our_rows(schema, payloads), theirs, strict=True):
        if our != their:
            yield payload


@pytest.mark.acceptance("Q11")
def test_rows_are_those_of_from_json_except_for_the_listed_ones(spark: SparkSession) -> None:
    for schema, theirs in spark_rows(spark).items():
        kind = schema.split()[1].rstrip(",")
        found = set(differing(schema, theirs))
        meant = set(MEANT.get(kind, {})) if schema != ALL else set()
        readable = {b""} if schema != ALL else set(MALFORMED_HERE)
        assert found - set(MALFORMED_HERE) == meant, schema
        assert found & set(MALFORMED_HERE) >= readable, schema


@pytest.mark.acceptance("Q11")
def test_row_does_not_depend_on_the_payloads_beside_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for schema in SCHEMAS:
        monkeypatch.setattr(json_payloads, "BLOCK_MIN", len(PAYLOADS) + 1)  # each one by itself
        alone = our_rows(schema, PAYLOADS)
        monkeypatch.setattr(json_payloads, "BLOCK_MIN", 1)
        assert our_rows(schema, PAYLOADS) == alone
        for payload, row in zip(PAYLOADS, alone, strict=True):  # by Arrow, if it takes the payload
            assert our_rows(schema, [payload]) == [row], payload
