"""The controller: one table of all methods, and the errors of ours as gRPC codes.

The table says what a caller needs: a permission on the server, or on the scope or stream of the request, as in Pravega.
The types of requests and replies come from the definition, so that a method that the table leaves out is found when the
server starts.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias

import anyio
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Stream

from eventproc.cluster.buckets import bucket_owners
from eventproc.cluster.segment_containers import Answers, SegmentContainers, container_of
from eventproc.server.access.authority import (
    TRUSTED,
    Authority,
    Caller,
    NotAuthenticated,
    NotPermitted,
    TooManyPasswords,
)
from eventproc.server.access.needs import (
    ANYONE,
    READ_NAME,
    READ_SCOPE,
    READ_SEGMENT,
    READ_SERVER,
    UPDATE_NAME,
    UPDATE_SCOPE,
    UPDATE_SERVER,
    USER,
    Need,
)
from eventproc.server.controller import controller_pb2 as pb, segment_queries as segments
from eventproc.server.controller.catalog_calls import CatalogCalls
from eventproc.server.controller.conversions import name_of, target_of
from eventproc.server.controller.group_calls import GroupCalls
from eventproc.server.controller.key_value_table_calls import KeyValueTableCalls
from eventproc.server.controller.mark_calls import MarkCalls
from eventproc.server.controller.transaction_calls import TransactionCalls
from eventproc.server.wire.greeting import greets
from eventproc.store.database import Database, Tx
from eventproc.store.model.errors import (
    AlreadyExists,
    EventprocError,
    Fenced,
    IllegalTransition,
    InvalidArgument,
    InvalidCut,
    NotFound,
    Pending,
    Rejected,
    Retryable,
    ScopeNotEmpty,
    StreamNotSealed,
    StreamSealed,
    TransactionAborted,
    VersionConflict,
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
    (Pending, Status.UNAVAILABLE),
    (Fenced, Status.UNAVAILABLE),
    # Clients repeat FAILED_PRECONDITION without end, but a refusal in the present state is final.
    (Rejected, Status.INVALID_ARGUMENT),
)
"""The code of each error; the first class that fits decides. All others are INTERNAL."""


CALLS_MAX: Final = 1_000
"""Calls that run simultaneously; more are refused with UNAVAILABLE, which clients repeat. Higher: more memory, up to a
request of the largest size for each; lower: bursts of many clients take longer."""

PEER_WAIT_S: Final = 30
"""How long a client may take to send a request that it has begun, or to take a reply, in s. Higher: slow clients hold
their calls for longer; lower: clients with a slow network are cut off."""

Call: TypeAlias = Callable[..., Awaitable[Any]]
"""From the request, and the caller if its rule says so, to the reply."""


class Rule(NamedTuple):
    """A method: what its caller needs, and the function.

    with_caller: the function gets the caller, too, for what the need does not say.
    """

    need: Need
    call: Call
    with_caller: bool = False


Refused: TypeAlias = tuple[type[EventprocError] | str, ...]
"""Errors: classes, or kinds of what is not found, or names of arguments that are not valid."""

_BAD_NAME: Final[Refused] = ("stream name", "scope name")
_CHANGE: Final[Mapping[str, Refused]] = {
    "SCOPE_NOT_FOUND": ("scope",),
    "STREAM_NOT_FOUND": (NotFound,),
    "STREAM_SEALED": (StreamSealed,),
}
# One that is decided otherwise is not found either: the client must not try again.
_DECISION: Final[Mapping[str, Refused]] = {
    "TRANSACTION_NOT_FOUND": ("transaction", TransactionAborted, IllegalTransition),
    "STREAM_NOT_FOUND": (NotFound,),
}
# While a scope is being deleted, the client tries again.
_DELETING: Final[Mapping[str, Refused]] = {"FAILURE": (IllegalTransition,)}

_STATUSES: Final[Mapping[str, Mapping[str, Refused]]] = {
    "createScope": {"INVALID_SCOPE_NAME": (InvalidArgument,), **_DELETING},
    "deleteScope": {
        "SCOPE_NOT_FOUND": (NotFound, InvalidArgument),
        "SCOPE_NOT_EMPTY": (ScopeNotEmpty,),
        **_DELETING,
    },
    "deleteScopeRecursive": {"SCOPE_NOT_FOUND": (NotFound, InvalidArgument)},
    "createStream": {
        "INVALID_STREAM_NAME": _BAD_NAME,
        "STREAM_EXISTS": (AlreadyExists,),
        "SCOPE_NOT_FOUND": (NotFound,),
    },
    "updateStream": _CHANGE,
    "truncateStream": _CHANGE,
    "sealStream": _CHANGE,
    "deleteStream": {"STREAM_NOT_FOUND": (NotFound,), "STREAM_NOT_SEALED": (StreamNotSealed,)},
    "commitTransaction": _DECISION,
    "abortTransaction": _DECISION,
    "createKeyValueTable": {"INVALID_TABLE_NAME": _BAD_NAME, "SCOPE_NOT_FOUND": (NotFound,), **_DELETING},
    "getKeyValueTableConfiguration": {"TABLE_NOT_FOUND": (NotFound,)},
    "deleteKeyValueTable": {"TABLE_NOT_FOUND": (NotFound,)},
    "listSubscribers": {"STREAM_NOT_FOUND": (NotFound,)},
    "updateSubscriberStreamCut": {
        "SUBSCRIBER_NOT_FOUND": ("subscriber",),
        "STREAM_NOT_FOUND": (NotFound,),
        "GENERATION_MISMATCH": (VersionConflict,),
        "STREAM_CUT_NOT_VALID": (InvalidCut,),
    },
    "createReaderGroup": {"INVALID_RG_NAME": _BAD_NAME, "SCOPE_NOT_FOUND": ("scope",), **_DELETING},
    "getReaderGroupConfig": {"RG_NOT_FOUND": (NotFound,)},
    "deleteReaderGroup": {"RG_NOT_FOUND": (NotFound,)},
    "updateReaderGroup": {"RG_NOT_FOUND": ("group",), "INVALID_CONFIG": (VersionConflict,)},
}
"""Errors of a method for which its reply has a status; the first one that fits decides. Others have codes of gRPC."""


class Controller:
    """Answers all methods for one database.

    containers: which process serves which segment, and where. authority: who may call. answers: replaced by tests.
    """

    def __init__(
        self, db: Database, containers: SegmentContainers, authority: Authority, answers: Answers = greets
    ) -> None:
        self._db = db
        self._containers = containers
        self._authority = authority
        self._answers = answers
        self._running = 0
        self._is_closing = False
        self._all_ended = anyio.Event()
        self.rules = self._all_rules(db)

    def _all_rules(self, db: Database) -> Mapping[str, Rule]:
        catalog, txns, groups = CatalogCalls(db), TransactionCalls(db), GroupCalls(db)
        marks, tables, reads = MarkCalls(db), KeyValueTableCalls(db), self._reading
        return {
            "getControllerServerList": Rule(ANYONE, self._servers),
            "createStream": Rule(UPDATE_SCOPE, catalog.create_stream),
            "updateStream": Rule(UPDATE_NAME, catalog.update_stream),
            "truncateStream": Rule(UPDATE_NAME, catalog.truncate_stream),
            "sealStream": Rule(UPDATE_NAME, catalog.seal_stream),
            "deleteStream": Rule(UPDATE_SCOPE, catalog.delete_stream),
            "getCurrentSegments": Rule(READ_NAME, reads(segments.current)),
            "getEpochSegments": Rule(READ_NAME, reads(segments.of_epoch)),
            "getSegments": Rule(READ_NAME, reads(segments.at_time)),
            # Its name is misspelled.
            "getSegmentsImmediatlyFollowing": Rule(READ_NAME, reads(segments.following)),
            "getSegmentsImmediatelyFollowing": Rule(READ_NAME, reads(segments.following)),
            "getSegmentsBetween": Rule(READ_NAME, reads(segments.between)),
            "scale": Rule(UPDATE_NAME, catalog.scale),
            "checkScale": Rule(READ_NAME, catalog.check_scale),
            "getURI": Rule(READ_SEGMENT, self._locate),
            "isSegmentValid": Rule(READ_NAME, reads(segments.is_active)),
            "isStreamCutValid": Rule(READ_NAME, reads(segments.is_cut)),
            "createTransaction": Rule(UPDATE_NAME, txns.begin),
            "commitTransaction": Rule(UPDATE_NAME, txns.commit),
            "abortTransaction": Rule(UPDATE_NAME, txns.abort),
            "pingTransaction": Rule(UPDATE_NAME, txns.ping),
            "checkTransactionState": Rule(READ_NAME, txns.state),
            "listCompletedTransactions": Rule(READ_NAME, txns.completed),
            "createScope": Rule(UPDATE_SERVER, catalog.create_scope),
            "listScopes": Rule(USER, catalog.list_scopes, with_caller=True),
            "checkScopeExists": Rule(READ_SCOPE, catalog.scope_exists),
            "checkStreamExists": Rule(READ_NAME, catalog.stream_exists),
            "listStreamsInScope": Rule(USER, catalog.list_streams, with_caller=True),
            "deleteScope": Rule(UPDATE_SERVER, catalog.delete_scope),
            "deleteScopeRecursive": Rule(UPDATE_SERVER, catalog.delete_scope_recursive),
            "getDelegationToken": Rule(READ_NAME, self._token),
            "removeWriter": Rule(UPDATE_NAME, marks.remove_writer),
            "noteTimestampFromWriter": Rule(UPDATE_NAME, marks.note),
            "createKeyValueTable": Rule(UPDATE_SCOPE, tables.create),
            "getCurrentSegmentsKeyValueTable": Rule(READ_NAME, tables.segments),
            "listKeyValueTablesInScope": Rule(USER, tables.list, with_caller=True),
            "getKeyValueTableConfiguration": Rule(READ_NAME, tables.configuration),
            "deleteKeyValueTable": Rule(UPDATE_SCOPE, tables.delete),
            "listSubscribers": Rule(READ_NAME, groups.subscribers, with_caller=True),
            "updateSubscriberStreamCut": Rule(READ_NAME, groups.release, with_caller=True),
            "createReaderGroup": Rule(UPDATE_SCOPE, groups.create, with_caller=True),
            "getReaderGroupConfig": Rule(READ_NAME, groups.config, with_caller=True),
            "deleteReaderGroup": Rule(UPDATE_SCOPE, groups.delete),
            "updateReaderGroup": Rule(UPDATE_NAME, groups.update, with_caller=True),
            "getStreamConfiguration": Rule(READ_NAME, catalog.configuration),
            "listStreamsInScopeForTag": Rule(USER, catalog.list_tagged, with_caller=True),
            "getControllerToBucketMapping": Rule(READ_SERVER, self._buckets),
        }

    def _reading(self, look: Callable[[Tx, Any], Any]) -> Call:
        """Return the function that answers with what one read transaction finds for the request."""

        async def answer(request: Any) -> Any:
            return await self._db.read(lambda tx: look(tx, request))

        return answer

    async def reply(self, name: str, request: Any, caller: Caller = TRUSTED) -> Any:
        """Return the reply of a method to a caller who may call it. Raises EventprocError, NotPermitted."""
        rule = self.rules[name]
        try:
            return await rule.call(request, *([caller] if rule.with_caller else []))
        except EventprocError as why:
            if (status := _status_in_reply(name, why)) is None:
                raise
            return GetMessageClass(SERVICE.methods_by_name[name].output_type)(status=status)

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
        if self._running >= CALLS_MAX:
            raise GRPCError(Status.UNAVAILABLE, f"{CALLS_MAX:,} calls are running; try again")
        self._running += 1
        try:
            reply = await self._call(name, rule, stream)
            with _peer_wait(f"{name}: the reply was not taken"):
                await stream.send_message(reply)
        finally:
            self._end_call()

    def _end_call(self) -> None:
        self._running -= 1
        if self._is_closing and not self._running:
            self._all_ended.set()

    async def _call(self, name: str, rule: Rule, stream: Stream[Any, Any]) -> Any:
        """Return the reply. The credentials are verified before the request is read."""
        try:
            caller = await self._caller(rule, stream)
            request = await _request_of(name, stream)
            scope, local = target_of(request)
            rule.need.verify(caller, scope, local)
            reply = await self.reply(name, request, caller)
            if "delegationToken" in reply.DESCRIPTOR.fields_by_name:
                reply.delegationToken = self._authority.delegation_token(caller, f"{scope}/{local}")
            return reply
        except NotAuthenticated as why:
            raise GRPCError(Status.UNAUTHENTICATED, str(why)) from None
        except NotPermitted as why:
            raise GRPCError(Status.PERMISSION_DENIED, str(why)) from None
        except TooManyPasswords as why:
            raise GRPCError(Status.UNAVAILABLE, str(why)) from None
        except EventprocError as why:
            raise GRPCError(status_of(why), str(why)) from why
        except (GRPCError, StreamTerminatedError):
            raise
        except Exception as why:
            LOG.exception("%s failed", name)
            raise GRPCError(Status.INTERNAL, f"{name}: {type(why).__name__}") from why

    async def _caller(self, rule: Rule, stream: Stream[Any, Any]) -> Caller:
        if rule.need.is_for_anyone:
            return TRUSTED
        header = None if stream.metadata is None else stream.metadata.get("authorization")
        return await self._authority.authenticate(None if header is None else str(header))

    async def _servers(self, _: pb.ServerRequest) -> pb.ServerResponse:
        """Return the controllers of all serving processes."""
        found = [each.controller for each in self._containers.servers]
        return pb.ServerResponse(nodeURI=[pb.NodeUri(endpoint=host, port=port) for host, port in found])

    async def _buckets(self, _: pb.ControllerToBucketMappingRequest) -> pb.ControllerToBucketMappingResponse:
        """Return which instance owns which buckets: it does all periodic work on their streams."""
        owned: dict[str, list[int]] = {}
        for bucket, instance in enumerate(await self._db.read(bucket_owners)):
            if instance is not None:
                owned.setdefault(instance, []).append(bucket)
        return pb.ControllerToBucketMappingResponse(
            mapping={instance: pb.BucketIds(id=buckets) for instance, buckets in owned.items()}
        )

    async def _locate(self, request: pb.SegmentId) -> pb.NodeUri:
        """Return the segment store that owns a segment, which need not exist.

        For a table it is that of this process: the Rust client asks once, and keeps the answer while the table is open.
        """
        container = container_of(name_of(request.streamInfo), request.segmentId)
        host, port = (await self._containers.locate(container, self._answers)).segment_store
        return pb.NodeUri(endpoint=host, port=port)

    async def _token(self, _: pb.StreamInfo) -> pb.DelegationToken:
        """Return an empty reply, which gets its token as others do."""
        return pb.DelegationToken()


async def _request_of(name: str, stream: Stream[Any, Any]) -> Any:
    """Return the request. Raises GRPCError for one that does not come in time, or that cannot be read."""
    try:
        with _peer_wait(f"{name}: the request was not complete"):
            request = await stream.recv_message()
    except (AssertionError, DecodeError, RuntimeError) as why:
        # It is cut off, malformed, or compressed, which grpclib does not know.
        reason = f"{name}: the request cannot be read: {why}"
        raise GRPCError(Status.INVALID_ARGUMENT, reason) from None
    if request is None:
        raise GRPCError(Status.INVALID_ARGUMENT, f"{name}: the request is missing")
    return request


@contextmanager
def _peer_wait(what: str) -> Iterator[None]:
    """Bound how long the block waits for the client. Raises GRPCError."""
    with anyio.move_on_after(PEER_WAIT_S) as scope:
        yield
    if scope.cancelled_caught:
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"{what} within {PEER_WAIT_S} s")


def _status_in_reply(name: str, why: EventprocError) -> str | None:
    """Return the status of a method's reply for an error; None if it has none."""
    kind = why.kind if isinstance(why, NotFound) else why.what if isinstance(why, InvalidArgument) else ""
    for status, refused in _STATUSES.get(name, {}).items():
        if any(each == kind if isinstance(each, str) else isinstance(why, each) for each in refused):
            return status
    return None


def status_of(why: EventprocError) -> Status:
    """Return the gRPC code of an error."""
    return next((status for kind, status in STATUS_OF if isinstance(why, kind)), Status.INTERNAL)
