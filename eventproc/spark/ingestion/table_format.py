"""The format "eventproc.table": published tables as DataFrames, in sessions that are not attached to a directory.

Spark asks for the columns and the partitions in processes of its own, which open the directory for one read each. The
files of the plan stay for a day after they were replaced or dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eventproc.spark.option_names import store_of
from eventproc.store.address import StoreAddress
from eventproc.store.model.argument_checks import invalid_argument

if TYPE_CHECKING:
    import pyarrow as pa


OPTIONS: Final = frozenset({"path", "table", "start", "end"})


@attrs.frozen
class TableOptions:
    """What to read. start, end: bounds of the time, as texts; None: unbounded."""

    address: StoreAddress
    table: str
    start: str | None
    end: str | None

    @classmethod
    def parse(cls, given: MutableMapping[str, str]) -> TableOptions:
        """Return the options of a read. Raises InvalidArgument."""
        plain = {key.lower(): value for key, value in given.items()}
        if unknown := sorted(plain.keys() - OPTIONS):
            raise invalid_argument("option", unknown[0], f"unknown; there are {', '.join(sorted(OPTIONS))}")
        for name, example in (("path", 'load("data/")'), ("table", 'option("table", "clicks")')):
            if name not in plain:
                raise invalid_argument("option", name, f"missing; give it as in {example}")
        return cls(store_of(plain), plain["table"], plain.get("start"), plain.get("end"))


class FileRead(InputPartition):
    """One published file, or none: a task of a read."""

    def __init__(self, place: str, path: str | None) -> None:
        super().__init__(None)
        self.place, self.path = place, path

    def __reduce__(self) -> tuple[type[FileRead], tuple[str, str | None]]:
        return FileRead, (self.place, self.path)


class EventprocTable(DataSource):
    """`spark.read.format("eventproc.table").option("table", NAME).load(DIRECTORY)`; also with `start` and `end`."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = dict(options.items())

    @classmethod
    def name(cls) -> str:
        """Return "eventproc.table"."""
        return "eventproc.table"

    def schema(self) -> StructType:
        """Return the columns of the table. Raises InvalidArgument, NotFound."""
        from eventproc.ingestion.table_schema import table_schema
        from eventproc.spark.ingestion.rows import table_columns
        from eventproc.spark.planner_directory import PlannerDirectory

        asked = TableOptions.parse(self._given)
        with PlannerDirectory(asked.address) as directory:
            schema = directory.read(lambda tx: table_schema(tx, asked.table))
        return table_columns(schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of the files as they are when Spark plans the read."""
        return TableReader(TableOptions.parse(self._given), schema)


class TableReader(DataSourceReader):
    """Reads the used files of one moment."""

    def __init__(self, options: TableOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        """Return the files with rows within the bounds. One read of the database."""
        from eventproc.ingestion.intervals import ms_of_bounds
        from eventproc.spark.ingestion.files import TableFiles
        from eventproc.spark.planner_directory import PlannerDirectory
        from eventproc.store.ingestion.table_state import within

        asked = self._options
        bounds = ms_of_bounds(asked.start, asked.end)
        with PlannerDirectory(asked.address) as directory:
            tables = TableFiles(directory)
            paths = tables.find(within(tables.tables.used(asked.table), *bounds))
        place = tables.files.place
        return [FileRead(place, each) for each in paths] or [FileRead(place, None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a file within the bounds; a column that it does not have is null."""
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark.sql.pandas.types import to_arrow_schema

        from eventproc.ingestion.intervals import ms_of_bounds
        from eventproc.spark.ingestion.parquet import rows_of_file
        from eventproc.store.file_store import open_file_store
        from eventproc.store.model.ingestion import TIME

        assert isinstance(partition, FileRead), f"{partition} is not a FileRead"
        if partition.path is None:
            return
        start_ms, end_ms = ms_of_bounds(self._options.start, self._options.end)
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        for batch in rows_of_file(open_file_store(partition.place), partition.path, wanted):
            for comparison, ms in (("greater_equal", start_ms), ("less", end_ms)):
                if ms is not None:
                    times = batch.column(TIME)
                    limit = pa.scalar(ms, pa.timestamp("ms", tz="UTC")).cast(times.type)
                    batch = batch.filter(pc.call_function(comparison, [times, limit]))
            yield batch
