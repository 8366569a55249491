"""`--keep-days`, `--until-consumed`, `--ttl` and others: how long events are kept and delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from eventproc.cli.options import DurationParam, choice_options

if TYPE_CHECKING:
    from eventproc.store.model.policies import RetentionPolicy

DAY_MS: Final = 24 * 3_600_000


class RetentionChoice(NamedTuple):
    """What the options say; what they do not say stays as it is."""

    days: float | None
    size_bytes: int | None
    keep_all: bool
    consumed: bool = False
    days_min: float | None = None
    size_bytes_min: int | None = None

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the options set, as fields of a policy."""
        ages = {"age_ms": self.days, "age_ms_min": self.days_min}
        sizes = {"size_bytes": self.size_bytes, "size_bytes_min": self.size_bytes_min}
        given = {name: max(round(each * DAY_MS), 1) for name, each in ages.items() if each is not None}
        given |= {name: each for name, each in sizes.items() if each is not None}
        return given | ({"consumed": True} if self.consumed else {})

    def applied_to(self, policy: RetentionPolicy) -> RetentionPolicy:
        """Return the policy that this makes of `policy`."""
        import attrs

        from eventproc.store.model.policies import KEEP_ALL, as_retention

        return as_retention(attrs.evolve(KEEP_ALL if self.keep_all else policy, **self.limits))

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a configuration that the options change; other limits stay as they are."""
        return ("retention",) if self.keep_all else tuple([f"retention.{name}" for name in self.limits])


retention_options: Final = choice_options(
    RetentionChoice,
    "retention",
    click.option(
        "--keep-days",
        "days",
        type=DurationParam(),
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
    click.option(
        "--keep-days-min",
        "days_min",
        type=DurationParam(),
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
)
"""Decorator of commands that take a `retention: RetentionChoice`."""

ttl_option: Final = click.option(
    "--ttl",
    type=DurationParam(),
    metavar="SECONDS",
    help="How long groups deliver an event after it was appended; 0: as long as it is kept.",
)
"""Decorator of commands that take a `ttl: float | None`, in seconds. See `ttl_ms_of`."""


def ttl_ms_of(ttl: float | None, before: int | None) -> int | None:
    """Return the time to live in ms that `--ttl` asks for; `before` without the option, None for 0."""
    if ttl is None:
        return before
    from eventproc.store.segments import check_ttl

    return check_ttl(max(round(ttl * 1000), 1)) if ttl else None
