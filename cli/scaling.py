"""`--events-per-second`, `--bytes-per-second` and others: which policy scales a stream."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from eventproc.cli.options import DurationParam

if TYPE_CHECKING:
    from eventproc.store.model.policies import ScalingPolicy

F = TypeVar("F", bound=Callable[..., Any])


class ScalingChoice(NamedTuple):
    """What the options say."""

    segments: int | None
    events_per_second: int | None
    bytes_per_second: int | None
    factor: int | None
    segments_max: int | None
    window_s: float | None

    @property
    def goes_by_rate(self) -> bool:
        """Whether the options ask for a policy that goes by a rate."""
        return self.events_per_second is not None or self.bytes_per_second is not None

    @property
    def is_given(self) -> bool:
        """Whether one of the options was given."""
        return any(each is not None for each in self)

    def applied_to(self, policy: ScalingPolicy) -> ScalingPolicy:
        """Return the policy that this makes of `policy`. Raises UsageError, InvalidArgument."""
        import attrs

        from eventproc.store.model.policies import ScalingKind, ScalingPolicy, as_scaling

        if not self.is_given:
            return policy
        tunes = (self.factor, self.segments_max, self.window_s) != (None, None, None)
        if not self.goes_by_rate and not (tunes and policy.goes_by_rate):
            if tunes:
                raise click.UsageError(
                    "--factor, --segments-max and --window go with --events-per-second or --bytes-per-second"
                )
            return ScalingPolicy.fixed(1 if self.segments is None else self.segments)
        if self.events_per_second is not None and self.bytes_per_second is not None:
            raise click.UsageError("--events-per-second and --bytes-per-second exclude each other")
        kept = policy
        if self.events_per_second is not None:
            kept = attrs.evolve(policy, kind=ScalingKind.EVENT_RATE, target=self.events_per_second)
        elif self.bytes_per_second is not None:
            kept = attrs.evolve(policy, kind=ScalingKind.BYTE_RATE, target=self.bytes_per_second)
        return as_scaling(
            attrs.evolve(
                kept,
                segments_min=policy.segments_min if self.segments is None else self.segments,
                factor=policy.factor if self.factor is None else self.factor,
                segments_max=policy.segments_max if self.segments_max is None else self.segments_max,
                window_ms=policy.window_ms if self.window_s is None else round(self.window_s * 1000),
            )
        )


def scaling_options(command: F) -> F:
    """Decorator of commands that take a `scaling: ScalingChoice`."""

    @click.option(
        "--segments",
        type=int,
        metavar="N",
        help="Number of segments, or with a rate the smallest one; 1 unless given, or as an existing stream has.",
    )
    @click.option(
        "--events-per-second",
        type=int,
        metavar="RATE",
        help="Scale the stream in the background: split segments above this rate, and merge quiet ones.",
    )
    @click.option(
        "--bytes-per-second", type=int, metavar="RATE", help="The same, by the bytes written to a segment."
    )
    @click.option(
        "--factor", type=int, metavar="N", help="With a rate: the most segments that one split makes; 2."
    )
    @click.option(
        "--segments-max", type=int, metavar="N", help="With a rate: the largest number of segments; 1024."
    )
    @click.option(
        "--window",
        "window_s",
        type=DurationParam(),
        metavar="SECONDS",
        help="With a rate: the shortest window over which it is taken; 120.",
    )
    @wraps(command)
    def with_choice(
        *args: Any,
        segments: int | None,
        events_per_second: int | None,
        bytes_per_second: int | None,
        factor: int | None,
        segments_max: int | None,
        window_s: float | None,
        **kwargs: Any,
    ) -> Any:
        choice = ScalingChoice(segments, events_per_second, bytes_per_second, factor, segments_max, window_s)
        return command(*args, scaling=choice, **kwargs)

    return with_choice  # type: ignore[return-value]
