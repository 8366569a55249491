"""What a supervisor decides on: one snapshot of its spec, its streams, its offsets, groups, tasks and sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import attrs

from eventproc.store.catalog import find_stream, list_streams
from eventproc.store.database import Tx
from eventproc.store.ingestion.holds import held_unpublished
from eventproc.store.ingestion.rows import (
    IngestOffset,
    read_groups,
    read_offsets,
    read_streams,
    read_tasks,
    unpublished_sequences,
)
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.ingestion import IngestGroup, IngestSequence, IngestTask, PartitionKey, TaskState
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments import SegmentState, number_at, segment_states


@attrs.frozen(kw_only=True)
class IngestView:
    """One snapshot for a decision.

    now_ms: wall clock. wanted: names of the streams to read; the pattern, if one was given, already applied.
    found: {name: stream id} of those that exist. noted: incarnations that were read before. deleted: ids of those of
    them that exist no more. partitions: every segment of the streams; its head is the first byte that a task can read,
    also if that is held behind a truncation. held: first byte of those that the supervisor keeps readable. tasks: those
    whose end was not counted. bounds: [start, end) of each segment that a bounded supervisor reads; its partitions are
    only these, and each counts as sealed at its end. None: it is not bounded.
    sequences: by base, those that are not published, in order. dead_workers: of running tasks.
    lags: events behind each partition's furthest reader; None if they were not counted.
    """

    supervisor: str
    now_ms: int
    wanted: Sequence[str]
    found: Mapping[str, int]
    noted: Mapping[str, int]
    deleted: frozenset[int]
    partitions: Mapping[PartitionKey, SegmentState]
    held: Mapping[PartitionKey, int]
    offsets: Mapping[PartitionKey, IngestOffset]
    groups: Sequence[IngestGroup]
    tasks: Sequence[IngestTask]
    sequences: Mapping[str, Sequence[IngestSequence]]
    dead_workers: frozenset[str] = frozenset()
    lags: Mapping[PartitionKey, int] | None = None
    bounds: Mapping[PartitionKey, tuple[int, int]] | None = None

    @property
    def gone(self) -> frozenset[int]:
        """The deleted streams that were not made again: nothing is to be said about them."""
        return self.deleted - {self.noted[name] for name in self.found.keys() & self.noted}


def read_view(
    tx: Tx,
    supervisor: str,
    *,
    streams: Sequence[str],
    matches: Callable[[str], bool] | None,
    is_alive: Callable[[str], bool],
    with_lags: bool,
    bounds: Mapping[PartitionKey, tuple[int, int]] | None = None,
) -> IngestView:
    """Return the view of a supervisor.

    streams: names to read, or if `matches` is given, every stream whose name it accepts. bounds: of a bounded one.
    Cost: one look-up per segment, and with lags one per segment that was not read to its tail.
    """
    wanted = streams if matches is None else [each.name for each in list_streams(tx) if matches(each.name)]
    found: dict[str, int] = {}
    partitions: dict[PartitionKey, SegmentState] = {}
    for name in wanted:
        if (stream := find_stream(tx, name)) is not None:
            found[name] = stream.value.stream_id
            for segment, state in segment_states(tx, stream.value.stream_id):
                if not is_reserve(segment):
                    partitions[stream.value.stream_id, segment] = state
    held = held_unpublished(tx, supervisor)
    for key in held.keys() & partitions.keys():
        partitions[key] = attrs.evolve(partitions[key], head=min(held[key], partitions[key].head))
    tasks = read_tasks(tx, supervisor, uncounted_only=True)
    workers = {each.worker for each in tasks if each.state is TaskState.RUNNING and each.worker is not None}
    noted, offsets = read_streams(tx, supervisor), read_offsets(tx, supervisor)
    view = IngestView(
        supervisor=supervisor,
        now_ms=tx.now_ms,
        wanted=wanted,
        found=found,
        noted=noted,
        deleted=frozenset(each for name, each in noted.items() if _stream_id(tx, name) != each),
        partitions=partitions if bounds is None else _bounded(tx, partitions, bounds, offsets),
        held=held,
        offsets=offsets,
        bounds=bounds,
        groups=read_groups(tx, supervisor),
        tasks=tasks,
        sequences=unpublished_sequences(tx, supervisor),
        dead_workers=frozenset(each for each in workers if not is_alive(each)),
    )
    return attrs.evolve(view, lags=_lags(tx, view)) if with_lags else view


def _bounded(
    tx: Tx,
    partitions: Mapping[PartitionKey, SegmentState],
    bounds: Mapping[PartitionKey, tuple[int, int]],
    offsets: Mapping[PartitionKey, IngestOffset],
) -> dict[PartitionKey, SegmentState]:
    """Return the partitions with bounds, each sealed at its end. Two look-ups for each that is not published."""
    found: dict[PartitionKey, SegmentState] = {}
    for key, (_, end) in bounds.items():
        if (state := partitions.get(key)) is not None:
            offset = offsets.get(key)
            is_read = offset is not None and offset.offset == end
            number = offset.number if offset is not None and is_read else number_at(tx, *key, end)
            found[key] = attrs.evolve(state, tail=end, tail_number=number, sealed=True)
    return found


def _stream_id(tx: Tx, name: str) -> int | None:
    found = find_stream(tx, name)
    return None if found is None else found.value.stream_id


def furthest_reads(view: IngestView) -> dict[PartitionKey, int]:
    """Return how far each partition was read: by any live task, or as committed."""
    furthest = {key: each.offset for key, each in view.offsets.items()}
    for task in view.tasks:
        if task.state is TaskState.RUNNING:
            for key, offset in task.read.items():
                furthest[key] = max(offset, furthest.get(key, offset))
    return furthest


def _lags(tx: Tx, view: IngestView) -> dict[PartitionKey, int]:
    lags: dict[PartitionKey, int] = {}
    for key, offset in furthest_reads(view).items():
        if (state := view.partitions.get(key)) is None:
            continue
        at = min(max(offset, state.head), state.tail)
        number = state.tail_number if at == state.tail else number_at(tx, key[0], SegmentId(key[1]), at)
        lags[key] = state.tail_number - number
    return lags
