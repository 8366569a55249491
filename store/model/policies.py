"""The configuration of a stream: how many segments it has, and what changes that. Only what is enforced exists."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_instance, check_int
from eventproc.store.model.limits import SEGMENTS_MAX


class ScalingKind(StrEnum):
    """What scales a stream."""

    FIXED = "fixed"
    """Requests of users only; never the system."""


@attrs.frozen
class ScalingPolicy:
    """How a stream is scaled. Make one with `ScalingPolicy.fixed`.

    kind: what scales the stream. segments_min: the smallest number of active segments.
    """

    kind: ScalingKind
    segments_min: int

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


def as_scaling(value: object) -> ScalingPolicy:
    """Return `value` if it is a policy that `ScalingPolicy` makes. Raises InvalidArgument."""
    reason = "it must be a ScalingPolicy, such as ScalingPolicy.fixed(2)"
    policy = check_instance(ScalingPolicy, "scaling", value, reason)
    check_instance(ScalingKind, "scaling", policy.kind, reason)
    return ScalingPolicy.fixed(policy.segments_min)


_ONE_SEGMENT: Final = ScalingPolicy.fixed(1)


@attrs.frozen
class StreamConfig:
    """The configuration of a stream."""

    scaling: ScalingPolicy = _ONE_SEGMENT


def differing(a: StreamConfig, b: StreamConfig) -> tuple[str, ...]:
    """Return the names of the choices that are not the same in both, such as "scaling.segments_min"."""
    ours, theirs = attrs.asdict(a.scaling), attrs.asdict(b.scaling)
    return tuple(f"scaling.{name}" for name in ours if ours[name] != theirs[name])
