"""Batch reads that the attached driver plans itself: exact ranges of chosen segments, without a planner process.

The driver holds and exports the ranges through the directory that it has open anyway, and Spark's tasks read the
files by `mapInArrow`. See "Exact ranges" in docs/design/spark-source.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from eventproc.spark.partitioning import divide_into_partitions
from eventproc.spark.planner import Planner, SegmentRanges
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.source_options import USUAL_COLUMNS, SourceOptions
from eventproc.spark.source_rows import RowLayout, frame_of, read_slices
from eventproc.store.model.argument_checks import check_int, check_mapping, invalid_argument
from eventproc.store.model.ids import SegmentId, as_segment, format_segment

BATCH: Final = "ranges"
"""The name under which the directory keeps the holds of a read: each read has a `PlannerDirectory` of its own."""


SegmentOffsets: TypeAlias = (
    Mapping[SegmentId, tuple[int, int]] | Mapping[int, tuple[int, int]] | Mapping[str, tuple[int, int]]
)
"""{segment: (start, end)}: a segment by its id or as text, such as "2.1"; offsets in bytes."""

_MEANT: Final = "give {stream: {segment: (start, end)}}"


def checked_ranges(
    ranges: Mapping[str, SegmentOffsets], stream_ids: Mapping[str, int] | None
) -> list[SegmentRanges]:
    """Return the ranges in the form of the planner. Raises InvalidArgument, naming the segment."""
    found = []
    for stream, segments in check_mapping("ranges", ranges, _MEANT).items():
        own: dict[SegmentId, tuple[int, int]] = {}
        for name, pair in check_mapping(f"ranges of {stream}", segments, _MEANT).items():
            segment = as_segment(name)
            start, end = _pair(stream, segment, pair)
            own[segment] = (start, end)
        found.append(SegmentRanges(stream, None if stream_ids is None else stream_ids.get(stream), own))
    return found


@contextmanager
def reading_ranges(
    spark: SparkSession, directory: PlannerDirectory, options: SourceOptions, ranges: Sequence[SegmentRanges]
) -> Iterator[DataFrame]:
    """Yield a DataFrame of exactly the events in `ranges`; they stay readable while the block runs.

    Raises NotFound, StreamReplaced, Truncated, InvalidArgument, OSError, and the errors of a write.
    """
    layout = RowLayout(StructType(), options.columns or USUAL_COLUMNS)
    with directory:
        directory.keep_holds()
        try:
            groups = Planner(options, directory).plan_ranges(ranges, batch=BATCH)
            tasks = divide_into_partitions(
                groups, options.partitions_min or 0, spark.sparkContext.defaultParallelism
            )
            read = partial(read_slices, layout)
            yield frame_of(spark, read, [each.slices for each in tasks], layout.schema())
        finally:
            directory.end_batch(BATCH)


def _pair(stream: str, segment: SegmentId, pair: object) -> tuple[int, int]:
    what = f"range of segment {format_segment(segment)} of {stream}"
    if not isinstance(pair, Sequence) or len(pair) != 2:
        raise invalid_argument(what, pair, "it must be a pair of offsets, (start, end)")
    start, end = (check_int(what, each, least=0) for each in pair)
    if end < start:
        raise invalid_argument(what, pair, "it ends before it starts")
    return start, end
