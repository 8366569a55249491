"""One look at a stream: everything that its policies ask for now, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

import attrs

from eventproc.store.catalog import StreamRecord, find_stream
from eventproc.store.database import Tx
from eventproc.store.model.policies import KEEP_ALL, OFFLOAD_NOTHING
from eventproc.store.model.scaling import windows_ms
from eventproc.workflows.policies.offload import OffloadTask, PassedOffsets, wanted_offload
from eventproc.workflows.policies.retention import wanted_truncation
from eventproc.workflows.policies.scaling import wanted_scale
from eventproc.workflows.requests import ScaleStream, TruncateStream

STREAMS_A_STEP: Final = 1_024
"""Streams that one step of a walk over all streams reads. Higher: longer reads than 2 ms; lower: more of them."""

RETENTION_MS: Final = 60_000
"""Pause between two looks at a stream with a policy of retention, or for its offload: how long events stay beyond it.
Lower: more reads. One takes less than 2 ms for an age, and 0.4 ms for each segment of a stream with a limit of size."""

LOOKS_A_WINDOW: Final = 4
"""Looks at a stream that is scaled by its rate during its shortest window. Higher: a burst is noticed sooner, by less
than a window, and each look takes about 0.3 ms."""


Wanted: TypeAlias = ScaleStream | TruncateStream | OffloadTask
"""What a policy asks for: a request of a workflow, or a task."""


@attrs.frozen
class PolicyLook:
    """What the policies of a stream ask for at one moment.

    next_ms: how long to wait before the next look.
    """

    stream: str
    requests: tuple[Wanted, ...]
    next_ms: int


def has_policy(stream: StreamRecord) -> bool:
    """Return whether the system has to look at the stream: it has a policy to keep.

    Only an offload goes on after the stream was sealed.
    """
    config = stream.config
    changes = stream.is_writable and (config.retention != KEEP_ALL or config.scaling.goes_by_rate)
    return changes or config.offload != OFFLOAD_NOTHING


def look_at_stream(tx: Tx, name: str, passed: PassedOffsets | None = None) -> PolicyLook | None:
    """Return what the policies of a stream ask for now; None if it has none, or does not exist any more.

    passed: as for `wanted_offload`. None (default): do not look for events to offload.
    """
    found = find_stream(tx, name)
    if found is None or not has_policy(found.value):
        return None
    stream = found.value
    wanted = (look(tx, stream) for look in _looks(passed).values())
    return PolicyLook(name, tuple([each for each in wanted if each is not None]), _pause_ms(stream))


def wanted_request(tx: Tx, name: str, kind: str, passed: PassedOffsets) -> Wanted | None:
    """Return what the policies of a stream ask for now, of this kind; None if they ask for none."""
    found = find_stream(tx, name)
    return None if found is None else _looks(passed)[kind](tx, found.value)


def _looks(passed: PassedOffsets | None) -> Mapping[str, Callable[[Tx, StreamRecord], Wanted | None]]:
    """Return what finds out what each policy asks for, by the kind of its request or task."""
    # The scale first: its rates need the events that the truncation removes.
    looks = {ScaleStream.kind: wanted_scale, TruncateStream.kind: wanted_truncation}
    return looks if passed is None else {**looks, OffloadTask.kind: partial(wanted_offload, passed=passed)}


def _pause_ms(stream: StreamRecord) -> int:
    scaling = stream.config.scaling
    if not scaling.goes_by_rate:
        return RETENTION_MS
    return min(windows_ms(scaling)[0] // LOOKS_A_WINDOW, RETENTION_MS)
