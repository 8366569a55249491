"""What a task reads next, and the chunk files that hold it: on an open directory, without a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from eventproc.spark.fair_shares import fair_shares
from eventproc.spark.partitioning import FileSlice
from eventproc.spark.planner import PlannedRanges, Planner
from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.spark.source_options import SourceOptions
from eventproc.store.catalog import get_stream
from eventproc.store.database import Tx
from eventproc.store.ingestion.holds import hold_events, positions_by_stream
from eventproc.store.model.ingestion import PartitionKey, Positions
from eventproc.store.segments import number_at, segment_state
from eventproc.store.segments.holds import HeldRange, end_holds
from eventproc.store.segments.offsets import boundary_before, offset_after, offset_of_number


class RangeReader:
    """Finds the events of partitions. streams: full names by stream id; may grow. ends: of a bounded supervisor."""

    def __init__(
        self,
        directory: PlannerDirectory,
        streams: Mapping[int, str],
        ends: Positions | None = None,
    ) -> None:
        self._directory = directory
        self._planner = Planner(SourceOptions(address=directory.address), directory)
        self.streams = dict(streams)
        self._ends = ends

    def wanted(
        self, read: Positions, bytes_max: int, events_max: int, *, bytes_most: int | None = None
    ) -> dict[PartitionKey, int]:
        """Return where a slice of about `bytes_max` bytes, or `events_max` events, ends, in each unread partition.

        Both are divided into fair shares, so that a small partition ends beside large ones; at least one event of each.
        One read.
        bytes_most: bytes of a slice that takes all that is unread; None: not more than `bytes_max`.
        """
        all_max = bytes_max if bytes_most is None else bytes_most
        return self._directory.read(partial(_wanted, read, self._ends, bytes_max, events_max, all_max))

    def hold(self, name: str, starts: Positions, until_ms: int) -> None:
        """Keep the events from `starts` on readable until a deadline, under `name`. One write."""
        self._directory.write(lambda tx: hold_events(tx, name, starts, until_ms))

    def end_hold(self, name: str) -> None:
        """End the holds of that name."""
        streams = list(self.streams)
        self._directory.write(lambda tx: end_holds(tx, [(each, name) for each in streams]))

    def slices(self, starts: Positions, until: Positions) -> list[list[FileSlice]]:
        """Return the file slices of the events from `starts` to `until`, after exporting what is in no file.

        Raises Truncated if events are gone, StreamReplaced, NotFound, OSError.
        """
        found: list[list[FileSlice]] = []
        for stream_id, ends in positions_by_stream(until).items():
            ranges = {
                segment: HeldRange(segment, starts[stream_id, segment], end) for segment, end in ends.items()
            }
            readable = self._directory.read(partial(self._readable, stream_id, ranges.values()))
            found += self._planner._exported(readable)
        return found

    def _readable(self, stream_id: int, ranges: Iterable[HeldRange], tx: Tx) -> PlannedRanges:
        stream = get_stream(tx, self.streams[stream_id], stream_id=stream_id).value
        groups = [list(self._planner._left(tx, stream, each, held_before=True)) for each in ranges]
        return PlannedRanges(stream.name, stream_id, [each for each in groups if each])


def _wanted(
    read: Positions, ends: Positions | None, bytes_max: int, events_max: int, all_max: int, tx: Tx
) -> dict[PartitionKey, int]:
    found = _wanted_bytes(read, ends, bytes_max, all_max, tx)
    if sum(end - read[key] for key, end in found.items()) <= events_max:  # no event is shorter than a byte
        return found
    firsts = {key: number_at(tx, *key, read[key]) for key in found}
    counts = {key: number_at(tx, *key, end) - firsts[key] for key, end in found.items()}
    return {
        key: found[key] if share == counts[key] else offset_of_number(tx, *key, firsts[key] + share)
        for key, share in fair_shares(counts, events_max).items()
    }


def _wanted_bytes(
    read: Positions, ends: Positions | None, bytes_max: int, all_max: int, tx: Tx
) -> dict[PartitionKey, int]:
    tails: dict[PartitionKey, int] = {}
    for key, at in read.items():
        state = segment_state(tx, *key)
        if state is not None:
            tail = state.tail if ends is None else min(state.tail, ends.get(key, at))
            if tail > at:
                tails[key] = tail
    unread = {key: tail - read[key] for key, tail in tails.items()}
    if sum(unread.values()) <= all_max:
        return tails
    found: dict[PartitionKey, int] = {}
    for key, share in fair_shares(unread, bytes_max).items():
        end = boundary_before(tx, *key, read[key] + share)
        found[key] = end if end > read[key] else offset_after(tx, *key, read[key], 1)
    return found
