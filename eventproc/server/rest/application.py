"""The application: finds the route of a call, reads its parameters and body, and answers in JSON.

Without users, a caller is trusted because it runs on this machine. A page in a browser is not trusted: a call with a
foreign `Host` or `Origin` is refused, and a body must be JSON by its media type, which a foreign page cannot send. With
users, a call has credentials, which are verified before its parameters and body are read. A server then has more names
than it knows, so that any `Host` is accepted.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import anyio
import attrs
from cattrs import Converter
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from eventproc.runtime import Eventproc
from eventproc.runtime.measures import reporting
from eventproc.server.access.authority import (
    TRUSTED,
    Authority,
    Caller,
    NotAuthenticated,
    NotPermitted,
    TooManyPasswords,
)
from eventproc.server.rest.change_response import EVENTS_HEADERS, ChangeResponse
from eventproc.server.rest.changes import ChangeFeed
from eventproc.server.rest.health_calls import health_of
from eventproc.server.rest.metrics import render_metrics
from eventproc.server.rest.openapi import EVENTS_TYPE, document
from eventproc.server.rest.operator_calls import RequestReport
from eventproc.server.rest.positions import PositionSeal
from eventproc.server.rest.problems import PROBLEM_TYPE, RETRY_AFTER_S, HttpProblem, problem_of
from eventproc.server.rest.route_table import OWN, ROUTES
from eventproc.server.rest.routes import (
    DRY_RUN,
    EventStream,
    Linked,
    Previewed,
    RestCall,
    RestRoute,
    names_of,
)
from eventproc.server.ui.page import page_routes
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.errors import Closed, EventprocError, InvalidArgument, StillPending
from eventproc.store.records.plain import STRICT, JsonObject, Malformed, why_unknown
from eventproc.streams.picture import StreamPicture

LOG = logging.getLogger("eventproc.server")

BODY_BYTES_MAX: Final = 1 << 20
"""Largest body of a call. Higher: more memory for each call that is being read."""

BODY_S: Final = 30
"""How long a caller may take to send its body, in s. Higher: slow callers hold their calls for longer; lower: callers
with a slow network are cut off."""

SEND_S: Final = 30
"""How long a caller may take for a part of a response, in s, before its call ends. Higher and lower: as BODY_S."""

CALLS_MAX: Final = 256
"""Calls that run simultaneously, up to a body of the largest size each; more are refused with 503. Callers that watch
changes have a bound of their own. Higher: more memory; lower: fewer callers that wait for their outcomes."""

WAIT_S: Final = 30
"""How long a call waits for the outcome of its request, unless it asks for another time, in s."""

WAIT_S_MAX: Final = 600
"""Longest such wait. Higher: connections that are lost meanwhile are noticed later."""

CHALLENGE: Final = MappingProxyType(
    {"WWW-Authenticate": 'Basic realm="eventproc", charset="UTF-8", Bearer realm="eventproc"'}
)
"""What a response without valid credentials asks for."""

REQUEST_ID: Final = "request id"
"""What an InvalidArgument names for a key that is malformed, or that belongs to another request."""

RETRY: Final = MappingProxyType({"Retry-After": str(RETRY_AFTER_S)})
"""When a call that was refused because of others may come again."""

DOCUMENT_PATH: Final = "/openapi.json"
METRICS_PATH: Final = "/metrics"

SVG_TYPE: Final = "image/svg+xml"
"""What a caller accepts that wants a picture, not its numbers."""

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)

_TEXTS: Final = STRICT.copy()
"""Reads parameters of addresses, which are texts."""

_BOOLS: Final = MappingProxyType({"true": True, "false": False})

_TEXTS.register_structure_hook(bool, lambda text, _: STRICT.structure(_BOOLS.get(text, text), bool))
_TEXTS.register_structure_hook(
    int, lambda text, _: STRICT.structure(int(text) if _INTEGER.fullmatch(text) else text, int)
)

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait=(\d{1,9})(?:$|[,;\s])", re.ASCII)
_ENCODE: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class RestAnswers:
    """Answers calls for an open directory.

    authority: who may call. host: where it listens, which callers may name. changes: what callers that watch are sent,
    while its `run` runs.
    """

    def __init__(self, ep: Eventproc, authority: Authority, host: str) -> None:
        self._ep = ep
        self._authority = authority
        self._hosts = frozenset((*_LOCAL, host))
        self.changes = ChangeFeed(ep)
        self._running: set[anyio.CancelScope] = set()

    def refuse_running(self) -> None:
        """End the calls that are running, with 503. To be called when the server ends."""
        for scope in self._running:
            scope.cancel()

    async def answer(self, methods: Mapping[str, RestRoute], request: HttpRequest) -> Response:
        """Return the response of the route for the method, or a problem."""
        route = methods["GET" if request.method == "HEAD" else request.method]
        answer = partial(self._answer, route, request)
        return await self._guard(request, answer, is_bounded=not route.need.is_for_anyone)

    async def show_metrics(self, request: HttpRequest) -> Response:
        """Return what Prometheus scrapes."""
        return await self._guard(request, partial(self._metrics, request))

    async def _metrics(self, request: HttpRequest) -> Response:
        caller = await self._caller(request)
        accept = request.headers.get("accept", "")
        if caller.readable is not None:
            body, media_type = await render_metrics(self._ep, accept, caller.readable)
        else:
            ready = int((await health_of(self._ep)).readiness)
            with reporting(self._ep.db, {"ready": lambda: ready}):
                body, media_type = await render_metrics(self._ep, accept)
        return Response(body, headers={"content-type": media_type})

    async def _guard(
        self, request: HttpRequest, answer: Callable[[], Awaitable[Response]], *, is_bounded: bool = True
    ) -> Response:
        """Return what `answer` returns; a problem for its error, and when the server ends.

        is_bounded: whether CALLS_MAX counts. A question for the health does not wait, and must not fail in a flood.
        """
        if is_bounded and len(self._running) >= CALLS_MAX:
            detail = f"{CALLS_MAX} calls are running; try again"
            return _problem(HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, detail, RETRY))
        scope = anyio.CancelScope()
        self._running.add(scope)
        try:
            with scope:
                return await answer()
            raise Closed(what="the server")
        except (EventprocError, HttpProblem) as why:
            return _problem(why)
        except NotAuthenticated as why:
            return _problem(HttpProblem(HTTPStatus.UNAUTHORIZED, str(why), CHALLENGE))
        except NotPermitted as why:
            return _problem(HttpProblem(HTTPStatus.FORBIDDEN, str(why)))
        except TooManyPasswords as why:
            return _problem(HttpProblem(HTTPStatus.SERVICE_UNAVAILABLE, str(why), RETRY))
        except ClientDisconnect:  # nobody reads the answer
            return Response(status_code=HTTPStatus.BAD_REQUEST)
        except Exception as why:
            LOG.exception("%s %s failed", request.method, request.url.path)
            return _problem(why)
        finally:
            self._running.discard(scope)

    async def _caller(self, request: HttpRequest, *, is_for_anyone: bool = False) -> Caller:
        """Return who calls. Raises HttpProblem for a call of a foreign page, NotAuthenticated, TooManyPasswords."""
        _verify_origin(request, None if self._authority.is_required else self._hosts)
        if is_for_anyone:
            return TRUSTED
        return await self._authority.authenticate(request.headers.get("authorization"))

    async def _answer(self, route: RestRoute, request: HttpRequest) -> Response:
        caller = await self._caller(request, is_for_anyone=route.need.is_for_anyone)
        _verify_permission(route, request, caller)
        arguments = _arguments(route, request)
        if route.body is not None:
            arguments["body"] = _read(route.body, await _body(request), "body")
        call = _call(self._ep, route, request, caller, dry_run=arguments.pop(DRY_RUN.name, False))
        try:
            result = await route.answer(call, **arguments)
        except Previewed as done:
            return _json(JsonObject, done.found.losses(), HTTPStatus.OK)
        except InvalidArgument as why:
            if why.what == REQUEST_ID:
                await call.verify_key()
            raise
        except StillPending as why:
            if not route.submits:
                raise
            return await _pending(self._ep, why)
        if isinstance(result, EventStream):
            return self._watch(request, caller, result.last_event_id)
        if route.result is None:
            return Response(status_code=route.status)
        if isinstance(result, StreamPicture) and SVG_TYPE in request.headers.get("accept", ""):
            return Response(result.svg(), media_type=SVG_TYPE)
        if isinstance(result, Linked):
            return _json(route.result, result.value, route.status, _link(request, result.next))
        return _json(route.result, result, route.status)

    def _watch(self, request: HttpRequest, caller: Caller, last_event_id: str | None) -> Response:
        """Return the stream of changes that the caller may read. Raises InvalidArgument, HttpProblem."""
        seal = PositionSeal(self._authority.feed_key, self._ep.db.clock.random_bytes)
        sees_all = caller.readable is None
        position = None if last_event_id is None else seal.parse(last_event_id, sees_all=sees_all)
        if request.method == "HEAD":
            return Response(media_type=EVENTS_TYPE, headers=EVENTS_HEADERS)
        renew = partial(self._authority.authenticate, request.headers.get("authorization"))
        return ChangeResponse(self._ep, self.changes, self.changes.add(caller, seal), position, renew)


def rest_application(
    answers: RestAnswers, *, has_page: bool = False, only_metrics: bool = False
) -> Starlette:
    """Return the application: all routes, the document, and the page if asked for.

    only_metrics: answer nothing but `/metrics`, the routes for anyone, and the document.
    """
    shown = [each for each in ROUTES if each.need.is_for_anyone] if only_metrics else ROUTES
    by_path: dict[str, dict[str, RestRoute]] = {}
    for route in shown:
        by_path.setdefault(route.path, {})[route.method] = route
    routes = [
        HttpRoute(path, partial(answers.answer, methods), methods=[*methods])
        for path, methods in by_path.items()
    ]
    text = _ENCODE(document(shown)).encode()

    async def show_document(_: HttpRequest) -> Response:
        return Response(text, media_type="application/json")

    made = Starlette(
        routes=[
            *routes,
            HttpRoute(DOCUMENT_PATH, show_document),
            HttpRoute(METRICS_PATH, answers.show_metrics),
            *(page_routes() if has_page else ()),
        ],
        exception_handlers={HTTPException: _refuse},
    )
    # It would lead callers whose path ends with a slash away from a proxy in front of the server, and from its TLS.
    made.router.redirect_slashes = False
    return made


def sending_soon(application: ASGIApp) -> ASGIApp:
    """Return the application with a bound: a call ends if its caller takes nothing for SEND_S."""

    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_soon(message: Message) -> None:
            with anyio.fail_after(SEND_S):
                await send(message)

        try:
            await application(scope, receive, send_soon)
        except TimeoutError:
            LOG.warning("%s: ending a call whose caller takes nothing", scope.get("path"))

    return run


async def _refuse(_: HttpRequest, why: Exception) -> Response:
    """Answer a call that no route fits."""
    assert isinstance(why, HTTPException)
    status = HTTPStatus(why.status_code)
    detail = {404: f"no such path; {DOCUMENT_PATH} lists all", 405: "the path has no such method"}
    return _problem(HttpProblem(status, detail.get(status, why.detail), why.headers))


def _verify_permission(route: RestRoute, request: HttpRequest, caller: Caller) -> None:
    """Raise NotPermitted, before anything of the call is looked up."""
    in_query = {each.name for each in route.parameters if each.place == "query"}
    given = {name: text for name, text in request.query_params.items() if name in in_query}
    scope, name = names_of({**given, **request.path_params})
    route.need.verify(caller, scope, name)


def _verify_origin(request: HttpRequest, hosts: Collection[str] | None) -> None:
    """Raise HttpProblem for a call that a page of another site may have caused. hosts: of this server; None: any."""
    host = request.headers.get("host", "")
    if hosts is not None and _host_of(f"//{host}") not in hosts:
        raise HttpProblem(HTTPStatus.MISDIRECTED_REQUEST, f"this server is not {host!r}; use its own address")
    origin = request.headers.get("origin")
    if origin is not None and origin.partition("://")[2] != host:
        raise HttpProblem(HTTPStatus.FORBIDDEN, f"pages of {origin!r} may not call this server")


def _host_of(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _arguments(route: RestRoute, request: HttpRequest) -> dict[str, Any]:
    given: dict[str, str] = {}
    for name, text in request.query_params.multi_items():
        if name in given:
            raise invalid_argument("query", name, "it is given twice")
        given[name] = text
    in_query = [each.name for each in route.parameters if each.place == "query"]
    for name in given:
        if name not in in_query:
            raise invalid_argument("query", name, why_unknown(name, in_query))
    places = {"path": request.path_params, "query": given, "header": request.headers}
    found: dict[str, Any] = {}
    for each in route.parameters:
        texts: Mapping[str, str] = places[each.place]
        if each.name in texts:
            found[each.argument] = _read(each.kind, texts[each.name], each.name, _TEXTS)
        elif each.default is attrs.NOTHING:
            raise InvalidArgument(what=each.name, value="nothing", reason="it is required")
    return found


def _read(kind: Any, plain: object, name: str, converter: Converter = STRICT) -> Any:
    """Return the value of a type that a parameter or body describes. Raises InvalidArgument for the first problem."""
    try:
        return converter.structure(plain, kind)
    except Malformed as why:
        first = why.problems[0]
        if first.value is attrs.NOTHING:
            raise InvalidArgument(what="field", value=first.path, reason=first.reason) from None
        raise invalid_argument(first.path or name, first.value, first.reason) from None


async def _body(request: HttpRequest) -> object:
    """Return the parsed body. Raises HttpProblem, and InvalidArgument."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HttpProblem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "the body must be application/json")
    body = bytearray()  # it may come in many small parts
    with anyio.move_on_after(BODY_S) as reading:
        async for part in request.stream():
            body += part
            if len(body) > BODY_BYTES_MAX:
                detail = f"the body exceeds {BODY_BYTES_MAX:,} bytes"
                raise HttpProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
    if reading.cancelled_caught:
        detail = f"the body did not arrive within {BODY_S} s"
        raise HttpProblem(HTTPStatus.REQUEST_TIMEOUT, detail, {"Connection": "close"})
    try:
        return json.loads(body.decode(), parse_constant=_refuse_constant, object_pairs_hook=_object_of_fields)
    except (ValueError, RecursionError) as why:
        raise invalid_argument("body", body.decode(errors="replace"), f"it is not JSON: {why}") from None


