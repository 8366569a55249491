"""What can be chosen for a group when it is made."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import attrs

from eventproc.store.model.arguments import int_of, refused

TruncatedPolicy: TypeAlias = Literal["earliest", "latest", "error"]
"""Where a group goes on that finds what it had not read truncated: at the head, at the tail, or nowhere."""

LEASE_MS_MIN: Final = 1_000
"""Shortest lease: below it a busy machine is enough to be taken for hung."""

CHECKPOINT_MS_MIN: Final = 100
"""Shortest pause between automatic checkpoints: each is an update from every reader."""


def _lease(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        int_of("lease", value, least=LEASE_MS_MIN, unit="ms")


def _pause(instance: object, attribute: object, value: int | None) -> None:
    if value is not None:
        int_of("pause between checkpoints", value, least=CHECKPOINT_MS_MIN, unit="ms")


def _policy(instance: object, attribute: object, value: object) -> None:
    if value not in ("earliest", "latest", "error"):
        raise refused("on_truncated", value, "it must be 'earliest', 'latest' or 'error'")


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of a group.

    lease_ms: longest time between two signs of life of a reader before it counts as hung and is expired; None: only
    the dead are. checkpoint_ms: pause between automatic checkpoints; None: there are none. on_truncated: where to go
    on when what was not read yet is gone; it is always told and counted. Raises InvalidArgument.
    """

    lease_ms: int | None = attrs.field(default=None, validator=_lease)
    checkpoint_ms: int | None = attrs.field(default=None, validator=_pause)
    on_truncated: TruncatedPolicy = attrs.field(default="earliest", validator=_policy)
