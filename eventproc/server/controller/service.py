"""The controller: one table of all methods, and the errors of ours as gRPC codes.

The table says who may call a method later: the level of permission on its scope or stream. The types of requests and
replies come from the definition, so that a method that the table leaves out is found when the server starts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from grpclib.server import Stream

from eventproc.cluster.segment_containers import Answers, SegmentContainers, container_of
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.catalog_calls import CatalogCalls
from eventproc.server.controller.conversions import name_of
from eventproc.server.controller.segment_queries import SegmentQueries
from eventproc.server.controller.transaction_calls import TransactionCalls
from eventproc.server.wire.greeting import greets
from eventproc.store.database import Database
from eventproc.store.model.errors import (
    AlreadyExists,
    EventprocError,
    Fenced,
    InvalidArgument,
    InvalidCut,
    NotFound,
    Rejected,
    Retryable,
)

LOG = logging.getLogger("eventproc.server")

SERVICE: Final = pb.DESCRIPTOR.services_by_name["ControllerService"]
"""The definition of the service."""

STATUS_OF: Final[tuple[tuple[type[EventprocError], Status], ...]] = (
    (InvalidArgument, Status.INVALID_ARGUMENT),
    (InvalidCut, Status.INVALID_ARGUMENT),
    (NotFound, Status.NOT_FOUND),
    (AlreadyExists, Status.ALREADY_EXISTS),
    (Retryable, Status.UNAVAILABLE),
    (Fenced, Status.UNAVAILABLE),
    # Clients repeat FAILED_PRECONDITION without end, but a refusal in the present state is final.
    (Rejected, Status.INVALID_ARGUMENT),
)
"""The code of each error; the first class that fits decides. All others are INTERNAL."""


class Access(StrEnum):
    """What a caller must be allowed to do."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    MANAGE = "manage"


Call: TypeAlias = Callable[[Any], Awaitable[Any]]


class Rule(NamedTuple):
    """A method: what its caller must be allowed to do, and the function; None for one that is not implemented."""

    access: Access
    call: Call | None


