"""Staging: events of a transaction, written where no reader sees them.

What must be true: a staging takes effect completely or not at all. A staging that is repeated by its identity changes
nothing. It goes to segments that are active at that moment, so that along a key the stagings of one transaction follow
the epochs.

What one group commit stages for a transaction is written together before the COMMIT. Small stagings lie inside their
index row, which is then the only b-tree they touch. Larger ones share one blob that belongs to this transaction alone,
so that an abort frees its bytes completely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from eventproc.store.database import PendingSlot, Tx
from eventproc.store.model.errors import IllegalTransition, NotFound, TransactionAborted
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.transactions import TxnState
from eventproc.store.segments import EncodedBlock, SegmentEvents, WriterSequence, mark_prioritized
from eventproc.store.segments.append import verify_follows
from eventproc.store.segments.columns import join_blocks
from eventproc.store.segments.extents import insert_blob, is_inline, pack_inline
from eventproc.store.segments.state import verify_active

BOUND: Final = 2
"""`staged.keyed` of events that belong to the key range of their segment: 0 is for events without keys, 1 for events
that are routed by their points."""


@attrs.frozen
class StagedTotals:
    """What a transaction has staged: number of events, bytes with frames, index rows."""

    events: int = 0
    size_bytes: int = 0
    rows: int = 0


@attrs.define(eq=False)
class _PendingStaging:
    """A staging that is not written yet, or several of one writer in one group commit."""

    identity: WriterSequence | None
    bound: bool
    parts: dict[SegmentId, list[EncodedBlock]] = attrs.field(factory=dict)

    def joins(self, identity: WriterSequence | None, bound: bool) -> bool:
        same = (self.identity and self.identity.writer) == (identity and identity.writer)
        return same and self.bound == bound

    @property
    def size_bytes(self) -> int:
        return sum(events.size_bytes for blocks in self.parts.values() for events in blocks)


@attrs.define(eq=False)
class _OpenTxn:
    """An open transaction in one group commit. seq: of its last stored staging. totals: with the pending stagings."""

    stream_id: int
    seq: int
    stored: StagedTotals
    totals: StagedTotals
    last: WriterSequence | None
    calls: list[_PendingStaging] = attrs.field(factory=list)


def stage(
    tx: Tx,
    stream: str,
    stream_id: int,
    txn_id: str,
    parts: Sequence[SegmentEvents],
    *,
    identity: WriterSequence | None = None,
    guard: SegmentId | None = None,
    bound: bool = False,
) -> StagedTotals:
    """Add all parts or none to an open transaction; return what it has staged then.

    stream: name, for errors.
    parts: events for active segments, as for `append`. The caller bounds them to what one commit takes.
    identity: the writer's `sequence`-th staging of this transaction, counted from 1. A repeated one changes nothing.
    guard: as for `append`.
    bound: the events belong to the key range of their segment, which may be sealed meanwhile; see
        `eventproc.store.model.roll`.
    Raises NotFound (no such transaction), TransactionAborted, IllegalTransition (it is decided), SegmentSealed (route
    the events again), and WriterFenced as `append` does; then nothing changed.
    Cost: one look-up per segment, two per transaction and commit, and one row per segment at the end of the commit.
    """
    group = tx.pending[_STAGING]
    found = group.find(tx, stream, stream_id, txn_id)
    if identity is not None:
        if identity.after is not None:
            verify_follows(stream, identity, _last_staged(tx, found, txn_id, identity.writer))
        elif _has_staged(tx, found, txn_id, identity):
            return found.totals
    if guard is not None:
        verify_active(tx, stream, stream_id, guard)
    if not bound:
        for part in parts:
            verify_active(tx, stream, stream_id, part.segment)
    tx.mark_changed()
    if not found.calls or not found.calls[-1].joins(identity, bound):
        found.calls.append(_PendingStaging(identity, bound))
    call = found.calls[-1]
    call.identity = identity
    for part in parts:
        if part.events.block.headers is not None:
            mark_prioritized(tx, stream_id, part.events.block.headers)
        call.parts.setdefault(part.segment, []).append(part.events)
    found.totals = StagedTotals(
        found.totals.events + sum(part.events.count for part in parts),
        found.totals.size_bytes + sum(part.events.size_bytes for part in parts),
        found.stored.rows + sum(len(each.parts) for each in found.calls),
    )
    return found.totals


def last_staged_sequence(tx: Tx, stream: str, stream_id: int, txn_id: str, writer: str) -> int:
    """Return the sequence of the writer's last staging of an open transaction, 0 if there is none.

    Raises NotFound, TransactionAborted, IllegalTransition, as `stage` does.
    """
    found = tx.pending[_STAGING].find(tx, stream, stream_id, txn_id)
    return _last_staged(tx, found, txn_id, writer)


def staged_sequences(tx: Tx, stream_id: int, txn_id: str) -> dict[str, int]:
    """Return the sequence of the last staging of each writer, until what is staged is committed or dropped.

    It reads all rows of the transaction.
    """
    flush_staging(tx)
    rows = tx.execute(
        "SELECT writer, max(sequence) FROM staged WHERE stream_id = ? AND txn = ? AND writer IS NOT NULL"
        " GROUP BY writer",
        (stream_id, txn_id),
    )
    return dict(rows.fetchall())


def flush_staging(tx: Tx) -> None:
    """Write the pending stagings of this group commit, before SQL reads them or a transaction is decided."""
    group = tx.pending[_STAGING]
    if group.open:
        group.flush(tx)


def staged_totals(tx: Tx, stream_id: int, txn_id: str) -> StagedTotals:
    """Return what the transaction has staged, from its last row. One look-up."""
    row = _last_row(tx, stream_id, txn_id)
    return StagedTotals() if row is None else StagedTotals(*row[3:])


class _PendingStagings:
    """The stagings of one group commit, by transaction, collected until they are written together."""

    def __init__(self) -> None:
        self.open: dict[tuple[int, str], _OpenTxn] = {}

    def find(self, tx: Tx, stream: str, stream_id: int, txn_id: str) -> _OpenTxn:
        """Return the open transaction. Raises NotFound, TransactionAborted, IllegalTransition."""
        if (found := self.open.get((stream_id, txn_id))) is None:
            _verify_open(tx, stream, stream_id, txn_id)
            row = _last_row(tx, stream_id, txn_id)
            seq, writer, sequence, *totals = row or (0, None, None, 0, 0, 0)
            last = None if writer is None or sequence is None else WriterSequence(writer, sequence)
            stored = StagedTotals(*totals)
            found = self.open[stream_id, txn_id] = _OpenTxn(stream_id, seq, stored, stored, last)
        return found

    def flush(self, tx: Tx) -> None:
        """Write the collected stagings: one row per staging and segment, at most one blob per transaction."""
        for (_, txn_id), found in self.open.items():
            if found.calls:
                tx.executemany(_INSERT, _rows(tx, txn_id, found))
        self.open.clear()


_STAGING: Final = PendingSlot(_PendingStagings)


_INSERT: Final = """
    INSERT INTO staged (stream_id, txn, seq, part, segment, length, count, keyed, writer, sequence,
                        total_events, total_bytes, total_rows, place, place_offset, inline)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_Row = tuple[
    int,
    str,
    int,
    int,
    int,
    int,
    int,
    int,
    str | None,
    int | None,
    int,
    int,
    int,
    int | None,
    int,
    bytes | None,
]


