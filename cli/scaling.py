"""`--events-per-second`, `--bytes-per-second` and others: which policy scales a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from eventproc.cli.options import DurationParam, choice_options, milliseconds

if TYPE_CHECKING:
    from eventproc import ScalingPolicy


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
        from eventproc import ScalingKind, ScalingPolicy

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
        changes: dict[str, Any] = {
            "target": self.bytes_per_second if self.events_per_second is None else self.events_per_second,
            "segments_min": self.segments,
            "factor": self.factor,
            "segments_max": self.segments_max,
            "window_ms": milliseconds(self.window_s),
        }
        chosen = {name: getattr(policy, name) if each is None else each for name, each in changes.items()}
        given = {name: each for name, each in chosen.items() if each is not None}
        kept = policy.kind is ScalingKind.EVENT_RATE and self.bytes_per_second is None
        by_events = kept or self.events_per_second is not None
        return (ScalingPolicy.by_event_rate if by_events else ScalingPolicy.by_byte_rate)(**given)


scaling_options: Final = choice_options(
    ScalingChoice,
    "scaling",
    click.option(
        "--segments",
        type=int,
        metavar="N",
        help="Number of segments, or with a rate the smallest one; 1 unless given, or as an existing stream has.",
    ),
    click.option(
        "--events-per-second",
        type=int,
        metavar="RATE",
        help="Scale the stream in the background: split segments above this rate, and merge quiet ones.",
    ),
    click.option(
        "--bytes-per-second", type=int, metavar="RATE", help="The same, by the bytes written to a segment."
    ),
    click.option(
        "--factor", type=int, metavar="N", help="With a rate: the most segments that one split makes; 2."
    ),
    click.option(
        "--segments-max", type=int, metavar="N", help="With a rate: the largest number of segments; 1024."
    ),
    click.option(
        "--window",
        "window_s",
        type=DurationParam(),
        metavar="SECONDS",
        help="With a rate: the shortest window over which it is taken; 120.",
    ),
)
"""Decorator of commands that take a `scaling: ScalingChoice`."""
