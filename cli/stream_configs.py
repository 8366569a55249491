"""`--segments`, `--keep-days`, `--ttl` and others: what a command sets of the configuration of a stream or topic.

The parameter of an option is named as the field that it sets, with the policy before it: `retention__age_ms`. A flag
that is named as a policy gives the policy its defaults.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final, NamedTuple

import click

import eventproc
from eventproc.cli.options import DurationParam, choice_options, duration_option

DAY_MS: Final = 24 * 3_600_000


class GivenConfig(NamedTuple):
    """A configuration with what the options set, and the names of these fields. The others stay as they are."""

    config: eventproc.StreamConfig
    fields: tuple[str, ...]

    @property
    def keeps_segments(self) -> bool:
        """Whether the options say nothing of segments or partitions."""
        return not any(each.startswith("scaling") for each in self.fields)

    def applied_to(self, config: eventproc.StreamConfig) -> eventproc.StreamConfig:
        """Return a configuration with what the options set. Raises UsageError for a time without compaction."""
        after = config.with_fields(self.config, self.fields)
        if "compaction.tombstone_ms" in self.fields and after.compaction.min_age_ms is None:
            raise click.UsageError("--tombstones is a time of compaction, which --compact-after begins")
        return after


def _change(
    *,
    events_per_second: int | None = None,
    bytes_per_second: int | None = None,
    no_tags: bool = False,
    **options: Any,
) -> GivenConfig:
    """Return what the options set. Raises UsageError for those that contradict each other."""
    if events_per_second is not None and bytes_per_second is not None:
        raise click.UsageError("--events-per-second and --bytes-per-second exclude each other")
    if no_tags and options["tags"]:
        raise click.UsageError("give either --tag or --no-tags")
    limits: dict[str, dict[str, Any]] = {"scaling": {}, "retention": {}, "offload": {}, "compaction": {}}
    for kind, rate in (("EVENT_RATE", events_per_second), ("BYTE_RATE", bytes_per_second)):
        if rate is not None:
            limits["scaling"] = {"kind": eventproc.ScalingKind[kind], "target": rate}
    others: dict[str, Any] = {"tags": ()} if no_tags else {}
    for name, value in options.items():
        if value is not None and value is not False and value != ():
            policy, _, limit = name.partition("__")
            (limits[policy] if limit else others)[limit or name] = value
    if "compaction" in others and limits["compaction"]:
        raise click.UsageError("--no-compact ends the compaction: leave --compact-after and --tombstones out")
    fields = [*others, *(f"{policy}.{limit}" for policy, found in limits.items() for limit in found)]
    if limits["scaling"].keys() == {"segments_min"}:  # a number alone makes another policy
        fields[fields.index("scaling.segments_min")] = "scaling"
    if "partitioning" in options:
        scaling = eventproc.ScalingPolicy.partitions(limits["scaling"].get("segments_min", 1))
    else:
        fixed: dict[str, Any] = {"kind": eventproc.ScalingKind.FIXED, "segments_min": 1}
        scaling = eventproc.ScalingPolicy(**(fixed | limits["scaling"]))
    if "partitioning" in others:
        others["partitioning"] = eventproc.Partitioning(others["partitioning"])
    if "ttl_ms" in others:
        others["ttl_ms"] = others["ttl_ms"] or None
    config = eventproc.StreamConfig(
        scaling,
        retention=eventproc.RetentionPolicy(**limits["retention"]),
        offload=eventproc.OffloadPolicy(**limits["offload"]),
        compaction=eventproc.CompactionPolicy(**limits["compaction"]),
        **{name: value for name, value in others.items() if name not in limits},
    )
    return GivenConfig(config, tuple(fields))


config_options: Final = partial(choice_options, _change, "change")
"""Makes the decorator of commands that take these options as a `change: GivenConfig`."""


class _Milliseconds(DurationParam):
    """A number of seconds, as ms."""

    unit_ms = 1_000
    least_ms = 0

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the ms: at least one, unless 0 is possible and given."""
        number = super().convert(value, param, ctx)
        return max(round(number * self.unit_ms), 1 if number else self.least_ms)


