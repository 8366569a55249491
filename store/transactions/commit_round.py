"""Commit rounds: staged rows become extents at the tails of active segments, in the order of the commit decisions.

A round commits complete transactions and copies no bytes of blobs. A transaction with rows of divided segments, or with
very many rows, is prepared first (`preparation`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARED_INLINE_BYTES, ROUND_TRANSACTIONS
from eventproc.store.model.ranges import KeyRange
from eventproc.store.segments import (
    INLINE_EXTENT_COUNTER,
    AppendResult,
    InlineExtentCounter,
    RecentEvents,
    flush_appends,
)
from eventproc.store.segments.extents import INSERT_EXTENT, BlobLoader, Extent, decode_extent
from eventproc.store.segments.state import SegmentTail, find_tail
from eventproc.store.transactions.staging import BOUND
from eventproc.store.transactions.txn_record import (
    TXN_STEP_LIMITS,
    TxnRecord,
    TxnStepLimits,
    finish_commit,
    select_txns,
)


class StagedRow(NamedTuple):
    """A row of `staged`. A named tuple, because one step makes thousands under the write lock."""

    seq: int
    part: int
    segment: SegmentId
    length: int
    events: int
    keyed: int
    packed: bool
    place: int | None
    place_offset: int
    inline: bytes | None


@attrs.frozen
class CommitRound:
    """What one round did.

    committed: the transactions that it committed, in order.
    unprepared: the next transaction, if the round ended because that one must be prepared first.
    pack: the unprepared transaction has too many rows, so that its small rows must be packed.
    divided: key ranges to which events of the next transaction belong, each divided between several active segments:
    it needs a roll.
    more: decided transactions are left.
    """

    committed: tuple[TxnRecord, ...] = ()
    unprepared: TxnRecord | None = None
    pack: bool = False
    divided: tuple[KeyRange, ...] = ()
    more: bool = False


@attrs.frozen
class _Unready:
    """Why a transaction cannot be committed yet, as in `CommitRound`."""

    pack: bool = False
    divided: tuple[KeyRange, ...] = ()


STAGED_COLUMNS: Final = "seq, part, segment, length, count, keyed, packed, place, place_offset, inline"


def list_decided(tx: Tx, stream_id: int, *, limit: int) -> list[TxnRecord]:
    """Return the stream's decided, uncommitted transactions in the order of commits, at most `limit`."""
    where = "stream_id = ? AND finished = 0 AND position IS NOT NULL ORDER BY position LIMIT ?"
    return select_txns(tx, where, stream_id, limit)


def keyless_segment(epoch: Epoch, txn_id: str) -> SegmentId:
    """Return the active segment for a transaction's events without a key whose own segment was sealed."""
    return epoch.ids[int(txn_id[-8:], 16) % len(epoch.ids)]


def commit_round(tx: Tx, stream: StreamRecord, *, transactions_max: int = ROUND_TRANSACTIONS) -> CommitRound:
    """Commit the next decided transactions of the stream, in order, as many as fit into one step.

    stream: its record, read in `tx`.
    transactions_max: upper bound of this round, in addition to `TxnStepLimits`.
    A transaction with more rows than a round may move is committed alone, after all its rows were packed.
    Cost: one look-up per segment, one insert per row, one update per transaction.
    """
    limits = tx.shared[TXN_STEP_LIMITS]
    transactions_max = min(transactions_max, limits.round_transactions)
    waiting = list_decided(tx, stream.stream_id, limit=transactions_max + 1)
    writer = _CommitWriter(tx, stream.name, stream.stream_id, limits)
    owners = _RangeOwners(StoredHistory(tx, stream))
    committed: list[_Moved] = []
    for txn in waiting[:transactions_max]:
        rows = _ready(tx, txn, owners, limits)
        if isinstance(rows, _Unready):
            done = writer.finish(committed)
            if rows.divided:
                return CommitRound(done, divided=rows.divided, more=True)
            return CommitRound(done, txn, pack=rows.pack, more=True)
        if committed and not writer.has_room(rows):
            break
        committed.append((txn, writer.add(rows)))
    return CommitRound(writer.finish(committed), more=len(committed) < len(waiting))


class _RangeOwners:
    """Finds the active segments that own the key ranges of sealed ones, each once."""

    def __init__(self, history: StoredHistory) -> None:
        self.epoch = history.epoch(history.current)
        self._history = history
        self._found: dict[SegmentId, SegmentId | KeyRange] = {}

    def find(self, sealed: SegmentId) -> SegmentId | KeyRange:
        """Return the active segment that contains the range of a sealed one; the range if several share it."""
        if (found := self._found.get(sealed)) is None:
            key_range = get_segment(self._history, sealed).range  # kept while a transaction is unfinished
            first, *more = self.epoch.overlapping(key_range)
            found = self._found[sealed] = key_range if more else first.id
        return found


