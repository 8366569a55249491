"""Calls of the controller and of REST as bytes: each is answered by a directory in memory, or refused. See `parsers`.

A call that fails with a defect is answered with INTERNAL, or with the status 500.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import cache, lru_cache
from random import Random
from typing import Any, Final
from urllib.parse import quote

import anyio
import attrs
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpclib.const import Status
from grpclib.exceptions import GRPCError

import eventproc
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.controller.service import SERVICE
from eventproc.server.rest.application import RestAnswers, rest_application
from eventproc.server.rest.route_table import ROUTES
from tests.server.controller_calls import controller_of

CALLS_MAX: Final = 2_000
"""Calls that a directory in memory answers before another one takes its place."""

ANSWER_S: Final = 0.05
"""How long a call may wait, for what does not happen; then its caller leaves."""

METHODS: Final = tuple(SERVICE.methods)
SHOWN: Final = tuple(each for each in ROUTES if not each.is_stream)
NAMES: Final = {"scope": "s", "stream": "t", "topic": "t", "name": "t", "group": "g"}


class Answers:
    """Answers calls one at a time by a directory in memory with the stream `s/t` and the topic `s/topic`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._left = 0
        self._ep: Eventproc | None = None

    def run(self, answer: Callable[[Eventproc], Awaitable[None]]) -> None:
        """Run the function of a directory, until it waits for too long."""
        loop = self._loop = self._loop or asyncio.new_event_loop()
        if self._ep is None or not self._left:
            self._discard(loop)
            self._ep = loop.run_until_complete(_new_directory())
            self._left = CALLS_MAX
        self._left -= 1
        loop.run_until_complete(_bounded(answer, self._ep))

    def close(self) -> None:
        """Discard the directory, and the event loop."""
        if (loop := self._loop) is not None:
            self._discard(loop)
            loop.close()
        self._loop = None

    def _discard(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._ep is not None:
            loop.run_until_complete(self._ep.close())
        self._ep = None


async def _new_directory() -> Eventproc:
    ep = await eventproc.open_memory()
    await ep.create_scope("s")
    await ep.create_stream("s/t")
    await ep.create_topic("s/topic", partitions=2)
    return ep


async def _bounded(answer: Callable[[Eventproc], Awaitable[None]], ep: Eventproc) -> None:
    with anyio.move_on_after(ANSWER_S):
        await answer(ep)


ANSWERS: Final = Answers()


class GivenStream:
    """The stream of a call of gRPC: it has one request, and takes the reply."""

    metadata = None

    def __init__(self, request: Any) -> None:
        self._request = request

    async def recv_message(self) -> Any:
        return self._request

    async def send_message(self, reply: Any) -> None:
        assert reply.SerializeToString() is not None


def check_controller(data: bytes) -> None:
    """A call of the controller is answered, or refused. The first byte chooses the method."""
    if not data:
        return
    method = METHODS[data[0] % len(METHODS)]
    try:
        request = GetMessageClass(method.input_type).FromString(data[1:])
    except DecodeError:
        return

    async def answer(ep: Eventproc) -> None:
        handlers = controller_of(ep).__mapping__()
        try:
            await handlers[f"/{SERVICE.full_name}/{method.name}"].func(GivenStream(request))
        except GRPCError as why:
            if why.status is Status.INTERNAL:
                raise AssertionError(f"{method.name}: {why.message}") from why

    ANSWERS.run(answer)


def controller_sample(random: Random) -> bytes:
    number = random.randrange(len(METHODS))
    message = GetMessageClass(METHODS[number].input_type)()
    _fill_message(message, random, 3)
    return bytes((number,)) + message.SerializeToString(deterministic=True)


def _fill_message(message: Any, random: Random, depth: int) -> None:
    for field in message.DESCRIPTOR.fields:
        if random.random() < 0.2:
            continue
        if field.message_type is not None:
            if field.message_type.GetOptions().map_entry or not depth:
                continue
            inner = getattr(message, field.name)
            _fill_message(inner.add() if field.is_repeated else inner, random, depth - 1)
            continue
        value = _field_value(field, random)
        if field.is_repeated:
            getattr(message, field.name).extend([value])
        else:
            setattr(message, field.name, value)


def _field_value(field: Any, random: Random) -> Any:
    if field.cpp_type == field.CPPTYPE_STRING:
        known = NAMES.get(field.name, "s")
        return known.encode() if field.type == field.TYPE_BYTES else known
    if field.cpp_type in (field.CPPTYPE_DOUBLE, field.CPPTYPE_FLOAT):
        return random.choice((0.0, 0.5, 1.0))
    if field.cpp_type == field.CPPTYPE_BOOL:
        return random.random() < 0.5
    return random.choice((0, 1, 2))


def check_rest(data: bytes) -> None:
    """A call of REST is answered, or refused. The first byte chooses the route.

    A name for the path, the query and the body follow, separated by zero bytes. Without a name, the path has those of
    what exists.
    """
    if not data:
        return
    route = SHOWN[data[0] % len(SHOWN)]
    name, query, body = [*data[1:].split(b"\0", 2), b"", b""][:3]
    path = route.path
    for parameter in route.parameters:
        if parameter.place == "path":
            known = NAMES.get(parameter.name, "x")
            path = path.replace(
                f"{{{parameter.name}}}", name.decode(errors="replace").replace("/", "") or known
            )

    async def answer(ep: Eventproc) -> None:
        status = await _status(ep, route.method, path, query, body)
        assert status != 500, f"{route.method} {path}?{query!r} {body!r}"

    ANSWERS.run(answer)


@lru_cache(maxsize=1)
def _application(ep: Eventproc) -> Any:
    return rest_application(RestAnswers(ep, Authority(ep.db), "localhost"))


async def _status(ep: Eventproc, method: str, path: str, query: bytes, body: bytes) -> int:
    """Return the status of the response of the application."""
    application = _application(ep)
    headers = {"host": "localhost", "content-type": "application/json", "prefer": "wait=0"}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": "",
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    events: list[dict[str, Any]] = [
        {"type": "http.disconnect"},
        {"type": "http.request", "body": body, "more_body": False},
    ]
    found: list[int] = []

    async def receive() -> dict[str, Any]:
        if len(events) == 1:
            await anyio.sleep_forever()
        return events.pop()

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await application(scope, receive, send)
    return found[0]


@cache
def _parameters(number: int) -> list[str]:
    return [each.name for each in SHOWN[number].parameters if each.place == "query"]


ODD: Final = (
    *('"\\ud800"', "1e400", "-1", "1.5", '""', "null", "{}", "true", '"s/t"', '["s/t"]', "1"),
    *("9" * 400, "[" * 900 + "]" * 900, '"2026-11-20T12:30:00Z"', '"7:0.0=0"', '"0.0"'),
)
"""Values of fields, in JSON."""


def rest_input(method: str, path: str, body: str = "", query: str = "") -> bytes:
    """Return the input of a call of a route."""
    (number,) = (number for number, each in enumerate(SHOWN) if (each.method, each.path) == (method, path))
    return bytes((number,)) + b"\0".join((b"", query.encode(), body.encode()))


def rest_sample(random: Random) -> bytes:
    number = random.randrange(len(SHOWN))
    values = ("1", "10", "true", "head", "tail", "s/t", "7:0.0=0", "0.0", "2026-11-20T12:30:00Z", "")
    names = [each for each in _parameters(number) if random.random() < 0.5]
    query = "&".join(f"{each}={quote(random.choice(values))}" for each in names)
    bodies: tuple[object, ...] = (
        {},
        {
            "scope": "s",
            "stream": "t",
            "name": "t",
            "events": [{"payload": "x", "key": "k"}],
            "cut": "7:0.0=0",
        },
        {"segments": ["0.0"], "ranges": ["0-1"], "scopeName": "s", "streamName": "u", "streams": ["s/t"]},
        {"name": "u", "password": "correct horse", "grants": [{"pattern": "*", "permission": "READ"}]},
        [1, None, {"a": 1e300}],
    )
    route = SHOWN[number]
    body = json.dumps(random.choice(bodies)) if route.body is not None else ""
    if route.body is not None and attrs.has(route.body) and random.random() < 0.7:
        fields = (f'"{name}":{random.choice(ODD)}' for name in attrs.fields_dict(route.body))
        body = f"{{{','.join(fields)}}}"
    return rest_input(route.method, route.path, body, query)
