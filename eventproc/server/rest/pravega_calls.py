"""Pravega's calls on scopes, streams and reader groups: /v1."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import attrs

from eventproc.groups import list_groups
from eventproc.server.rest.pravega_values import (
    CreateStreamRequest,
    ReaderGroupName,
    ReaderGroupProperty,
    ReaderGroupsList,
    RetentionConfig,
    ScaledSegment,
    ScaleMetadata,
    ScalingConfig,
    ScopeProperty,
    ScopesList,
    StateChange,
    StreamFilter,
    StreamProperty,
    StreamsList,
    UpdateStreamRequest,
)
from eventproc.server.rest.routes import (
    PAGE_ENTRIES_MAX,
    Linked,
    LocalName,
    PageLimit,
    RestCall,
    ScopeName,
    linked_page,
)
from eventproc.server.writable_streams import writable_policy
from eventproc.store.catalog import (
    SCOPE,
    StoredHistory,
    StreamRecord,
    find_stream,
    get_scope,
    get_stream,
    list_streams as list_streams_of,
    scope_names,
)
from eventproc.store.database import Tx
from eventproc.store.faults import Step
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import AlreadyExists
from eventproc.store.model.ids import SegmentId, epoch_of, number_of
from eventproc.store.model.list_pages import chosen_entries
from eventproc.store.model.names import StreamName, check_scope_name
from eventproc.store.model.policies import (
    ID_WINDOW_MS,
    OFFLOAD_NOTHING,
    OffloadPolicy,
    RetentionPolicy,
    ScalingPolicy,
    StreamConfig,
    as_tags,
)
from eventproc.store.records import find
from eventproc.store.records.plain import Limits
from eventproc.workflows.requests import (
    PRESENT,
    CreateStream,
    DeleteStream,
    OfStream,
    SealStream,
    UpdateStream,
    stream_of,
)
from eventproc.workflows.scopes import create_scope as create_scope_record

PAGE_SEGMENTS_MAX: Final = 10_000
"""Segments of all epochs on a page of scales. Higher: responses of more than 1 MB."""

AfterName: TypeAlias = Annotated[
    str | None, Limits(about="The last name of the previous page, as its link says.")
]
TimeMs = Annotated[int, Limits(0, about="Wall time, in ms since 1970.")]


async def list_scopes(
    call: RestCall, after: AfterName = None, limit: PageLimit = PAGE_ENTRIES_MAX
) -> Linked[ScopesList]:
    """List the scopes that the caller may read."""
    found = await call.ep.db.read(partial(scope_names, page=call.caller.page(after, limit + 1)))
    return linked_page(found, limit, str, lambda names: ScopesList(tuple(map(ScopeProperty, names))))


async def create_scope(call: RestCall, body: ScopeProperty) -> ScopeProperty:
    """Create a scope. Whether it exists is decided in the transaction that would create it."""

    def make(tx: Tx) -> None:
        check_scope_name(body.scope_name)
        if find(tx, SCOPE, body.scope_name) is not None:
            raise AlreadyExists(kind="scope", name=body.scope_name)
        create_scope_record(tx, body.scope_name)

    await call.ep.db.write(make, step=Step.SCOPE_CREATE)
    return body


async def get_scope_of(call: RestCall, scope: ScopeName) -> ScopeProperty:
    """Show a scope."""
    check_scope_name(scope)
    return ScopeProperty((await call.ep.db.read(lambda tx: get_scope(tx, scope))).value.name)


async def delete_scope(call: RestCall, scope: ScopeName) -> None:
    """Delete a scope without streams and reader groups."""
    await call.ep.delete_scope(scope)


async def list_streams(
    call: RestCall,
    scope: ScopeName,
    filter_type: Annotated[StreamFilter | None, Limits(about="By what to list.")] = None,
    filter_value: Annotated[str | None, Limits(about="The tag; else any value.")] = None,
    after: AfterName = None,
    limit: PageLimit = PAGE_ENTRIES_MAX,
) -> Linked[StreamsList]:
    """List the streams of a scope that the caller may read: all but internal ones, these, or those with a tag."""
    check_scope_name(scope)
    if filter_type is StreamFilter.TAG and not filter_value:
        raise invalid_argument("filter_value", filter_value, "it must be the tag")
    tag = filter_value if filter_type is StreamFilter.TAG else None
    internal = filter_type is StreamFilter.INTERNAL
    page = call.caller.page(_full_name(scope, after), limit + 1, "_" if internal else "")

    def look(tx: Tx) -> list[StreamRecord]:
        streams = partial(list_streams_of, tx, scope, tag=tag)
        return chosen_entries(
            streams, lambda each: _local(each.name).startswith("_") == internal, lambda each: each.name, page
        )

    found = await call.ep.db.read(look)
    return linked_page(
        found,
        limit,
        lambda each: _local(each.name),
        lambda streams: StreamsList(tuple(map(_property, streams))),
    )


@attrs.frozen
class NewStream(CreateStream):
    """Create a stream that does not exist."""

    def plan(self, tx: Tx) -> CreateStream:
        """See `Operation`. Raises AlreadyExists."""
        if find_stream(tx, self.stream) is not None:
            raise AlreadyExists(kind="stream", name=self.stream)
        return CreateStream(self.stream, self.config)


async def create_stream(call: RestCall, scope: ScopeName, body: CreateStreamRequest) -> StreamProperty:
    """Create a stream."""
    name = str(StreamName.parse(f"{scope}/{body.stream_name}"))
    body.verify_enforced()
    asked = ScalingPolicy.fixed(1) if body.scaling_policy is None else body.scaling_policy.policy()
    scaling = writable_policy(asked)
    config = StreamConfig(
        scaling,
        retention=body.retention(),
        tags=as_tags(body.stream_tags or ()),
        offload=body.offload() or OFFLOAD_NOTHING,
        id_window_ms=body.id_window_ms or ID_WINDOW_MS,
    )

    await call.run(NewStream(name, config))
    return await get_stream_of(call, scope, body.stream_name)


async def get_stream_of(call: RestCall, scope: ScopeName, stream: LocalName) -> StreamProperty:
    """Show a stream's configuration."""
    return await call.ep.db.read(lambda tx: _property(_found(tx, scope, stream)))


