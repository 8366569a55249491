"""What a task of the sink does: writes its rows to a file sorted by point, or returns them if they are few."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from socket import gethostname
from typing import Final, Protocol

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from eventproc.base.clock import SystemClock, new_id
from eventproc.spark.sink_rows import EVENTS, POINT
from eventproc.store.chunks.arrow_buffers import numbers, values_of
from eventproc.store.chunks.chunk_file import ChunkWriter
from eventproc.store.chunks.index import ARROW_SUFFIX, BATCH_EVENTS_MAX, SINK_FOLDER
from eventproc.store.chunks.ingest import SHARED
from eventproc.store.file_store import FileStore
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.limits import FRAME_BYTES

SMALL_BYTES: Final = 128 * 2**10
"""Up to this many bytes of events a task sends them in its commit message. A higher value makes the driver carry more
and copy it into the database under the write lock. A lower one makes a file, with two syncs, for each small task."""

SORTED_BYTES: Final = 64 * 2**20
"""Bytes of events that are sorted together. A higher value makes fewer, larger extents and takes up to three times
that much memory."""

MESSAGE_BYTES: Final = 2**20
"""Bytes of events in the message of a task that writes to several streams. A higher value lets the messages of hundreds
of tasks fill the driver's memory. A lower one makes more files, with two syncs each."""

STREAMS_MAX: Final = 256
"""Streams that a task writes to, at most. Each may have an open file."""

BLOB_BYTES: Final = 2**20
"""Bytes of events per record batch, up to one event more: a reader reads a record batch completely."""


@attrs.frozen
class SortedFile:
    """A file that a task wrote. path: relative to the chunk folder. bytes, checksum: its size and CRC-32."""

    path: str
    bytes: int
    checksum: int


@attrs.frozen
class TaskOutput(WriterCommitMessage):
    """The output of a task for a stream: a file, or `small_events` sorted events.

    run: the query's id, if there is one. stream: its name; None: the sink's only one.
    """

    run: str | None
    file: SortedFile | None = None
    small_events: pa.RecordBatch | None = None
    stream: str | None = None


@attrs.frozen
class RoutedOutput(WriterCommitMessage):
    """The outputs of a task whose rows name their streams: none without rows. run: the query's id, if there is one."""

    run: str | None
    outputs: tuple[TaskOutput, ...]


