"""The requests: what may be asked of a stream or a scope, as values.

A request names its stream by incarnation, so that one that was decided for a deleted stream is never run
on its successor (pravega.md 3.7, the replay of a delete). Create is the exception: it makes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, TypeAlias

import attrs

from eventproc.store.model.argument_checks import check_mapping
from eventproc.store.model.ids import SegmentId, as_segments
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.ranges import KeyRange


def _sorted_ids(segments: Iterable[SegmentId]) -> tuple[SegmentId, ...]:
    return tuple(sorted(set(as_segments(segments))))


def _sorted_offsets(offsets: Mapping[SegmentId, int]) -> dict[SegmentId, int]:
    reason = "it must be a mapping of segment ids to offsets"
    return dict(sorted(check_mapping("offsets", offsets, reason).items()))


@attrs.frozen
class CreateStream:
    """Make a stream; one that is there with an equal configuration is fine."""

    kind: ClassVar[str] = "create"
    stream: str
    config: StreamConfig

    @property
    def target(self) -> str:
        """The stream's name."""
        return self.stream


@attrs.frozen
class _OfStream:
    stream: str
    stream_id: int

    @property
    def target(self) -> str:
        """The stream's name."""
        return self.stream


@attrs.frozen
class UpdateStream(_OfStream):
    """Replace the configuration; the number of segments follows a fixed policy at once."""

    kind: ClassVar[str] = "update"
    config: StreamConfig


@attrs.frozen
class ScaleStream(_OfStream):
    """Seal active segments and open new ones over exactly the same key space."""

    kind: ClassVar[str] = "scale"
    # In one order, so that the same request asked twice is equal however its caller listed the segments.
    seal: tuple[SegmentId, ...] = attrs.field(converter=_sorted_ids)
    ranges: tuple[KeyRange, ...]


@attrs.frozen
class TruncateStream(_OfStream):
    """Move the head of the stream to a cut; `offsets` are those of the cut, -1 for a segment after it."""

    kind: ClassVar[str] = "truncate"
    offsets: dict[SegmentId, int] = attrs.field(converter=_sorted_offsets)


@attrs.frozen
class SealStream(_OfStream):
    """End the stream: no more appends, for ever."""

    kind: ClassVar[str] = "seal"


@attrs.frozen
class DeleteStream(_OfStream):
    """Delete a sealed stream and free its bytes."""

    kind: ClassVar[str] = "delete"


@attrs.frozen
class DeleteScope:
    """Delete every group of a scope, seal and delete every stream of it, then delete the scope."""

    kind: ClassVar[str] = "delete_scope"
    scope: str

    @property
    def target(self) -> str:
        """The scope's name."""
        return self.scope


AnyRequest: TypeAlias = (
    CreateStream | UpdateStream | ScaleStream | TruncateStream | SealStream | DeleteStream | DeleteScope
)
