"""The configuration of a stream: how many segments it has, and what changes that. Only what is enforced exists."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import attrs

from eventproc.store.model.argument_checks import check_instance, check_int
from eventproc.store.model.limits import SEGMENTS_MAX


class ScalingKind(StrEnum):
    """Who decides to scale a stream."""

    FIXED = "fixed"
    """People do, by request; never the system."""


@attrs.frozen
class ScalingPolicy:
    """Who scales a stream, and the number of active segments it never has fewer of."""

    kind: ScalingKind
    segments_min: int

    @classmethod
    def fixed(cls, segments: int) -> ScalingPolicy:
        """Return the policy of `segments` segments that only a request changes. Raises InvalidArgument."""
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
    """All that people choose about a stream."""

    scaling: ScalingPolicy = _ONE_SEGMENT


def differing(a: StreamConfig, b: StreamConfig) -> tuple[str, ...]:
    """Return the names of the choices that are not the same in both, such as "scaling.segments_min"."""
    ours, theirs = attrs.asdict(a.scaling), attrs.asdict(b.scaling)
    return tuple(f"scaling.{name}" for name in ours if ours[name] != theirs[name])
