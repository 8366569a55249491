"""Events that are no rows, as events of another stream: a job writes them as the sink's tasks write theirs.

The transaction that publishes a sequence appends them, so each is there exactly once, or is not published yet.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import Final

import attrs
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, StructField, StructType

from eventproc.processors.dead_letters import dead_letter as headers
from eventproc.processors.errors import ERROR_CHARS_MAX
from eventproc.spark.sink_rows import EVENTS, points_of
from eventproc.spark.sink_task import TaskOutput, write_task
from eventproc.store.chunks.arrow_buffers import numbers
from eventproc.store.file_store import FileStore, open_file_store

REASON: Final = "reason"
"""Column: why an event is no row; beside what the event carries, and its payload."""

ERROR_TYPE: Final = "Unparseable"
SUPERVISOR: Final = "ep-supervisor"
TABLE: Final = "ep-table"
"""Headers beside those of a dead letter: which supervisor found the event unparseable, and for which table."""

_FOLDER: Final = "unparseable"
_OUTPUT: Final = StructType([StructField("output", BinaryType())])


@attrs.frozen
class UnparseableEvents:
    """Makes events of the rows of `RowFrames.unparseable_events`: those of before, with the headers of a dead letter.

    stream: of all of them; None, as it is chosen when they are appended.
    """

    supervisor: str
    table: str
    stream: str | None = None

    def by_stream(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield all rows: none says where it goes."""
        yield None, rows

    def events(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events with the columns EVENTS. Headers may exceed the limits, as those of a dead letter."""
        keys = rows.column("key")
        kinds = [EVENTS.field(name).type for name in ("payload", "key", "event_time")]
        given = (rows.column(name) for name in ("payload", "key", "event_time"))
        same = [column.cast(kind) for column, kind in zip(given, kinds, strict=True)]
        names = ("headers", "stream", "segment", "offset", "number", "timestamp", REASON)
        made = [
            [*self._headers(*row).items()]
            for row in zip(*(rows.column(name).to_pylist() for name in names), strict=True)
        ]
        columns = [
            *same,
            pa.array(made, EVENTS.field("headers").type),
            numbers(points_of(keys), pa.float64()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=EVENTS)

    def _headers(
        self,
        known: list[tuple[str, str]] | None,
        stream: str,
        segment: str,
        offset: int,
        number: int,
        appended_ms: int,
        reason: str,
    ) -> dict[str, str]:
        origin = (stream, segment, str(offset), str(number), str(appended_ms))
        return {
            **{name: value for name, value in known or () if name not in headers.HEADERS},
            **dict(zip(headers.ORIGIN, origin, strict=True)),
            headers.ERROR: reason[:ERROR_CHARS_MAX],
            headers.ERROR_TYPE: ERROR_TYPE,
            SUPERVISOR: self.supervisor,
            TABLE: self.table,
        }


def write_unparseable(rows: DataFrame, events: UnparseableEvents, files: FileStore) -> list[TaskOutput]:
    """Write events into chunk files, by a job, and return what each of its tasks made: a file, or a few events.

    Raises Spark's errors. A task that fails, or that runs twice, leaves a file without a row, which is swept.
    """
    found = rows.mapInArrow(_WriteEvents(events, files.place), _OUTPUT).collect()
    outputs: list[TaskOutput] = [pickle.loads(row.output) for row in found]
    return [each for each in outputs if each.file is not None or each.small_events is not None]


@attrs.frozen
class _WriteEvents:
    """A function for `mapInArrow` that writes the rows that it receives, and yields what it made."""

    events: UnparseableEvents
    place: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        output = write_task(batches, self.events, open_file_store(self.place), _FOLDER)
        yield pa.record_batch({"output": pa.array([pickle.dumps(output)], pa.binary())})
