"""Preparing a transaction for its commit: splitting rows of sealed segments, and packing small rows.

Preparing goes in bounded steps of two halves. `plan_preparation` reads and does the work outside of the write lock;
`apply_preparation` writes the result. The rows do not change in between, because the transaction is decided and only
the current host prepares it. The exception is `txn abort --force`; `apply_preparation` checks that.

Order of events. A row that is only split is replaced in its place. A step that packs takes every small row of its
window, in order, and puts the new rows in the place of the last of them. It passes no packed row: those precede all
small rows, because an earlier step, or an earlier preparation that died or met a scale, had taken everything before
them. A packed row is therefore never packed again: if its segment was sealed, it is split in its place. Read by
(seq, part), the events of each key stay in the order of writing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from eventproc.store.database import SqlValue, Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARE_BYTES, PREPARE_ROWS
from eventproc.store.model.transactions import TxnState
from eventproc.store.segments.columns import Columns
from eventproc.store.segments.extents import (
    insert_blob,
    is_inline,
    load_blob,
    pack_inline,
    unpack_inline,
)
from eventproc.store.segments.reaper import free_unreferenced_blobs
from eventproc.store.segments.stored_columns import concatenate_columns, pick_events, slice_columns
from eventproc.store.transactions.commit_round import STAGED_COLUMNS, StagedRow, keyless_segment
from eventproc.store.transactions.staging import BOUND
from eventproc.store.transactions.txn_record import TxnRecord, change_txn, find_txn

ROWS_A_QUERY: Final = 256
"""Staged rows that one query reads. Higher: more of them are read behind the end of a step; lower: more queries."""


@attrs.frozen
class _PreparedRow:
    """A new staged row: its place (seq, part), its segment, and its events."""

    seq: int
    part: int
    segment: SegmentId
    events: tuple[tuple[Columns, int], ...]
    keyed: int
    packed: bool

    @property
    def count(self) -> int:
        return sum(count for _, count in self.events)

    @property
    def length(self) -> int:
        return sum(len(columns.data) for columns, _ in self.events)


@attrs.frozen
class PreparationStep:
    """What one step of preparing changes.

    replaced: rows to delete. moved: rows that only get another segment. new_rows: rows to insert, and columns: their
    events.
    next_seq: the staging at which the next step begins, None if this is the last step.
    """

    replaced: tuple[StagedRow, ...]
    moved: tuple[tuple[StagedRow, SegmentId], ...]
    new_rows: tuple[_PreparedRow, ...]
    columns: Columns | None
    next_seq: int | None

    @property
    def size_bytes(self) -> int:
        """About how many bytes the step writes."""
        return 0 if self.columns is None else len(self.columns.data)


def plan_preparation(
    tx: Tx, txn: TxnRecord, epoch: Epoch, *, first_seq: int, pack: bool, rows_max: int = PREPARE_ROWS
) -> PreparationStep:
    """Return the rows to replace, from staging `first_seq` on, so that they can be committed in `epoch`.

    pack: replace many small rows by few. rows_max: rows of one step, plus those of one staging.
    Call it in a read. It loads about PREPARE_BYTES and needs about 1 us per event that is split.
    """
    work, seen, next_seq = _window(tx, txn, epoch, first_seq, pack, rows_max)
    splitter = _RowSplitter(tx, epoch, txn.id)
    moved: list[tuple[StagedRow, SegmentId]] = []
    replaced: list[StagedRow] = []
    new_rows: list[_PreparedRow] = []
    small: list[StagedRow] = []
    for row in work:
        if pack and not row.packed:
            small.append(row)
            continue
        split = splitter.split(row)
        if len(split) == 1:
            moved.append((row, next(iter(split))))
            continue
        own = _prepared_rows([(row, split)], seq=row.seq, part=seen[row.seq] + 1, packed=row.packed)
        seen[row.seq] += len(own)
        new_rows += own
        replaced.append(row)
    if small:
        last = small[-1].seq
        replaced += small
        new_rows += _prepared_rows(
            ((row, splitter.split(row)) for row in small), seq=last, part=seen[last] + 1, packed=True
        )
    parts = [each for row in new_rows for each in row.events]
    columns = concatenate_columns(parts, times=b"")._replace(times=None) if parts else None
    return PreparationStep(tuple(replaced), tuple(moved), tuple(new_rows), columns, next_seq)


def count_preparation(tx: Tx, txn: TxnRecord) -> bool:
    """Count one more preparation of the transaction; return False, with no change, if it was given up.

    After PREPARATIONS_MAX of them the stream's next scale waits.
    """
    if (found := _still_committing(tx, txn)) is None:
        return False
    change_txn(tx, found, prepared=txn.prepared + 1)  # a repeated call counts once
    return True


def apply_preparation(tx: Tx, txn: TxnRecord, planned: PreparationStep) -> None:
    """Write a planned step, unless the transaction was given up meanwhile."""
    if _still_committing(tx, txn) is None:
        return
    tx.executemany(
        "UPDATE staged SET segment = ? WHERE stream_id = ? AND txn = ? AND seq = ? AND part = ?",
        [(segment, txn.stream_id, txn.id, row.seq, row.part) for row, segment in planned.moved],
    )
    tx.executemany(
        "DELETE FROM staged WHERE stream_id = ? AND txn = ? AND seq = ? AND part = ?",
        [(txn.stream_id, txn.id, row.seq, row.part) for row in planned.replaced],
    )
    if planned.columns is not None:
        rows = list(_new_rows(tx, txn, planned, planned.columns))
        tx.executemany(_INSERT, rows)
    free_unreferenced_blobs(tx, sorted({row.place for row in planned.replaced if row.place is not None}))


def _still_committing(tx: Tx, txn: TxnRecord) -> TxnRecord | None:
    found = find_txn(tx, txn.stream_id, txn.id)
    return found if found is not None and found.state is TxnState.COMMITTING else None


def _new_rows(
    tx: Tx, txn: TxnRecord, planned: PreparationStep, columns: Columns
) -> Iterator[tuple[SqlValue, ...]]:
    inline = is_inline(tx, txn.stream_id, len(columns.data))
    place = None if inline else insert_blob(tx, txn.stream_id, columns)
    place_offset, first = 0, 0
    for row in planned.new_rows:
        own = pack_inline(slice_columns(columns, first, first + row.count)) if inline else None
        key = (txn.stream_id, txn.id, row.seq, row.part)
        what = (row.segment, row.length, row.count, row.keyed, row.packed)
        yield (*key, *what, place, place_offset, own)
        first += row.count
        place_offset += 0 if inline else row.length


_INSERT: Final = """
    INSERT INTO staged (stream_id, txn, seq, part, segment, length, count, keyed, packed, place, place_offset, inline)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _window(
    tx: Tx, txn: TxnRecord, epoch: Epoch, first_seq: int, pack: bool, rows_max: int
) -> tuple[list[StagedRow], dict[int, int], int | None]:
    """Return the rows of one step, the last part of each of their stagings, and the next staging.

    Either all of the rows are bound to the key ranges of their segments, or none.
    """
    work: list[StagedRow] = []
    last_part: dict[int, int] = {}
    size_bytes = 0
    for row in _staged_rows(tx, txn, first_seq):
        full = size_bytes >= PREPARE_BYTES or len(work) >= rows_max
        # A key may have bound events and others in two segments, which a roll then merges.
        full = full or (bool(work) and (row.keyed == BOUND) is not (work[-1].keyed == BOUND))
        if full and row.seq not in last_part:  # a staging is never split between steps
            return work, last_part, row.seq
        last_part[row.seq] = row.part
        if _must_move(row, epoch) or (pack and not row.packed):
            work.append(row)
            size_bytes += row.length
    return work, last_part, None