def _object_of_fields(fields: list[tuple[str, object]]) -> JsonObject:
    found = dict(fields)
    if len(found) < len(fields):
        raise ValueError("a field is given twice")
    return found


def _refuse_constant(text: str) -> object:
    raise ValueError(f"{text} is no number")


def _call(
    ep: Eventproc, route: RestRoute, request: HttpRequest, caller: Caller, *, dry_run: bool
) -> RestCall:
    if not route.submits:
        last_event_id = request.headers.get("last-event-id") if route.is_stream else None
        return RestCall(ep, WAIT_S * 1000, caller=caller, last_event_id=last_event_id)
    match = _WAIT.search(request.headers.get("prefer", ""))
    seconds = WAIT_S if match is None else min(int(match[1]), WAIT_S_MAX)
    return RestCall(ep, seconds * 1000, request.headers.get("idempotency-key"), caller, dry_run=dry_run)


async def _pending(ep: Eventproc, why: StillPending) -> Response:
    """Answer a call whose request goes on."""
    found = RequestReport.of(await ep.requests.get(why.request_id))
    location = {"Location": f"{OWN}/requests/{found.id}"}
    return _json(RequestReport, found, HTTPStatus.ACCEPTED, location)


def _link(request: HttpRequest, after: str | None) -> Mapping[str, str]:
    """Return the header that leads to the next page, if there is one (RFC 8288)."""
    if after is None:
        return {}
    query = urlencode({**request.query_params, "after": after})
    return {"Link": f'<{request.url.path}?{query}>; rel="next"'}


def _json(kind: Any, value: object, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return Response(
        _ENCODE(STRICT.unstructure(value, kind)).encode(), status, headers, media_type="application/json"
    )


def _problem(why: Exception) -> Response:
    problem = problem_of(why)
    text = _ENCODE(problem.body).encode(errors="replace")
    return Response(text, problem.status, problem.headers, media_type=PROBLEM_TYPE)