class Controller:
    """Answers all methods for one database.

    containers: which process serves which segment, and where. answers: replaced by tests.
    """

    def __init__(self, db: Database, containers: SegmentContainers, answers: Answers = greets) -> None:
        self._containers = containers
        self._answers = answers
        self._running = 0
        self._is_closing = False
        self._all_ended = anyio.Event()
        catalog, segments, txns = CatalogCalls(db), SegmentQueries(db), TransactionCalls(db)
        none, read, write, manage = Access.NONE, Access.READ, Access.WRITE, Access.MANAGE
        self.rules: Mapping[str, Rule] = {
            "getControllerServerList": Rule(none, self._servers),
            "createStream": Rule(manage, catalog.create_stream),
            "updateStream": Rule(manage, catalog.update_stream),
            "truncateStream": Rule(manage, catalog.truncate_stream),
            "sealStream": Rule(manage, catalog.seal_stream),
            "deleteStream": Rule(manage, catalog.delete_stream),
            "getCurrentSegments": Rule(read, segments.current),
            "getEpochSegments": Rule(read, segments.of_epoch),
            "getSegments": Rule(read, segments.at_time),
            "getSegmentsImmediatlyFollowing": Rule(read, segments.following),  # its name is misspelled
            "getSegmentsImmediatelyFollowing": Rule(read, segments.following),
            "getSegmentsBetween": Rule(read, segments.between),
            "scale": Rule(manage, catalog.scale),
            "checkScale": Rule(read, catalog.check_scale),
            "getURI": Rule(none, self._locate),
            "isSegmentValid": Rule(read, segments.is_active),
            "isStreamCutValid": Rule(read, segments.is_cut),
            "createTransaction": Rule(write, txns.begin),
            "commitTransaction": Rule(write, txns.commit),
            "abortTransaction": Rule(write, txns.abort),
            "pingTransaction": Rule(write, txns.ping),
            "checkTransactionState": Rule(read, txns.state),
            "listCompletedTransactions": Rule(read, txns.completed),
            "createScope": Rule(manage, catalog.create_scope),
            "listScopes": Rule(read, catalog.list_scopes),
            "checkScopeExists": Rule(read, catalog.scope_exists),
            "checkStreamExists": Rule(read, catalog.stream_exists),
            "listStreamsInScope": Rule(read, catalog.list_streams),
            "deleteScope": Rule(manage, catalog.delete_scope),
            "deleteScopeRecursive": Rule(manage, catalog.delete_scope_recursive),
            "getDelegationToken": Rule(read, self._token),
            "removeWriter": Rule(write, self._forget_writer),
            "noteTimestampFromWriter": Rule(write, None),
            "createKeyValueTable": Rule(manage, None),
            "getCurrentSegmentsKeyValueTable": Rule(read, None),
            "listKeyValueTablesInScope": Rule(read, None),
            "getKeyValueTableConfiguration": Rule(read, None),
            "deleteKeyValueTable": Rule(manage, None),
            "listSubscribers": Rule(read, None),
            "updateSubscriberStreamCut": Rule(write, None),
            "createReaderGroup": Rule(manage, None),
            "getReaderGroupConfig": Rule(read, None),
            "deleteReaderGroup": Rule(manage, None),
            "updateReaderGroup": Rule(manage, None),
            "getStreamConfiguration": Rule(read, catalog.configuration),
            "listStreamsInScopeForTag": Rule(read, catalog.list_tagged),
            "getControllerToBucketMapping": Rule(none, None),
        }

    def __mapping__(self) -> dict[str, Handler]:
        """Return the handlers of all methods, as grpclib asks for them."""
        return {
            f"/{SERVICE.full_name}/{method.name}": Handler(
                partial(self._answer, method.name, self.rules[method.name]),
                Cardinality.UNARY_UNARY,
                GetMessageClass(method.input_type),
                GetMessageClass(method.output_type),
            )
            for method in SERVICE.methods
        }

    async def finish_calls(self, wait_s: float) -> None:
        """Refuse further calls, and return when those that run have ended, after `wait_s` at the latest."""
        self._is_closing = True
        if self._running:
            with anyio.move_on_after(wait_s):
                await self._all_ended.wait()

    async def _answer(self, name: str, rule: Rule, stream: Stream[Any, Any]) -> None:
        if self._is_closing:
            raise GRPCError(Status.UNAVAILABLE, "the server is closing")
        self._running += 1
        try:
            await stream.send_message(await _call(name, rule, stream))
        finally:
            self._end_call()

    def _end_call(self) -> None:
        self._running -= 1
        if self._is_closing and not self._running:
            self._all_ended.set()

    async def _servers(self, _: pb.ServerRequest) -> pb.ServerResponse:
        """Return the controllers of all serving processes."""
        found = [each.controller for each in self._containers.servers]
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port) for host, port in found])

    async def _locate(self, request: pb.SegmentId) -> pb.NodeUri:
        """Return the segment store that owns a segment, which need not exist.

        For a table it is that of this process: the Rust client asks once, and keeps the answer while the table is open.
        """
        container = container_of(name_of(request.streamInfo), request.segmentId)
        host, port = (await self._containers.locate(container, self._answers)).segment_store
        return pb.NodeUri(endpoint=host, port=port)

    async def _token(self, _: pb.StreamInfo) -> pb.DelegationToken:
        return pb.DelegationToken()

    async def _forget_writer(self, _: pb.RemoveWriterRequest) -> pb.RemoveWriterResponse:
        """Do nothing: the numbers of silent writers are dropped in the background."""
        return pb.RemoveWriterResponse()


async def _call(name: str, rule: Rule, stream: Stream[Any, Any]) -> Any:
    request = await stream.recv_message()
    if request is None:
        raise GRPCError(Status.INVALID_ARGUMENT, f"{name}: the request is missing")
    if rule.call is None:
        raise GRPCError(Status.UNIMPLEMENTED, f"{name} is not served; see docs/guide/serving.md")
    try:
        return await rule.call(request)
    except EventprocError as why:
        raise GRPCError(status_of(why), str(why)) from why
    except Exception as why:
        LOG.exception("%s failed", name)
        raise GRPCError(Status.INTERNAL, f"{name}: {type(why).__name__}") from why


def status_of(why: EventprocError) -> Status:
    """Return the gRPC code of an error."""
    return next((status for kind, status in STATUS_OF if isinstance(why, kind)), Status.INTERNAL)
