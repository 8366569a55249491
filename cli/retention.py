"""`--keep-days`, `--until-consumed`, `--ttl` and others: how long events are kept and delivered."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from eventproc.cli.options import DurationParam

if TYPE_CHECKING:
    from eventproc.store.model.policies import RetentionPolicy

F = TypeVar("F", bound=Callable[..., Any])

DAY_MS: Final = 24 * 3_600_000


class RetentionChoice(NamedTuple):
    """What the options say; what they do not say stays as it is."""

    days: float | None
    size_bytes: int | None
    keep_all: bool
    consumed: bool = False
    days_min: float | None = None
    size_bytes_min: int | None = None

    def applied_to(self, policy: RetentionPolicy) -> RetentionPolicy:
        """Return the policy that this makes of `policy`."""
        import attrs

        from eventproc.store.model.policies import KEEP_ALL, as_retention

        chosen = KEEP_ALL if self.keep_all else policy
        if self.days is not None:
            chosen = attrs.evolve(chosen, age_ms=max(round(self.days * DAY_MS), 1))
        if self.size_bytes is not None:
            chosen = attrs.evolve(chosen, size_bytes=self.size_bytes)
        if self.consumed:
            chosen = attrs.evolve(chosen, consumed=True)
        if self.days_min is not None:
            chosen = attrs.evolve(chosen, age_ms_min=max(round(self.days_min * DAY_MS), 1))
        if self.size_bytes_min is not None:
            chosen = attrs.evolve(chosen, size_bytes_min=self.size_bytes_min)
        return as_retention(chosen)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a configuration that the options change; other limits stay as they are."""
        if self.keep_all:
            return ("retention",)
        given = {
            "age_ms": self.days is not None,
            "size_bytes": self.size_bytes is not None,
            "consumed": self.consumed,
            "age_ms_min": self.days_min is not None,
            "size_bytes_min": self.size_bytes_min is not None,
        }
        return tuple([f"retention.{name}" for name, is_given in given.items() if is_given])


def retention_options(command: F) -> F:
    """Decorator of commands that take a `retention: RetentionChoice`."""

    @click.option(
        "--keep-days",
        type=DurationParam(),
        metavar="DAYS",
        help="Truncate events that were appended longer ago, in the background.",
    )
    @click.option(
        "--keep-bytes",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="Keep the newest events of this size, and truncate older ones in the background.",
    )
    @click.option(
        "--until-consumed",
        is_flag=True,
        help="Truncate events that all groups of the stream have passed, in the background.",
    )
    @click.option(
        "--keep-days-min",
        type=DurationParam(),
        metavar="DAYS",
        help="With --until-consumed: keep younger events all the same.",
    )
    @click.option(
        "--keep-bytes-min",
        type=click.IntRange(min=1),
        metavar="BYTES",
        help="With --until-consumed: keep the newest events of this size all the same.",
    )
    @click.option(
        "--keep-all", is_flag=True, help="Truncate nothing in the background, as without these options."
    )
    @wraps(command)
    def with_choice(
        *args: Any,
        keep_days: float | None,
        keep_bytes: int | None,
        keep_all: bool,
        until_consumed: bool,
        keep_days_min: float | None,
        keep_bytes_min: int | None,
        **kwargs: Any,
    ) -> Any:
        choice = RetentionChoice(
            keep_days, keep_bytes, keep_all, until_consumed, keep_days_min, keep_bytes_min
        )
        return command(*args, retention=choice, **kwargs)

    return with_choice  # type: ignore[return-value]


def ttl_option(command: F) -> F:
    """Decorator of commands that take a `ttl: float | None`, in seconds. See `ttl_ms_of`."""
    return click.option(
        "--ttl",
        type=DurationParam(),
        metavar="SECONDS",
        help="How long groups deliver an event after it was appended; 0: as long as it is kept.",
    )(command)


def ttl_ms_of(ttl: float | None, before: int | None) -> int | None:
    """Return the time to live in ms that `--ttl` asks for; `before` without the option, None for 0."""
    if ttl is None:
        return before
    from eventproc.store.segments import check_ttl

    return check_ttl(max(round(ttl * 1000), 1)) if ttl else None
