"""`--events-per-second`, `--bytes-per-second` and others: which policy scales a stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

import eventproc
from eventproc.cli.options import choice_options, duration_option, milliseconds

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
    def _limits(self) -> dict[str, Any]:
        """What the options set, as fields of a policy. Raises UsageError."""
        if self.events_per_second is not None and self.bytes_per_second is not None:
            raise click.UsageError("--events-per-second and --bytes-per-second exclude each other")
        rate = self.bytes_per_second if self.events_per_second is None else self.events_per_second
        by_events = self.events_per_second is not None
        kind = eventproc.ScalingKind.EVENT_RATE if by_events else eventproc.ScalingKind.BYTE_RATE
        given = {
            "kind": None if rate is None else kind,
            "target": rate,
            "segments_min": self.segments,
            "factor": self.factor,
            "segments_max": self.segments_max,
            "window_ms": milliseconds(self.window_s),
        }
        return {name: each for name, each in given.items() if each is not None}

    @property
    def policy(self) -> ScalingPolicy:
        """A policy with what the options set. Raises UsageError."""
        limits: dict[str, Any] = {"kind": eventproc.ScalingKind.FIXED, "segments_min": 1} | self._limits
        return eventproc.ScalingPolicy(**limits)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of a configuration that the options change: a number of segments alone makes another policy."""
        given = self._limits
        return (
            ("scaling",) if given.keys() == {"segments_min"} else tuple(f"scaling.{name}" for name in given)
        )


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
    duration_option(
        "--window",
        "window_s",
        least=1,
        most=24 * 3_600,
        help="With a rate: the shortest window over which it is taken; 120.",
    ),
)
"""Decorator of commands that take a `scaling: ScalingChoice`."""
