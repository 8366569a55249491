"""Between the controller's messages and our values: names, segments, cuts, configurations, transaction ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from eventproc.server.controller import controller_pb2 as pb
from eventproc.store.clock import Clock
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.epochs import Segment
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import LEASE_MS_MAX, LEASE_MS_MIN
from eventproc.store.model.policies import KEEP_ALL, RetentionPolicy, ScalingKind, ScalingPolicy, StreamConfig
from eventproc.store.model.transactions import PingResult, TxnState

LEASE_SLACK_MS: Final = 10_000
"""Added to twice the lease that a client asks for: the Rust client sends a ping once in a full lease, and late."""

_KIB: Final = 1024
_UINT64: Final = 1 << 64
_INT64_MAX: Final = (1 << 63) - 1
_FOREVER: Final = (0, _INT64_MAX)
"""Limits of a retention that clients send when they mean none."""


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


def config_of(message: pb.StreamConfig) -> StreamConfig:
    """Return the configuration that a client asks for. Raises InvalidArgument for what is not enforced."""
    if message.tags.tag:
        raise invalid_argument("tags", ", ".join(message.tags.tag), "streams have no tags")
    return StreamConfig(_scaling_of(message.scalingPolicy), retention=_retention_of(message.retentionPolicy))


def _scaling_of(message: pb.ScalingPolicy) -> ScalingPolicy:
    if message.scaleType == pb.ScalingPolicy.FIXED_NUM_SEGMENTS:
        return ScalingPolicy.fixed(message.minNumSegments)
    factor, least = max(message.scaleFactor, 2), message.minNumSegments
    if message.scaleType == pb.ScalingPolicy.BY_RATE_IN_EVENTS_PER_SEC:
        return ScalingPolicy.by_event_rate(message.targetRate, factor=factor, segments_min=least)
    return ScalingPolicy.by_byte_rate(message.targetRate * _KIB, factor=factor, segments_min=least)


def _scaling_message(policy: ScalingPolicy) -> pb.ScalingPolicy:
    kinds = pb.ScalingPolicy
    match policy.kind:
        case ScalingKind.EVENT_RATE:
            kind, target = kinds.BY_RATE_IN_EVENTS_PER_SEC, policy.target
        case ScalingKind.BYTE_RATE:
            kind, target = kinds.BY_RATE_IN_KBYTES_PER_SEC, (policy.target or 0) // _KIB
        case _:
            kind, target = kinds.FIXED_NUM_SEGMENTS, 0
    return kinds(
        scaleType=kind, targetRate=target, scaleFactor=policy.factor, minNumSegments=policy.segments_min
    )


def _retention_of(message: pb.RetentionPolicy) -> RetentionPolicy:
    if message.retentionType == pb.RetentionPolicy.UNKNOWN or message.retentionParam in _FOREVER:
        return KEEP_ALL
    if message.retentionType == pb.RetentionPolicy.TIME:
        return RetentionPolicy(age_ms=message.retentionParam)
    return RetentionPolicy(size_bytes=message.retentionParam)


def config_message(stream: str, config: StreamConfig) -> pb.StreamConfig:
    """Return a configuration as clients read it. The Rust client needs a scaling policy in it."""
    retention = pb.RetentionPolicy()
    if config.retention.age_ms is not None:
        retention = pb.RetentionPolicy(
            retentionType=pb.RetentionPolicy.TIME, retentionParam=config.retention.age_ms
        )
    elif config.retention.size_bytes is not None:
        retention = pb.RetentionPolicy(
            retentionType=pb.RetentionPolicy.SIZE, retentionParam=config.retention.size_bytes
        )
    return pb.StreamConfig(
        streamInfo=info_of(stream),
        scalingPolicy=_scaling_message(config.scaling),
        retentionPolicy=retention,
        tags=pb.Tags(),
    )


def new_txn_id(clock: Clock, epoch: int) -> str:
    """Return a transaction id as clients can use it: 32 hex digits, the epoch first, the lower half not negative."""
    random = int.from_bytes(clock.random_bytes(8), "big")
    high = epoch << 32 | random >> 32
    low = (clock.wall_ms() << 15 | random & 0x7FFF) & _INT64_MAX
    return f"{high:016x}{low:016x}"


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
