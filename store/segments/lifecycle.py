"""Segments come and go: create, seal, truncate, forget; each a function of a workflow's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.offsets import number_at
from eventproc.store.segments.recent import RecentEvents
from eventproc.store.segments.state import find_tail, segment_state


def create_segments(tx: Tx, stream_id: int, segments: Iterable[SegmentId], *, since_ms: int = 0) -> None:
    """Make new, empty segments. since_ms: no event of theirs has a time before that, whatever the clock says."""
    tx.executemany(
        "INSERT INTO segment (stream_id, segment, base_time) VALUES (?, ?, ?)",
        [(stream_id, segment, since_ms) for segment in segments],
    )


def seal_segments(
    tx: Tx, stream: str, stream_id: int, segments: Iterable[SegmentId], *, sealed_epoch: int | None
) -> int:
    """Seal active segments at their tails; from this transaction on they never grow.

    stream: name, for errors. segments: at least one. sealed_epoch: the epoch that replaces them, None when the whole
    stream is sealed.
    Returns when the last event of them all was appended, or the time before which none can be. Raises SegmentSealed,
    NotFound, when one is not active. A look-up a segment.
    """
    flush_appends(tx, stream_id)
    tails = {segment: find_tail(tx, stream, stream_id, segment) for segment in segments}
    tx.executemany(
        "UPDATE segment SET sealed_length = ?, sealed_epoch = ? WHERE stream_id = ? AND segment = ?",
        [(tail.offset, sealed_epoch, stream_id, segment) for segment, tail in tails.items()],
    )
    tx.wake(("stream", stream_id))
    return max(tail.time for tail in tails.values())


def truncate_segments(
    tx: Tx, stream: str, stream_id: int, heads: Mapping[SegmentId, int], *, passed: Iterable[SegmentId]
) -> None:
    """Move heads forward: `heads` to offsets that are event borders, `passed` segments to their end.

    The bytes before are freed by the reaper. A head never moves back: an older one is left alone.
    """
    flush_appends(tx, stream_id)
    for segment in passed:
        state = segment_state(tx, stream_id, segment)
        if state is not None:
            _move_head(tx, stream_id, segment, state.tail, state.tail_number)
    for segment, offset in heads.items():
        _move_head(tx, stream_id, segment, offset, number_at(tx, stream_id, segment, offset))
    request_reaping(tx, stream, stream_id, deleted=False)
    recent = RecentEvents.of(tx)
    tx.after(lambda: recent.forget(stream_id))
    tx.wake(("stream", stream_id))


def request_reaping(tx: Tx, stream: str, stream_id: int, *, deleted: bool) -> None:
    """Leave word that the stream has bytes nobody can read; wakes the reaper."""
    tx.execute(
        "INSERT INTO reap (stream_id, name, deleted) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET deleted = max(deleted, excluded.deleted), not_before_ms = 0",
        (stream_id, stream, deleted),
    )
    tx.wake("reap")


def _move_head(tx: Tx, stream_id: int, segment: SegmentId, offset: int, number: int) -> None:
    tx.execute(
        "UPDATE segment SET head = ?, head_number = ? WHERE stream_id = ? AND segment = ? AND head < ?",
        (offset, number, stream_id, segment, offset),
    )


def delete_segments(tx: Tx, stream: str, stream_id: int) -> None:
    """Make the stream's segments unreadable at once; the reaper frees their bytes."""
    flush_appends(tx, stream_id)
    tx.execute("DELETE FROM segment WHERE stream_id = ?", (stream_id,))
    request_reaping(tx, stream, stream_id, deleted=True)
    recent = RecentEvents.of(tx)
    tx.after(lambda: recent.forget(stream_id))
    tx.wake(("stream", stream_id))


def forget_passed_segments(tx: Tx, stream_id: int, *, first_epoch: int) -> None:
    """Drop the rows of segments that ended before the stream's first kept epoch and have no readable event."""
    tx.execute(
        "DELETE FROM segment WHERE stream_id = ? AND sealed_epoch <= ? AND head = sealed_length",
        (stream_id, first_epoch),
    )
