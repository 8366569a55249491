"""Values of Pravega's REST: scopes, streams with their policies, scaling events, reader groups, health."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

import attrs

from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import NotSupported
from eventproc.store.model.policies import (
    FACTOR,
    ID_WINDOW_MS_MAX,
    KEEP_ALL,
    OffloadPolicy,
    RetentionPolicy,
    ScalingKind,
    ScalingPolicy,
    as_offload,
    as_retention,
)
from eventproc.store.records.plain import CamelNames, Limits

_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS
_COUNT_MAX: Final = 2**31 - 1
_LIMIT_MAX: Final = 2**40
"""Largest limit of a retention, in its unit: in bytes it fits into 64 bits. Of days, the policy refuses too many."""

Count: TypeAlias = Annotated[int, Limits(0, _COUNT_MAX)]
Limit: TypeAlias = Annotated[int, Limits(0, _LIMIT_MAX)]


@attrs.frozen
class ScopeProperty(CamelNames):
    """A scope."""

    scope_name: str


@attrs.frozen
class ScopesList(CamelNames):
    """The scopes."""

    scopes: tuple[ScopeProperty, ...]


class ScaleType(StrEnum):
    """What scales a stream."""

    FIXED_NUM_SEGMENTS = "FIXED_NUM_SEGMENTS"
    BY_RATE_IN_KBYTES_PER_SEC = "BY_RATE_IN_KBYTES_PER_SEC"
    BY_RATE_IN_EVENTS_PER_SEC = "BY_RATE_IN_EVENTS_PER_SEC"


@attrs.frozen
class ScalingConfig(CamelNames):
    """A scaling policy. targetRate: per segment, in events or kilobytes per second."""

    type: ScaleType
    target_rate: Count | None = None
    scale_factor: Count | None = None
    min_segments: Count | None = None

    def policy(self) -> ScalingPolicy:
        """Return the policy. Raises InvalidArgument."""
        least = 1 if self.min_segments is None else self.min_segments
        if self.type is ScaleType.FIXED_NUM_SEGMENTS:
            return ScalingPolicy.fixed(least)
        if self.target_rate is None:
            raise invalid_argument("targetRate", None, "a policy by rate needs it")
        factor = FACTOR if self.scale_factor is None else self.scale_factor
        if self.type is ScaleType.BY_RATE_IN_EVENTS_PER_SEC:
            return ScalingPolicy.by_event_rate(self.target_rate, factor=factor, segments_min=least)
        return ScalingPolicy.by_byte_rate(self.target_rate * _KIB, factor=factor, segments_min=least)

    @classmethod
    def of(cls, policy: ScalingPolicy) -> ScalingConfig:
        """Return a policy as Pravega has it: rates are rounded up to kB. Partitions of a topic are a fixed number."""
        match policy.kind:
            case ScalingKind.EVENT_RATE:
                kind, target = ScaleType.BY_RATE_IN_EVENTS_PER_SEC, policy.target
            case ScalingKind.BYTE_RATE:
                kind, target = ScaleType.BY_RATE_IN_KBYTES_PER_SEC, -(-(policy.target or 0) // _KIB)
            case _:
                return cls(ScaleType.FIXED_NUM_SEGMENTS, min_segments=policy.segments_min)
        return cls(kind, target, policy.factor, policy.segments_min)


class RetentionType(StrEnum):
    """By what a stream is truncated."""

    LIMITED_DAYS = "LIMITED_DAYS"
    LIMITED_SIZE_MB = "LIMITED_SIZE_MB"


@attrs.frozen
class TimeBasedRetention(CamelNames):
    """A duration."""

    days: Limit = 0
    hours: Limit = 0
    minutes: Limit = 0

    @property
    def ms(self) -> int:
        """The duration, in ms."""
        return self.days * _DAY_MS + self.hours * _HOUR_MS + self.minutes * _MINUTE_MS

    @classmethod
    def of(cls, ms: int) -> TimeBasedRetention:
        """Return a duration in full minutes, rounded up."""
        minutes = -(-ms // _MINUTE_MS)
        return cls(minutes // (24 * 60), minutes // 60 % 24, minutes % 60)


@attrs.frozen
class RetentionConfig(CamelNames):
    """A retention policy. timeBasedRetention counts if value is 0; with a maximum, consumed events are truncated."""

    type: RetentionType
    value: Limit = 0
    time_based_retention: TimeBasedRetention | None = None
    max_value: Limit | None = None
    max_time_based_retention: TimeBasedRetention | None = None

    def policy(self) -> RetentionPolicy:
        """Return the policy. Raises InvalidArgument."""
        least, most = self._limits()
        if not least:
            raise invalid_argument("retentionPolicy", 0, "the value must be positive")
        by_time = self.type is RetentionType.LIMITED_DAYS
        if not most:
            return as_retention(
                RetentionPolicy(age_ms=least) if by_time else RetentionPolicy(size_bytes=least)
            )
        if by_time:
            return as_retention(RetentionPolicy(age_ms=most, consumed=True, age_ms_min=least))
        return as_retention(RetentionPolicy(size_bytes=most, consumed=True, size_bytes_min=least))

    def _limits(self) -> tuple[int, int]:
        """Return the value and the maximum in ms or bytes; 0 for a missing one."""
        most = self.max_value or 0
        if self.type is RetentionType.LIMITED_SIZE_MB:
            return self.value * _MIB, most * _MIB
        times = (self.value, self.time_based_retention), (most, self.max_time_based_retention)
        least_ms, most_ms = (each.ms if each and not days else days * _DAY_MS for days, each in times)
        return least_ms, most_ms

    @classmethod
    def of(cls, policy: RetentionPolicy) -> RetentionConfig | None:
        """Return a policy as Pravega has it; None for one that Pravega has no form for."""
        if policy.age_ms is not None:
            least, most = policy.age_ms_min or policy.age_ms, policy.age_ms if policy.consumed else None
            maximum = None if most is None else TimeBasedRetention.of(most)
            days = least // _DAY_MS if least % _DAY_MS == 0 else 0
            return cls(
                RetentionType.LIMITED_DAYS,
                days,
                TimeBasedRetention.of(least),
                max_time_based_retention=maximum,
            )
        if policy.size_bytes is not None:
            least = policy.size_bytes_min or policy.size_bytes
            most = -(-policy.size_bytes // _MIB) if policy.consumed else None
            return cls(RetentionType.LIMITED_SIZE_MB, -(-least // _MIB), max_value=most)
        return None


@attrs.frozen
class OffloadConfig(CamelNames):
    """How many events stay in the database. Pravega has no such policy. Without a limit all of them stay."""

    age_ms: int | None = None
    size_bytes: int | None = None

    def policy(self) -> OffloadPolicy:
        """Return the policy. Raises InvalidArgument."""
        return as_offload(OffloadPolicy(self.age_ms, self.size_bytes))


IdWindow: TypeAlias = Annotated[int, Limits(1, ID_WINDOW_MS_MAX)]
Tags: TypeAlias = Annotated[tuple[str, ...], Limits(0, 128)]


@attrs.frozen(kw_only=True)
class UpdateStreamRequest(CamelNames):
    """A configuration. It replaces the present one, except for a policy of scaling or offload that is left out.

    id_window_ms: for how long ids of events are remembered, which Pravega has not. null: as now, or a day.
    """

    scaling_policy: ScalingConfig | None = None
    retention_policy: RetentionConfig | None = None
    offload_policy: OffloadConfig | None = None
    id_window_ms: IdWindow | None = None
    stream_tags: Tags | None = None
    timestamp_aggregation_timeout: Limit | None = None
    rollover_size_bytes: Limit | None = None

    def offload(self) -> OffloadPolicy | None:
        """Return the policy of offload, None if it is left out. Raises InvalidArgument."""
        return None if self.offload_policy is None else self.offload_policy.policy()

    def retention(self) -> RetentionPolicy:
        """Return the retention. Raises InvalidArgument."""
        return KEEP_ALL if self.retention_policy is None else self.retention_policy.policy()

    def verify_enforced(self) -> None:
        """Raise NotSupported for an option that nothing enforces."""
        for name, value in (
            ("timestampAggregationTimeout", self.timestamp_aggregation_timeout),
            ("rolloverSizeBytes", self.rollover_size_bytes),
        ):
            if value:
                raise NotSupported(what=name, remedy="leave it out, or set it to 0")


@attrs.frozen(kw_only=True)
class CreateStreamRequest(UpdateStreamRequest):
    """A new stream. Without a scaling policy it has one segment."""

    stream_name: str


@attrs.frozen(kw_only=True)
class StreamProperty(CamelNames):
    """A stream and its configuration."""

    scope_name: str
    stream_name: str
    scaling_policy: ScalingConfig
    retention_policy: RetentionConfig | None
    tags: Tags
    timestamp_aggregation_timeout: int
    rollover_size_bytes: int


@attrs.frozen
class StreamsList(CamelNames):
    """The streams of a scope."""

    streams: tuple[StreamProperty, ...]


class StreamFilter(StrEnum):
    """By what streams are listed."""

    INTERNAL = "showInternalStreams"
    TAG = "tag"


class SettableState(StrEnum):
    """The states that a caller can set."""

    SEALED = "SEALED"


@attrs.frozen
class StateChange(CamelNames):
    """The state of a stream."""

    stream_state: SettableState


@attrs.frozen
class ScaledSegment(CamelNames):
    """A segment of an epoch, with its key range.

    start_time: when the epoch that created it began, in ms since 1970.
    """

    number: int
    start_time: int
    key_start: float
    key_end: float


@attrs.frozen
class ScaleMetadata(CamelNames):
    """A scale: when it happened, in ms since 1970, and the segments that were active since."""

    timestamp: int
    segment_list: tuple[ScaledSegment, ...]
    splits: int
    merges: int


@attrs.frozen
class ReaderGroupName(CamelNames):
    """A reader group in a list."""

    reader_group_name: str


@attrs.frozen
class ReaderGroupsList(CamelNames):
    """The reader groups of a scope, those of processors included."""

    reader_groups: tuple[ReaderGroupName, ...]


@attrs.frozen(kw_only=True)
class ReaderGroupProperty(CamelNames):
    """A reader group: its streams, and its readers that are online."""

    scope_name: str
    reader_group_name: str
    stream_list: tuple[str, ...]
    online_reader_ids: tuple[str, ...]


class HealthStatus(StrEnum):
    """Whether a part of the server works."""

    UP = "UP"
    STARTING = "STARTING"
    DOWN = "DOWN"


@attrs.frozen(kw_only=True)
class HealthResult(CamelNames):
    """The health of the server or of a part of it.

    readiness: whether it can serve. liveness: whether it need not be restarted.
    """

    name: str
    status: HealthStatus
    readiness: bool
    liveness: bool
    details: dict[str, str]
    children: dict[str, HealthResult]
