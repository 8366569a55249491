"""Creating, sealing, truncating and deleting segments; each a function of a workflow's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from eventproc.store.database import Tx, Watch, find_number
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.partitions import is_reserve
from eventproc.store.segments.append import flush_appends
from eventproc.store.segments.offsets import number_at
from eventproc.store.segments.recent import RecentEvents
from eventproc.store.segments.state import find_tail, segment_state


@attrs.frozen
class SealedTotals:
    """What is in segments that were sealed together.

    bytes, events: from their beginnings to their ends. time: of their last event, a lower bound for the append times
    of events in successors.
    """

    bytes: int
    events: int
    time: int


def create_segments(tx: Tx, stream_id: int, segments: Iterable[SegmentId], *, since_ms: int = 0) -> None:
    """Create empty segments. since_ms: lower bound of the append times of their events, even if the clock is behind."""
    tx.executemany(
        "INSERT INTO segment (stream_id, segment, base_time) VALUES (?, ?, ?)",
        [(stream_id, segment, since_ms) for segment in segments],
    )


def seal_segments(
    tx: Tx, stream: str, stream_id: int, segments: Iterable[SegmentId], *, sealed_epoch: int | None
) -> SealedTotals:
    """Seal active segments at their tails: they never grow after this transaction. Return what is in them.

    stream: name, for errors. segments: at least one.
    sealed_epoch: the epoch that replaces them, None if the complete stream is sealed.
    Raises SegmentSealed or NotFound if a segment is not active. Cost: one look-up per segment.
    """
    flush_appends(tx, stream_id)
    tails = {segment: find_tail(tx, stream, stream_id, segment) for segment in segments}
    tx.executemany(
        "UPDATE segment SET sealed_length = ?, sealed_epoch = ? WHERE stream_id = ? AND segment = ?",
        [(tail.offset, sealed_epoch, stream_id, segment) for segment, tail in tails.items()],
    )
    tx.wake(("stream", stream_id))
    if any(map(is_reserve, tails)):
        tx.wake(_growth_channel(stream_id))
    return SealedTotals(
        bytes=sum([tail.offset for tail in tails.values()]),
        events=sum([tail.number for tail in tails.values()]),
        time=max([tail.time for tail in tails.values()]),
    )


def _growth_channel(stream_id: int) -> tuple[str, int]:
    """Return what to wake when the reserve of a topic was sealed: by growth, or with the topic."""
    return "growth", stream_id


def watch_growth(stream_id: int) -> Watch:
    """Return the subscription to the ends of a topic's reserves. Appends do not wake it."""

    def probe(tx: Tx) -> int | None:
        # Of the active segments the reserve has the highest id: each growth replaces it in a new epoch.
        query = "SELECT max(segment) FROM segment WHERE stream_id = ? AND sealed_length IS NULL"
        return find_number(tx, query, stream_id)

    return Watch(_growth_channel(stream_id), probe)


def truncate_segments(
    tx: Tx, stream: str, stream_id: int, heads: Mapping[SegmentId, int], *, passed: Iterable[SegmentId]
) -> None:
    """Move heads forward. The reaper then frees the bytes before them.

    heads: {segment: event boundary}; a head that lies further already stays. passed: segments to truncate to their end.
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


def watch_head(stream_id: int, segment: SegmentId) -> Watch:
    """Return the subscription to truncations of a segment, and to its deletion. Each wake-up costs one look-up."""

    def probe(tx: Tx) -> int | None:
        state = segment_state(tx, stream_id, segment)
        return None if state is None else state.head

    return Watch(_head_channel(stream_id), probe)


def _head_channel(stream_id: int) -> tuple[str, int]:
    return "head", stream_id


def request_reaping(tx: Tx, stream: str, stream_id: int, *, deleted: bool) -> None:
    """Record that the stream has unreadable bytes, and wake the reaper. deleted: the stream was deleted."""
    tx.execute(
        "INSERT INTO reap (stream_id, name, deleted) VALUES (?, ?, ?)"
        " ON CONFLICT (stream_id) DO UPDATE SET deleted = reap.deleted | excluded.deleted, not_before_ms = 0",
        (stream_id, stream, deleted),
    )
    tx.wake("reap")
    tx.wake(_head_channel(stream_id))


def _move_head(tx: Tx, stream_id: int, segment: SegmentId, offset: int, number: int) -> None:
    tx.execute(
        "UPDATE segment SET head = ?, head_number = ? WHERE stream_id = ? AND segment = ? AND head < ?",
        (offset, number, stream_id, segment, offset),
    )


def delete_segments(tx: Tx, stream: str, stream_id: int) -> None:
    """Make the stream's segments unreadable with this transaction. The reaper then frees their bytes."""
    flush_appends(tx, stream_id)
    tx.execute("DELETE FROM segment WHERE stream_id = ?", (stream_id,))
    tx.execute("DELETE FROM attribute WHERE stream_id = ?", (stream_id,))
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
    tx.execute(
        "DELETE FROM attribute WHERE stream_id = ?"
        " AND segment NOT IN (SELECT segment FROM segment WHERE stream_id = ?)",
        (stream_id, stream_id),
    )
