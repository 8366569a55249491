"""The controller's calls on reader groups, and on the groups that subscribe to a stream's retention by consumption."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final
from uuid import UUID

from eventproc.base.clock import new_id
from eventproc.groups.pravega_groups import (
    create_pravega_group,
    delete_pravega_group,
    find_pravega_group,
    release_stream,
    update_pravega_group,
)
from eventproc.server.access.authority import Caller
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import cut_of, info_of, name_of
from eventproc.store.access.permissions import Permission
from eventproc.store.catalog import get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.groups import consuming_groups
from eventproc.store.groups.pravega_groups import PravegaGroup, Release
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.names import StreamName

NO_GROUP_ID: Final = UUID(int=0)
"""The id of a group that has none yet."""

RELEASES: Final[tuple[Release, ...]] = ("none", "manual", "automatic")
"""Kinds of retention by consumption, by their numbers in the protocol."""

Cuts = Mapping[str, Mapping[SegmentId, int]]


class GroupCalls:
    """Answers calls on reader groups and subscribers. db: the open database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def create(
        self, request: pb.ReaderGroupConfiguration, caller: Caller
    ) -> pb.CreateReaderGroupResponse:
        """Create a group, or return the configuration of the one that exists; its client compares them.

        Raises NotPermitted without READ on each stream: a group may hold up the retention of what it reads.
        """
        name = str(StreamName.parse(f"{request.scope}/{request.readerGroupName}"))
        asked = self._asked(request, caller)
        group = await self.db.write(partial(create_pravega_group, name=name, asked=asked))
        caller.verify_streams(name, group.starts)  # of a group that existed
        return pb.CreateReaderGroupResponse(config=_message(name, group))

    async def config(self, request: pb.ReaderGroupInfo, caller: Caller) -> pb.ReaderGroupConfigResponse:
        """Return the configuration of a group. Raises NotPermitted without READ on each of its streams."""
        name = _group_name(request)
        found = await self.db.read(partial(find_pravega_group, name=name))
        caller.verify_streams(name, found.value.starts)
        return pb.ReaderGroupConfigResponse(config=_message(name, found.value))

    async def update(
        self, request: pb.ReaderGroupConfiguration, caller: Caller
    ) -> pb.UpdateReaderGroupResponse:
        """Replace the configuration of a group.

        After INVALID_CONFIG a client reads the present configuration, and tries again without end. So only another id
        or generation has this status. Raises NotPermitted as `create`, and NotFound for a stream.
        """
        name, asked = f"{request.scope}/{request.readerGroupName}", self._asked(request, caller)
        generation = await self.db.write(partial(update_pravega_group, name=name, asked=asked))
        return pb.UpdateReaderGroupResponse(generation=generation)

    async def delete(self, request: pb.ReaderGroupInfo) -> pb.DeleteReaderGroupStatus:
        """Delete a group and its log."""
        name, group_id = _group_name(request), request.readerGroupId
        await self.db.write(partial(delete_pravega_group, name=name, group_id=group_id))
        return pb.DeleteReaderGroupStatus()

    async def subscribers(self, request: pb.StreamInfo, caller: Caller) -> pb.SubscribersResponse:
        """Return the groups that retention by consumption of a stream waits for, those of other clients, too.

        Only those that the caller may read.
        """

        def look(tx: Tx) -> list[str]:
            found = consuming_groups(tx, get_stream(tx, name_of(request)).value)
            return [each for each in found if caller.may(Permission.READ, each)]

        return pb.SubscribersResponse(subscribers=await self.db.read(look))

    async def release(self, request: pb.SubscriberStreamCut, caller: Caller) -> pb.UpdateSubscriberStatus:
        """Let a stream be truncated up to a cut, as far as a subscriber is concerned, "scope/group".

        Raises NotPermitted without READ_UPDATE on the subscriber.
        """
        caller.verify(Permission.READ_UPDATE, request.subscriber)
        release = partial(
            release_stream,
            name=request.subscriber,
            group_id=request.readerGroupId,
            generation=request.generation,
            stream=name_of(request.streamCut.streamInfo),
            offsets=cut_of(request.streamCut.cut),
        )
        await self.db.write(release)
        return pb.UpdateSubscriberStatus()

    def _asked(self, request: pb.ReaderGroupConfiguration, caller: Caller) -> PravegaGroup:
        """Return what a client asks for. Raises InvalidArgument, NotPermitted."""
        if not 0 <= request.retentionType < len(RELEASES):
            raise invalid_argument("retention type", request.retentionType, "no retention has that number")
        starts, ends = _cuts_of(request.startingStreamCuts), _cuts_of(request.endingStreamCuts)
        for stream in starts:
            caller.verify(Permission.READ, stream)
        if strangers := sorted(ends.keys() - starts.keys()):
            raise invalid_argument("end", strangers[0], "the group does not read this stream")
        return PravegaGroup(
            group_id=str(self._group_id(request.readerGroupId)),
            generation=request.generation,
            refresh_ms=request.groupRefreshTimeMillis,
            checkpoint_ms=request.automaticCheckpointIntervalMillis,
            checkpoints_max=request.maxOutstandingCheckpointRequest,
            release=RELEASES[request.retentionType],
            rollover_bytes=request.rolloverSizeBytes,
            starts=starts,
            ends=ends,
        )

    def _group_id(self, text: str) -> UUID:
        try:
            found = UUID(text) if text else NO_GROUP_ID
        except ValueError:
            raise invalid_argument("id of the group", text, "it must be a UUID") from None
        return UUID(new_id(self.db.clock)) if found == NO_GROUP_ID else found


def _group_name(request: pb.ReaderGroupInfo) -> str:
    return f"{request.scope}/{request.readerGroup}"


def _cuts_of(messages: Iterable[pb.StreamCut]) -> Cuts:
    return {name_of(each.streamInfo): cut_of(each.cut) for each in messages}


def _message(name: str, group: PravegaGroup) -> pb.ReaderGroupConfiguration:
    """Return the configuration as clients gave it, which they compare with theirs."""
    scope, _, local = name.partition("/")
    return pb.ReaderGroupConfiguration(
        scope=scope,
        readerGroupName=local,
        groupRefreshTimeMillis=group.refresh_ms,
        automaticCheckpointIntervalMillis=group.checkpoint_ms,
        maxOutstandingCheckpointRequest=group.checkpoints_max,
        retentionType=RELEASES.index(group.release),
        generation=group.generation,
        readerGroupId=group.group_id,
        startingStreamCuts=_messages_of(group.starts),
        endingStreamCuts=_messages_of(group.ends),
        rolloverSizeBytes=group.rollover_bytes,
    )


def _messages_of(cuts: Cuts) -> list[pb.StreamCut]:
    return [
        pb.StreamCut(
            streamInfo=info_of(stream), cut={int(segment): offset for segment, offset in cut.items()}
        )
        for stream, cut in cuts.items()
    ]
