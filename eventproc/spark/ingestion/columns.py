"""Whether rows have the columns of a table: those that differ are named, before anything is written.

Source: docs/design/spark-ingestion.md.
"""

from __future__ import annotations

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

from eventproc.store.model.argument_checks import invalid_argument


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