class _Days(_Milliseconds):
    """A number of days, as ms."""

    unit_ms = DAY_MS
    least_ms = 1


_seconds_option = partial(duration_option, kind=_Milliseconds)
_days_option = partial(duration_option, metavar="DAYS", kind=_Days)
_bytes_option = partial(click.option, type=click.IntRange(min=1), metavar="BYTES")
_number_option = partial(click.option, type=int)

SCALING_OPTIONS: Final = (
    _number_option(
        *("--segments", "scaling__segments_min"),
        metavar="N",
        help="Number of segments, or with a rate the smallest one; 1 unless given, or as an existing stream has.",
    ),
    _number_option(
        "--events-per-second",
        metavar="RATE",
        help="Scale the stream in the background: split segments above this rate, and merge quiet ones.",
    ),
    _number_option("--bytes-per-second", metavar="RATE", help="The same, by the bytes written to a segment."),
    _number_option(
        *("--factor", "scaling__factor"),
        metavar="N",
        help="With a rate: the most segments that one split makes; 2.",
    ),
    _number_option(
        *("--segments-max", "scaling__segments_max"),
        metavar="N",
        help="With a rate: the largest number of segments; 1024.",
    ),
    _seconds_option(
        *("--window", "scaling__window_ms"),
        least=1,
        most=24 * 3_600,
        help="With a rate: the shortest window over which it is taken; 120.",
    ),
)
"""Which policy scales a stream."""

RETENTION_OPTIONS: Final = (
    _days_option(
        *("--keep-days", "retention__age_ms"),
        help="Truncate events that were appended longer ago, in the background.",
    ),
    _bytes_option(
        *("--keep-bytes", "retention__size_bytes"),
        help="Keep the newest events of this size, and truncate older ones in the background.",
    ),
    click.option(
        *("--until-consumed", "retention__consumed"),
        is_flag=True,
        help="Truncate events that all groups of the stream have passed, in the background.",
    ),
    _days_option(
        *("--keep-days-min", "retention__age_ms_min"),
        help="With --until-consumed: keep younger events all the same.",
    ),
    _bytes_option(
        *("--keep-bytes-min", "retention__size_bytes_min"),
        help="With --until-consumed: keep the newest events of this size all the same.",
    ),
    click.option(
        *("--keep-all", "retention"),
        is_flag=True,
        help="Truncate nothing in the background, as without these options.",
    ),
    _days_option(
        *("--offload-days", "offload__age_ms"),
        help="Move events that were appended longer ago into files, in the background.",
    ),
    _bytes_option(
        *("--offload-bytes", "offload__size_bytes"),
        help="Leave the newest events of this size in the database, and move older ones into files.",
    ),
    click.option("--no-offload", "offload", is_flag=True, help="Move nothing in the background."),
    _seconds_option(
        *("--id-window", "id_window_ms"),
        least=0.001,
        most=366 * 24 * 3_600,
        help="For how long after an event another one with its id is not appended. Default: a day.",
    ),
)
"""How long events are kept, where, and known by their ids."""

TOPIC_OPTIONS: Final = (
    *RETENTION_OPTIONS,
    _seconds_option(
        *("--compact-after", "compaction__min_age_ms"),
        help="Keep only the newest event of each key, once events are that old, in the background.",
    ),
    _seconds_option(
        *("--tombstones", "compaction__tombstone_ms"),
        help="How long an event without payload, which deletes its key, stays after the key is gone. Default: a day.",
    ),
    click.option("--no-compact", "compaction", is_flag=True, help="Keep all events of a key from now on."),
    _seconds_option(
        *("--ttl", "ttl_ms"),
        help="How long groups deliver an event after it was appended; 0: as long as it is kept.",
    ),
)
"""How long a topic keeps events, all or the newest of each key, and groups deliver them."""
