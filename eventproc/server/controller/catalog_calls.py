"""The controller's calls on scopes and streams: create, update, list, scale, truncate, seal, delete."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from eventproc.server.access.authority import Caller
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import (
    config_message,
    config_of,
    cut_of,
    info_of,
    name_of,
    segment_range,
)
from eventproc.store.catalog import (
    SCOPE,
    StoredHistory,
    find_stream,
    get_stream,
    list_streams,
    scope_names,
)
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.model.errors import InvalidArgument, NotFound, ScaleRefused, StreamSealed
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.ranges import KeyRange
from eventproc.store.records import find
from eventproc.streams.request_calls import run_request
from eventproc.workflows.requests import (
    PRESENT,
    CreateStream,
    DeleteScope,
    DeleteStream,
    Operation,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)
from eventproc.workflows.scopes import create_scope, delete_empty_scope


def differs(one: StreamConfig, other: StreamConfig, field: str) -> bool:
    """Return whether a field of two configurations differs."""
    return bool(getattr(one, field) != getattr(other, field))


PAGE_LENGTH: Final = 1_000
"""Names of one page of a listing."""


class CatalogCalls:
    """Answers calls on scopes and streams. db: the open database."""

    def __init__(self, db: Database) -> None:
        self.db = db

    async def create_scope(self, request: pb.ScopeInfo) -> pb.CreateScopeStatus:
        """Create a scope; EXISTS is decided in the transaction that would create it."""

        def make(tx: Tx) -> bool:
            exists = find(tx, SCOPE, request.scope) is not None
            create_scope(tx, request.scope)
            return exists

        exists, status = await self.db.write(make, step=Step.SCOPE_CREATE), pb.CreateScopeStatus
        return status(status=status.SCOPE_EXISTS if exists else status.SUCCESS)

    async def delete_scope(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        """Delete an empty scope."""
        await self.db.write(lambda tx: delete_empty_scope(tx, request.scope), step=Step.SCOPE_DELETE)
        return pb.DeleteScopeStatus()

    async def delete_scope_recursive(self, request: pb.ScopeInfo) -> pb.DeleteScopeStatus:
        """Delete a scope with all that is in it."""
        await run_request(self.db, DeleteScope(request.scope))
        return pb.DeleteScopeStatus()

    async def list_scopes(self, request: pb.ScopesRequest, caller: Caller) -> pb.ScopesResponse:
        """Return a page of the scopes that the caller may read. The client asks until a page is empty."""
        after = request.continuationToken.token
        names = await self.db.read(partial(scope_names, page=caller.page(after, PAGE_LENGTH)))
        token = pb.ContinuationToken(token=names[-1] if names else after)
        return pb.ScopesResponse(scopes=names, continuationToken=token)

    async def scope_exists(self, request: pb.ScopeInfo) -> pb.ExistsResponse:
        """Return whether a scope exists."""
        found = await self.db.read(lambda tx: find(tx, SCOPE, request.scope))
        return pb.ExistsResponse(exists=found is not None)

    async def create_stream(self, request: pb.StreamConfig) -> pb.CreateStreamStatus:
        """Create a stream. Raises InvalidArgument for a configuration that is not possible."""
        status, name = pb.CreateStreamStatus, name_of(request.streamInfo)
        StreamName.parse(name)
        done = await run_request(self.db, CreateStream(name, config_of(request, StreamConfig())))
        return status(status=status.SUCCESS if done.is_new else status.STREAM_EXISTS)

    async def update_stream(self, request: pb.StreamConfig) -> pb.UpdateStreamStatus:
        """Replace what clients can express of a stream's configuration. Raises InvalidArgument."""

        def update(tx: Tx, name: str) -> UpdateStream:
            stream = get_stream(tx, name).value
            config = config_of(request, stream.config)
            changed = [each for each in ("scaling", "retention") if differs(stream.config, config, each)]
            keeps = "scaling" not in changed
            fields = ("tags", *changed)
            return UpdateStream(name, stream.stream_id, config, keep_segments=keeps, fields=fields)

        return await self._change(request.streamInfo, update)

    async def truncate_stream(self, request: pb.StreamCut) -> pb.UpdateStreamStatus:
        """Move a stream's head to a cut."""
        return await self._change(
            request.streamInfo, lambda _, name: TruncateStream(name, PRESENT, cut_of(request.cut))
        )

    async def seal_stream(self, request: pb.StreamInfo) -> pb.UpdateStreamStatus:
        """Seal a stream."""
        return await self._change(request, lambda _, name: SealStream(name, PRESENT))

    async def delete_stream(self, request: pb.StreamInfo) -> pb.DeleteStreamStatus:
        """Delete a sealed stream."""
        await run_request(self.db, DeleteStream(name_of(request), PRESENT))
        return pb.DeleteStreamStatus()

    async def list_streams(
        self, request: pb.StreamsInScopeRequest, caller: Caller
    ) -> pb.StreamsInScopeResponse:
        """Return a page of a scope's streams that the caller may read. The client asks until a page is empty."""
        return await self._list(caller, request.scope.scope, None, request.continuationToken.token)

    async def list_tagged(
        self, request: pb.StreamsInScopeWithTagRequest, caller: Caller
    ) -> pb.StreamsInScopeResponse:
        """Return a page of a scope's streams with a tag, as `list_streams`."""
        return await self._list(caller, request.scope.scope, request.tag, request.continuationToken.token)

    async def _list(
        self, caller: Caller, scope: str, tag: str | None, after: str
    ) -> pb.StreamsInScopeResponse:
        reply = pb.StreamsInScopeResponse
        look = partial(list_streams, scope=scope, page=caller.page(after, PAGE_LENGTH), tag=tag)
        try:
            names = [stream.name for stream in await self.db.read(look)]
        except NotFound:
            return reply(status=reply.SCOPE_NOT_FOUND, continuationToken=pb.ContinuationToken())
        token = pb.ContinuationToken(token=names[-1] if names else after)
        return reply(streams=map(info_of, names), continuationToken=token)

    async def stream_exists(self, request: pb.StreamInfo) -> pb.ExistsResponse:
        """Return whether a stream exists."""
        found = await self.db.read(lambda tx: find_stream(tx, name_of(request)))
        return pb.ExistsResponse(exists=found is not None)

    async def configuration(self, request: pb.StreamInfo) -> pb.StreamConfig:
        """Return a stream's configuration. Raises NotFound."""
        found = await self.db.read(lambda tx: get_stream(tx, name_of(request)))
        return config_message(found.value.name, found.value.config)

    async def scale(self, request: pb.ScaleRequest) -> pb.ScaleResponse:
        """Replace segments. It has happened when the call returns."""
        name = name_of(request.streamInfo)
        seal = [SegmentId(each) for each in request.sealedSegments]
        ranges = tuple([KeyRange(each.start, each.end) for each in request.newKeyRanges])
        try:
            done = await run_request(self.db, ScaleStream(name, PRESENT, tuple(seal), ranges))
        except (ScaleRefused, InvalidArgument, StreamSealed):
            return pb.ScaleResponse(status=pb.ScaleResponse.PRECONDITION_FAILED)
        epoch = await self.db.read(
            lambda tx: StoredHistory(tx, get_stream(tx, name).value).opened_by(done.id)
        )
        return pb.ScaleResponse(
            status=pb.ScaleResponse.STARTED,
            segments=[segment_range(name, each) for each in epoch.opened],
            epoch=epoch.number - 1,
        )

    async def check_scale(self, request: pb.ScaleStatusRequest) -> pb.ScaleStatusResponse:
        """Return whether the scale of an epoch is over. Raises NotFound."""
        found = await self.db.read(lambda tx: get_stream(tx, name_of(request.streamInfo)))
        status = pb.ScaleStatusResponse
        if request.epoch > found.value.epoch:
            return status(status=status.INVALID_INPUT)
        return status(status=status.SUCCESS if request.epoch < found.value.epoch else status.IN_PROGRESS)

    async def _change(
        self, info: pb.StreamInfo, request: Callable[[Tx, str], Operation]
    ) -> pb.UpdateStreamStatus:
        await run_request(self.db, await self.db.read(lambda tx: request(tx, name_of(info))))
        return pb.UpdateStreamStatus()