def _ready(tx: Tx, txn: TxnRecord, owners: _RangeOwners, limits: TxnStepLimits) -> list[StagedRow] | _Unready:
    """Return the transaction's rows in written order if they can be committed, else what must be done before."""
    if txn.rows > limits.round_rows and not txn.prepared:
        return _Unready(pack=True)  # without reading the rows
    rows: list[StagedRow] = []
    divided: dict[KeyRange, None] = {}
    active = owners.epoch.by_id
    inline_bytes, unpacked = 0, False
    cursor = tx.execute(
        f"SELECT {STAGED_COLUMNS} FROM staged WHERE stream_id = ? AND txn = ? ORDER BY seq, part",
        (txn.stream_id, txn.id),
    )
    try:
        for columns in cursor:
            row = StagedRow._make(columns)
            if row.segment not in active:
                # Also for keyed rows: a roll merges their segment, and they would never be prepared for the merged one.
                target = owners.find(row.segment) if row.keyed else keyless_segment(owners.epoch, txn.id)
                if isinstance(target, KeyRange):
                    if row.keyed != BOUND:
                        return _Unready(pack=txn.rows > limits.round_rows)
                    divided[target] = None
                    target = row.segment
                row = row._replace(segment=target)
            rows.append(row)
            inline_bytes += 0 if row.inline is None else len(row.inline)
            unpacked = unpacked or not row.packed
            if unpacked and (len(rows) > limits.round_rows or inline_bytes > PREPARED_INLINE_BYTES):
                return _Unready(pack=True)
    finally:
        cursor.close()
    return _Unready(divided=tuple(divided)) if divided else rows


_Moved: TypeAlias = tuple[TxnRecord, tuple[AppendResult, ...]]
"""A transaction, and where its events are."""

_ExtentRow: TypeAlias = tuple[int, SegmentId, int, int, int, int, int, int, int | None, int, bytes | None]


class _CommitWriter:
    """Collects the extents of one round; `finish` writes them."""

    def __init__(self, tx: Tx, stream: str, stream_id: int, limits: TxnStepLimits) -> None:
        flush_appends(tx, stream_id)
        self._tx = tx
        self._stream = stream
        self._stream_id = stream_id
        self._rows_max = limits.round_rows
        self._tails: dict[SegmentId, SegmentTail] = {}
        self._extents: list[_ExtentRow] = []
        self._inline_bytes = 0

    def has_room(self, rows: Collection[StagedRow]) -> bool:
        """Return whether these rows fit into this round as well."""
        fits = self._inline_bytes + _inline_bytes(rows) <= PREPARED_INLINE_BYTES
        return fits and len(self._extents) + len(rows) <= self._rows_max

    def add(self, rows: Sequence[StagedRow]) -> tuple[AppendResult, ...]:
        """Assign the rows of one transaction to offsets; return where they begin, one result per segment."""
        tails = {segment: self._tail(segment) for segment in sorted({row.segment for row in rows})}
        begins = [(segment, tail, tail.offset, tail.number) for segment, tail in tails.items()]
        for _, _, segment, length, count, _, _, place, place_offset, inline in rows:
            tail = tails[segment]
            where = (self._stream_id, segment, tail.offset, length, tail.number, count, tail.time, tail.time)
            self._extents.append((*where, place, place_offset, inline))
            tail.offset += length
            tail.number += count
        self._inline_bytes += _inline_bytes(rows)
        return tuple(
            AppendResult(segment, offset, number, tail.number - number)
            for segment, tail, offset, number in begins
        )

    def finish(self, moved: Collection[_Moved]) -> tuple[TxnRecord, ...]:
        """Replace the staged rows by extents, and write the final states; return the committed transactions."""
        tx = self._tx
        tx.executemany(INSERT_EXTENT, self._extents)
        tx.executemany(
            "DELETE FROM staged WHERE stream_id = ? AND txn = ?",
            [(txn.stream_id, txn.id) for txn, _ in moved],
        )
        committed = tuple([finish_commit(tx, txn, appended) for txn, appended in moved])
        if committed:
            tx.wake(("commits", self._stream_id))
        if self._extents:
            self._notify()
        return committed

    def _tail(self, segment: SegmentId) -> SegmentTail:
        if (tail := self._tails.get(segment)) is None:
            tail = self._tails[segment] = find_tail(self._tx, self._stream, self._stream_id, segment)
            tail.time = max(self._tx.now_ms, tail.time)
        return tail

    def _notify(self) -> None:
        """Wake readers, keep small events for those of this process, and count the inline extents."""
        tx, stream_id, recent = self._tx, self._stream_id, RecentEvents.of(self._tx)
        tx.wake(("stream", stream_id))
        inline = [row for row in self._extents if row[8] is None]
        if inline:
            tx.after(partial(_count_inline, tx.shared[INLINE_EXTENT_COUNTER], inline))
        if len(inline) == len(self._extents) and recent.wanted(stream_id):
            blobs = BlobLoader(tx)
            runs = [decode_extent(blobs, row[1], _extent(row)) for row in inline]
            tx.after(partial(recent.add, stream_id, runs))


def _inline_bytes(rows: Collection[StagedRow]) -> int:
    return sum([len(row.inline) for row in rows if row.inline is not None])


def _count_inline(counter: InlineExtentCounter, rows: Collection[_ExtentRow]) -> None:
    for stream_id, segment, start, *_ in rows:
        counter.note(stream_id, segment, start)


def _extent(row: _ExtentRow) -> Extent:
    return Extent(*row[2:])
