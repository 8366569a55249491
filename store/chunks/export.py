"""Exporting: ranges of a stream, out of its blobs into chunk files, each blob loaded once for all its segments.

The ranges must be held, or what they need may be freed in the middle. Imports pyarrow, through `chunk_file`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final, Protocol, TypeVar

import attrs

from eventproc.store.chunks.chunk_file import ChunkWriter, ColumnSlice
from eventproc.store.chunks.index import PART_SUFFIX, ChunkFile, chunk_path
from eventproc.store.database import Tx
from eventproc.store.model.errors import Truncated
from eventproc.store.model.ids import SegmentId, format_segment
from eventproc.store.segments.extents import BlobLoader, Extent, concatenate_inline, read_extents
from eventproc.store.segments.holds import HeldRange

T = TypeVar("T")

CHUNK_BYTES_MAX: Final = 128 * 2**20
"""Bytes of a chunk file after which another is begun. Larger ones spread less well over executors; smaller ones
are more files."""

READ_BYTES: Final = 8 * 2**20
"""Bytes of blobs loaded in one read transaction, give or take one blob."""

SEGMENTS_AT_ONCE: Final = 128
"""Segments exported together: a file is open for each."""

_EXTENTS_A_QUERY: Final = 64

_FILES: Final = count()
"""Tells the unfinished files of a process apart: two may export one range at the same time."""


class BlockingRead(Protocol):
    """How to run a function on a snapshot, blocking."""

    def __call__(self, fn: Callable[[Tx], T], /) -> T:
        """Run `fn`, and return what it returns."""
        ...


@attrs.frozen
class ExportRun:
    """A run of events that is to be exported: [start, end) of a segment, from event `first_number` on."""

    segment: SegmentId
    start: int
    end: int
    first_number: int
    stretch: ColumnSlice


@attrs.define
class _OpenChunk:
    """The file that is being written for a segment."""

    start: int
    end: int
    first_number: int
    writer: ChunkWriter


@attrs.frozen
class ChunkExporter:
    """Where to: the folder, and what unfinished files are marked with: the id of the instance that writes them.

    sync: make files survive a loss of power.
    """

    folder: Path
    stream: str
    stream_id: int
    instance: str
    sync: bool

    def run(self, read: BlockingRead, ranges: Sequence[HeldRange]) -> Iterator[list[tuple[Path, ChunkFile]]]:
        """Export the ranges, none overlapping another; yield what was finished, (file, chunk), now and then.

        What was yielded is the caller's, to register or to unlink; what was not is gone after an error. Raises
        Truncated (the stream was deleted meanwhile), OSError.
        """
        waiting = list(ranges)
        while waiting:
            first: dict[SegmentId, HeldRange] = {}
            for each in waiting:
                if len(first) < SEGMENTS_AT_ONCE:
                    first.setdefault(each.segment, each)
            waiting = [each for each in waiting if first.get(each.segment) is not each]
            yield from self._run_together(read, first)

    def _run_together(
        self, read: BlockingRead, ranges: dict[SegmentId, HeldRange]
    ) -> Iterator[list[tuple[Path, ChunkFile]]]:
        wanted = {segment: (each.start, each.end) for segment, each in ranges.items()}
        writing: dict[SegmentId, _OpenChunk] = {}
        try:
            while wanted:
                finished: list[tuple[Path, ChunkFile]] = []
                for found in read(
                    partial(find_runs, stream=self.stream, stream_id=self.stream_id, wanted=wanted)
                ):
                    file = self._write(writing, found)
                    _, end = wanted[found.segment]
                    wanted[found.segment] = (found.end, end)
                    if found.end == end or file.writer.size_bytes >= CHUNK_BYTES_MAX:
                        finished.append(self._finish(found.segment, writing.pop(found.segment)))
                    if found.end == end:
                        del wanted[found.segment]
                if finished:
                    yield finished
        finally:
            for file in writing.values():
                file.writer.abandon()

    def _write(self, writing: dict[SegmentId, _OpenChunk], found: ExportRun) -> _OpenChunk:
        if (file := writing.get(found.segment)) is None:
            name = f"{found.start}-{self.instance}-{next(_FILES)}{PART_SUFFIX}"
            path = self.folder / str(self.stream_id) / format_segment(found.segment) / name
            file = _OpenChunk(found.start, found.start, found.first_number, ChunkWriter(path))
            writing[found.segment] = file
        file.writer.add(found.stretch)
        file.end = found.end
        return file

    def _finish(self, segment: SegmentId, file: _OpenChunk) -> tuple[Path, ChunkFile]:
        file.writer.finish(sync=self.sync)
        return file.writer.path, ChunkFile(
            stream_id=self.stream_id,
            segment=segment,
            start=file.start,
            length=file.end - file.start,
            first_number=file.first_number,
            count=file.writer.count,
            path=chunk_path(self.stream_id, segment, file.start, file.end),
            bytes=file.writer.size_bytes,
            checksum=file.writer.checksum,
        )


def find_runs(
    tx: Tx,
    *,
    stream: str,
    stream_id: int,
    wanted: dict[SegmentId, tuple[int, int]],
    bytes_max: int = READ_BYTES,
) -> list[ExportRun]:
    """Return what comes next in the wanted ranges, {segment: (start, end)}, each blob loaded once.

    In order within a segment; the oldest blobs first, so that segments that share blobs go on together. Something
    of at least one segment is returned. Raises Truncated when events are not there.
    """
    blobs = BlobLoader(tx)
    queues = {segment: _queue(tx, stream, stream_id, segment, *range_) for segment, range_ in wanted.items()}
    found: list[ExportRun] = []
    while queues and blobs.loaded_bytes < bytes_max:
        # Columns within rows come at once: they are loaded already, with the rows.
        segment = min(queues, key=lambda each: queues[each][0].place or 0)
        queue, (_, end) = queues[segment], wanted[segment]
        start = max(wanted[segment][0], queue[0].start)
        run = _inline_run(queue, start, end)
        found.append(_joined(segment, run) if run else _part(blobs, segment, queue[0], start, end))
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
    """Return the extents that come first, have their columns in their rows, and lie wholly in [start, end)."""
    run: list[Extent] = []
    for extent in queue:
        if extent.place is not None or extent.start < start or extent.end > end:
            break
        run.append(extent)
    return run


def _joined(segment: SegmentId, run: Sequence[Extent]) -> ExportRun:
    columns, times = concatenate_inline(run)
    stretch = ColumnSlice(columns, count=len(times), first=0, last=len(times), at=0, time=run[0].first_time)
    return ExportRun(segment, run[0].start, run[-1].end, run[0].first_number, stretch)


def _part(blobs: BlobLoader, segment: SegmentId, extent: Extent, start: int, end: int) -> ExportRun:
    """Return the part of an extent that lies in [start, end)."""
    columns, ends = blobs.columns(extent)
    begun = bisect_right(ends, extent.place_offset)
    at = extent.place_offset + start - extent.start
    first = bisect_right(ends, at)
    stop = min(end, extent.end)
    last = bisect_right(ends, extent.place_offset + stop - extent.start)
    stretch = ColumnSlice(columns, count=len(ends), first=first, last=last, at=at, time=extent.first_time)
    return ExportRun(segment, start, stop, extent.first_number + first - begun, stretch)
