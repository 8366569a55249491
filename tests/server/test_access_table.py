"""What each route, method and command needs, by user: a new one without a row in the table fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import anyio
import httpx
import pytest
from anyio.streams.stapled import StapledObjectStream
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
from eventproc.server.frames import MemoryBudget
from eventproc.server.rest.application import DOCUMENT_PATH, METRICS_PATH, RestAnswers, rest_application
from eventproc.server.rest.route_table import ROUTES
from eventproc.server.wire import commands as c
from eventproc.server.wire.channel import Channel as WireChannel
from eventproc.server.wire.codec import MESSAGES
from eventproc.server.wire.command_needs import WITHOUT_NEED, need_of
from eventproc.server.wire.connection import WireConnection
from eventproc.testing.crash import PATIENCE_S
from tests.server.access_support import READ, UPDATE, add_users, loaded, may
from tests.server.access_table import (
    ANYONE,
    GRPC,
    IF_FOUND,
    REST,
    SCOPES,
    WIRE,
    Row,
    command_of,
)

SEGMENT = "s/t/0.#epoch.0"


@pytest.fixture
async def ep() -> Any:
    async with eventproc.open_memory() as ep:
        for scope in SCOPES:
            await ep.create_scope(scope)
            await ep.create_stream(f"{scope}/t")
        yield ep


@asynccontextmanager
async def calling_rest(ep: Eventproc) -> AsyncIterator[tuple[httpx.AsyncClient, Mapping[str, str]]]:
    """Yield a caller of REST, and the token of each user."""
    tokens = await add_users(ep)
    transport = httpx.ASGITransport(rest_application(RestAnswers(ep, await loaded(ep), "127.0.0.1")))
    async with httpx.AsyncClient(transport=transport, base_url="http://anything") as http:
        yield http, tokens


def expected(row: Row, user: str, scope: str) -> bool:
    return True if isinstance(row, str) else may(user, row[0], row[1].format(scope=scope))


def test_every_route_method_and_command_has_a_row() -> None:
    assert {each.name for each in ROUTES} == set(REST)
    assert {each.name for each in SERVICE.methods} == set(GRPC)


async def test_every_command_that_a_connection_handles_has_a_row(ep: Eventproc) -> None:
    containers: Any = None  # no segment is asked for
    sending, receiving = anyio.create_memory_object_stream[bytes]()
    async with StapledObjectStream(sending, receiving) as stream:
        channel: Any = WireChannel(stream, MemoryBudget(1))
        handled = set(WireConnection(ep.db, channel, containers, Authority(ep.db))._handlers)
    assert handled | {c.ReadSegment} | WITHOUT_NEED == set(WIRE)


async def test_each_route_of_rest_answers_those_who_are_permitted_and_nobody_else(ep: Eventproc) -> None:
    wrong: list[object] = []
    async with calling_rest(ep) as (http, tokens):
        for route, scope in product(ROUTES, SCOPES):
            path = route.path.format(
                scope=scope,
                **dict.fromkeys(["stream", "group", "schedule"], "t"),
                part="database",
                segment="9.9",
                **dict.fromkeys(["transaction", "task", "request", "token"], "1"),
                user="missing",
                **dict.fromkeys(["reader", "consumer"], "r"),
                letter="0.0:1",
                supervisor="missing",
                table="missing",
                event="1",
                job="1",
            )

            # A stream of events does not end; HEAD needs the same permission.
            method = "HEAD" if route.is_stream else route.method

            async def status(headers: dict[str, str], method: str = method, path: str = path) -> int:
                return (await http.request(method, path, headers=headers)).status_code

            row = REST[route.name]
            without = await status({}), await status({"Authorization": "Bearer wrong"})
            if (401 in without) is (row == ANYONE) or len(set(without)) > 1:
                wrong.append((route.name, without))
            for user, token in tokens.items():
                found = await status({"Authorization": f"Bearer {token}"})
                allowed = expected(row, user, scope)
                if row == IF_FOUND:  # it does not exist
                    allowed = may(user, READ, "*")
                if found == 401 or (found == 403) is allowed:
                    wrong.append((route.name, scope, user, found))
        assert (await http.get(DOCUMENT_PATH)).status_code == 200
        for user, token in {**tokens, "unknown": "wrong"}.items():
            headers = {"Authorization": f"Bearer {token}"}
            found = (await http.get(METRICS_PATH, headers=headers)).status_code
            assert found == (401 if user == "unknown" else 200), user
    assert wrong == []


async def test_lists_show_each_user_what_it_may_read(ep: Eventproc) -> None:
    async with calling_rest(ep) as (http, tokens):
        for user, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            allowed = {each: may(user, READ, f"{each}/t") for each in SCOPES}
            found = (await http.get("/eventproc/v1/streams", headers=headers)).json()["items"]
            assert {each["name"] for each in found} == {f"{each}/t" for each in SCOPES if allowed[each]}, user
            for scope in SCOPES:
                found = (await http.get(f"/eventproc/v1/streams?scope={scope}", headers=headers)).json()
                assert len(found["items"]) == allowed[scope], user
                found = (await http.get(f"/v1/scopes/{scope}/streams", headers=headers)).json()
                assert len(found["streams"]) == allowed[scope], user
            for path in ("eventproc/v1/streams?scope=missing", "v1/scopes/missing/streams"):
                status = (await http.get(f"/{path}", headers=headers)).status_code
                assert status == (404 if may(user, READ, "*") else 200), (user, path)
        for user, scopes in (("scope-reader", ["s"]), ("nobody", []), ("server-reader", ["other", "s"])):
            headers = {"Authorization": f"Bearer {tokens[user]}"}
            found = await http.get("/v1/scopes", headers=headers)
            assert sorted(each["scopeName"] for each in found.json()["scopes"]) == scopes


async def test_a_request_is_shown_to_those_who_may_read_what_it_changes(ep: Eventproc) -> None:
    request = next(each for each in await ep.requests.list() if each.target == "s/t")
    async with calling_rest(ep) as (http, tokens):
        for user, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}"}
            found = await http.get(f"/eventproc/v1/requests/{request.id}", headers=headers)
            assert found.status_code == (200 if may(user, READ, "s/t") else 403), user
            missing = await http.get("/eventproc/v1/requests/missing", headers=headers)
            assert found.status_code == 200 or found.json() == missing.json(), user


async def test_a_key_of_another_request_does_not_tell_its_target_to_those_who_may_not_read_that(
    ep: Eventproc,
) -> None:
    request = next(each for each in await ep.requests.list() if each.target == "s/t")
    async with calling_rest(ep) as (http, tokens):
        for user, is_told in (("writer-of-others", False), ("administrator", True)):
            headers = {"Authorization": f"Bearer {tokens[user]}", "Idempotency-Key": request.id}
            body = {"streamName": "u"}
            refused = await http.post("/v1/scopes/other/streams", json=body, headers=headers)
            assert refused.status_code == 422
            assert ("s/t" in refused.text) is is_told, user


def request_of(name: str, scope: str) -> Any:
    """Return a request of a method about the stream `t` of a scope, whose names are wherever its message has them."""
    made = GetMessageClass(SERVICE.methods_by_name[name].input_type)()
    local = dict.fromkeys(["stream", "kvtName", "readerGroupName", "readerGroup"], "t")
    _fill(made, {**local, "scope": scope, "subscriber": f"{scope}/t"})
    return made


def _fill(message: Any, local: Mapping[str, str]) -> None:
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and not field.is_repeated:
            _fill(getattr(message, field.name), local)
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

        async def status(name: str, scope: str, token: str | None) -> Status:
            method = SERVICE.methods_by_name[name]
            kinds = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
            call = UnaryUnaryMethod(channel, f"/{SERVICE.full_name}/{name}", *kinds)
            metadata = None if token is None else {"authorization": f"Bearer {token}"}
            try:
                await call(request_of(name, scope), timeout=PATIENCE_S, metadata=metadata)
            except GRPCError as why:
                return why.status
            return Status.OK

        try:
            for (name, row), scope in product(GRPC.items(), SCOPES):
                for token in (None, "wrong"):
                    found = await status(name, scope, token)
                    if (found is Status.UNAUTHENTICATED) is (row == ANYONE):
                        wrong.append((name, scope, token, found))
                for user, token in tokens.items():
                    found = await status(name, scope, token)
                    denied = None if expected(row, user, scope) else Status.PERMISSION_DENIED
                    if (found if found in refusals else None) is not denied:
                        wrong.append((name, scope, user, found))
        finally:
            channel.close()
    assert wrong == []


def test_a_command_that_this_server_only_sends_is_allowed_for_nobody() -> None:
    for kind in set(MESSAGES.values()) - set(WIRE):
        found = need_of(command_of(kind, SEGMENT, ""))
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
