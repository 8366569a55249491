"""The requests to change a stream or a scope, as values.

What a caller asks for is an `Operation`; `plan` makes the recorded request of it, in the transaction that records it.
A recorded request names its stream by id, so a request for a deleted stream never runs on a new stream of the same name
(pravega.md 3.7, the replay of a delete). The exception is CreateStream, which makes a stream.

Every request is an operation as well. One that names its stream by PRESENT is planned by looking up the id. Others are
planned from more of the present state, such as the range of the segment to split. A repeated call must not look at that
again, as the first one has changed it: it is recognised by what it asks for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Protocol, TypeAlias, cast

import attrs

from eventproc.store.catalog import StreamRecord, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import (
    check_int,
    check_iterable,
    check_mapping,
    check_str,
)
from eventproc.store.model.ids import SegmentId, as_segments
from eventproc.store.model.policies import Partitioning, StreamConfig, as_config
from eventproc.store.model.ranges import KeyRange
from eventproc.store.model.short_repr import short_repr_of_fields

PRESENT: Final = 0
"""In place of the id of a stream: the one that has the name when the request is recorded. No stream has this id."""


class Operation(Protocol):
    """A change as a caller asks for it; an attrs class, whose fields are what is compared with a repeated call.

    kind: of the request that it is planned as.
    """

    kind: ClassVar[str]

    @property
    def target(self) -> str:
        """What it changes: "scope/stream", or a scope."""
        ...

    def plan(self, tx: Tx) -> AnyRequest:
        """Return the request to record. Raises what refuses the operation already now."""
        ...


def _sorted_ids(segments: Iterable[SegmentId]) -> tuple[SegmentId, ...]:
    return tuple(sorted(set(as_segments(segments))))


def _sorted_offsets(offsets: Mapping[SegmentId, int]) -> dict[SegmentId, int]:
    reason = "it must be a mapping of segment ids to offsets"
    return dict(sorted(check_mapping("offsets", offsets, reason).items()))


def _checked_version(version: int | None) -> int | None:
    return None if version is None else check_int("if_version", version, least=1)


def _checked_fields(fields: Iterable[str] | None) -> tuple[str, ...] | None:
    if fields is None:
        return None
    return tuple([check_str("fields", each) for each in check_iterable("fields", fields, "it must be names")])


def _new_config(value: StreamConfig) -> StreamConfig:
    config = as_config(value)
    if config.is_topic and config.partitioning is None:
        return attrs.evolve(config, partitioning=Partitioning.KEY)
    return config


@attrs.frozen
class CreateStream:
    """Create a stream. An existing stream with an equal configuration is left as it is.

    Making one raises InvalidArgument for a configuration that no stream can have.
    """

    kind: ClassVar[str] = "create"
    stream: str
    config: StreamConfig = attrs.field(converter=_new_config)

    @property
    def target(self) -> str:
        """The stream's name."""
        return self.stream

    def plan(self, tx: Tx) -> CreateStream:
        """See `Operation`."""
        return self


@attrs.frozen
class OfStream:
    """A change of one stream.

    stream_id: its id; 0 (PRESENT): of the stream that has the name when the request is recorded.
    if_version: the version that the stream must have when the change begins; in any other one the change is refused
        with StaleVersion. None (default): any version.
    """

    kind: ClassVar[str]
    stream: str
    stream_id: int
    if_version: int | None = attrs.field(default=None, kw_only=True, converter=_checked_version)

    @property
    def target(self) -> str:
        """The stream's name."""
        return self.stream

    def plan(self, tx: Tx) -> AnyRequest:
        """See `Operation`."""
        known = (
            self if self.stream_id != PRESENT else attrs.evolve(self, stream_id=stream_of(tx, self).stream_id)
        )
        return cast("AnyRequest", known)


def stream_of(tx: Tx, change: OfStream) -> StreamRecord:
    """Return the stream that a change is of. Raises NotFound, StreamReplaced, StaleVersion."""
    stream_id = None if change.stream_id == PRESENT else change.stream_id
    return get_stream(tx, change.stream, stream_id=stream_id, if_version=change.if_version).value


@attrs.frozen
class UpdateStream(OfStream):
    """Change the configuration. With a fixed policy the number of segments changes in the same transaction.

    keep_segments: leave the number of segments as it is, also if scales have changed it since.
    fields: names of the fields of `config` that change, or of one limit, such as "retention.age_ms" and
        "scaling.factor"; the others stay as they are when the request runs, and `config` has their defaults here.
        None: all.
    """

    kind: ClassVar[str] = "update"
    config: StreamConfig
    keep_segments: bool = False
    fields: tuple[str, ...] | None = attrs.field(default=None, converter=_checked_fields)

    def __attrs_post_init__(self) -> None:
        """Forget what does not change, so that equal updates are equal whatever the stream had."""
        if self.fields is not None:
            object.__setattr__(self, "config", StreamConfig().with_fields(self.config, self.fields))


@attrs.frozen
class ScaleStream(OfStream):
    """Seal active segments and open new ones over exactly the same key space.

    reason: why a policy asks for it; empty for the request of a person.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "scale"
    # Sorted, so that equal requests are equal in whichever order their callers listed the segments.
    seal: tuple[SegmentId, ...] = attrs.field(converter=_sorted_ids)
    ranges: tuple[KeyRange, ...]
    reason: str = ""


@attrs.frozen
class TruncateStream(OfStream):
    """Move the head of the stream to a cut.

    offsets: those of the cut, -1 for a segment that begins after it.
    """

    __repr__ = short_repr_of_fields

    kind: ClassVar[str] = "truncate"
    offsets: dict[SegmentId, int] = attrs.field(converter=_sorted_offsets)


@attrs.frozen
class SealStream(OfStream):
    """Seal the stream: it accepts no more appends."""

    kind: ClassVar[str] = "seal"


@attrs.frozen
class DeleteStream(OfStream):
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

    def plan(self, tx: Tx) -> DeleteScope:
        """See `Operation`."""
        return self


AnyRequest: TypeAlias = (
    CreateStream | UpdateStream | ScaleStream | TruncateStream | SealStream | DeleteStream | DeleteScope
)
