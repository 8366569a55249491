"""Reader groups, consumer groups and share groups, as an operator changes them: beside what `operator_calls` shows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, TypeAlias

import attrs

from eventproc.groups import GroupCheckpoint, GroupInfo, GroupStart, ShareGroupDescription
from eventproc.groups.position_texts import parse_group_start
from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import DIRECTORY, calling, listing, named
from eventproc.server.rest.operator_calls import GROUP, GroupReport, Position, group_report
from eventproc.server.rest.routes import (
    LocalName,
    OfScope,
    RestCall,
    ScopeName,
)
from eventproc.shares import ShareGroup
from eventproc.store.access.permissions import Permission
from eventproc.store.groups import (
    DELIVERIES_MAX,
    EQUAL,
    LOCK_MS,
    DeletedPolicy,
    RetainedPart,
    TruncatedPolicy,
)
from eventproc.store.records.plain import Limits
from eventproc.topics import Group, PartitionOffsets

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
    """A group of readers or consumers to create. patience_ms, checkpoint_ms: null: none."""

    name: str
    streams: Streams
    start: Start = ("head",)
    patience_ms: int | None = None
    checkpoint_ms: int | None = None
    on_truncated: TruncatedPolicy = "earliest"
    on_deleted: DeletedPolicy = "error"
    assignor: str = EQUAL
    retains: RetainedPart | None = "progress"


@attrs.frozen(kw_only=True)
class OptionsBody:
    """All options that can be changed, as `options` of the group shows them."""

    patience_ms: int | None
    checkpoint_ms: int | None
    on_truncated: TruncatedPolicy
    assignor: str
    retains: RetainedPart | None


@attrs.frozen
class CheckpointBody:
    """A checkpoint to create. name: null: a new one."""

    name: str | None = None


async def create_group(call: RestCall, scope: ScopeName, body: GroupBody) -> GroupReport:
    """Create a group of readers or consumers that share streams."""
    start = await _start(call, body.streams, body.start)
    found = await call.ep.create_group(f"{scope}/{body.name}", body.streams, start=start, **_options(body))
    return await group_report(found)


update_group = calling("update_group", Group.update, GROUP, GroupReport, then=group_report, body=OptionsBody)
create_checkpoint = calling(
    "create_checkpoint", Group.checkpoint, GROUP, GroupCheckpoint, body=CheckpointBody
)
list_checkpoints = calling("list_checkpoints", Group.checkpoints, GROUP, tuple[GroupCheckpoint, ...])
take_reader_offline = calling(
    *("take_reader_offline", Group.reader_offline, GROUP, type(None)),
    reader=Annotated[str, Limits(about="Name of the reader.")],
)
list_offsets = calling("list_offsets", Group.offsets, named(Eventproc.group), tuple[PartitionOffsets, ...])


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


SHARE: Final = named(Eventproc.share_group)

list_shares = listing("list_shares", Eventproc.share_groups, DIRECTORY, GroupInfo, scope=OfScope)
describe_share = calling("describe_share", ShareGroup.describe, SHARE, ShareGroupDescription)
delete_share = calling("delete_share", ShareGroup.delete, SHARE, type(None))


async def create_share(call: RestCall, scope: ScopeName, body: ShareBody) -> ShareGroupDescription:
    """Create a share group."""
    start = await _start(call, body.streams, body.start)
    found = await call.ep.create_share_group(
        f"{scope}/{body.name}", body.streams, start=start, **_options(body)
    )
    return await found.describe()


async def reset_share(
    call: RestCall, scope: ScopeName, group: LocalName, body: ShareStart
) -> ShareGroupDescription:
    """Move a share group to another position."""
    found = await call.ep.share_group(f"{scope}/{group}")
    streams = [each.name for each in (await found.info()).streams]
    await found.reset(await _start(call, streams, body.to))
    return await found.describe()


async def _start(call: RestCall, streams: Sequence[str], texts: Sequence[str]) -> GroupStart:
    """Return where a group begins. Raises NotPermitted if the caller may not read a stream."""
    for each in streams:
        call.caller.verify(Permission.READ, each)
    return parse_group_start(texts, {each: (await call.ep.stream(each)).stream_id for each in streams})


def _options(body: GroupBody | ShareBody) -> dict[str, Any]:
    given = ("name", "streams", "start")
    return {name: value for name, value in attrs.asdict(body, recurse=False).items() if name not in given}
