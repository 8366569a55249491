"""One look at a stream: everything that its policies ask for now, and when to look again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar, Final, TypeAlias

import attrs

from eventproc.store.catalog import StreamRecord, find_stream
from eventproc.store.database import Tx
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import KEEP_ALL, OFFLOAD_NOTHING
from eventproc.store.model.scaling import windows_ms
from eventproc.store.model.short_repr import short_repr_of_fields
from eventproc.workflows.policies.offload import OffloadTask, PassedOffsets, wanted_offload
from eventproc.workflows.policies.retention import wanted_truncation
from eventproc.workflows.policies.scaling import wanted_scale
from eventproc.workflows.requests import ScaleStream, TruncateStream

STREAMS_A_STEP: Final = 1_024
"""Streams that one step of a walk over all streams reads. Higher: longer reads than 2 ms; lower: more of them."""

RETENTION_MS: Final = 60_000
"""Pause between two looks at a stream with a policy of retention, offload or compaction: how long it may lag behind.
Lower: more reads. One takes less than 2 ms for an age, and 0.4 ms for each segment of a stream with a limit of size."""

LOOKS_A_WINDOW: Final = 4
"""Looks at a stream that is scaled by its rate during its shortest window. Higher: a burst is noticed sooner, by less
than a window, and each look takes about 0.3 ms."""


@attrs.frozen
class CompactTopicTask:
    """Remove the events of a topic that its policy of compaction no longer keeps, as `Topic.compact`.

    Progress counts bytes. topic: "scope/topic".
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "compact-topic"
    topic: str

    def __attrs_post_init__(self) -> None:
        StreamName.parse(self.topic)

    @property
    def resource(self) -> str:
        """What no other task works on meanwhile."""
        return f"stream {self.topic}"


Wanted: TypeAlias = ScaleStream | TruncateStream | OffloadTask | CompactTopicTask
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

    Only an offload or a compaction goes on after the stream was sealed.
    """
    config = stream.config
    changes = stream.is_writable and (config.retention != KEEP_ALL or config.scaling.goes_by_rate)
    return changes or config.offload != OFFLOAD_NOTHING or config.is_compacted


def look_at_stream(tx: Tx, name: str, passed: PassedOffsets | None = None) -> PolicyLook | None:
    """Return what the policies of a stream ask for now; None if it has none, or does not exist any more.

    passed: as for `wanted_offload`. None (default): do not look for events to offload or compact.
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
    if passed is None:
        return looks
    offload = partial(wanted_offload, passed=passed)
    return {**looks, OffloadTask.kind: offload, CompactTopicTask.kind: wanted_compaction}


def wanted_compaction(tx: Tx, stream: StreamRecord) -> CompactTopicTask | None:
    """Return the compaction that the policy of a topic asks for now, None if it asks for none."""
    if not stream.config.is_compacted:
        return None
    from eventproc.workflows.policies.compaction import needs_compaction  # few programs need it

    return CompactTopicTask(stream.name) if needs_compaction(tx, stream) else None


def _pause_ms(stream: StreamRecord) -> int:
    scaling = stream.config.scaling
    if not scaling.goes_by_rate:
        return RETENTION_MS
    return min(windows_ms(scaling)[0] // LOOKS_A_WINDOW, RETENTION_MS)
