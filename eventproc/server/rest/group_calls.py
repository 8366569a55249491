"""Reader groups, consumer groups and share groups, as an operator changes them: beside what `operator_calls` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import attrs

from eventproc.groups import GroupCheckpoint, GroupInfo, GroupStart, ShareGroupDescription
from eventproc.groups.position_texts import parse_group_start
from eventproc.server.rest.operator_calls import GroupReport, Position, describe_group
from eventproc.server.rest.routes import PAGE, After, LocalName, Page, PageLimit, RestCall, ScopeName, page_of
from eventproc.store.access.permissions import Permission
from eventproc.store.groups import DELIVERIES_MAX, EQUAL, LOCK_MS, RetainedPart, TruncatedPolicy
from eventproc.store.records.plain import Limits
from eventproc.topics import PartitionOffsets

STREAMS_MAX = 1_000
"""Streams that a call names. Higher: longer transactions."""

Streams: TypeAlias = Annotated[
    tuple[str, ...], Limits(1, STREAMS_MAX, "Streams, as scope/name. The caller needs READ on each.")
]
Start: TypeAlias = Annotated[
    tuple[Position, ...], Limits(1, STREAMS_MAX, "head, tail or a time; or cuts, at most one of each stream.")
]


@attrs.frozen(kw_only=True)
class GroupBody:
    """A reader group to create. lease_ms, checkpoint_ms: null: none."""

    name: str
    streams: Streams
    start: Start = ("head",)
    lease_ms: int | None = None
    checkpoint_ms: int | None = None
    on_truncated: TruncatedPolicy = "earliest"
    assignor: str = EQUAL
    retains: RetainedPart | None = "progress"


@attrs.frozen(kw_only=True)
class OptionsBody:
    """All options that can be changed, as `options` of the group shows them."""

    lease_ms: int | None
    checkpoint_ms: int | None
    rebalance_ms: int | None
    on_truncated: TruncatedPolicy
    assignor: str
    retains: RetainedPart | None


@attrs.frozen
class CheckpointBody:
    """A checkpoint to create. name: null: a new one."""

    name: str | None = None


@attrs.frozen
class Checkpoints:
    """The completed checkpoints that are still stored, the oldest first."""

    checkpoints: tuple[GroupCheckpoint, ...]


@attrs.frozen
class Offsets:
    """The offsets of a consumer group by partition."""

    partitions: tuple[PartitionOffsets, ...]


async def create_group(call: RestCall, scope: ScopeName, body: GroupBody) -> GroupReport:
    """Create a group of readers that share streams."""
    found = await call.ep.create_group(
        f"{scope}/{body.name}",
        body.streams,
        start=await _start(call, body.streams, body.start),
        lease_ms=body.lease_ms,
        checkpoint_ms=body.checkpoint_ms,
        on_truncated=body.on_truncated,
        assignor=body.assignor,
        retains=body.retains,
    )
    return await describe_group(call, scope, found.name.partition("/")[2])


async def update_group(call: RestCall, scope: ScopeName, group: LocalName, body: OptionsBody) -> GroupReport:
    """Replace the options of a group, whose readers stay online."""
    found = await call.ep.group(f"{scope}/{group}")
    await found.update(
        lease_ms=body.lease_ms,
        checkpoint_ms=body.checkpoint_ms,
        rebalance_ms=body.rebalance_ms,
        on_truncated=body.on_truncated,
        assignor=body.assignor,
        retains=body.retains,
    )
    return await describe_group(call, scope, group)


async def create_checkpoint(
    call: RestCall, scope: ScopeName, group: LocalName, body: CheckpointBody
) -> GroupCheckpoint:
    """Create a checkpoint, and show it when every reader has reported its position."""
    return await (await call.ep.group(f"{scope}/{group}")).checkpoint(body.name)


async def list_checkpoints(call: RestCall, scope: ScopeName, group: LocalName) -> Checkpoints:
    """List the completed checkpoints that are still stored."""
    return Checkpoints(tuple(await (await call.ep.group(f"{scope}/{group}")).checkpoints()))


async def take_reader_offline(
    call: RestCall,
    scope: ScopeName,
    group: LocalName,
    reader: Annotated[str, Limits(about="Name of the reader.")],
) -> None:
    """Remove a reader from its group. Others get its segments, from its last durable position."""
    await (await call.ep.group(f"{scope}/{group}")).reader_offline(reader)


async def list_offsets(call: RestCall, scope: ScopeName, group: LocalName) -> Offsets:
    """Show the offsets of a consumer group by partition."""
    return Offsets(await (await call.ep.group(f"{scope}/{group}")).offsets())


# Share groups.


@attrs.frozen(kw_only=True)
class ShareBody:
    """A share group to create."""

    name: str
    streams: Streams
    start: Start = ("head",)
    lock_ms: int = LOCK_MS
    deliveries_max: int = DELIVERIES_MAX


@attrs.frozen
class ShareStart:
    """The new position of a share group."""

    to: Start


async def list_shares(
    call: RestCall,
    scope: Annotated[str | None, Limits(about="Only share groups of this scope.")] = None,
    after: After = None,
    limit: PageLimit = PAGE,
) -> Page[GroupInfo]:
    """List share groups by name, with their lag and what is in flight."""
    found = await call.ep.share_groups(scope, after=after, limit=limit + 1)
    return page_of(found, limit, lambda each: each.name)


async def create_share(call: RestCall, scope: ScopeName, body: ShareBody) -> ShareGroupDescription:
    """Create a share group."""
    found = await call.ep.create_share_group(
        f"{scope}/{body.name}",
        body.streams,
        start=await _start(call, body.streams, body.start),
        lock_ms=body.lock_ms,
        deliveries_max=body.deliveries_max,
    )
    return await found.describe()


async def describe_share(call: RestCall, scope: ScopeName, group: LocalName) -> ShareGroupDescription:
    """Show a share group: its options, lag, deliveries, and the consumers that hold events."""
    return await (await call.ep.share_group(f"{scope}/{group}")).describe()


async def reset_share(
    call: RestCall, scope: ScopeName, group: LocalName, body: ShareStart
) -> ShareGroupDescription:
    """Move a share group to another position."""
    found = await call.ep.share_group(f"{scope}/{group}")
    streams = [each.name for each in (await found.info()).streams]
    await found.reset(await _start(call, streams, body.to))
    return await found.describe()


async def delete_share(call: RestCall, scope: ScopeName, group: LocalName) -> None:
    """Delete a share group with its progress."""
    await (await call.ep.share_group(f"{scope}/{group}")).delete()


async def _start(call: RestCall, streams: Sequence[str], texts: Sequence[str]) -> GroupStart:
    """Return where a group begins. Raises NotPermitted if the caller may not read a stream."""
    for each in streams:
        call.caller.verify(Permission.READ, each)
    return parse_group_start(texts, {each: (await call.ep.stream(each)).stream_id for each in streams})