class EventMaker(Protocol):
    """Makes events of rows, as `EventColumns` does."""

    @property
    def stream(self) -> str | None:
        """The column that names the stream of each row; None: all go to the same one."""
        ...

    def by_stream(self, rows: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield the rows of each stream, in their order; (None, all rows) if they need not say it."""
        ...

    def events(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the events of rows, with the columns EVENTS."""
        ...


def write_task(
    rows: Iterable[pa.RecordBatch], columns: EventMaker, files: FileStore, run: str | None
) -> TaskOutput:
    """Write the rows of a task durably. files: the chunk files. Raises InvalidArgument, OSError.

    A failing task leaves no file. A killed task may leave a file without a row, which the host's sweep deletes.
    """
    (output,) = write_routed_task(rows, columns, files, run) or (TaskOutput(run),)
    return output


def write_routed_task(
    rows: Iterable[pa.RecordBatch], columns: EventMaker, files: FileStore, run: str | None
) -> tuple[TaskOutput, ...]:
    """Do as `write_task`, with an output for each stream that the rows name, by name.

    Also raises InvalidArgument for more than STREAMS_MAX streams.
    """
    found: dict[str | None, _TaskFile] = {}
    try:
        for each in rows:
            for stream, own in columns.by_stream(each):
                if stream not in found:
                    if len(found) == STREAMS_MAX:
                        reason = f"a task writes to at most {STREAMS_MAX} streams; repartition by that column first"
                        raise invalid_argument(f"column {columns.stream}", stream, reason)
                    found[stream] = _TaskFile(files, run or "batch")
                found[stream].add(columns.events(own))
            _write_largest(list(found.values()), SORTED_BYTES)
        _write_largest([each for each in found.values() if each.is_small], MESSAGE_BYTES + 1)
        return tuple(
            attrs.evolve(found[stream].finish(run), stream=stream)
            for stream in sorted(found, key=lambda stream: stream or "")
        )
    except BaseException:
        for file in found.values():
            file.abandon()
        raise


def _write_largest(files: Sequence[_TaskFile], bytes_max: int) -> None:
    """Write the files with the most waiting events until fewer than `bytes_max` bytes of events are waiting."""
    waiting = sum(each.waiting_bytes for each in files)
    for each in sorted(files, key=lambda file: file.waiting_bytes, reverse=True):
        if waiting < bytes_max:
            return
        waiting -= each.waiting_bytes
        each.write()


class _TaskFile:
    """The file of a task, created when there are enough events."""

    def __init__(self, files: FileStore, run: str) -> None:
        self._files = files
        # Any number will do: in each task, events without a key begin at another point.
        identifier = new_id(SystemClock())
        self._spread = int(identifier[-8:], 16) / 2**32
        self._path = f"{SINK_FOLDER}/{run}/{identifier}{ARROW_SUFFIX}"
        self._writer: ChunkWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0

    @property
    def is_small(self) -> bool:
        """Whether the driver would carry the events."""
        return self._writer is None and self.waiting_bytes <= SMALL_BYTES

    def add(self, events: pa.RecordBatch) -> None:
        self._waiting.append(events)
        self.waiting_bytes += events.nbytes

    def finish(self, run: str | None) -> TaskOutput:
        if self.is_small:
            return TaskOutput(run, small_events=self._take())
        self.write()
        assert self._writer is not None, "more than SMALL_BYTES are waiting"
        self._writer.finish()
        self._files.sync(self._path)
        return TaskOutput(run, SortedFile(self._path, self._writer.size_bytes, self._writer.checksum))

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def write(self) -> None:
        """Sort the waiting events and write them to the file."""
        if (events := self._take()) is None:
            return
        if self._writer is None:
            try:
                self._files.verify_reachable()  # a folder made here would be one that the driver does not see
            except FileNotFoundError:
                raise FileNotFoundError(
                    f"{self._files.place}: not found on {gethostname()}; {SHARED}"
                ) from None
            self._writer = ChunkWriter(self._files, self._path, EVENTS)
        for batch in _batches(events):
            self._writer.write_batch(batch)

    def _take(self) -> pa.RecordBatch | None:
        """Remove and return the waiting events in a stable sort by point, or None if there are none."""
        waiting, self._waiting, self.waiting_bytes = self._waiting, [], 0
        count = sum(each.num_rows for each in waiting)
        if not count:
            return None
        (events,) = pa.Table.from_batches(waiting).combine_chunks().to_batches()
        index = EVENTS.get_field_index(POINT)
        where = _spread_evenly(values_of(events.column(index), np.float64), self._spread)
        order = np.argsort(where, kind="stable")
        events = events.take(numbers(order, pa.int64()))
        return events.set_column(index, EVENTS.field(index), numbers(where[order], pa.float64()))


def _spread_evenly(
    where: np.ndarray[tuple[int], np.dtype[np.float64]], begin: float
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the points with each NaN replaced by evenly spaced points, from `begin` on."""
    keyless = np.isnan(where)
    if count := int(keyless.sum()):
        where = where.copy()
        where[keyless] = (begin + np.arange(count) / count) % 1.0
    return where


def _batches(events: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the events in record batches of about BLOB_BYTES."""
    _, ends, _ = events.column(0).buffers()
    borders = np.frombuffer(ends, np.int32, events.num_rows + 1, 4 * events.column(0).offset).astype(np.int64)
    borders += FRAME_BYTES * np.arange(len(borders))
    first = 0
    while first < events.num_rows:
        fitting = int(np.searchsorted(borders, borders[first] + BLOB_BYTES))
        last = min(max(fitting, first + 1), first + BATCH_EVENTS_MAX, events.num_rows)
        yield events.slice(first, last - first)
        first = last