@attrs.frozen
class ReplaceConfig(OfStream):
    """Replace what Pravega knows of a stream's configuration. scaling, offload, id_window_ms: None: as it is.

    A policy that is asked for as `get_stream_of` shows the present one stays: Pravega has no form for all of it.
    """

    kind: ClassVar[str] = UpdateStream.kind
    retention: RetentionPolicy
    tags: tuple[str, ...]
    scaling: ScalingPolicy | None
    offload: OffloadPolicy | None
    id_window_ms: int | None = None

    def plan(self, tx: Tx) -> UpdateStream:
        """See `Operation`. Raises InvalidArgument if the stream is a topic that would be scaled."""
        found = stream_of(tx, self)
        present = found.config
        if present.is_topic and self.scaling is not None:
            raise invalid_argument("scalingPolicy", found.name, "it is a topic, which has partitions")
        scaling = present.scaling if self.scaling is None else self.scaling
        if ScalingConfig.of(scaling) == ScalingConfig.of(present.scaling):
            scaling = present.scaling
        else:
            scaling = writable_policy(scaling)
        keeps = scaling == present.scaling
        changes: dict[str, Any] = {"tags": self.tags}
        if RetentionConfig.of(self.retention) != RetentionConfig.of(present.retention):
            changes["retention"] = self.retention
        changes |= {} if keeps else {"scaling": scaling}
        changes |= {} if self.offload is None else {"offload": self.offload}
        changes |= {} if self.id_window_ms is None else {"id_window_ms": self.id_window_ms}
        config, fields = attrs.evolve(present, **changes), tuple(changes)
        return UpdateStream(found.name, found.stream_id, config, keep_segments=keeps, fields=fields)


async def update_stream(
    call: RestCall, scope: ScopeName, stream: LocalName, body: UpdateStreamRequest
) -> StreamProperty:
    """Replace a stream's configuration."""
    body.verify_enforced()
    asked = ReplaceConfig(
        *(f"{scope}/{stream}", PRESENT, body.retention(), as_tags(body.stream_tags or ())),
        None if body.scaling_policy is None else body.scaling_policy.policy(),
        body.offload(),
        body.id_window_ms,
    )
    await call.run(asked)
    return await get_stream_of(call, scope, stream)


async def delete_stream(call: RestCall, scope: ScopeName, stream: LocalName) -> None:
    """Delete a sealed stream with its events."""

    await call.run(DeleteStream(f"{scope}/{stream}", PRESENT))


async def update_stream_state(
    call: RestCall, scope: ScopeName, stream: LocalName, body: StateChange
) -> StateChange:
    """Seal a stream for ever."""

    await call.run(SealStream(f"{scope}/{stream}", PRESENT))
    return body


