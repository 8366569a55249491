"""Values of ingestion: positions in streams, task groups, tasks, sequences, files, and statistics of a task. Pure."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Self, TypeAlias

import attrs

from eventproc.store.model.ids import SegmentId
from eventproc.store.model.short_repr import short_repr_of_fields

PartitionKey: TypeAlias = tuple[int, SegmentId]
"""(stream_id, segment): the partition of an ingestion. A supervisor may read several streams."""

Positions: TypeAlias = Mapping[PartitionKey, int]
"""An offset in bytes, at an event boundary, for each of some partitions."""

NO_POSITIONS: Final[Positions] = {}

TIME: Final = "__time"
"""Column of a table: the row's time, truncated to the query granularity."""

TIME_MIN_MS: Final = -62_135_596_800_000
"""First time of a row: the year 1. Files hold times from it to the year 9999, as Python and SQL do."""

TIME_END_MS: Final = 253_402_300_800_000
"""End of all times: the year 10000."""

RATE_MINUTES: Final = (1, 5, 15)
"""The windows of a task's rates, in minutes, as Druid reports them."""


class IngestGroupState(enum.StrEnum):
    """What the tasks of a group do."""

    ACTIVE = "active"
    """They read; no end is set."""
    PENDING = "pending"
    """They read to the group's ends, publish, and end."""


class TaskState(enum.StrEnum):
    """Where a task is in its life."""

    WAITING = "waiting"
    """It waits for a worker."""
    RUNNING = "running"
    """A worker reads, or publishes."""
    SUCCEEDED = "succeeded"
    """It published everything to its group's ends."""
    FAILED = "failed"
    """It reported an error, or its worker died."""
    STOPPED = "stopped"
    """Its supervisor, or its worker when it left, ended it without publishing."""

    @property
    def live(self) -> bool:
        """Whether the task has not ended."""
        return self in (TaskState.WAITING, TaskState.RUNNING)


class SequenceState(enum.StrEnum):
    """Where a sequence is: what one publication makes visible."""

    OPEN = "open"
    """Its end is not known."""
    CLOSED = "closed"
    """It has ends, and is not published."""
    PUBLISHED = "published"
    """Its files and its ends are committed."""


class PublishOutcome(enum.StrEnum):
    """The result of an attempt to publish a sequence."""

    PUBLISHED = "published"
    """The files are visible and the offsets have moved, in one transaction."""
    ALREADY = "already"
    """Another replica published the sequence; these files are not needed."""
    RETRY = "retry"
    """An earlier range is not published yet. Try again after a change."""
    MISMATCH = "mismatch"
    """The offsets have diverged: the range of these files must be read again, by another task."""


def encode_positions(positions: Positions) -> str:
    """Return the positions as JSON, sorted, so that equal positions have equal texts."""
    return json.dumps([[*key, positions[key]] for key in sorted(positions)], separators=(",", ":"))


def decode_positions(text: str) -> dict[PartitionKey, int]:
    """Return the positions that `encode_positions` wrote."""
    return {(stream_id, SegmentId(segment)): offset for stream_id, segment, offset in json.loads(text)}


@attrs.frozen(kw_only=True)
class TaskStats:
    """What a task did since it began. All counts are totals.

    processed, processed_bytes: events that were read, and their payloads.
    thrown_away: rows outside the message times of the group, or refused by the filter.
    unparseable: events that are no rows of the schema. samples: the newest of them, at most as many as the spec saves.
    rows: rows that were written, after roll-up. published: sequences that the task has published.
    busy_ratio: share of the last minute that was not spent waiting for events.
    rates: rows per second over the last 1, 5 and 15 minutes; empty if not measured.
    progress_ms: wall time since which the job of the task makes no progress, or at which the task asked what to read.
    """

    __repr__ = short_repr_of_fields

    processed: int = 0
    processed_bytes: int = 0
    thrown_away: int = 0
    unparseable: int = 0
    rows: int = 0
    published: int = 0
    samples: tuple[str, ...] = ()
    busy_ratio: float | None = None
    rates: tuple[float, ...] = ()
    progress_ms: int | None = None

    def encode(self) -> str:
        """Return the statistics as JSON."""
        return json.dumps(attrs.asdict(self), separators=(",", ":"))

    @classmethod
    def decode(cls, text: str) -> TaskStats:
        """Return the statistics that `encode` wrote."""
        plain = json.loads(text)
        for name in ("samples", "rates"):
            if name in plain:
                plain[name] = tuple(plain[name])
        return cls(**plain)


@attrs.frozen(kw_only=True)
class IngestGroup:
    """A task group: the same partitions and ranges for all of its tasks.

    base: unique name, from which the names of its sequences are made. gid: its number, from 0.
    version: of the spec with which it was created. fingerprint: of the parts of the spec that its rows depend on.
    ends: None while it reads. min_ms: older rows are thrown away. max_ms: so are rows from it on that were appended too
    early for their times.
    deadline_ms: wall time at which a pending group counts as failed.
    """

    base: str
    supervisor: str
    gid: int
    version: int
    fingerprint: str
    state: IngestGroupState
    created_ms: int
    starts: Positions
    ends: Positions | None = None
    min_ms: int | None = None
    max_ms: int | None = None
    deadline_ms: int | None = None