def _rows(tx: Tx, txn_id: str, found: _OpenTxn) -> list[_Row]:
    place: int | None = None
    if not is_inline(tx, found.stream_id, sum(call.size_bytes for call in found.calls)):
        blocks = [events for call in found.calls for each in call.parts.values() for events in each]
        place = insert_blob(tx, found.stream_id, join_blocks(blocks))
    rows: list[_Row] = []
    events, size_bytes, count = found.stored.events, found.stored.size_bytes, found.stored.rows
    place_offset = 0
    for seq, call in enumerate(found.calls, start=found.seq + 1):
        writer, sequence = (
            (None, None) if call.identity is None else (call.identity.writer, call.identity.sequence)
        )
        for part, (segment, encoded) in enumerate(call.parts.items()):
            length, own = sum(each.size_bytes for each in encoded), sum(each.count for each in encoded)
            keyed = BOUND if call.bound else any(each.block.points is not None for each in encoded)
            inline = pack_inline(join_blocks(encoded)) if place is None else None
            events, size_bytes, count = events + own, size_bytes + length, count + 1
            rows.append(
                (
                    *(found.stream_id, txn_id, seq, part, segment, length, own, keyed, writer, sequence),
                    *(events, size_bytes, count, place, place_offset, inline),
                )
            )
            place_offset += 0 if place is None else length
    return rows


def _last_row(
    tx: Tx, stream_id: int, txn_id: str
) -> tuple[int, str | None, int | None, int, int, int] | None:
    found: tuple[int, str | None, int | None, int, int, int] | None = tx.execute(
        "SELECT seq, writer, sequence, total_events, total_bytes, total_rows FROM staged"
        " WHERE stream_id = ? AND txn = ? ORDER BY seq DESC, part DESC LIMIT 1",
        (stream_id, txn_id),
    ).fetchone()
    return found


def _has_staged(tx: Tx, found: _OpenTxn, txn_id: str, identity: WriterSequence) -> bool:
    """Return whether the writer has already made this staging or a later one."""
    return identity.sequence <= _last_staged(tx, found, txn_id, identity.writer)


def _last_staged(tx: Tx, found: _OpenTxn, txn_id: str, writer: str) -> int:
    """Return the sequence of the writer's last staging, 0 if there is none."""
    calls = [call.identity for call in found.calls if call.identity is not None]
    here = [identity.sequence for identity in calls if identity.writer == writer]
    if here:
        return max(here)
    if found.seq == 0:
        return 0
    if found.last is not None and found.last.writer == writer:
        return found.last.sequence
    # The last staging is of another writer, or has no identity. Of writers that alternate, it is among the last rows.
    row = tx.execute(
        "SELECT sequence FROM staged WHERE stream_id = ? AND txn = ? AND writer = ?"
        " ORDER BY seq DESC, part DESC LIMIT 1",
        (found.stream_id, txn_id, writer),
    ).fetchone()
    return 0 if row is None else int(row[0])


def _verify_open(tx: Tx, stream: str, stream_id: int, txn_id: str) -> None:
    row = tx.execute(
        "SELECT state, reason FROM txn WHERE finished IN (0, 1) AND stream_id = ? AND id = ?",
        (stream_id, txn_id),
    ).fetchone()
    if row is None:
        raise NotFound(kind="transaction", name=txn_id)
    state = TxnState(row[0])
    if state in (TxnState.ABORTING, TxnState.ABORTED):
        raise TransactionAborted(stream=stream, txn=txn_id, reason=row[1] or "")
    if state is not TxnState.OPEN:
        name = f"{stream}: transaction {txn_id}"
        raise IllegalTransition(state=state.value, event="write", name=name)
