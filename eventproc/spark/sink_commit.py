"""The commit of the sink: one transaction adds the output of all tasks of a batch to its streams, exactly once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TypeVar

import attrs
import numpy as np
import pyarrow as pa

from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.sink_rows import PARTITION_POINT, POINT
from eventproc.spark.sink_task import BLOB_BYTES, TaskOutput
from eventproc.store.catalog import get_stream
from eventproc.store.chunks.arrow_buffers import values_of
from eventproc.store.chunks.chunk_file import find_buffers
from eventproc.store.chunks.index import delete_files, mark_unused
from eventproc.store.chunks.ingest import (
    ALL_STREAMS,
    SegmentSpan,
    SinkBatch,
    SinkFile,
    SinkRecordBatch,
    append_files,
    find_sink_batch,
    record_routed_batch,
    record_sink_batch,
    verify_file,
)
from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FRAME_BYTES
from eventproc.store.model.partitions import Router
from eventproc.store.model.routing import point
from eventproc.store.segments import EventBlock, Headers, SegmentEvents, append
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.inline_extents import join_tail
from eventproc.streams.writer import find_route

T = TypeVar("T")


@attrs.frozen
class _StreamOutput:
    """The output of the tasks for a stream, divided among the segments of an epoch."""

    stream: str
    stream_id: int
    router: Router
    files: list[SinkFile]
    small_events: list[SegmentEvents]


def commit(
    directory: PlannerDirectory, stream: str | None, written: Sequence[TaskOutput], batch: SinkBatch | None
) -> bool:
    """Make the output of all tasks visible together. Return False if the batch was committed before.

    stream: the stream of all output; None: each output names its own.
    After an error nothing is visible. Raises NotFound, StreamSealed, WriterFenced, InvalidArgument (a row names a
    partition that its stream has not), CorruptRecord, OSError, and the errors of a write.
    """
    if stream is None and batch is not None and directory.read(partial(_is_committed, batch)):
        return False  # a stream of an earlier attempt may be sealed or deleted by now
    by_stream: dict[str, list[TaskOutput]] = {} if stream is None else {stream: []}
    for each in written:
        name = each.stream if stream is None else stream
        assert name is not None, "an output names its stream if the sink does not"
        by_stream.setdefault(name, []).append(each)

    def is_new(tx: Tx, streams: Mapping[str, int]) -> tuple[bool, bool]:
        new = batch is None or _record(tx, streams, batch, routed=stream is None)
        return new, new

    return append_if(directory, by_stream, is_new)


def append_if(
    directory: PlannerDirectory,
    written: Mapping[str, Sequence[TaskOutput]],
    decide: Callable[[Tx, Mapping[str, int]], tuple[bool, T]],
    run: Callable[[Callable[[Tx], T | None]], T | None] | None = None,
) -> T:
    """Run a step, make the output of tasks visible in its transaction if it says so, and return what it found.

    written: by stream. decide: gets the ids of the streams; returns whether to append, and what it found. It may run
    again in another transaction. run: makes the transaction; None: a write of the store. Raises as `commit`; then
    nothing is visible, and nothing of the step is done.
    """
    files = directory.files if written else None
    while True:
        outputs: list[_StreamOutput] = []
        if files is not None:
            routes = directory.read(partial(_find_routes, list(written)))
            outputs = [_cut_for(name, *routes[name], own, files) for name, own in written.items()]
        done = (run or directory.write)(partial(_append_if, outputs=outputs, decide=decide))
        if done is not None:
            return done
        # A stream was scaled in between. The files are memory-mapped, so dividing them again costs little.


def abort(directory: PlannerDirectory, written: Sequence[TaskOutput]) -> None:
    """Delete the files of the tasks, unless they were committed after all. Raises OSError.

    They stay marked until a sweep: a commit that Spark gave up may run on, and has found them before.
    """
    paths = [each.file.path for each in written if each.file is not None]
    if paths:
        unused = directory.write(partial(mark_unused, paths=paths))
        _, failure = delete_files(directory.files, unused)  # no reader has seen them: they need not wait
        if failure is not None:
            raise failure


def find_stream_route(stream: str, tx: Tx) -> tuple[int, Router]:
    """Return the id of a writable stream, and what routes its events. Raises NotFound, StreamSealed."""
    stream_id = get_stream(tx, stream).value.stream_id
    return stream_id, find_route(tx, stream, stream_id, None)[0]


def _is_committed(batch: SinkBatch, tx: Tx) -> bool:
    """Return whether the newest run of a sink whose rows name their streams has committed the batch."""
    last = find_sink_batch(tx, ALL_STREAMS, batch.name)
    return last is not None and last.run == batch.run and batch.batch <= last.batch


def _find_routes(streams: Sequence[str], tx: Tx) -> dict[str, tuple[int, Router]]:
    return {each: find_stream_route(each, tx) for each in streams}


def _append_if(
    tx: Tx, *, outputs: Sequence[_StreamOutput], decide: Callable[[Tx, Mapping[str, int]], tuple[bool, T]]
) -> T | None:
    """Run the step. Return None before it if a stream was replaced or has another epoch by now."""
    for each in outputs:
        stream_id, router = find_stream_route(each.stream, tx)
        if (stream_id, router.epoch.number) != (each.stream_id, each.router.epoch.number):
            return None
    is_taken, found = decide(tx, {each.stream: each.stream_id for each in outputs})
    for each in outputs if is_taken else ():
        _append(tx, each)
    return found


def _record(tx: Tx, streams: Mapping[str, int], batch: SinkBatch, *, routed: bool) -> bool:
    if routed:
        return record_routed_batch(tx, batch, streams)
    ((stream, stream_id),) = streams.items()
    return record_sink_batch(tx, stream, stream_id, batch)


def _append(tx: Tx, output: _StreamOutput) -> None:
    stream_id = output.stream_id
    append_files(tx, output.stream, stream_id, output.files)
    waiting_bytes = 0
    for part in output.small_events:
        append(tx, output.stream, stream_id, [part])
        waiting_bytes += part.events.size_bytes
        if waiting_bytes >= BLOB_BYTES:
            # Otherwise the events of hundreds of tasks would form one blob, which readers read completely.
            flush_appends(tx, stream_id)
            waiting_bytes = 0
    for segment in sorted({part.segment for part in output.small_events}):
        join_tail(tx, stream_id, segment)


def _cut_for(
    stream: str, stream_id: int, router: Router, written: Sequence[TaskOutput], files: FileStore
) -> _StreamOutput:
    sink_files: list[SinkFile] = []
    small_events: list[SegmentEvents] = []
    for each in written:
        if each.file is not None:
            verify_file(files, each.file.path, each.file.bytes)
            batches = tuple(_cut_file(stream, router, files, each.file.path))
            sink_files.append(SinkFile(each.file.path, each.file.bytes, each.file.checksum, batches))
        if each.small_events is not None:
            small_events += _parts(stream, router, each.small_events)
    return _StreamOutput(stream, stream_id, router, sink_files, small_events)


def _cut_file(stream: str, router: Router, files: FileStore, path: str) -> Iterator[SinkRecordBatch]:
    with files.open_arrow(path) as opened:
        whole = opened.read_buffer()
        file = pa.ipc.open_file(whole)
        for index in range(file.num_record_batches):
            events = file.get_batch(index)
            _, ends, _ = events.column("payload").buffers()
            borders = np.frombuffer(ends, np.int32, events.num_rows + 1)
            spans = []
            for segment, first, last in _cut(stream, router, events):
                at = int(borders[first]) + FRAME_BYTES * first
                length = int(borders[last]) + FRAME_BYTES * last - at
                spans.append(SegmentSpan(segment, at, length, last - first))
            yield SinkRecordBatch(find_buffers(events, whole).pack(), tuple(spans))


def _cut(stream: str, router: Router, events: pa.RecordBatch) -> Iterator[tuple[SegmentId, int, int]]:
    """Yield (segment, first, last): the ranges of the events, sorted by point, that belong to each segment.

    Those that keys route come first. Raises InvalidArgument for a partition that the stream has not.
    """
    points = values_of(events.column(POINT), np.float64)
    found = np.searchsorted(points, [*router.key_borders[1:], PARTITION_POINT]).tolist()
    for segment, (first, last) in zip(router.segments, pairwise([0, *found]), strict=True):
        if first < last:
            yield segment, first, last
    first = found[-1]
    while first < events.num_rows:
        last = int(np.searchsorted(points, points[first], side="right"))
        yield router.partition(int(points[first] - PARTITION_POINT), topic=stream), first, last
        first = last


def _parts(stream: str, router: Router, events: pa.RecordBatch) -> Iterator[SegmentEvents]:
    for segment, first, last in _cut(stream, router, events):
        own = events.slice(first, last - first)
        payloads, keys, headers, points = (
            own.column(name).to_pylist() for name in ("payload", "key", "headers", POINT)
        )
        keyed = own.column("key").null_count < own.num_rows
        block = EventBlock(
            payloads,
            keys if keyed else None,
            [
                math.nan
                if key is None
                else router.stored_point(segment, at if at < PARTITION_POINT else point(key))
                for key, at in zip(keys, points, strict=True)
            ]
            if keyed
            else None,
            None
            if own.column("event_time").null_count == own.num_rows
            else own.column("event_time").cast(pa.int64()).to_pylist(),
            _headers(headers),
        )
        yield SegmentEvents(segment, block.encode())


def _headers(column: Sequence[Sequence[tuple[str, str]] | None]) -> list[Headers | None] | None:
    headers: list[Headers | None] = [dict(each) if each else None for each in column]
    return headers if any(headers) else None
