"""The notices of a supervisor, as typed values, and their JSON in the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from eventproc.store.ingestion import RUN, StoredNotice
from eventproc.store.model.ingestion import PartitionKey, Positions, decode_positions, encode_positions

HANDOFF: Final = "handoff"
RESET: Final = "reset"
SCALE: Final = "scale"


@attrs.frozen
class RunNotice:
    """Look at everything, and do what is due."""


@attrs.frozen
class HandoffNotice:
    """End the groups of these numbers at the next run, beyond any limit. Unknown ones are ignored."""

    groups: tuple[int, ...]


@attrs.frozen
class ResetNotice:
    """Move committed offsets, and read again from there. None: forget all offsets, and begin as a new supervisor.

    numbers: of the events at the offsets.
    """

    offsets: Positions | None
    numbers: Mapping[PartitionKey, int]


@attrs.frozen
class ScaleNotice:
    """Let so many groups read: the autoscaler's decision, and its reason."""

    task_count: int
    reason: str


Notice: TypeAlias = RunNotice | HandoffNotice | ResetNotice | ScaleNotice


def encode_notice(notice: Notice) -> tuple[str, str]:
    """Return the kind and the body of a notice, for `post_notice`."""
    match notice:
        case RunNotice():
            return RUN, "{}"
        case HandoffNotice(groups):
            return HANDOFF, json.dumps(sorted(groups))
        case ResetNotice(offsets, numbers):
            body = None if offsets is None else [encode_positions(offsets), encode_positions(numbers)]
            return RESET, json.dumps(body)
        case ScaleNotice(task_count, reason):
            return SCALE, json.dumps([task_count, reason])


def decode_notice(stored: StoredNotice) -> Notice:
    """Return the notice that `encode_notice` wrote."""
    body: Any = json.loads(stored.body)
    if stored.kind == HANDOFF:
        return HandoffNotice(tuple(body))
    if stored.kind == RESET:
        if body is None:
            return ResetNotice(None, {})
        return ResetNotice(decode_positions(body[0]), decode_positions(body[1]))
    if stored.kind == SCALE:
        return ScaleNotice(*body)
    return RunNotice()
