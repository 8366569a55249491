"""Whether rows and files have the columns of a table: those that differ are named, before anything is written.

Source: docs/design/spark-ingestion.md.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pyarrow.parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
)

from eventproc.store.file_store import FileStore
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import CorruptRecord


def check_rows(table: str, columns: StructType, rows: StructType) -> None:
    """Raise InvalidArgument unless rows have the columns of a table, of types that become theirs exactly."""
    if missing := sorted(set(columns.names) - set(rows.names)):
        raise invalid_argument("rows", sorted(rows.names), f"columns are missing: {missing}")
    if unknown := sorted(set(rows.names) - set(columns.names)):
        raise invalid_argument(
            "rows",
            sorted(rows.names),
            f"table {table} has no columns {unknown}; leave them out, or submit a spec that has them",
        )
    for column in columns:
        found = rows[column.name].dataType
        if not becomes_exactly(found, column.dataType):
            had, wanted = found.simpleString(), column.dataType.simpleString()
            raise invalid_argument(
                "rows",
                column.name,
                f"column {column.name} of table {table} is a {wanted}, and these rows have a {had}, which may lose"
                f' values; cast it: rows.withColumn("{column.name}", rows["{column.name}"].cast("{wanted}"))',
            )


def becomes_exactly(had: DataType, wanted: DataType) -> bool:
    """Return whether every value of a type is one of another type, so that a cast between them loses nothing. Pure.

    Wider integers and floats; integers of at most 32 bits as doubles; decimals without a fraction as far as they fit;
    texts of a limited length; dates, and times without a zone, as times in the session's zone.
    """
    if had == wanted or isinstance(had, NullType):
        return True
    if isinstance(had, DecimalType):
        digits: dict[type[DataType], int] = {LongType: 18, DoubleType: 15}
        return had.scale == 0 and had.precision <= digits.get(type(wanted), 0)
    wider: dict[type[DataType], tuple[type[DataType], ...]] = {
        LongType: (ByteType, ShortType, IntegerType),
        DoubleType: (ByteType, ShortType, IntegerType, FloatType),
        StringType: (StringType, CharType, VarcharType),
        TimestampType: (DateType, TimestampNTZType),
    }
    return isinstance(had, wider.get(type(wanted), ()))


def check_files(files: FileStore, paths: Iterable[str], columns: StructType, names: Collection[str]) -> None:
    """Raise CorruptRecord for a file in which a column has another type than in the table.

    names: columns that a spec has changed, before such specs were refused or while the table was empty; no others are
    compared. Cost: without any, nothing; otherwise a read of the end of each file.
    """
    if not names:
        return
    wanted = to_arrow_schema(columns, timezone="UTC")
    for path in paths:
        found = pyarrow.parquet.read_schema(files.open_arrow(path))
        for name in sorted({*names} & {*found.names} & {*wanted.names}):
            if found.field(name).type != wanted.field(name).type:
                raise CorruptRecord(
                    key=f"published file {path}",
                    reason=f"its column {name} is a {found.field(name).type}, and the newest spec of the table says"
                    f" {wanted.field(name).type}; drop its interval from the table",
                )
