"""Landing: staged rows become extents at the tails of active segments, whole transactions, in the order of commits.

No bytes of blobs are copied. A row whose segment is not active any more cannot land as it is, nor can a
transaction of very many rows: those are prepared first (`preparing`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import attrs

from eventproc.store.database import Tx
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import PREPARED_INLINE_BYTES, PREPARED_ROWS, ROUND_TRANSACTIONS
from eventproc.store.model.transactions import TxnEvent, advance_txn
from eventproc.store.segments import (
    INLINE_EXTENT_COUNTER,
    AppendResult,
    InlineExtentCounter,
    RecentEvents,
    flush_appends,
)
from eventproc.store.segments.append import INSERT_EXTENT, find_tail
from eventproc.store.segments.read import BlobLoader, Extent, decode_extent
from eventproc.store.transactions.staging import settle_staging
from eventproc.store.transactions.table import COLUMNS, Txn, change_txn, txn_of
from eventproc.store.transactions.waiting import TXN_OUTCOMES


class StagedRow(NamedTuple):
    """A row of `staged`. A named tuple: one step makes thousands, under the write lock."""

    seq: int
    part: int
    segment: SegmentId
    length: int
    events: int
    keyed: bool
    packed: bool
    place: int | None
    place_offset: int
    inline: bytes | None


@attrs.frozen
class Round:
    """What one round did. landed: the transactions that were committed. unprepared: the next, which has to be
    prepared first, if that is why it ended; pack: its rows are too many. more: something decided is left."""

    landed: tuple[Txn, ...] = ()
    unprepared: Txn | None = None
    pack: bool = False
    more: bool = False


STAGED_COLUMNS: Final = "seq, part, segment, length, count, keyed, packed, place, place_offset, inline"


def decided(tx: Tx, stream_id: int, *, limit: int) -> list[Txn]:
    """Return the stream's decided, uncommitted transactions, in the order of commits."""
    settle_staging(tx)
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM txn WHERE stream_id = ? AND finished = 0 AND position IS NOT NULL"
        " ORDER BY position LIMIT ?",
        (stream_id, limit),
    )
    return [txn_of(row) for row in rows.fetchall()]


def keyless_segment(epoch: Epoch, txn_id: str) -> SegmentId:
    """Return the active segment that takes a transaction's events without a key, where theirs was sealed."""
    return epoch.ids[int(txn_id[-8:], 16) % len(epoch.ids)]


def land_round(tx: Tx, stream: str, stream_id: int, epoch: Epoch, *, most: int = ROUND_TRANSACTIONS) -> Round:
    """Commit the next decided transactions, as many as one step may: whole ones, in order.

    epoch: the stream's current one, of this transaction. At most `most` of them, and PREPARED_ROWS index rows
    unless the first has more, all packed. Cost: a look-up a segment; an insert a row; a row a transaction.
    """
    waiting = decided(tx, stream_id, limit=most + 1)
    landing = _Landing(tx, stream, stream_id)
    landed: list[Txn] = []
    for txn in waiting[:most]:
        rows = _ready(tx, txn, epoch)
        if isinstance(rows, bool):
            return Round(landing.finish(landed), txn, pack=rows, more=True)
        if landed and not landing.has_room(rows):
            break
        landed.append(attrs.evolve(txn, landed=landing.add(rows)))
    return Round(landing.finish(landed), more=len(landed) < len(waiting))


def _ready(tx: Tx, txn: Txn, epoch: Epoch) -> list[StagedRow] | bool:
    """Return the transaction's rows, in written order, if they can land; else whether they have to be packed."""
    if txn.rows > PREPARED_ROWS and not txn.prepared:
        return True  # without a look at the rows, which costs
    rows: list[StagedRow] = []
    active = epoch.by_id
    inline_bytes, unpacked = 0, False
    cursor = tx.execute(
        f"SELECT {STAGED_COLUMNS} FROM staged WHERE stream_id = ? AND txn = ? ORDER BY seq, part",
        (txn.stream_id, txn.id),
    )
    try:
        for columns in cursor:
            row = StagedRow._make(columns)
            if row.segment not in active:
                if row.keyed:
                    return txn.rows > PREPARED_ROWS
                row = row._replace(segment=keyless_segment(epoch, txn.id))
            rows.append(row)
            inline_bytes += 0 if row.inline is None else len(row.inline)
            unpacked = unpacked or not row.packed
            if unpacked and (len(rows) > PREPARED_ROWS or inline_bytes > PREPARED_INLINE_BYTES):
                return True
    finally:
        cursor.close()
    return rows


