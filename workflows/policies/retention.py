"""Retention: which truncation a stream's policy asks for.

It decides on a request, and the request truncates as one of a user does. So a death in between leaves nothing behind,
and a cut that became invalid meanwhile is refused. Semantics: pravega.md 8.2, with the index in place of a retention
set: a cut exists for every time, so none has to be recorded beforehand.
"""

from __future__ import annotations

from functools import cached_property

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.catalog.cuts import head_cut, time_cut
from eventproc.store.database import Tx
from eventproc.store.groups import consumed_cut, earliest_cut
from eventproc.store.model.cuts import StreamCut, earlier, later
from eventproc.store.model.policies import KEEP_ALL
from eventproc.store.model.scaling import windows_ms
from eventproc.store.model.states import StreamState
from eventproc.store.segments import SegmentTimes
from eventproc.store.segments.state import segment_states
from eventproc.workflows.requests import TruncateStream


def wanted_truncation(tx: Tx, stream: StreamRecord) -> TruncateStream | None:
    """Return the truncation that the policy of a stream asks for now, None if it asks for none.

    Cost: about 40 look-ups in each segment for a limit of size, one cut by time for each limit, and for consumption
    what `consumed_cut` and `published_cut` cost.
    """
    if stream.config.retention == KEEP_ALL or stream.state is not StreamState.ACTIVE:
        return None
    head = retained_head(tx, stream)
    if head == head_cut(tx, stream):
        return None
    return TruncateStream(stream.name, stream.stream_id, dict(head.offsets))


def retained_head(tx: Tx, stream: StreamRecord) -> StreamCut:
    """Return the head that the policy asks for now: at or after the present one.

    The limits `age_ms` and `size_bytes` truncate in any case. What was consumed is truncated up to the minimum.
    """
    policy, history = stream.config.retention, StoredHistory(tx, stream)
    sizes = _SizeSince(tx, stream)
    head = head_cut(tx, stream)
    limits = _times(tx, sizes, policy.age_ms, policy.size_bytes)
    if limits and max(limits) > stream.created_ms:
        head = later(head, time_cut(tx, stream, max(limits)), history)
    if policy.consumed and (consumed := _consumed(tx, stream, sizes)) is not None:
        head = later(head, consumed, history)
    return head


def _consumed(tx: Tx, stream: StreamRecord, sizes: _SizeSince) -> StreamCut | None:
    """Return the cut that all readers have passed, or that of the minimum if it is earlier; None: keep everything.

    Readers are the groups of the stream, and the supervisors that ingest it.
    """
    from eventproc.store.ingestion.unpublished import published_cut  # most streams do not pay for it

    policy = stream.config.retention
    passed = (consumed_cut(tx, stream), published_cut(tx, stream))
    bound = earliest_cut(tx, stream, [each for each in passed if each is not None])
    if bound is None and not policy.has_minimum:
        return None
    kept_since = _times(tx, sizes, policy.age_ms_min, policy.size_bytes_min)
    if stream.config.scaling.goes_by_rate:  # the rates are taken from the events of the longest window
        kept_since.append(tx.now_ms - windows_ms(stream.config.scaling)[-1])
    if not kept_since:
        return bound
    if min(kept_since) <= stream.created_ms:
        return None
    least = time_cut(tx, stream, min(kept_since))
    return least if bound is None else earlier(bound, least, StoredHistory(tx, stream))


def _times(tx: Tx, sizes: _SizeSince, age_ms: int | None, size_bytes: int | None) -> list[int]:
    """Return the times since which the limits that are given keep events."""
    found = [] if age_ms is None else [tx.now_ms - age_ms]
    return found if size_bytes is None else [*found, sizes.latest_keeping(size_bytes)]


class _SizeSince:
    """How many bytes of a stream were appended since a time. Look-ups of near times share what they found."""

    def __init__(self, tx: Tx, stream: StreamRecord) -> None:
        self._tx = tx
        self._stream = stream

    @cached_property
    def _segments(self) -> list[tuple[int, SegmentTimes]]:
        """Tail and times of each segment with events; a policy without a limit of size does not read them."""
        stream_id = self._stream.stream_id
        return [
            (state.tail, SegmentTimes(self._tx, stream_id, segment, state))
            for segment, state in segment_states(self._tx, stream_id)
            if state.head < state.tail
        ]

    def latest_keeping(self, size_bytes: int) -> int:
        """Return the latest time from which on at least `size_bytes` were appended, 0 if the stream has not as many.

        Halving over the life of the stream: about 40 steps.
        """
        low, high = self._stream.created_ms, self._tx.now_ms + 1  # kept since low: enough; since high: not
        if self._since(low) < size_bytes:
            return 0
        step_ms = 1_000  # it doubles: a clock may be behind by years
        while self._since(high) >= size_bytes:  # this clock is behind the one that timed the newest events
            low, high, step_ms = high, high + step_ms, 2 * step_ms
        while high - low > 1:
            middle = (low + high) // 2
            if self._since(middle) >= size_bytes:
                low = middle
            else:
                high = middle
        return low

    def _since(self, time_ms: int) -> int:
        return sum(tail - times.offset_at(time_ms) for tail, times in self._segments)
