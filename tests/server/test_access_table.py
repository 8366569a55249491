"""What each route, method and command needs, by user: a new one without a row here fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority, NotPermitted
from eventproc.server.access.needs import Need, Place
from eventproc.server.controller.service import SERVICE
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.server.rest.application import DOCUMENT_PATH, METRICS_PATH, RestAnswers, rest_application
from eventproc.server.rest.route_table import ROUTES
from eventproc.server.wire import commands as c
from eventproc.server.wire.channel import Channel as WireChannel
from eventproc.server.wire.channel import MemoryBudget
from eventproc.server.wire.codec import MESSAGES, Message
from eventproc.server.wire.command_needs import OF_WRITERS, WITHOUT_NEED, need_of
from eventproc.server.wire.connection import WireConnection
from eventproc.store.access.permissions import Permission
from eventproc.testing.crash import PATIENCE_S
from tests.server.access_support import READ, UPDATE, add_users, loaded, may

ANYONE, USER = "anyone", "user"
READS, READS_SCOPE, READS_SERVER = (READ, "s/t"), (READ, "s"), (READ, "*")
UPDATES, UPDATES_SCOPE, UPDATES_SERVER = (UPDATE, "s/t"), (UPDATE, "s"), (UPDATE, "*")

Row = tuple[Permission, str] | str

REST: Mapping[str, Row] = {
    "list_scopes": USER,
    "create_scope": UPDATES_SERVER,
    "get_scope_of": READS_SCOPE,
    "delete_scope": UPDATES_SERVER,
    "list_streams": READS_SCOPE,
    "create_stream": UPDATES_SCOPE,
    "get_stream_of": READS,
    "update_stream": UPDATES,
    "delete_stream": UPDATES_SCOPE,
    "update_stream_state": UPDATES,
    "get_scaling_events": READS,
    "list_reader_groups": READS_SCOPE,
    "get_reader_group": READS,
    "delete_reader_group": UPDATES,
    "get_health": USER,
    "get_status": ANYONE,
    "get_readiness": ANYONE,
    "get_liveness": ANYONE,
    "get_details": USER,
    "get_part_status": ANYONE,
    "get_part_readiness": ANYONE,
    "get_part_liveness": ANYONE,
    "get_part_details": USER,
    "get_part_health": USER,
    "list_all_streams": READS_SERVER,
    "describe_stream": READS,
    "list_segments": READS,
    "list_epochs": READS,
    "get_cut": READS,
    "list_sealed_segments": READS,
    "list_segments_between": READS,
    "describe_segment": READS,
    "list_scales": READS,
    "measure_stream": READS,
    "compare_stream_cuts": READS,
    "get_truncation": READS,
    "scale_stream": UPDATES,
    "split_segment": UPDATES,
    "merge_segments": UPDATES,
    "truncate_stream": UPDATES,
    "list_transactions": READS,
    "abort_transaction": UPDATES,
    "list_groups": READS_SERVER,
    "describe_group": READS,
    "reset_group": UPDATES,
    "list_tasks": READS_SERVER,
    "describe_task": READS_SERVER,
    "cancel_task": UPDATES_SERVER,
    "list_requests": READS_SERVER,
    "describe_request": USER,
    "describe_cluster": READS_SERVER,
    "watch_changes": USER,
    "offload_stream": UPDATES,
    "describe_transaction": READS,
    "commit_transaction": UPDATES,
    "create_group": UPDATES_SCOPE,
    "update_group": UPDATES,
    "create_checkpoint": UPDATES,
    "list_checkpoints": READS,
    "take_reader_offline": UPDATES,
    "list_offsets": READS,
    "list_shares": READS_SERVER,
    "create_share": UPDATES_SCOPE,
    "describe_share": READS,
    "reset_share": UPDATES,
    "delete_share": UPDATES,
    "list_topics": READS_SERVER,
    "create_topic": UPDATES_SCOPE,
    "describe_topic": READS,
    "alter_topic": UPDATES,
    "truncate_topic": UPDATES,
    "delete_topic": UPDATES_SCOPE,
    "list_processors": READS_SERVER,
    "describe_processor": READS,
    "pause_processor": UPDATES,
    "resume_processor": UPDATES,
    "list_dead_letters": READS,
    "describe_dead_letter": READS,
    "redrive_dead_letters": UPDATES,
    "drop_dead_letters": UPDATES,
    "list_supervisors": READS_SERVER,
    "submit_supervisor": UPDATES_SERVER,
    "describe_supervisor": READS_SERVER,
    "list_supervisor_versions": READS_SERVER,
    "list_supervisor_tasks": READS_SERVER,
    "list_supervisor_lags": READS_SERVER,
    "suspend_supervisor": UPDATES_SERVER,
    "resume_supervisor": UPDATES_SERVER,
    "terminate_supervisor": UPDATES_SERVER,
    "hand_off_supervisor": UPDATES_SERVER,
    "reset_supervisor": UPDATES_SERVER,
    "verify_directory": UPDATES_SERVER,
    "delete_scope_with_streams": UPDATES_SERVER,
    "list_users": READS_SERVER,
    "describe_user": READS_SERVER,
    "add_user": UPDATES_SERVER,
    "delete_user": UPDATES_SERVER,
    "set_password": UPDATES_SERVER,
    "grant_permission": UPDATES_SERVER,
    "revoke_permission": UPDATES_SERVER,
    "add_token": UPDATES_SERVER,
    "delete_token": UPDATES_SERVER,
}
"""What each route of REST needs, for the stream or group `s/t`."""

GRPC: Mapping[str, Row] = {
    "getControllerServerList": ANYONE,
    "createStream": UPDATES_SCOPE,
    "updateStream": UPDATES,
    "truncateStream": UPDATES,
    "sealStream": UPDATES,
    "deleteStream": UPDATES_SCOPE,
    "getCurrentSegments": READS,
    "getEpochSegments": READS,
    "getSegments": READS,
    "getSegmentsImmediatlyFollowing": READS,
    "getSegmentsImmediatelyFollowing": READS,
    "getSegmentsBetween": READS,
    "scale": UPDATES,
    "checkScale": READS,
    "getURI": READS,
    "isSegmentValid": READS,
    "isStreamCutValid": READS,
    "createTransaction": UPDATES,
    "commitTransaction": UPDATES,
    "abortTransaction": UPDATES,
    "pingTransaction": UPDATES,
    "checkTransactionState": READS,
    "listCompletedTransactions": READS,
    "createScope": UPDATES_SERVER,
    "listScopes": USER,
    "checkScopeExists": READS_SCOPE,
    "checkStreamExists": READS,
    "listStreamsInScope": READS_SCOPE,
    "deleteScope": UPDATES_SERVER,
    "deleteScopeRecursive": UPDATES_SERVER,
    "getDelegationToken": READS,
    "removeWriter": UPDATES,
    "noteTimestampFromWriter": UPDATES,
    "createKeyValueTable": UPDATES_SCOPE,
    "getCurrentSegmentsKeyValueTable": READS,
    "listKeyValueTablesInScope": READS_SCOPE,
    "getKeyValueTableConfiguration": READS,
    "deleteKeyValueTable": UPDATES_SCOPE,
    "listSubscribers": READS,
    "updateSubscriberStreamCut": UPDATES,
    "createReaderGroup": UPDATES_SCOPE,
    "getReaderGroupConfig": READS,
    "deleteReaderGroup": UPDATES_SCOPE,
    "updateReaderGroup": UPDATES,
    "getStreamConfiguration": READS,
    "listStreamsInScopeForTag": READS_SCOPE,
    "getControllerToBucketMapping": READS_SERVER,
}
"""What each method of the controller needs, for `s/t`."""

WRITER = "the token of its writer"
NOTHING = "nothing"

WIRE: Mapping[type[Message], Permission | str] = {
    c.Hello: NOTHING,
    c.Padding: NOTHING,
    c.PartialEvent: NOTHING,
    c.KeepAlive: NOTHING,
    c.SetupAppend: UPDATE,
    c.AppendBlock: WRITER,
    c.AppendBlockEnd: WRITER,
    c.ConditionalAppend: WRITER,
    c.ConditionalBlockEnd: WRITER,
    c.ReadSegment: READ,
    c.GetStreamSegmentInfo: READ,
    c.TruncateSegment: UPDATE,
    c.GetSegmentAttribute: READ,
    c.UpdateSegmentAttribute: UPDATE,
    c.CreateTransientSegment: UPDATE,
    c.MergeSegments: UPDATE,
    c.GetTableSegmentInfo: READ,
    c.CreateTableSegment: UPDATE,
    c.DeleteTableSegment: UPDATE,
    c.UpdateTableEntries: UPDATE,
    c.RemoveTableKeys: UPDATE,
    c.ReadTable: READ,
    c.ReadTableKeys: READ,
    c.ReadTableEntries: READ,
    c.ReadTableEntriesDelta: READ,
}
"""What each command of the segment store needs, for the stream or table that it names."""

SEGMENT = "s/t/0.#epoch.0"
NAMES = {"scope": "s", "stream": "t", "group": "t"}


@pytest.fixture
async def ep() -> Any:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        yield ep


def expected(row: Row, user: str) -> bool:
    return True if isinstance(row, str) else may(user, *row)


def test_every_route_method_and_command_has_a_row() -> None:
    assert {each.name for each in ROUTES} == set(REST)
    assert {each.name for each in SERVICE.methods} == set(GRPC)


async def test_every_command_that_a_connection_handles_has_a_row(ep: Eventproc) -> None:
    channel: Any = WireChannel(None, MemoryBudget(1))  # type: ignore[arg-type]  # nothing is sent
    containers: Any = None  # no segment is asked for
    handled = set(WireConnection(ep.db, channel, containers, Authority(ep.db))._handlers)
    assert handled | {c.ReadSegment} | WITHOUT_NEED == set(WIRE)


async def test_each_route_of_rest_answers_those_who_are_permitted_and_nobody_else(ep: Eventproc) -> None:
    tokens = await add_users(ep)
    application = rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1"))
    transport = httpx.ASGITransport(application)
    wrong: list[object] = []
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as http:
        for route in ROUTES:
            path = route.path.format(
                **NAMES,
                part="database",
                segment="9.9",
                **dict.fromkeys(["transaction", "task", "request", "token"], "1"),
                user="missing",
                reader="r",
                letter="0.0:1",
                supervisor="missing",
            )

            # A stream of events does not end; HEAD needs the same permission.
            method = "HEAD" if route.is_stream else route.method

            async def status(headers: dict[str, str], method: str = method, path: str = path) -> int:
                return (await http.request(method, path, headers=headers)).status_code

            without = await status({}), await status({"Authorization": "Bearer wrong"})
            if (401 in without) is (REST[route.name] == ANYONE) or len(set(without)) > 1:
                wrong.append((route.name, without))
            for user, token in tokens.items():
                found = await status({"Authorization": f"Bearer {token}"})
                allowed = expected(REST[route.name], user)
                if route.name == "describe_request":  # one that does not exist
                    allowed = may(user, READ, "*")
                if found == 401 or (found == 403) is allowed:
                    wrong.append((route.name, user, found))
        assert (await http.get(DOCUMENT_PATH)).status_code == 200
        for user, token in {**tokens, "unknown": "wrong"}.items():
            headers = {"Authorization": f"Bearer {token}"}
            found = (await http.get(METRICS_PATH, headers=headers)).status_code
            assert found == (401 if user == "unknown" else 200 if may(user, READ, "*") else 403), user
    assert wrong == []


async def test_lists_over_all_scopes_are_for_those_who_may_read_the_scope_that_is_asked_for(
    ep: Eventproc,
) -> None:
    tokens = await add_users(ep)
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1")))
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as http:
        for path in ("streams", "groups"):
            for user, token in tokens.items():
                headers = {"Authorization": f"Bearer {token}"}
                found = await http.get(f"/eventproc/v1/{path}?scope=s", headers=headers)
                assert (found.status_code != 403) is may(user, READ, "s"), (path, user)
        for user, scopes in (("scope-reader", ["s"]), ("nobody", []), ("server-reader", ["s"])):
            headers = {"Authorization": f"Bearer {tokens[user]}"}
            found = await http.get("/v1/scopes", headers=headers)
            assert [each["scopeName"] for each in found.json()["scopes"]] == scopes


async def test_a_request_is_shown_to_those_who_may_read_what_it_changes(ep: Eventproc) -> None:
    tokens = await add_users(ep)
    (request, *_) = await ep.requests.list()
    assert request.target == "s/t"
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1")))
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as http:
        for user, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            found = await http.get(f"/eventproc/v1/requests/{request.id}", headers=headers)
            assert found.status_code == (200 if may(user, READ, "s/t") else 403), user
            missing = await http.get("/eventproc/v1/requests/missing", headers=headers)
            assert found.status_code == 200 or found.json() == missing.json(), user


async def test_a_key_of_another_request_does_not_tell_its_target_to_those_who_may_not_read_that(
    ep: Eventproc,
) -> None:
    tokens = await add_users(ep)
    await ep.create_scope("other")
    (request, *_) = await ep.requests.list()
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1")))
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as http:
        for user, is_told in (("writer-of-others", False), ("administrator", True)):
            headers = {"Authorization": f"Bearer {tokens[user]}", "Idempotency-Key": request.id}
            body = {"streamName": "u"}
            refused = await http.post("/v1/scopes/other/streams", json=body, headers=headers)
            assert refused.status_code == 422
            assert ("s/t" in refused.text) is is_told, user


def request_of(name: str) -> Any:
    """Return a request of a method about `s/t`, whose names are wherever its message has them."""
    made = GetMessageClass(SERVICE.methods_by_name[name].input_type)()
    _fill(made)
    return made


def _fill(message: Any) -> None:
    local = {"stream": "t", "kvtName": "t", "readerGroupName": "t", "readerGroup": "t", "scope": "s"}
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and not field.is_repeated:
            _fill(getattr(message, field.name))
            getattr(message, field.name).SetInParent()
        elif field.name in local:
            setattr(message, field.name, local[field.name])


@pytest.mark.acceptance("G1")
async def test_each_method_of_the_controller_answers_those_who_are_permitted_and_nobody_else(
    ep: Eventproc,
) -> None:
    tokens = await add_users(ep)
    wrong: list[object] = []
    refusals = (Status.UNAUTHENTICATED, Status.PERMISSION_DENIED)
    async with serve_endpoints(ep, Addresses(controller_port=0, segment_store_port=0)) as bound:
        channel = Channel("127.0.0.1", bound.controller_port)

        async def status(name: str, token: str | None) -> Status:
            method = SERVICE.methods_by_name[name]
            kinds = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            call = UnaryUnaryMethod(channel, f"/{SERVICE.full_name}/{name}", *kinds)
            metadata = None if token is None else {"authorization": f"Bearer {token}"}
            try:
                await call(request_of(name), timeout=PATIENCE_S, metadata=metadata)
            except GRPCError as why:
                return why.status
            return Status.OK

        try:
            for name, row in GRPC.items():
                for token in (None, "wrong"):
                    found = await status(name, token)
                    if (found is Status.UNAUTHENTICATED) is (row == ANYONE):
                        wrong.append((name, token, found))
                for user, token in tokens.items():
                    found = await status(name, token)
                    denied = None if expected(row, user) else Status.PERMISSION_DENIED
                    if (found if found in refusals else None) is not denied:
                        wrong.append((name, user, found))
        finally:
            channel.close()
    assert wrong == []


def command_of(kind: type[Message], segment: str = SEGMENT, token: str = "") -> Message:
    """Return a command about a segment."""
    by_encoding: dict[str, Any] = {"text": "", "uuid": bytes(16), "flag": False, "block": b"", "rest": b""}
    values: list[Any] = []
    for name, encoding, _ in kind._fields:
        value = () if encoding.is_list else by_encoding.get(encoding.name, 0)
        values.append(
            segment if name in ("segment", "parent", "target") else token if name == "token" else value
        )
    return kind(*values)


@pytest.mark.parametrize("kind", WIRE, ids=lambda kind: kind.__name__)
def test_each_command_of_the_segment_store_needs_its_permission_on_its_stream(kind: type[Message]) -> None:
    found, row = need_of(command_of(kind, token="x")), WIRE[kind]
    if row == NOTHING:
        assert found is None
    elif row == WRITER:
        assert found is not None
        assert found.writer == bytes(16)
        assert kind in OF_WRITERS
    else:
        assert found is not None
        assert (found.permission, found.resource, found.token, found.writer) == (row, "s/t", "x", None)


def test_a_command_that_this_server_only_sends_is_allowed_for_nobody() -> None:
    for kind in set(MESSAGES.values()) - set(WIRE):
        found = need_of(command_of(kind))
        assert found is not None
        assert found.permission is UPDATE
        assert found.writer is None


@pytest.mark.parametrize("place", [Place.SERVER, Place.SCOPE, Place.NAME])
async def test_a_name_with_a_slash_does_not_pass_for_another_one(ep: Eventproc, place: Place) -> None:
    tokens = await add_users(ep)
    authority = await loaded(ep)
    for scope, name in (("s/t", ""), ("s", "t/u"), ("s/t", "u")):
        for user, token in tokens.items():
            caller = await authority.authenticate(f"Bearer {token}")
            if may(user, READ, "*"):
                Need(READ, place).verify(caller, scope, name)
                continue
            with pytest.raises(NotPermitted):
                Need(READ, place).verify(caller, scope, name)
