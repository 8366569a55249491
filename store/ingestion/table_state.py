"""What the metadata of a table says: its files by interval, its version, and which snapshots may be forgotten. Pure.

Source: docs/design/tables.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.transforms import DayTransform, HourTransform, MonthTransform, Transform, YearTransform
from pyiceberg.types import TimestamptzType

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ingestion import TIME, TIME_END_MS, TIME_MIN_MS, TableFile, TablePartitioning
from eventproc.store.model.ingestion_errors import TableChanged

SNAPSHOTS_KEPT: Final = 8
"""Newest snapshots that stay. Higher: each commit writes more, about half a kB each."""

REPLACED_MS: Final = 24 * 3_600_000
"""How long files stay after they were replaced or dropped: queries and rewritings may read them. Higher: more disk."""

REPLACES: Final = "eventproc.replaces"
"""Property of a snapshot that replaced files, also if there were none."""

NO_TABLE: Final = "none"
"""What a version says of a table that does not exist yet."""

HOUR_MS: Final = 3_600_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


TRANSFORMS: Final[dict[TablePartitioning, Transform[int, int]]] = {
    TablePartitioning.HOUR: HourTransform(),
    TablePartitioning.DAY: DayTransform(),
    TablePartitioning.MONTH: MonthTransform(),
    TablePartitioning.YEAR: YearTransform(),
}


def partitioning_of(spec: PartitionSpec) -> TablePartitioning:
    """Return by what a table is partitioned; ALL if by something that this package does not make."""
    transforms = [each.transform for each in spec.fields]
    return next((each for each, made in TRANSFORMS.items() if transforms == [made]), TablePartitioning.ALL)


def interval_of(by: TablePartitioning, number: int | None) -> tuple[int, int]:
    """Return beginning and end of a partition in ms. number: its value, counted from 1970."""
    if by is TablePartitioning.ALL or number is None:
        return TIME_MIN_MS, TIME_END_MS
    if by is TablePartitioning.HOUR:
        return number * HOUR_MS, (number + 1) * HOUR_MS
    if by is TablePartitioning.DAY:
        return number * 24 * HOUR_MS, (number + 1) * 24 * HOUR_MS
    months = 1 if by is TablePartitioning.MONTH else 12
    return _month_ms(number * months), _month_ms((number + 1) * months)


def _month_ms(number: int) -> int:
    year, month = divmod(number + 1970 * 12, 12)
    if year > datetime.max.year:
        return TIME_END_MS
    return (datetime(year, month + 1, 1, tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)


def file_of(path: str, found: DataFile, metadata: TableMetadata) -> TableFile:
    """Return a file as its manifest describes it. path: relative to the folder of tables."""
    spec = metadata.specs()[found.spec_id]
    by = partitioning_of(spec)
    start_ms, end_ms = interval_of(by, None if by is TablePartitioning.ALL else found.partition[0])
    time = metadata.schema().find_field(TIME).field_id

    def bound(bounds: dict[int, bytes] | None, otherwise: int) -> int:
        value = None if bounds is None else bounds.get(time)
        return otherwise if value is None else int(from_bytes(TimestamptzType(), value)) // 1000

    return TableFile(
        path=path,
        start_ms=start_ms,
        end_ms=end_ms,
        rows=found.record_count,
        bytes=found.file_size_in_bytes,
        min_ms=bound(found.lower_bounds, start_ms),
        max_ms=bound(found.upper_bounds, end_ms - 1),
    )


def version_of(metadata: TableMetadata | None) -> str:
    """Return the version of a table: a text that `check_version` takes."""
    if metadata is None:
        return f"{NO_TABLE}.0"
    return f"{metadata.table_uuid}.{_number_of(metadata)}"


def check_version(name: str, metadata: TableMetadata | None, version: str, now_ms: int) -> int:
    """Return the sequence number of a version: files up to it are those that it had.

    Raises TableChanged if files were compacted, overwritten or dropped since, or if that is not known any more;
    InvalidArgument for another text. What supervisors have added since is no such change.
    """
    identity, _, text = version.partition(".")
    if not (text.isascii() and text.isdigit()):
        raise invalid_argument("version", version, "it must be a text that table_version returned")
    number = int(text)
    if metadata is None:
        if identity != NO_TABLE:
            raise TableChanged(table=name)
        return 0
    if identity not in (NO_TABLE, str(metadata.table_uuid)):
        raise TableChanged(table=name)
    later = [each for each in metadata.snapshots if (each.sequence_number or 0) > number]
    # What replaced files a day ago may be forgotten. Another engine may have gone back to an older snapshot.
    forgotten = any(now_ms - each.timestamp_ms > REPLACED_MS for each in later)
    if forgotten or _number_of(metadata) < number or any(replaces(each) for each in later):
        raise TableChanged(table=name)
    return number


def _number_of(metadata: TableMetadata) -> int:
    snapshot = metadata.current_snapshot()
    return 0 if snapshot is None else snapshot.sequence_number or 0


def replaces(snapshot: Snapshot) -> bool:
    """Return whether a snapshot lacks files of the one before it, or was made in the place of none."""
    summary = snapshot.summary
    return summary is None or summary.operation is not Operation.APPEND or summary[REPLACES] is not None


def expired(metadata: TableMetadata, now_ms: int) -> list[int]:
    """Return the ids of snapshots that may be forgotten: their files are those of later ones, or have been unused long.

    The newest stay, and for REPLACED_MS each that replaced files, and the one before it, which has them. So does the
    last one that is older: readers may have its manifests, and it tells that versions before it have ended.
    """
    found = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    named = {each.snapshot_id for each in metadata.refs.values()}
    kept = set[int]()
    for before, after in zip(found, [*found[1:], None], strict=True):
        is_young = now_ms - before.timestamp_ms <= REPLACED_MS
        is_used = after is not None and now_ms - after.timestamp_ms <= REPLACED_MS
        is_replaced = after is not None and replaces(after)
        if (is_young and replaces(before)) or (is_used and (is_replaced or not is_young)):
            kept.add(before.snapshot_id)
    kept.update(each.snapshot_id for each in found[-SNAPSHOTS_KEPT:])
    return [each.snapshot_id for each in found if each.snapshot_id not in kept | named]


def within(files: Iterable[TableFile], start_ms: int | None, end_ms: int | None) -> list[TableFile]:
    """Return the files that may have rows in [start_ms, end_ms). None: unbounded."""
    return [
        each
        for each in files
        if (start_ms is None or each.max_ms >= start_ms) and (end_ms is None or each.min_ms < end_ms)
    ]