@attrs.frozen(kw_only=True)
class IngestTask:
    """A task: one replica of a group.

    n: the sequence that it reads. read: how far, in that sequence. planned: the end of the slice that it is reading.
    worker: instance that runs it; None while it waits. seen_ms: wall time of its last report.
    not_before_ms: no worker takes it earlier; the pause after failures.
    """

    id: str
    supervisor: str
    base: str
    replica: int
    state: TaskState
    worker: str | None
    n: int
    read: Positions
    planned: Positions
    created_ms: int
    not_before_ms: int = 0
    started_ms: int | None = None
    seen_ms: int | None = None
    finished_ms: int | None = None
    error: str | None = None
    stats: TaskStats = attrs.field(factory=TaskStats)


@attrs.frozen(kw_only=True)
class IngestSequence:
    """A contiguous part of what a group reads, published in one transaction."""

    base: str
    n: int
    starts: Positions
    ends: Positions | None
    state: SequenceState

    @property
    def name(self) -> str:
        """The text that identifies it in published files."""
        return f"{self.base}/{self.n}"


def sequence_ends(sequence: IngestSequence, tasks: Iterable[IngestTask]) -> Positions:
    """Return where to end an open sequence: for each partition the greatest end that a replica has planned.

    A replica plans a slice durably before it reads it. So none has read further, and all can reach these ends.
    """
    ends = dict(sequence.starts)
    for task in tasks:
        if task.n == sequence.n:
            for key, offset in task.planned.items():
                if key in ends:
                    ends[key] = max(ends[key], offset)
    return ends


@attrs.frozen(kw_only=True)
class SlicePlan:
    """What a task reads next. See `plan_slice`.

    n: sequence of the slice. streams: names by stream id; there may be more than in the task's order. starts: of that
    sequence, with the partitions that were added meanwhile. ends: of that sequence, None while it is open.
    until: where the slice ends, for the partitions that are to be read. final: no sequence follows.
    state: of the sequence. If it is published, a replica has published it: drop its rows and go on with the next.
    """

    n: int
    streams: Mapping[int, str]
    starts: Positions
    ends: Positions | None
    until: Positions
    final: bool
    state: SequenceState

    @property
    def closed(self) -> bool:
        """Whether the sequence has ends: it is to be published when it was read to them."""
        return self.ends is not None


class TablePartitioning(enum.StrEnum):
    """By what a table is partitioned: times of this length."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"
    YEAR = "year"
    ALL = "all"
    """It is not partitioned."""


def partition_name(by: TablePartitioning) -> str:
    """Return how the partitions of a table are named, beside its columns. Pure."""
    return f"{TIME}_{by}"


@attrs.frozen(kw_only=True)
class TableFile:
    """A Parquet file of a table.

    path: relative to the folder of tables. start_ms, end_ms: the partition of the table in which all its rows lie.
    min_ms, max_ms: first and last time of its rows.
    """

    path: str
    start_ms: int
    end_ms: int
    rows: int
    bytes: int
    min_ms: int
    max_ms: int


@attrs.frozen(kw_only=True)
class TableInfo:
    """A table as `ep.tables()` lists it.

    name: the `datasource` of a spec.
    intervals: how many of its partitions have rows.
    files, rows, bytes: what is published of it.
    first_ms, last_ms: the first and the last time of a row, in ms since 1970; None without rows.
    metadata: location of its newest metadata file, from which any engine reads the table; None: nothing is published.
    """

    __repr__ = short_repr_of_fields

    name: str
    intervals: int
    files: int
    rows: int
    bytes: int
    first_ms: int | None
    last_ms: int | None
    metadata: str | None

    @classmethod
    def of(cls, name: str, files: Sequence[TableFile], metadata: str | None, **more: object) -> Self:
        """Return what files say of a table. more: the fields of a subclass."""
        return cls(
            name=name,
            intervals=len({each.start_ms for each in files}),
            files=len(files),
            rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files),
            first_ms=min((each.min_ms for each in files), default=None),
            last_ms=max((each.max_ms for each in files), default=None),
            metadata=metadata,
            **more,
        )


@attrs.frozen
class TableColumn:
    """A column of a table. type: as Apache Iceberg names it, such as "long" and "timestamptz"."""

    __repr__ = short_repr_of_fields

    name: str
    type: str


@attrs.frozen
class TableInterval:
    """A partition of a table with rows in [start_ms, end_ms), in ms since 1970, and what is published of it."""

    __repr__ = short_repr_of_fields

    start_ms: int
    end_ms: int
    files: int
    rows: int
    bytes: int


@attrs.frozen(kw_only=True)
class TableDescription(TableInfo):
    """A table, or what lies between two times of it.

    version: changes with each publication, compaction, overwriting and drop.
    partitioning: length of its partitions; None, and no columns: nothing is published.
    columns: the time of a row first.
    intervals_by_start: its partitions with rows.
    """

    __repr__ = short_repr_of_fields

    version: str
    partitioning: TablePartitioning | None
    columns: tuple[TableColumn, ...]
    intervals_by_start: tuple[TableInterval, ...]


@attrs.frozen
class DroppedFiles:
    """What is removed from a table: files, their rows and bytes."""

    __repr__ = short_repr_of_fields

    files: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, files: Sequence[TableFile]) -> Self:
        """Return what files have."""
        return cls(len(files), sum(each.rows for each in files), sum(each.bytes for each in files))


def intervals_of_files(files: Iterable[TableFile]) -> tuple[TableInterval, ...]:
    """Return the partitions in which files lie, by their beginnings."""
    found: dict[tuple[int, int], list[TableFile]] = {}
    for each in files:
        found.setdefault((each.start_ms, each.end_ms), []).append(each)
    return tuple(
        TableInterval(*times, *attrs.astuple(DroppedFiles.of(those)))
        for times, those in sorted(found.items())
    )
