"""The configs of Kafka that a topic has here: one table for creating, showing and changing them. Pure.

A change is taken if what is shown afterwards is what was asked for, and is refused otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.server.kafka.compression import RECORDS_BYTES_MAX
from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.policies import ScalingPolicy, StreamConfig, as_config

PARTITIONS: Final = 1
"""Partitions of a topic whose creation names no number, as `ep.create_topic` has it."""

LONG_MAX: Final = 2**63 - 1
"""Largest number of the protocol."""


class ConfigKind(IntEnum):
    """The type of a config's value, with the numbers of the protocol."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    LIST = 7


class ConfigOperation(IntEnum):
    """What a change does with a config, with the numbers of the protocol."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@attrs.frozen
class ConfigChange:
    """A change of a config. value: None if there is none."""

    name: str
    value: str | None
    operation: ConfigOperation = ConfigOperation.SET


@attrs.frozen
class ShownConfig:
    """A config as clients see it. is_fixed: whether it can have no other value. about: what it means here."""

    name: str
    value: str
    kind: ConfigKind
    is_default: bool
    is_fixed: bool
    about: str


@attrs.frozen
class _TopicConfig:
    """A config that changes a field of a topic's configuration.

    field: its name, as `StreamConfig.with_fields` takes it. read: its text. write: the configuration with another one.
    """

    name: str
    kind: ConfigKind
    field: str
    read: Callable[[StreamConfig], str]
    write: Callable[[StreamConfig, str], StreamConfig]
    about: str

    def shown(self, config: StreamConfig) -> ShownConfig:
        """Return it as clients see it."""
        value = self.read(config)
        is_default = value == self.read(_DEFAULTS)
        return ShownConfig(self.name, value, self.kind, is_default, is_fixed=False, about=self.about)


def _number(name: str, value: str, least: int) -> int:
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= LONG_MAX or str(number) != value:  # such as 1_000
        raise InvalidArgument(what=name, value=value, reason=f"it must be a 64-bit int of at least {least}")
    return number


def _limit(name: str, limit: str, about: str) -> _TopicConfig:
    """Return the row of a limit of the retention; -1 is no limit."""

    def read(config: StreamConfig) -> str:
        value = getattr(config.retention, limit)
        return "-1" if value is None else str(value)

    def write(config: StreamConfig, value: str) -> StreamConfig:
        number = _number(name, value, -1)
        changes: dict[str, Any] = {limit: None if number == -1 else number}
        return attrs.evolve(config, retention=attrs.evolve(config.retention, **changes))

    return _TopicConfig(name, ConfigKind.LONG, f"retention.{limit}", read, write, about)


def _policy(config: StreamConfig) -> str:
    truncates = config.retention.age_ms is not None or config.retention.size_bytes is not None
    return ("compact,delete" if truncates else "compact") if config.is_compacted else "delete"


def _policies(value: str) -> list[str]:
    """Return the parts of a policy, sorted. Raises InvalidArgument."""
    parts = sorted({each.strip() for each in value.split(",")})
    if not {"compact", "delete"}.issuperset(parts):
        raise InvalidArgument(
            what=CLEANUP, value=value, reason="it must be delete, compact or compact,delete"
        )
    return parts


def _with_policy(config: StreamConfig, value: str) -> StreamConfig:
    age_ms = (config.compaction.min_age_ms or 0) if "compact" in _policies(value) else None
    return attrs.evolve(config, compaction=attrs.evolve(config.compaction, min_age_ms=age_ms))


def _with_lag(config: StreamConfig, value: str) -> StreamConfig:
    age_ms = _number(LAG, value, 0)
    if config.is_compacted:
        return attrs.evolve(config, compaction=attrs.evolve(config.compaction, min_age_ms=age_ms))
    if age_ms:
        raise InvalidArgument(what=LAG, value=value, reason=f"only a topic with {CLEANUP}=compact has it")
    return config


def _with_tombstones(config: StreamConfig, value: str) -> StreamConfig:
    tombstone_ms = _number(TOMBSTONES, value, 0)
    return attrs.evolve(config, compaction=attrs.evolve(config.compaction, tombstone_ms=tombstone_ms))


CLEANUP: Final = "cleanup.policy"
LAG: Final = "min.compaction.lag.ms"
TOMBSTONES: Final = "delete.retention.ms"

# Written in this order: a lag needs the policy.
_CONFIGS: Final[Mapping[str, _TopicConfig]] = MappingProxyType(
    {
        each.name: each
        for each in (
            _limit("retention.ms", "age_ms", "How long events are kept; -1: no limit."),
            _limit(
                "retention.bytes",
                "size_bytes",
                "Size of the events that the whole topic keeps; -1: no limit.",
            ),
            _TopicConfig(
                *(CLEANUP, ConfigKind.LIST, "compaction.min_age_ms", _policy, _with_policy),
                "delete: retention truncates; compact: only the newest event of each key is kept; or both.",
            ),
            _TopicConfig(
                *(LAG, ConfigKind.LONG, "compaction.min_age_ms"),
                lambda config: str(config.compaction.min_age_ms or 0),
                _with_lag,
                "How long a compacted topic keeps an event in any case.",
            ),
            _TopicConfig(
                *(TOMBSTONES, ConfigKind.LONG, "compaction.tombstone_ms"),
                lambda config: str(config.compaction.tombstone_ms),
                _with_tombstones,
                "How long a compacted topic keeps the null that has removed a key.",
            ),
        )
    }
)


def _fixed(name: str, value: object, kind: ConfigKind, about: str) -> ShownConfig:
    return ShownConfig(name, str(value), kind, is_default=True, is_fixed=True, about=about)


_FIXED: Final[Mapping[str, ShownConfig]] = MappingProxyType(
    {
        each.name: each
        for each in (
            _fixed(
                *("max.message.bytes", RECORDS_BYTES_MAX, ConfigKind.INT),
                "Size of the records of a batch, without compression.",
            ),
            _fixed(
                *("message.timestamp.type", "CreateTime", ConfigKind.STRING),
                "A record shows the time that its producer gave it.",
            ),
            _fixed("min.insync.replicas", 1, ConfigKind.INT, "A server shows itself as the only broker."),
        )
    }
)
"""Configs that every topic has; a client may ask for the same value."""

_WITHOUT_EFFECT: Final = frozenset(
    {
        "compression.type",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "min.cleanable.dirty.ratio",
        "preallocate",
        "segment.bytes",
        "segment.index.bytes",
        "segment.jitter.ms",
        "segment.ms",
    }
)
"""Configs that only tune a broker's files. Clients such as Kafka Streams send them; they are taken and not kept."""

