"""The least that a Python source of Spark can be: one partition, one row a batch, nothing behind it."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import StructType


class TrivialSource(DataSource):
    """The format "trivial"."""

    @classmethod
    def name(cls) -> str:
        """Return "trivial"."""
        return "trivial"

    def schema(self) -> str:
        """Return one column."""
        return "number long"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return the reader."""
        return TrivialReader()


class TrivialReader(DataSourceStreamReader):
    """Has one more row whenever it is asked."""

    def __init__(self) -> None:
        self._number = 0

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return 0."""
        return {"number": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return none."""
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return one more."""
        return {"number": start["number"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one."""
        return [InputPartition(end["number"])]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        """Yield one row."""
        yield (partition.value,)