@attrs.define
class _Tail:
    """Where a segment ends, with what lands; first_*: where the rows of the present transaction begin in it."""

    offset: int
    number: int
    time: int
    first_offset: int
    first_number: int


_ExtentRow: TypeAlias = tuple[int, SegmentId, int, int, int, int, int, int, int | None, int, bytes | None]


class _Landing:
    """Rows on their way to the tails; nothing is written before `finish`."""

    def __init__(self, tx: Tx, stream: str, stream_id: int) -> None:
        flush_appends(tx, stream_id)
        self._tx = tx
        self._stream = stream
        self._stream_id = stream_id
        self._tails: dict[SegmentId, _Tail] = {}
        self._extents: list[_ExtentRow] = []
        self._inline_bytes = 0

    def has_room(self, rows: Collection[StagedRow]) -> bool:
        """Return whether these rows may land with those before them."""
        fits = self._inline_bytes + _inline_bytes(rows) <= PREPARED_INLINE_BYTES
        return fits and len(self._extents) + len(rows) <= PREPARED_ROWS

    def add(self, rows: Sequence[StagedRow]) -> tuple[AppendResult, ...]:
        """Give the rows of one transaction their places; return them, one a segment."""
        tails = {segment: self._tail(segment) for segment in sorted({row.segment for row in rows})}
        for tail in tails.values():
            tail.first_offset, tail.first_number = tail.offset, tail.number
        for _, _, segment, length, count, _, _, place, place_offset, inline in rows:
            tail = tails[segment]
            where = (self._stream_id, segment, tail.offset, length, tail.number, count, tail.time, tail.time)
            self._extents.append((*where, place, place_offset, inline))
            tail.offset += length
            tail.number += count
        self._inline_bytes += _inline_bytes(rows)
        return tuple(
            AppendResult(segment, tail.first_offset, tail.first_number, tail.number - tail.first_number)
            for segment, tail in tails.items()
        )

    def finish(self, txns: Collection[Txn]) -> tuple[Txn, ...]:
        """Write everything: extents instead of staged rows, and the states; return the transactions as they end."""
        tx = self._tx
        tx.executemany(INSERT_EXTENT, self._extents)
        tx.executemany(
            "DELETE FROM staged WHERE stream_id = ? AND txn = ?", [(txn.stream_id, txn.id) for txn in txns]
        )
        ended: list[Txn] = []
        for txn in txns:
            state = advance_txn(txn.state, TxnEvent.COMMITTED, name=txn.id)
            ended.append(change_txn(tx, txn, state=state, finished_ms=tx.now_ms, reason=None))
            tx.after(partial(tx.shared[TXN_OUTCOMES].deliver, (txn.stream_id, txn.id), ended[-1]))
        if txns:
            tx.wake(("commits", self._stream_id))
        if self._extents:
            self._tell()
        return tuple(ended)

    def _tail(self, segment: SegmentId) -> _Tail:
        if (tail := self._tails.get(segment)) is None:
            found = find_tail(self._tx, self._stream, self._stream_id, segment)
            time = max(self._tx.now_ms, found.time)
            tail = _Tail(found.offset, found.number, time, found.offset, found.number)
            self._tails[segment] = tail
        return tail

    def _tell(self) -> None:
        """Wake readers, hand them small events without a read, and note runs of tiny extents."""
        tx, stream_id, recent = self._tx, self._stream_id, RecentEvents.of(self._tx)
        tx.wake(("stream", stream_id))
        inline = [row for row in self._extents if row[8] is None]
        if inline:
            tx.after(partial(_note_tiny, tx.shared[INLINE_EXTENT_COUNTER], inline))
        if len(inline) == len(self._extents) and recent.wanted(stream_id):
            blobs = BlobLoader(tx)
            runs = [decode_extent(blobs, row[1], _extent(row)) for row in inline]
            tx.after(partial(recent.add, stream_id, runs))


def _inline_bytes(rows: Collection[StagedRow]) -> int:
    return sum([len(row.inline) for row in rows if row.inline is not None])


def _note_tiny(tiny: InlineExtentCounter, rows: Collection[_ExtentRow]) -> None:
    for stream_id, segment, start, *_ in rows:
        tiny.note(stream_id, segment, start)


def _extent(row: _ExtentRow) -> Extent:
    _, _, start, length, number, count, time, _, place, place_offset, inline = row
    return Extent(start, length, number, count, time, place, place_offset, inline)