BROKER_CONFIGS: Final = (
    _fixed("auto.create.topics.enable", "false", ConfigKind.BOOLEAN, "Producing creates no topic."),
    _fixed("default.replication.factor", 1, ConfigKind.INT, "A server shows itself as the only broker."),
    _fixed(
        *("message.max.bytes", RECORDS_BYTES_MAX, ConfigKind.INT),
        "Size of the records of a batch, without compression.",
    ),
    _fixed("num.partitions", PARTITIONS, ConfigKind.INT, "Of a topic that is created without a number."),
)
"""What a client may want to know of a server. Its settings are options of `eventproc serve`."""

_DEFAULTS: Final = StreamConfig(ScalingPolicy.partitions(PARTITIONS))


def shown_configs(config: StreamConfig) -> list[ShownConfig]:
    """Return the configs of a topic."""
    return [*[each.shown(config) for each in _CONFIGS.values()], *_FIXED.values()]


def resets() -> list[ConfigChange]:
    """Return the changes that give all configs their defaults."""
    return [ConfigChange(name, None, ConfigOperation.DELETE) for name in _CONFIGS]


def changed_config(
    config: StreamConfig, changes: Iterable[ConfigChange]
) -> tuple[StreamConfig, tuple[str, ...]]:
    """Return a topic's configuration after changes, of which the last one of a name counts, and the fields they set.

    Raises InvalidArgument, which names the config.
    """
    wanted: dict[str, str] = {}
    for each in changes:
        if each.name in _CONFIGS:
            wanted[each.name] = _wanted_value(_CONFIGS[each.name], config, each)
        elif each.name in _FIXED:
            _verify_fixed(_FIXED[each.name], each)
        elif each.name not in _WITHOUT_EFFECT:
            reason = f"topics have no such config here; those that can change are {', '.join(_CONFIGS)}"
            raise InvalidArgument(what="config", value=each.name, reason=reason)
    after = config
    written = [row for name, row in _CONFIGS.items() if name in wanted]
    for row in written:
        after = row.write(after, wanted[row.name])
    after = as_config(after)
    if (policy := wanted.get(CLEANUP, _policy(config))) != _policy(after):
        reason = "compact needs retention.ms=-1 and retention.bytes=-1, and compact,delete needs another value of one"
        raise InvalidArgument(what=CLEANUP, value=policy, reason=reason)
    return after, tuple(dict.fromkeys([row.field for row in written]))


def _wanted_value(row: _TopicConfig, config: StreamConfig, change: ConfigChange) -> str:
    """Return the value that a change asks for, in the form in which it is shown. Raises InvalidArgument."""
    if change.operation == ConfigOperation.DELETE:
        return row.read(_DEFAULTS)
    if change.value is None:
        raise InvalidArgument(what=row.name, value="null", reason="a value is needed")
    if row.kind is not ConfigKind.LIST:
        if change.operation != ConfigOperation.SET:
            raise InvalidArgument(what=row.name, value=change.value, reason="it is no list: set or delete it")
        return change.value
    parts: Sequence[str] = _policies(change.value)
    if change.operation != ConfigOperation.SET:
        before = _policies(row.read(config))
        is_more = change.operation == ConfigOperation.APPEND
        parts = sorted({*before, *parts} if is_more else set(before).difference(parts))
    return ",".join(parts)


def _verify_fixed(fixed: ShownConfig, change: ConfigChange) -> None:
    is_reset = change.operation == ConfigOperation.DELETE
    if not is_reset and (change.operation != ConfigOperation.SET or change.value != fixed.value):
        reason = f"it is always {fixed.value} here"
        raise InvalidArgument(what=fixed.name, value=str(change.value), reason=reason)
