"""Between the controller's messages and our values: names, segments, cuts, configurations, transaction ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from eventproc.base.clock import Clock
from eventproc.server.access.needs import owner_of
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.writable_streams import writable_policy
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.epochs import Segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import LEASE_MS_MAX, LEASE_MS_MIN
from eventproc.store.model.policies import (
    FACTOR,
    KEEP_ALL,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    StreamConfig,
    as_retention,
    as_tags,
)
from eventproc.store.model.transactions import PingResult, TxnState

LEASE_SLACK_MS: Final = 10_000
"""Added to twice the lease that a client asks for: the Rust client sends a ping once in a full lease, and late."""

_HOLDERS: Final = ("streamInfo", "stream", "scope", "position", "streamCut")
"""Fields of requests that are messages with the names of a scope and a stream."""

_LOCAL_NAMES: Final = ("stream", "kvtName", "readerGroupName", "readerGroup")
"""Fields of messages with a name in a scope."""

_KIB: Final = 1024
_UINT64: Final = 1 << 64
_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1
_FOREVER: Final = (0, _INT64_MAX)
"""Limits of a retention that clients send when they mean none."""


def target_of(request: Any) -> tuple[str, str]:
    """Return the scope, and the stream, table or reader group in it, that a request names; "" for what it does not.

    The log of a reader group counts as the group: see `owner_of`.
    """
    fields = request.DESCRIPTOR.fields_by_name
    for each in _HOLDERS:
        if each in fields and fields[each].message_type is not None:
            return target_of(getattr(request, each))
    local = next((each for each in _LOCAL_NAMES if each in fields), None)
    scope = request.scope if "scope" in fields else ""
    return scope, "" if local is None else owner_of(getattr(request, local))


def name_of(info: pb.StreamInfo) -> str:
    """Return "scope/stream"."""
    return f"{info.scope}/{info.stream}"


def info_of(stream: str) -> pb.StreamInfo:
    """Return the message for "scope/stream"."""
    scope, _, name = stream.partition("/")
    return pb.StreamInfo(scope=scope, stream=name)


def segment_range(stream: str, segment: Segment) -> pb.SegmentRange:
    """Return a segment with its key range."""
    identifier = pb.SegmentId(streamInfo=info_of(stream), segmentId=int(segment.id))
    return pb.SegmentRange(segmentId=identifier, minKey=segment.range.low, maxKey=segment.range.high)


def segment_ranges(stream: str, segments: Iterable[Segment]) -> pb.SegmentRanges:
    """Return segments with their key ranges."""
    return pb.SegmentRanges(segmentRanges=[segment_range(stream, each) for each in segments])


def cut_of(cut: Mapping[int, int]) -> dict[SegmentId, int]:
    """Return the offsets of a cut."""
    return {SegmentId(segment): offset for segment, offset in cut.items()}


def config_of(message: pb.StreamConfig, stored: StreamConfig) -> StreamConfig:
    """Return the configuration that a client asks for. Raises InvalidArgument.

    stored: what the stream has, or `StreamConfig()` for a new one. A client cannot express all of it. A policy that it
    sends as `config_message` shows the stored one is therefore left as it is, also one with more segments than a client
    may ask for.
    """
    shown = config_message("", stored)
    scaling, retention = _scaling_of(message.scalingPolicy), _retention_of(message.retentionPolicy)
    return attrs.evolve(
        stored,
        scaling=stored.scaling if scaling == _scaling_of(shown.scalingPolicy) else writable_policy(scaling),
        retention=stored.retention if retention == _retention_of(shown.retentionPolicy) else retention,
        tags=as_tags(message.tags.tag),
    )


def config_message(stream: str, config: StreamConfig) -> pb.StreamConfig:
    """Return a configuration as clients read it. The Rust client needs a scaling policy in it."""
    return pb.StreamConfig(
        streamInfo=info_of(stream),
        scalingPolicy=_scaling_message(config.scaling),
        retentionPolicy=_retention_message(config.retention),
        tags=pb.Tags(tag=config.tags),
    )


def _scaling_of(message: pb.ScalingPolicy) -> ScalingPolicy:
    kinds, least = pb.ScalingPolicy, message.minNumSegments
    if message.scaleType == kinds.FIXED_NUM_SEGMENTS:
        return ScalingPolicy.fixed(least)
    factor = max(message.scaleFactor, FACTOR)
    if message.scaleType == kinds.BY_RATE_IN_EVENTS_PER_SEC:
        return ScalingPolicy.by_event_rate(message.targetRate, factor=factor, segments_min=least)
    if message.scaleType == kinds.BY_RATE_IN_KBYTES_PER_SEC:
        return ScalingPolicy.by_byte_rate(message.targetRate * _KIB, factor=factor, segments_min=least)
    raise invalid_argument("type of the scaling policy", message.scaleType, "no policy has that number")


def _scaling_message(policy: ScalingPolicy) -> pb.ScalingPolicy:
    """Return a policy as clients read it: rates are rounded up to kB, and cut to the 32 bits that they have."""
    kinds, target = pb.ScalingPolicy, policy.target or 0
    match policy.kind:
        case ScalingKind.EVENT_RATE:
            kind = kinds.BY_RATE_IN_EVENTS_PER_SEC
        case ScalingKind.BYTE_RATE:
            kind, target = kinds.BY_RATE_IN_KBYTES_PER_SEC, -(-target // _KIB)
        case _:
            kind = kinds.FIXED_NUM_SEGMENTS
    return kinds(
        scaleType=kind,
        targetRate=min(target, _INT32_MAX),
        scaleFactor=policy.factor,
        minNumSegments=policy.segments_min,
    )


def _retention_of(message: pb.RetentionPolicy) -> RetentionPolicy:
    """Return the policy that a client means: consumed events go after the lower limit, all others after the upper one.

    The lower limit decides alone for a client that knows no upper one, or has it equal.
    """
    kinds, lower, upper = pb.RetentionPolicy, message.retentionParam, message.retentionMax
    if message.retentionType == kinds.UNKNOWN:
        return KEEP_ALL
    if message.retentionType not in (kinds.TIME, kinds.SIZE):
        raise invalid_argument(
            "type of the retention policy", message.retentionType, "no policy has that number"
        )
    if lower in _FOREVER:
        return KEEP_ALL
    is_age = message.retentionType == kinds.TIME
    if upper in (0, lower):
        return as_retention(RetentionPolicy(age_ms=lower) if is_age else RetentionPolicy(size_bytes=lower))
    limit = None if upper == _INT64_MAX else upper
    if is_age:
        return as_retention(RetentionPolicy(consumed=True, age_ms_min=lower, age_ms=limit))
    return as_retention(RetentionPolicy(consumed=True, size_bytes_min=lower, size_bytes=limit))


def _retention_message(policy: RetentionPolicy) -> pb.RetentionPolicy:
    """Return a policy as clients read it: limits of the age, else of the size, or none."""
    kinds = pb.RetentionPolicy
    for kind, lower, upper in (
        (kinds.TIME, policy.age_ms_min, policy.age_ms),
        (kinds.SIZE, policy.size_bytes_min, policy.size_bytes),
    ):
        if lower is not None:
            return kinds(retentionType=kind, retentionParam=lower, retentionMax=upper or _INT64_MAX)
        if upper is not None:
            return kinds(retentionType=kind, retentionParam=upper)
    return kinds()


def new_txn_id(clock: Clock, epoch: int) -> str:
    """Return a transaction id as clients can use it: 32 hex digits, the epoch first, the lower half not negative.

    After the epoch come 48 bits of wall milliseconds, and 47 random ones: ids of a stream sort by their time, because
    its epochs only grow.
    """
    random = int.from_bytes(clock.random_bytes(8), "big") & (1 << 47) - 1
    wall_ms = clock.wall_ms()
    return f"{epoch << 32 | wall_ms >> 16:016x}{(wall_ms & 0xFFFF) << 47 | random:016x}"


def txn_id_of(message: pb.TxnId) -> str:
    """Return the id that a client names."""
    return f"{message.highBits % _UINT64:016x}{message.lowBits % _UINT64:016x}"


def txn_message(txn_id: str) -> pb.TxnId | None:
    """Return the message for an id; None for one of our own, whose lower half would be negative."""
    digits = txn_id.replace("-", "")
    high, low = int(digits[:16], 16), int(digits[16:], 16)
    if high > _INT64_MAX or low > _INT64_MAX:
        return None
    return pb.TxnId(highBits=high, lowBits=low)


def server_lease_ms(asked_ms: int) -> int:
    """Return the lease that the server enforces for one that a client asks for."""
    return min(max(2 * asked_ms + LEASE_SLACK_MS, LEASE_MS_MIN), LEASE_MS_MAX)


STATES: Final = {
    TxnState.OPEN: pb.TxnState.OPEN,
    TxnState.COMMITTING: pb.TxnState.COMMITTING,
    TxnState.COMMITTED: pb.TxnState.COMMITTED,
    TxnState.ABORTING: pb.TxnState.ABORTING,
    TxnState.ABORTED: pb.TxnState.ABORTED,
}
"""States of transactions as clients read them."""

PINGS: Final = {
    PingResult.OK: pb.PingTxnStatus.OK,
    PingResult.LEASE_TOO_LARGE: pb.PingTxnStatus.LEASE_TOO_LARGE,
    PingResult.MAX_EXECUTION_TIME_EXCEEDED: pb.PingTxnStatus.MAX_EXECUTION_TIME_EXCEEDED,
    PingResult.COMMITTED: pb.PingTxnStatus.COMMITTED,
    PingResult.ABORTED: pb.PingTxnStatus.ABORTED,
    PingResult.UNKNOWN: pb.PingTxnStatus.UNKNOWN,
}
"""Answers to pings as clients read them."""