async def get_scaling_events(
    call: RestCall,
    scope: ScopeName,
    stream: LocalName,
    from_: TimeMs,
    to: TimeMs,
    after: Annotated[int | None, Limits(0, about="From the link of the previous page.")] = None,
    limit: PageLimit = PAGE_ENTRIES_MAX,
) -> Linked[tuple[ScaleMetadata, ...]]:
    """List the scales between two times, after the latest one before them. A page may have fewer than `limit`."""
    if from_ > to:
        raise invalid_argument("from", from_, f"it is after to, {to}")

    def look(tx: Tx) -> Linked[tuple[ScaleMetadata, ...]]:
        history = StoredHistory(tx, _found(tx, scope, stream))
        first, last = history.number_at(from_), history.number_at(to)
        before = None if after is None or after < first else history.epoch(max(after, history.first))
        scales: list[ScaleMetadata] = []
        segments = 0
        for number in range(first if before is None else before.number + 1, last + 1):
            epoch = history.epoch(number)
            if epoch.created_ms > to:  # the stream was created later
                break
            if len(scales) == limit or (scales and segments + len(epoch.segments) > PAGE_SEGMENTS_MAX):
                return Linked(tuple(scales), str(number - 1))
            segments += len(epoch.segments)
            scales.append(_scale(epoch, before, history))
            before = epoch
        return Linked(tuple(scales), None)

    return await call.ep.db.read(look)


async def list_reader_groups(
    call: RestCall, scope: ScopeName, after: AfterName = None, limit: PageLimit = PAGE_ENTRIES_MAX
) -> Linked[ReaderGroupsList]:
    """List the reader groups of a scope that the caller may read, with all of their streams."""
    check_scope_name(scope)
    page = call.caller.page(_full_name(scope, after), limit + 1)
    found = await call.ep.db.read(partial(list_groups, scope=scope, page=page))
    names = [_local(each.name) for each in found]
    return linked_page(names, limit, str, lambda names: ReaderGroupsList(tuple(map(ReaderGroupName, names))))


async def get_reader_group(call: RestCall, scope: ScopeName, group: LocalName) -> ReaderGroupProperty:
    """Show a reader group."""
    found = await (await call.ep.group(f"{scope}/{group}")).describe()
    call.caller.verify_streams(found.name, [each.name for each in found.streams])
    return ReaderGroupProperty(
        scope_name=scope,
        reader_group_name=group,
        stream_list=tuple(each.name for each in found.streams),
        online_reader_ids=tuple(each.reader for each in found.members if not each.away),
    )


async def delete_reader_group(call: RestCall, scope: ScopeName, group: LocalName) -> None:
    """Delete a reader group and its progress. Its readers are fenced."""
    await (await call.ep.group(f"{scope}/{group}")).delete()


def _found(tx: Tx, scope: str, stream: str) -> StreamRecord:
    return get_stream(tx, str(StreamName.parse(f"{scope}/{stream}"))).value


def _full_name(scope: str, name: str | None) -> str | None:
    return None if name is None else f"{scope}/{name}"


def _local(name: str) -> str:
    """Return the name of a stream or group in its scope."""
    return name.partition("/")[2]


def _property(stream: StreamRecord) -> StreamProperty:
    scope, _, name = stream.name.partition("/")
    return StreamProperty(
        scope_name=scope,
        stream_name=name,
        scaling_policy=ScalingConfig.of(stream.config.scaling),
        retention_policy=RetentionConfig.of(stream.config.retention),
        tags=stream.config.tags,
        timestamp_aggregation_timeout=0,
        rollover_size_bytes=0,
    )


def _scale(epoch: Epoch, before: Epoch | None, history: StoredHistory) -> ScaleMetadata:
    """Return an epoch, with the splits and merges since the one before in the list."""
    segments = tuple(
        ScaledSegment(number_of(each.id), _created_ms(each.id, history), each.range.low, each.range.high)
        for each in epoch.segments
    )
    splits = 0 if before is None else epoch.splits - before.splits
    merges = 0 if before is None else epoch.merges - before.merges
    return ScaleMetadata(epoch.created_ms, segments, splits, merges)


def _created_ms(segment: SegmentId, history: StoredHistory) -> int:
    """Return when the segment's epoch began; that of the oldest epoch kept for an older segment."""
    return history.epoch(max(epoch_of(segment), history.first)).created_ms
