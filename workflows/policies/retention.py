"""Retention: which truncation a stream's policy asks for.

It decides on a request, and the request truncates as one of a user does. So a death in between leaves nothing behind,
and a cut that became invalid meanwhile is refused. Semantics: pravega.md 8.2, with the index in place of a retention
set: a cut exists for every time, so none has to be recorded beforehand.
"""

from __future__ import annotations

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.catalog.queries import head_cut, time_cut
from eventproc.store.database import Tx
from eventproc.store.groups import consumed_cut, earliest_cut
from eventproc.store.model.cuts import StreamCut, earlier, later
from eventproc.store.model.policies import KEEP_ALL
from eventproc.store.model.scaling import windows_ms
from eventproc.store.model.states import StreamState
from eventproc.workflows.policies.limits import SizeSince, kept_since
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
    sizes = SizeSince(tx, stream)
    head = head_cut(tx, stream)
    limits = kept_since(tx, sizes, policy.age_ms, policy.size_bytes)
    if limits and max(limits) > stream.created_ms:
        head = later(head, time_cut(tx, stream, max(limits)), history)
    if policy.consumed and (consumed := _consumed(tx, stream, sizes)) is not None:
        head = later(head, consumed, history)
    return head


def _consumed(tx: Tx, stream: StreamRecord, sizes: SizeSince) -> StreamCut | None:
    """Return the cut that all readers have passed, or that of the minimum if it is earlier; None: keep everything.

    Readers are the groups of the stream, and the supervisors that ingest it.
    """
    from eventproc.store.ingestion.unpublished import published_cut  # most streams do not pay for it

    policy = stream.config.retention
    passed = (consumed_cut(tx, stream), published_cut(tx, stream))
    bound = earliest_cut(tx, stream, [each for each in passed if each is not None])
    if bound is None and not policy.has_minimum:
        return None
    times = kept_since(tx, sizes, policy.age_ms_min, policy.size_bytes_min)
    if stream.config.scaling.goes_by_rate:  # the rates are taken from the events of the longest window
        times.append(tx.now_ms - windows_ms(stream.config.scaling)[-1])
    if not times:
        return bound
    if min(times) <= stream.created_ms:
        return None
    least = time_cut(tx, stream, min(times))
    return least if bound is None else earlier(bound, least, StoredHistory(tx, stream))
