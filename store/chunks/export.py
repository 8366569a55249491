"""Exporting: copies ranges of a stream out of its blobs into chunk files, each blob loaded once for all its segments.

Long ranges are cut into parts, which threads export at the same time: while one waits for the database or the disk,
another one converts. The ranges must be held; otherwise the reaper may free them during the export. Imports pyarrow,
through `chunk_file`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from functools import partial
from itertools import count
from typing import Final, Protocol, TypeVar

import attrs

from eventproc.store.chunks.chunk_file import ChunkWriter, ColumnSlice
from eventproc.store.chunks.index import BATCH_BYTES, BATCH_EVENTS_MAX, ChunkFile, chunk_path
from eventproc.store.database import Tx
from eventproc.store.file_store import FileStore
from eventproc.store.model.errors import Truncated
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.extents import BlobLoader, Extent, concatenate_inline, read_extents
from eventproc.store.segments.holds import HeldRange

T = TypeVar("T")

CHUNK_BYTES_MAX: Final = 128 * 2**20
"""Bytes of a chunk file after which the next is begun. Larger files spread less well over executors; smaller ones mean
more files."""

READ_BYTES: Final = 8 * 2**20
"""Bytes of blobs that one read transaction loads, give or take one blob."""

SEGMENTS_AT_ONCE: Final = 128
"""Segments that are exported together, each into an open file."""

PARTS_MAX: Final = 4
"""Parts of the ranges that are exported at the same time, each by a thread with READ_BYTES in memory and files of its
own. Higher: more memory and smaller files; lower: the cores wait for reads and syncs."""

PART_BYTES_MIN: Final = 16 * 2**20
"""Bytes of events below which a part is not worth its threads and files."""

_EXTENTS_A_QUERY: Final = 64

_FILES: Final = count()
"""Numbers the files of this process: two exports of one range may run at the same time."""


class BlockingRead(Protocol):
    """Runs a function on a snapshot of the database, and blocks until it returns."""

    def __call__(self, fn: Callable[[Tx], T], /) -> T:
        """Run `fn` and return its result."""
        ...


@attrs.frozen
class ExportRun:
    """A run of events to export: bytes [start, end) of a segment, from event `first_number` on."""

    segment: SegmentId
    start: int
    end: int
    first_number: int
    events: ColumnSlice


@attrs.define
class _OpenChunk:
    """The file that is being written for a segment."""

    start: int
    end: int
    first_number: int
    writer: ChunkWriter


@attrs.frozen
class ChunkExporter:
    """Exports ranges of one stream into chunk files.

    files: the chunk files. instance: id of this instance, which is part of the names. sync: make the files survive a
    loss of power. batch_bytes, batch_events_max: size of a record batch. part_bytes_min: size of a part.
    parts_max: how many threads may read; with 1, only the caller's does.
    """

    files: FileStore
    stream: str
    stream_id: int
    instance: str
    sync: bool
    batch_bytes: int = BATCH_BYTES
    batch_events_max: int = BATCH_EVENTS_MAX
    parts_max: int = PARTS_MAX
    part_bytes_min: int = PART_BYTES_MIN

    def run(self, read: BlockingRead, ranges: Sequence[HeldRange]) -> Iterator[list[ChunkFile]]:
        """Export ranges that do not overlap; yield complete files from time to time, in no order.

        The caller registers the yielded files; others are orphans once this instance has ended. After an error,
        unfinished files are discarded. read: called by several threads.
        Raises Truncated (the stream was deleted meanwhile), OSError, Unreachable.
        """
        waiting = list(ranges)
        while waiting:
            first: dict[SegmentId, HeldRange] = {}
            for each in waiting:
                if len(first) < SEGMENTS_AT_ONCE:
                    first.setdefault(each.segment, each)
            waiting = [each for each in waiting if first.get(each.segment) is not each]
            yield from self._run_parts(read, list(first.values()))

    def _run_parts(self, read: BlockingRead, ranges: Sequence[HeldRange]) -> Iterator[list[ChunkFile]]:
        total = sum(each.end - each.start for each in ranges)
        count = min(self.parts_max, total // self.part_bytes_min)
        if count <= 1:
            yield from filter(None, self._run_together(read, ranges))
            return
        parts = read(partial(divide_ranges, stream_id=self.stream_id, ranges=ranges, count=count))
        left = [self._run_together(read, each) for each in parts]
        with ThreadPoolExecutor(len(left), "eventproc-export") as threads:
            running: dict[Future[list[ChunkFile] | None], Generator[list[ChunkFile], None, None]] = {}
            try:
                running = {threads.submit(next, each, None): each for each in left}
                while running:
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        part = running.pop(done)
                        if (finished := done.result()) is not None:
                            running[threads.submit(next, part, None)] = part
                        if finished:
                            yield finished
            finally:
                wait(running)  # each does one more read, at most
                for part in left:
                    part.close()

    def _run_together(
        self, read: BlockingRead, ranges: Sequence[HeldRange]
    ) -> Generator[list[ChunkFile], None, None]:
        """Export one range of each segment, and yield the files that each read completed, if any."""
        wanted = {each.segment: (each.start, each.end) for each in ranges}
        writing: dict[SegmentId, _OpenChunk] = {}
        try:
            while wanted:
                finished: list[ChunkFile] = []
                for found in read(
                    partial(find_runs, stream=self.stream, stream_id=self.stream_id, wanted=wanted)
                ):
                    file = self._write(writing, found)
                    _, end = wanted[found.segment]
                    wanted[found.segment] = (found.end, end)
                    if found.end == end or file.writer.size_bytes >= CHUNK_BYTES_MAX:
                        finished.append(self._finish(found.segment, file))
                        del writing[found.segment]
                    if found.end == end:
                        del wanted[found.segment]
                yield finished
        finally:
            for file in writing.values():
                file.writer.abandon()

    def _write(self, writing: dict[SegmentId, _OpenChunk], found: ExportRun) -> _OpenChunk:
        if (file := writing.get(found.segment)) is None:
            path = chunk_path(self.stream_id, found.segment, found.start, self.instance, next(_FILES))
            writer = ChunkWriter(
                self.files, path, batch_bytes=self.batch_bytes, batch_events_max=self.batch_events_max
            )
            file = _OpenChunk(found.start, found.start, found.first_number, writer)
            writing[found.segment] = file
        file.writer.add(found.events)
        file.end = found.end
        return file

    def _finish(self, segment: SegmentId, file: _OpenChunk) -> ChunkFile:
        file.writer.finish()
        if self.sync:
            self.files.sync(file.writer.path)
        return ChunkFile(
            stream_id=self.stream_id,
            segment=segment,
            start=file.start,
            length=file.end - file.start,
            first_number=file.first_number,
            count=file.writer.count,
            path=file.writer.path,
            bytes=file.writer.size_bytes,
            checksum=file.writer.checksum,
        )


def divide_ranges(
    tx: Tx, *, stream_id: int, ranges: Sequence[HeldRange], count: int
) -> list[list[HeldRange]]:
    """Return `count` parts of about equal size, each with at most one range of each segment.

    All segments are cut at the same shares of their ranges: what was written at the same time shares blobs, so that
    few blobs belong to two parts. A cut is the beginning of an extent, which an event begins at. One look-up each.
    """
    parts: list[list[HeldRange]] = [[] for _ in range(count)]
    for each in ranges:
        start = each.start
        for number, part in enumerate(parts, 1):
            end = each.end
            if number < count:
                target = each.start + (each.end - each.start) * number // count
                (extent,) = read_extents(tx, stream_id, each.segment, target, limit=1) or (None,)
                end = start if extent is None else min(max(extent.start, start), each.end)
            if start < end:
                part.append(HeldRange(each.segment, start, end))
                start = end
    return [part for part in parts if part]


def find_runs(
    tx: Tx,
    *,
    stream: str,
    stream_id: int,
    wanted: dict[SegmentId, tuple[int, int]],
    bytes_max: int = READ_BYTES,
) -> list[ExportRun]:
    """Return the next runs of the wanted ranges, {segment: (start, end)}, loading each blob once.

    Runs are in order within a segment. The oldest blobs come first, so that segments that share blobs advance
    together. At least one run is returned. Raises Truncated if events of a range are missing.
    """
    blobs = BlobLoader(tx)
    queues = {segment: _queue(tx, stream, stream_id, segment, *range_) for segment, range_ in wanted.items()}
    found: list[ExportRun] = []
    while queues and blobs.loaded_bytes < bytes_max:
        # Inline extents come first: their columns are already loaded, with the rows.
        segment = min(queues, key=lambda each: queues[each][0].place or 0)
        queue, (_, end) = queues[segment], wanted[segment]
        start = max(wanted[segment][0], queue[0].start)
        run = _inline_run(queue, start, end)
        found.append(
            _inline_export(segment, run) if run else _blob_export(blobs, segment, queue[0], start, end)
        )
        del queue[: len(run) or 1]
        if not queue and found[-1].end < end and len(found) < _EXTENTS_A_QUERY:
            queue.extend(_queue(tx, stream, stream_id, segment, found[-1].end, end))
        if not queue:
            del queues[segment]
    return found


def _queue(tx: Tx, stream: str, stream_id: int, segment: SegmentId, start: int, end: int) -> list[Extent]:
    found = [
        each
        for each in read_extents(tx, stream_id, segment, start, limit=_EXTENTS_A_QUERY)
        if each.start < end
    ]
    if not found or not found[0].start <= start < found[0].end:
        raise Truncated(stream=stream, segment=format_segment(segment), offset=start, head=0)
    return found


def _inline_run(queue: Sequence[Extent], start: int, end: int) -> list[Extent]:
    """Return the first extents of the queue that are inline and lie completely in [start, end)."""
    run: list[Extent] = []
    for extent in queue:
        if extent.place is not None or extent.start < start or extent.end > end:
            break
        run.append(extent)
    return run


def _inline_export(segment: SegmentId, run: Sequence[Extent]) -> ExportRun:
    columns, times = concatenate_inline(run)
    events = ColumnSlice(columns, count=len(times), first=0, last=len(times), at=0, time=run[0].first_time)
    return ExportRun(segment, run[0].start, run[-1].end, run[0].first_number, events)


def _blob_export(blobs: BlobLoader, segment: SegmentId, extent: Extent, start: int, end: int) -> ExportRun:
    """Return the part of an extent that lies in [start, end)."""
    columns, ends = blobs.columns(extent)
    begun = bisect_right(ends, extent.place_offset)
    at = extent.place_offset + start - extent.start
    first = bisect_right(ends, at)
    stop = min(end, extent.end)
    last = bisect_right(ends, extent.place_offset + stop - extent.start)
    events = ColumnSlice(columns, count=len(ends), first=first, last=last, at=at, time=extent.first_time)
    return ExportRun(segment, start, stop, extent.first_number + first - begun, events)
