"""`--keep-days`, `--offload-days`, `--ttl` and others: how long events are kept, where, delivered, and known by id."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import click

import eventproc
from eventproc.cli.options import choice_options, duration_option, milliseconds

DAY_MS: Final = 24 * 3_600_000


class RetentionChoice(NamedTuple):
    """What the options say; what they do not say stays as it is."""

    days: float | None
    size_bytes: int | None
    keep_all: bool
    consumed: bool
    days_min: float | None
    size_bytes_min: int | None
    offload_days: float | None
    offload_bytes: int | None
    no_offload: bool
    id_window: float | None

    @property
    def _limits(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The limits that the options set, as fields of a policy of retention, and of offload."""
        kept = _given({"age_ms": _ms(self.days), "age_ms_min": _ms(self.days_min)})
        kept |= _given({"size_bytes": self.size_bytes, "size_bytes_min": self.size_bytes_min})
        kept |= {"consumed": True} if self.consumed else {}
        return kept, _given({"age_ms": _ms(self.offload_days), "size_bytes": self.offload_bytes})

    @property
    def policies(self) -> dict[str, Any]:
        """The policies of a configuration, with what the options change."""
        kept, moved = self._limits
        policies = {
            "retention": eventproc.RetentionPolicy(**kept),
            "offload": eventproc.OffloadPolicy(**moved),
        }
        return policies | _given({"id_window_ms": milliseconds(self.id_window)})

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a configuration that the options change; other limits stay as they are."""
        kept, moved = self._limits
        retention = ["retention"] if self.keep_all else [f"retention.{name}" for name in kept]
        offload = ["offload"] if self.no_offload else [f"offload.{name}" for name in moved]
        return (*retention, *offload, *(["id_window_ms"] if self.id_window is not None else []))


class CompactionChoice(NamedTuple):
    """What the options say of a topic's compaction; what they do not say stays as it is."""

    compact_after: float | None
    tombstones: float | None
    no_compact: bool

    @property
    def _times(self) -> dict[str, Any]:
        times = {
            "min_age_ms": milliseconds(self.compact_after),
            "tombstone_ms": milliseconds(self.tombstones),
        }
        return _given(times)

    @property
    def policy(self) -> eventproc.CompactionPolicy:
        """The policy with what the options change."""
        return eventproc.CompactionPolicy(**self._times)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a configuration that the options change. Raises UsageError for options that contradict."""
        if self.no_compact and self._times:
            raise click.UsageError(
                "--no-compact ends the compaction: leave --compact-after and --tombstones out"
            )
        return ("compaction",) if self.no_compact else tuple([f"compaction.{name}" for name in self._times])

    def verify(self, after: eventproc.StreamConfig) -> None:
        """Raise UsageError if the options set a time of a topic that is not compacted afterwards."""
        if self._times and after.compaction.min_age_ms is None:
            raise click.UsageError("--tombstones is a time of compaction, which --compact-after begins")


def _given(limits: dict[str, int | None]) -> dict[str, Any]:
    return {name: each for name, each in limits.items() if each is not None}


def _ms(days: float | None) -> int | None:
    return None if days is None else max(round(days * DAY_MS), 1)


retention_options: Final = choice_options(
    RetentionChoice,
    "retention",
    duration_option(
        "--keep-days",
        "days",
        metavar="DAYS",
        help="Truncate events that were appended longer ago, in the background.",
    ),
    click.option(
        "--keep-bytes",
        "size_bytes",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Keep the newest events of this size, and truncate older ones in the background.",
    ),
    click.option(
        "--until-consumed",
        "consumed",
        is_flag=True,
        help="Truncate events that all groups of the stream have passed, in the background.",
    ),
    duration_option(
        "--keep-days-min",
        "days_min",
        metavar="DAYS",
        help="With --until-consumed: keep younger events all the same.",
    ),
    click.option(
        "--keep-bytes-min",
        "size_bytes_min",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="With --until-consumed: keep the newest events of this size all the same.",
    ),
    click.option(
        "--keep-all", is_flag=True, help="Truncate nothing in the background, as without these options."
    ),
    duration_option(
        "--offload-days",
        "offload_days",
        metavar="DAYS",
        help="Move events that were appended longer ago into files, in the background.",
    ),
    click.option(
        "--offload-bytes",
        "offload_bytes",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Leave the newest events of this size in the database, and move older ones into files.",
    ),
    click.option("--no-offload", is_flag=True, help="Move nothing in the background."),
    duration_option(
        "--id-window",
        "id_window",
        least=0.001,
        most=366 * 24 * 3_600,
        help="For how long after an event another one with its id is not appended. Default: a day.",
    ),
)
"""Decorator of commands that take a `retention: RetentionChoice`."""

compaction_options: Final = choice_options(
    CompactionChoice,
    "compaction",
    duration_option(
        "--compact-after",
        help="Keep only the newest event of each key, once events are that old, in the background.",
    ),
    duration_option(
        "--tombstones",
        help="How long an event without payload, which deletes its key, stays after the key is gone. Default: a day.",
    ),
    click.option("--no-compact", is_flag=True, help="Keep all events of a key from now on."),
)
"""Decorator of commands that take a `compaction: CompactionChoice`."""

ttl_option: Final = duration_option(
    "--ttl", help="How long groups deliver an event after it was appended; 0: as long as it is kept."
)
"""Decorator of commands that take a `ttl: float | None`, in seconds. See `ttl_ms_of`."""


def ttl_ms_of(ttl: float | None) -> int | None:
    """Return the time to live in ms that `--ttl` asks for; None for 0, and without the option."""
    return max(round(ttl * 1000), 1) if ttl else None