def _staged_rows(tx: Tx, txn: TxnRecord, first_seq: int) -> Iterator[StagedRow]:
    """Yield the rows from a staging on, ROWS_A_QUERY at a time: a server sends all that a statement finds."""
    last, count = (first_seq, -1), ROWS_A_QUERY
    while count == ROWS_A_QUERY:
        rows = tx.execute(
            f"SELECT {STAGED_COLUMNS} FROM staged WHERE stream_id = ? AND txn = ? AND (seq, part) > (?, ?)"
            " ORDER BY seq, part LIMIT ?",
            (txn.stream_id, txn.id, *last, ROWS_A_QUERY),
        ).fetchall()
        yield from map(StagedRow._make, rows)
        last, count = rows[-1][:2] if rows else last, len(rows)


def _must_move(row: StagedRow, epoch: Epoch) -> bool:
    """Return whether the row's events need other segments. Events that belong to a key range need a roll instead."""
    return row.segment not in epoch.by_id and row.keyed != BOUND


_Split = dict[SegmentId, tuple[Columns, int]]
"""The events of a row by target segment, in order: their columns and their number."""


def _prepared_rows(
    rows: Iterable[tuple[StagedRow, _Split]], *, seq: int, part: int, packed: bool
) -> list[_PreparedRow]:
    """Return new rows, one per segment, with the events of `rows` in order, from `part` of staging `seq` on."""
    events: dict[SegmentId, list[tuple[Columns, int]]] = {}
    keyed: dict[SegmentId, int] = {}
    for row, split in rows:
        for segment, own in split.items():
            events.setdefault(segment, []).append(own)
            keyed[segment] = max(keyed.get(segment, 0), row.keyed)
    return [
        _PreparedRow(seq, part + index, segment, tuple(events[segment]), keyed[segment], packed)
        for index, segment in enumerate(sorted(events))
    ]


class _RowSplitter:
    """Loads rows, each blob once, and splits their events by active segment."""

    def __init__(self, tx: Tx, epoch: Epoch, txn_id: str) -> None:
        self._tx = tx
        self._epoch = epoch
        self._lows = [segment.range.low for segment in epoch.segments]
        self._ids = epoch.ids
        self._keyless = keyless_segment(epoch, txn_id)
        self._blobs: dict[int, Columns] = {}

    def split(self, row: StagedRow) -> _Split:
        """Return the row's events by target segment. About 1 us per event, if there are several targets."""
        columns = self._columns(row)
        route = self._route(row, columns)
        if len(targets := set(route)) == 1:
            return {targets.pop(): (columns, row.events)}
        chosen: dict[SegmentId, list[int]] = {}
        for index, segment in enumerate(route):
            chosen.setdefault(segment, []).append(index)
        return {segment: (pick_events(columns, own), len(own)) for segment, own in chosen.items()}

    def _columns(self, row: StagedRow) -> Columns:
        if row.inline is not None:
            return unpack_inline(row.inline)
        assert row.place is not None, f"staged row {row.seq}, {row.part} has neither a blob nor columns"
        if (found := self._blobs.get(row.place)) is None:
            found = self._blobs[row.place] = load_blob(self._tx, row.place)
        ends = memoryview(found.ends).cast("I")
        first = bisect_right(ends, row.place_offset)
        return slice_columns(found, first, first + row.events)

    def _route(self, row: StagedRow, columns: Columns) -> list[SegmentId]:
        if not _must_move(row, self._epoch):
            return [row.segment] * row.events
        if columns.points is None:
            return [self._keyless] * row.events
        ids, lows, keyless = self._ids, self._lows, self._keyless
        return [
            ids[bisect_right(lows, where) - 1] if where == where else keyless  # NaN: no key
            for where in memoryview(columns.points).cast("d")
        ]
