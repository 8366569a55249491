"""Scaling by rate: which scale a stream's policy asks for, and what the policy sees.

It decides on a request, and the request scales as one of a user does, with every check. So a death in between leaves
nothing behind, and a proposal that was overtaken by another scale is refused. Semantics: pravega.md section 7, with the
rates of the index instead of reports of the segments.
"""

from __future__ import annotations

import attrs

from eventproc.store.catalog import StoredHistory, StreamRecord
from eventproc.store.database import Tx
from eventproc.store.model.ids import epoch_of, format_segment, printable
from eventproc.store.model.policies import ScalingKind
from eventproc.store.model.scaling import ScalePlan, SegmentLoad, SegmentVerdict, plan_scale, windows_ms
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.store.model.states import StreamState
from eventproc.store.records import from_json
from eventproc.store.requests import RequestOrigin, find_request, pending_of
from eventproc.store.segments import SegmentRate, rates_known_ms, segment_rates
from eventproc.workflows.requests import ScaleStream


@attrs.frozen
class ScalingDescription:
    """What the scaling policy of a stream sees, and why it acts or does not; of one moment.

    windows_ms: the windows over which rates are taken, the shortest first.
    segments: the active segments in the order of their key ranges, with their rates and verdicts.
    waits_for: the pending change, of a person or of the policy itself, that ends before the policy acts again; None if
        there is none.
    last_action: why the policy made the present epoch; None if a person did, or if that was more than a day ago.
    """

    __repr__ = short_repr_of_fields

    windows_ms: tuple[int, int, int, int]
    segments: tuple[SegmentVerdict, ...]
    waits_for: str | None
    last_action: str | None


def wanted_scale(tx: Tx, stream: StreamRecord) -> ScaleStream | None:
    """Return the scale that the policy of the stream asks for now, None if it asks for none or waits.

    Cost: two look-ups for each active segment, and the halving of `segment_rates` for those that were written to.
    """
    if not stream.config.scaling.goes_by_rate or stream.state is not StreamState.ACTIVE:
        return None
    plan = _plan(tx, stream)
    if not plan.seal or _pending(tx, stream.name) is not None:
        return None
    acts = [each for each in plan.verdicts if each.segment in plan.seal]
    reason = "; ".join(f"{format_segment(each.segment)} is {each.reason}" for each in acts)
    return ScaleStream(stream.name, stream.stream_id, plan.seal, plan.ranges, reason=reason)


def describe_scaling(tx: Tx, stream: StreamRecord) -> ScalingDescription | None:
    """Return what the scaling policy of a stream sees; None if it goes by no rate."""
    policy = stream.config.scaling
    if not policy.goes_by_rate:
        return None
    verdicts = () if stream.state is StreamState.SEALED else _plan(tx, stream).verdicts
    return ScalingDescription(
        windows_ms(policy),
        tuple([attrs.evolve(each, segment=printable(each.segment)) for each in verdicts]),
        _pending(tx, stream.name),
        _last_action(tx, stream),
    )


def _plan(tx: Tx, stream: StreamRecord) -> ScalePlan:
    policy, history = stream.config.scaling, StoredHistory(tx, stream)
    windows = windows_ms(policy)

    def value(rate: SegmentRate) -> float:
        return rate.events if policy.kind is ScalingKind.EVENT_RATE else rate.bytes

    loads: list[SegmentLoad] = []
    for segment in history.epoch(history.current).segments:
        shortest, second, third, longest = segment_rates(tx, stream.stream_id, segment.id, windows)
        # A segment that began before the oldest epoch kept is at least as old as that one.
        began_ms = history.epoch(max(epoch_of(segment.id), history.first)).created_ms
        # While the rates are not known, the segment is left alone, as if it began when they are.
        began_ms = rates_known_ms(tx, stream.stream_id, segment.id) or began_ms
        rates = (value(shortest), value(second), value(third), value(longest))
        loads.append(SegmentLoad(segment, tx.now_ms - began_ms, rates))
    return plan_scale(policy, loads)


def _pending(tx: Tx, name: str) -> str | None:
    """Return the pending request that a scale of the policy has to wait for."""
    for each in pending_of(tx, name):
        if each.kind != "truncate":
            return f"{each.kind} of a {each.origin.value}, request {each.id}"
    return None


def _last_action(tx: Tx, stream: StreamRecord) -> str | None:
    history = StoredHistory(tx, stream)
    request_id = history.epoch(history.current).request_id
    request = None if request_id is None else find_request(tx, request_id)
    if request is None or request.origin is not RequestOrigin.POLICY:
        return None
    return from_json(request.body, ScaleStream).reason
