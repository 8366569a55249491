"""The configuration of a stream: how many segments or partitions it has, and what changes that.

Only what is enforced exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

import attrs

from eventproc.store.model.argument_checks import (
    INT_MAX,
    check_instance,
    check_int,
    check_iterable,
    check_str,
    invalid_argument,
)
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import PARTITIONS_MAX, SEGMENTS_MAX
from eventproc.store.model.short_repr import short_repr_of_fields


class ScalingKind(StrEnum):
    """What scales a stream."""

    FIXED = "fixed"
    """Requests of users only; never the system."""

    PARTITIONS = "partitions"
    """Requests of users that add partitions. The stream is a topic."""

    EVENT_RATE = "event_rate"
    """The system, by the events per second of each segment; and requests of users."""

    BYTE_RATE = "byte_rate"
    """The system, by the bytes per second of each segment; and requests of users."""


class Partitioning(StrEnum):
    """How a topic chooses the partition of an event that is written without one."""

    KEY = "key"
    """By the routing key; an event without a key goes to any partition."""

    ROUND_ROBIN = "round_robin"
    """The partitions in turn, from a random one on; the key does not matter."""

    OWN = "own"
    """By a `Partitioner` that each producer is given; other writers use the key."""


WINDOW_MS: Final = 120_000
"""Default of the shortest window over which a policy takes rates, as in Pravega. Higher: a burst is noticed later.
Lower: shorter bursts scale the stream, and each scale adds an epoch to its history."""

WINDOW_MS_MIN: Final = 1_000
"""Shortest such window. With a shorter one a pause of the garbage collector looks like silence."""

WINDOW_MS_MAX: Final = 24 * 3_600_000
"""Longest such window: a day."""

FACTOR: Final = 2
"""Default of the most segments that one split makes. Higher: a burst is followed in fewer scales."""


@attrs.frozen
class ScalingPolicy:
    """How a stream is scaled. Make one with `fixed`, `by_event_rate` or `by_byte_rate`.

    kind: what scales the stream.
    segments_min: the smallest number of active segments; of a topic, its number of partitions.
    target: rate per segment, in events or bytes per second; None unless the policy goes by a rate, like the rest.
    factor: the most segments that one split makes.
    segments_max: the largest number of active segments.
    window_ms: the shortest of the windows over which rates are taken, in ms.
    """

    kind: ScalingKind
    segments_min: int
    target: int | None = None
    factor: int | None = None
    segments_max: int | None = None
    window_ms: int | None = None

    @classmethod
    def fixed(cls, segments: int) -> ScalingPolicy:
        """Return the policy for a number of segments that only a request changes.

        Args:
            segments: number of active segments, 1 to 1024.

        Raises:
            InvalidArgument: the number is outside these limits.
        """
        return cls(
            kind=ScalingKind.FIXED,
            segments_min=check_int("number of segments", segments, least=1, most=SEGMENTS_MAX),
        )

    @classmethod
    def partitions(cls, count: int) -> ScalingPolicy:
        """Return the policy of a topic, as `ep.create_topic` makes it.

        Args:
            count: number of partitions, 1 to 1023.

        Raises:
            InvalidArgument: the number is outside these limits.
        """
        return cls(
            kind=ScalingKind.PARTITIONS,
            segments_min=check_int("number of partitions", count, least=1, most=PARTITIONS_MAX),
        )

    @classmethod
    def by_event_rate(
        cls,
        target: int,
        *,
        factor: int = FACTOR,
        segments_min: int = 1,
        segments_max: int = SEGMENTS_MAX,
        window_ms: int = WINDOW_MS,
    ) -> ScalingPolicy:
        """Return the policy that splits segments with more events per second than `target`, and merges quiet ones.

        Args:
            target: events per second that one segment should take.
            factor: the most segments that one split makes, at least 2. Default: 2.
            segments_min: the smallest number of segments; a new stream begins with it. Default: 1.
            segments_max: the largest number of segments. Default: 1024.
            window_ms: the shortest window over which rates are taken, in ms; the others are 2.5, 5 and 10 times as
                long. A segment is left alone until it is 5 of them old. Default: 2 min.

        Raises:
            InvalidArgument: a number is out of range.
        """
        return cls._by_rate(ScalingKind.EVENT_RATE, target, factor, segments_min, segments_max, window_ms)

    @classmethod
    def by_byte_rate(
        cls,
        target: int,
        *,
        factor: int = FACTOR,
        segments_min: int = 1,
        segments_max: int = SEGMENTS_MAX,
        window_ms: int = WINDOW_MS,
    ) -> ScalingPolicy:
        """Return the policy that splits segments with more bytes per second than `target`, and merges quiet ones.

        Args:
            target: bytes per second that one segment should take, with 8 bytes for each event.
            factor: the most segments that one split makes, at least 2. Default: 2.
            segments_min: the smallest number of segments; a new stream begins with it. Default: 1.
            segments_max: the largest number of segments. Default: 1024.
            window_ms: the shortest window over which rates are taken, in ms, as for `by_event_rate`. Default: 2 min.

        Raises:
            InvalidArgument: a number is out of range.
        """
        return cls._by_rate(ScalingKind.BYTE_RATE, target, factor, segments_min, segments_max, window_ms)

    @classmethod
    def _by_rate(
        cls, kind: ScalingKind, target: int, factor: int, segments_min: int, segments_max: int, window_ms: int
    ) -> ScalingPolicy:
        least = check_int("smallest number of segments", segments_min, least=1, most=SEGMENTS_MAX)
        return cls(
            kind=kind,
            segments_min=least,
            target=check_int("target rate", target, least=1, most=INT_MAX),
            factor=check_int("factor of a split", factor, least=2, most=SEGMENTS_MAX),
            segments_max=check_int(
                "largest number of segments", segments_max, least=least, most=SEGMENTS_MAX
            ),
            window_ms=check_int("window", window_ms, least=WINDOW_MS_MIN, most=WINDOW_MS_MAX, unit="ms"),
        )

    @property
    def goes_by_rate(self) -> bool:
        """Whether the system scales the stream by its rate."""
        return self.kind in (ScalingKind.EVENT_RATE, ScalingKind.BYTE_RATE)

    @property
    def most(self) -> int:
        """The largest number of active segments that a scale may leave."""
        return SEGMENTS_MAX if self.segments_max is None else self.segments_max

    def leaves(self, count: int) -> bool:
        """Return whether an update to this policy leaves `count` active segments as they are."""
        return count >= self.segments_min if self.goes_by_rate else count == self.segments_min


def as_scaling(value: object) -> ScalingPolicy:
    """Return `value` if it is a policy of a stream that is no topic. Raises InvalidArgument."""
    policy = _as_policy(value)
    if policy.kind is ScalingKind.PARTITIONS:
        raise InvalidArgument(
            what="scaling", value="partitions", reason="a stream has segments; use `ep.create_topic`"
        )
    return policy


def _as_policy(value: object) -> ScalingPolicy:
    """Return `value` if it is a policy that `ScalingPolicy` makes, with the defaults of what is None."""
    reason = "it must be a ScalingPolicy, such as ScalingPolicy.fixed(2)"
    policy = check_instance(ScalingPolicy, "scaling", value, reason)
    kind = check_instance(ScalingKind, "scaling", policy.kind, reason)
    if not policy.goes_by_rate:
        tunes = ("target", "factor", "segments_max", "window_ms")
        if given := [each for each in tunes if getattr(policy, each) is not None]:
            reason = (
                "only a policy by a rate of events or bytes has it; choose such a policy, or leave it out"
            )
            raise InvalidArgument(what="scaling", value=", ".join(given), reason=reason)
        make_count = ScalingPolicy.fixed if kind is ScalingKind.FIXED else ScalingPolicy.partitions
        return make_count(policy.segments_min)
    make = ScalingPolicy.by_event_rate if kind is ScalingKind.EVENT_RATE else ScalingPolicy.by_byte_rate
    return make(
        check_instance(int, "target rate", policy.target, "it must be an int"),
        factor=FACTOR if policy.factor is None else policy.factor,
        segments_min=policy.segments_min,
        segments_max=policy.most,
        window_ms=WINDOW_MS if policy.window_ms is None else policy.window_ms,
    )


_ONE_SEGMENT: Final = ScalingPolicy.fixed(1)


@attrs.frozen
class RetentionPolicy:
    """How long a stream keeps its events. The system truncates the stream in the background.

    age_ms: events appended longer ago are truncated; None: no age is too high.
    size_bytes: the newest events of this size are kept, and older ones truncated; None: any size is kept.
    consumed: whether events that all subscribed groups have passed are truncated. Groups with `retains=None` do not
        count; a supervisor counts with what it has published. Without a subscribed group or supervisor, the minimum
        below decides, and without one nothing is truncated.
    age_ms_min: with `consumed`, events younger than this are kept all the same; None: no age is too low.
    size_bytes_min: with `consumed`, the newest events of this size are kept all the same; None: none are.

    `age_ms` and `size_bytes` also truncate events that a group has not passed. An event is truncated as soon as one
    of them asks for it.
    """

    __repr__ = short_repr_of_fields

    age_ms: int | None = None
    size_bytes: int | None = None
    consumed: bool = False
    age_ms_min: int | None = None
    size_bytes_min: int | None = None

    @property
    def has_minimum(self) -> bool:
        """Whether events are kept after they were consumed."""
        return self.age_ms_min is not None or self.size_bytes_min is not None

    def __str__(self) -> str:
        texts = [] if self.age_ms is None else [f"age {self.age_ms:,} ms"]
        texts += [] if self.size_bytes is None else [f"size {self.size_bytes:,} bytes"]
        texts += ["consumed"] if self.consumed else []
        texts += [] if self.age_ms_min is None else [f"age at least {self.age_ms_min:,} ms"]
        texts += [] if self.size_bytes_min is None else [f"size at least {self.size_bytes_min:,} bytes"]
        return ", ".join(texts) or "nothing is truncated"


def as_retention(value: object) -> RetentionPolicy:
    """Return `value` if it is a policy with valid limits. Raises InvalidArgument."""
    reason = "it must be a RetentionPolicy, such as RetentionPolicy(age_ms=86_400_000)"
    policy = check_instance(RetentionPolicy, "retention", value, reason)
    check_instance(bool, "consumed", policy.consumed, "it must be True or False")
    _check_limits("age", "ms", policy.age_ms_min, policy.age_ms)
    _check_limits("size", "bytes", policy.size_bytes_min, policy.size_bytes)
    if policy.has_minimum and not policy.consumed:
        raise InvalidArgument(
            what="retention",
            value=str(policy),
            reason="a minimum bounds what consumption truncates; it needs consumed=True",
        )
    return policy


def _check_limits(what: str, unit: str, least: int | None, most: int | None) -> None:
    if least is not None:
        check_int(f"smallest retention {what}", least, least=1, unit=unit)
    if most is not None:
        check_int(f"retention {what}", most, least=1, unit=unit)
    if least is not None and most is not None and least > most:
        raise InvalidArgument(
            what=f"smallest retention {what}",
            value=f"{least:,} {unit}",
            reason=f"it is above {most:,} {unit}",
        )


KEEP_ALL: Final = RetentionPolicy()
"""The policy of a stream that only requests truncate."""


@attrs.frozen
class OffloadPolicy:
    """How many of a stream's events stay in the database. The system moves older ones into files in the background.

    age_ms: events appended longer ago are moved; None: no age is too high.
    size_bytes: the newest events of this size stay, and older ones are moved; None: any size stays.

    An event is moved if one of them asks for it. The database may exceed a limit by an eighth, and by 256 KiB in each
    segment: less is not worth a file.
    """

    __repr__ = short_repr_of_fields

    age_ms: int | None = None
    size_bytes: int | None = None


def as_offload(value: object) -> OffloadPolicy:
    """Return `value` if it is a policy with valid limits. Raises InvalidArgument."""
    reason = "it must be an OffloadPolicy, such as OffloadPolicy(age_ms=86_400_000)"
    policy = check_instance(OffloadPolicy, "offload", value, reason)
    if policy.age_ms is not None:
        check_int("offload age", policy.age_ms, least=1, unit="ms")
    if policy.size_bytes is not None:
        check_int("offload size", policy.size_bytes, least=1, unit="bytes")
    return policy


OFFLOAD_NOTHING: Final = OffloadPolicy()
"""The policy of a stream whose events only calls and tasks move."""


TOMBSTONE_MS: Final = 24 * 3_600_000
"""Default of the time for which a tombstone stays: a day, as in Kafka. Lower: a reader must be less far behind."""

COMPACTION_MS_MAX: Final = 366 * TOMBSTONE_MS
"""Longest time in a policy of compaction: a year."""


@attrs.frozen
class CompactionPolicy:
    """Whether a topic keeps only the newest event of each key. The system removes older ones in the background.

    min_age_ms: events that were appended longer ago may be removed, in ms; None: no event is.
    tombstone_ms: how long an event with an empty payload, which deletes its key, stays after the older events of the
        key are gone, in ms. Default: a day.
    """

    __repr__ = short_repr_of_fields

    min_age_ms: int | None = None
    tombstone_ms: int = TOMBSTONE_MS


def as_compaction(value: object) -> CompactionPolicy:
    """Return `value` if it is a policy with valid times. Raises InvalidArgument."""
    reason = "it must be a CompactionPolicy, such as CompactionPolicy(min_age_ms=60_000)"
    policy = check_instance(CompactionPolicy, "compaction", value, reason)
    if policy.min_age_ms is not None:
        check_int("compaction age", policy.min_age_ms, least=0, most=COMPACTION_MS_MAX, unit="ms")
    check_int("tombstone_ms", policy.tombstone_ms, least=0, most=COMPACTION_MS_MAX, unit="ms")
    return policy


COMPACT_NOTHING: Final = CompactionPolicy()
"""The policy of a stream, and of a topic that keeps all events of a key."""


TAGS_MAX: Final = 128
"""Tags of one stream."""

TAG_CHARACTERS_MAX: Final = 256
"""Length of a tag."""


def as_tags(value: object) -> tuple[str, ...]:
    """Return the tags sorted, each once. Raises InvalidArgument for too many, or for one that is none."""
    reason = "it must be an iterable of str"
    if isinstance(value, str):
        raise invalid_argument("tags", value, reason)
    tags = sorted({check_str("tag", each) for each in check_iterable("tags", value, reason)})
    for tag in tags:
        if not 0 < len(tag) <= TAG_CHARACTERS_MAX or "\0" in tag:
            raise invalid_argument(
                "tag", tag, f"it must have 1 to {TAG_CHARACTERS_MAX} characters, and no NUL"
            )
    if len(tags) > TAGS_MAX:
        raise InvalidArgument(what="tags", value=str(len(tags)), reason=f"a stream has at most {TAGS_MAX}")
    return tuple(tags)


TTL_MS_MAX: Final = 2**53
"""Longest time to live in ms, about 285,000 years: append time and sum stay exact in every format."""


def check_ttl(ttl_ms: int) -> int:
    """Return the time to live. Raises InvalidArgument."""
    return check_int("ttl_ms", ttl_ms, least=1, most=TTL_MS_MAX, unit="ms")


ID_WINDOW_MS: Final = 24 * 3_600_000
"""Default of the time for which a stream remembers the ids of its events: a day."""

ID_WINDOW_MS_MAX: Final = 366 * ID_WINDOW_MS
"""Longest such time: a year. Each remembered id is a row of some 150 bytes."""


def check_id_window(id_window_ms: int) -> int:
    """Return the time for which ids are remembered. Raises InvalidArgument."""
    return check_int("id_window_ms", id_window_ms, least=1, most=ID_WINDOW_MS_MAX, unit="ms")


DATABASE_STORAGE: Final = "database"
"""Name of the storage that keeps events in the database itself."""


@attrs.frozen
class StreamConfig:
    """The configuration of a stream.

    scaling: how many segments it has, and what changes that.
    storage: where the bytes of its events lie: "database", or the name of a storage of a system in memory.
    partitioning: how a topic chooses partitions; None for a stream that is not a topic.
    retention: how long events are kept.
    ttl_ms: how long groups deliver an event after it was appended, in ms; None: as long as it is kept.
    tags: labels by which streams are listed, sorted.
    offload: how many events stay in the database.
    id_window_ms: for how long after an event another one with its id is not appended, in ms.
    compaction: whether a topic keeps only the newest event of each key.
    """

    scaling: ScalingPolicy = _ONE_SEGMENT
    storage: str = DATABASE_STORAGE
    partitioning: Partitioning | None = None
    retention: RetentionPolicy = KEEP_ALL
    ttl_ms: int | None = None
    tags: tuple[str, ...] = ()
    offload: OffloadPolicy = OFFLOAD_NOTHING
    id_window_ms: int = ID_WINDOW_MS
    compaction: CompactionPolicy = COMPACT_NOTHING

    @property
    def is_topic(self) -> bool:
        """Whether the stream is a topic."""
        return self.scaling.kind is ScalingKind.PARTITIONS

    @property
    def is_compacted(self) -> bool:
        """Whether events that have a newer one of their key are removed."""
        return self.compaction.min_age_ms is not None

    def with_fields(self, changes: StreamConfig, fields: Iterable[str]) -> StreamConfig:
        """Return this configuration with some fields of another one. An operation checks the result.

        Args:
            changes: what has their new values.
            fields: names of them, such as "tags", or of one limit, such as "retention.age_ms".

        Raises:
            InvalidArgument: there is no such field.
        """
        config = self
        for each in fields:
            if each not in CONFIG_FIELDS:
                raise invalid_argument(
                    "fields", each, f"it must be one of {', '.join(sorted(CONFIG_FIELDS))}"
                )
            field, _, limit = each.partition(".")
            value = getattr(changes, field)
            if limit:
                value = attrs.evolve(getattr(config, field), **{limit: getattr(value, limit)})
            config = attrs.evolve(config, **{field: value})
        return config


CONFIG_FIELDS: Final = frozenset(
    [each.name for each in attrs.fields(StreamConfig)]
    + [
        f"{policy}.{each.name}"
        for policy, kind in (
            ("scaling", ScalingPolicy),
            ("retention", RetentionPolicy),
            ("offload", OffloadPolicy),
            ("compaction", CompactionPolicy),
        )
        for each in attrs.fields(kind)
    ]
)
"""What `StreamConfig.with_fields` takes."""


def as_config(value: object) -> StreamConfig:
    """Return `value` if it is a configuration with valid policies, with the defaults of what is None.

    Raises InvalidArgument.
    """
    config = check_instance(StreamConfig, "config", value, "it must be a StreamConfig")
    if config.partitioning is not None and not config.is_topic:
        raise invalid_argument("partitioning", config.partitioning, "only a topic has one")
    compaction = as_compaction(config.compaction)
    if config.is_compacted and not config.is_topic:
        raise invalid_argument("compaction", compaction, "only a topic has one")
    if config.is_compacted and config.offload != OFFLOAD_NOTHING:
        reason = "it moves events into files, and a compaction would move them back; end one of the two policies first"
        raise invalid_argument("offload", config.offload, reason)
    return attrs.evolve(
        config,
        scaling=_as_policy(config.scaling),
        storage=check_str("storage", config.storage),
        retention=as_retention(config.retention),
        ttl_ms=None if config.ttl_ms is None else check_ttl(config.ttl_ms),
        tags=as_tags(config.tags),
        offload=as_offload(config.offload),
        id_window_ms=check_id_window(config.id_window_ms),
        compaction=compaction,
    )


def differing(a: StreamConfig, b: StreamConfig) -> tuple[str, ...]:
    """Return the names of the choices that are not the same in both, such as "scaling.segments_min"."""
    ours, theirs = attrs.asdict(a), attrs.asdict(b)
    scaling = [
        f"scaling.{name}" for name, value in ours.pop("scaling").items() if value != theirs["scaling"][name]
    ]
    return (*scaling, *(name for name, value in ours.items() if value != theirs[name]))
