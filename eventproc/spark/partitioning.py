"""Assigns file slices to Spark partitions: small slices share a partition, large ones are split.

A partition costs about 30 ms of a core whatever its size, so small segments share one. There are at most as many
partitions as the session has cores, unless `minPartitions` asks for more. Slices that must be read in order stay in
one partition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import attrs
from pyspark.sql.datasource import InputPartition

from eventproc.store.chunks.chunk_file import ChunkReader
from eventproc.store.file_store import open_file_store


@attrs.frozen
class FileSlice:
    """Events [start, end) of a segment, stored in the chunk file `path` of the files at `place`.

    offset, number: those of the file's first event. stream: full name.
    """

    place: str
    path: str
    stream: str
    segment: int
    offset: int
    number: int
    start: int
    end: int

    @property
    def size_bytes(self) -> int:
        """Framed bytes of the events."""
        return self.end - self.start

    def open(self) -> ChunkReader:
        """Open the file, with the credentials of this process. Raises as `ChunkReader`."""
        return ChunkReader(open_file_store(self.place), self.path)


class ChunkPartition(InputPartition):
    """The slices that one task reads, in order. It is pickled and sent to the executor."""

    def __init__(self, slices: Sequence[FileSlice]) -> None:
        super().__init__(None)
        self.slices = tuple(slices)

    def __reduce__(self) -> tuple[type[ChunkPartition], tuple[Any, ...]]:
        return ChunkPartition, (self.slices,)


def divide_into_partitions(
    groups: list[list[FileSlice]], count_min: int, cores: int, events_max: int | None = None
) -> list[ChunkPartition]:
    """Return the partitions of a batch: at most `cores`, or about `count_min` if that is more.

    events_max: the most events of a partition; a larger one is split. None: any number.
    """
    if count_min > len(groups):
        groups = split_groups(groups, count_min, _boundary_after)
    tasks = pack_into_tasks(groups, max(count_min, cores))
    if events_max is not None:
        tasks = [part for task in tasks for part in split_task(task, events_max)]
    return [ChunkPartition(each) for each in tasks]


def split_task(task: Sequence[FileSlice], events_max: int) -> list[list[FileSlice]]:
    """Divide a task into tasks of `events_max` events each, and one with the rest. Cost: a look into its files."""
    parts: list[list[FileSlice]] = []
    part: list[FileSlice] = []
    free = events_max  # events that fit into the part
    for piece in task:
        start = piece.start
        with piece.open() as reader:
            for rows in reader.rows(offset=piece.offset, number=0, start=piece.start, end=piece.end):
                offsets, taken = rows.offsets(), 0
                while len(offsets) - taken > free:
                    taken += free
                    border = int(offsets[taken])
                    if border > start:
                        part.append(attrs.evolve(piece, start=start, end=border))
                    parts.append(part)
                    part, free, start = [], events_max, border
                free -= len(offsets) - taken
        if piece.end > start:
            part.append(attrs.evolve(piece, start=start))
    return [*parts, part] if part else parts


def pack_into_tasks(groups: Sequence[Sequence[FileSlice]], count_max: int) -> list[list[FileSlice]]:
    """Assign groups to at most `count_max` tasks of about equal size. One task reads a group, in order.

    The order of the groups is kept: the tasks' results, one after the other, come in the order of the groups. No task
    exceeds its share by more than one group.
    """
    sizes = [sum(each.size_bytes for each in group) for group in groups]
    total = sum(sizes)
    tasks: list[list[FileSlice]] = [[] for _ in range(min(count_max, len(groups)))]
    before = 0
    for group, size_bytes in zip(groups, sizes, strict=True):
        middle = before + size_bytes / 2
        tasks[min(int(middle * len(tasks) / total), len(tasks) - 1)].extend(group)
        before += size_bytes
    return [task for task in tasks if task]


def split_groups(
    groups: Sequence[Sequence[FileSlice]], count_min: int, boundary_after: Callable[[FileSlice, int], int]
) -> list[list[FileSlice]]:
    """Split groups that exceed their share until there are at least about `count_min` groups.

    boundary_after: returns the first event border at or after the target in a slice. A split group is no longer read in
    order by one task: the order within its segment is then that of the tasks.
    """
    total = sum(each.size_bytes for group in groups for each in group)
    found = [list(group) for group in groups]
    if len(found) >= count_min or not total:
        return found
    share = max(total // count_min, 1)
    parts: list[list[FileSlice]] = []
    for group in found:
        part: list[FileSlice] = []
        size_bytes = 0
        for whole in group:
            rest = whole
            while size_bytes + rest.size_bytes > share:
                at = min(boundary_after(rest, rest.start + max(share - size_bytes, 1)), rest.end)
                part.append(attrs.evolve(rest, end=at))
                parts.append(part)
                part, size_bytes = [], 0
                rest = attrs.evolve(rest, start=at)
            if rest.size_bytes:
                part.append(rest)
                size_bytes += rest.size_bytes
        if part:
            parts.append(part)
    return parts


def _boundary_after(piece: FileSlice, target: int) -> int:
    with piece.open() as reader:
        return reader.boundary_after(offset=piece.offset, target=target)
