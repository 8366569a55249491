"""A route: method and path, the function that answers, and what its signature says of parameters, body and result."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from types import MappingProxyType
from typing import (
    Annotated,
    Any,
    Final,
    Generic,
    Literal,
    TypeAlias,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

import attrs

from eventproc.runtime import Eventproc
from eventproc.server.access.authority import TRUSTED, Caller
from eventproc.server.access.needs import Need, Place
from eventproc.server.rest.problems import HttpProblem
from eventproc.store.access.permissions import Permission
from eventproc.store.model.errors import NotFound
from eventproc.store.payload_pages import PAGE_BYTES_MAX
from eventproc.store.records.plain import Limits
from eventproc.store.requests import Request
from eventproc.streams.request_calls import run_request
from eventproc.workflows.preview import RequestPreview
from eventproc.workflows.requests import Operation

T = TypeVar("T")
U = TypeVar("U")

PAGE_ENTRIES_MAX: Final = 1_000
"""Most entries of a page. Higher: longer reads of the database and larger responses."""

PAGE: Final = 100
"""Entries of a page unless the caller asks for another number."""

PageLimit: TypeAlias = Annotated[int, Limits(1, PAGE_ENTRIES_MAX, "How many entries at most.")]
After: TypeAlias = Annotated[str | None, Limits(about="`next` of the previous page.")]
AfterNumber: TypeAlias = Annotated[int | None, Limits(0, about="`next` of the previous page.")]
ScopeName: TypeAlias = Annotated[str, Limits(about="Name of the scope.")]
LocalName: TypeAlias = Annotated[str, Limits(about="Name of the stream or group, without its scope.")]

_NAMES: Final = ("stream", "group", "schedule")
"""Parameters with a name in a scope."""

_HEADERS: Final[Mapping[str, str]] = MappingProxyType({"idempotency_key": "Idempotency-Key"})
"""Parameters that callers give in a header, and its name."""

Answer: TypeAlias = Callable[..., Awaitable[object]]
"""A function that answers: it takes a RestCall, then parameters of the path and the query, and a `body` if any."""


@attrs.frozen
class Page(Generic[T]):
    """A page of a list. items: the entries. next: what `after` must be for the next page; None on the last one."""

    items: Sequence[T]
    next: str | None


@attrs.frozen
class Linked(Generic[T]):
    """A page of a list of Pravega's, whose form has no place for `next`: the response links to the next page.

    value: what the body says. next: what `after` must be for the next page; None on the last one.
    """

    value: T
    next: str | None


class Previewed(Exception):
    """A call with `dry_run` has found out what its request would do, and ends there. found: what that is."""

    def __init__(self, found: RequestPreview) -> None:
        super().__init__(found)
        self.found = found


@attrs.frozen
class RestCall:
    """A call: the open directory, and what the headers ask for.

    wait_ms: how long to wait for the outcome of a request, in ms.
    request_id: from `Idempotency-Key`: that of the request; None: a new one.
    caller: who calls.
    last_event_id: from `Last-Event-ID`: where a stream of events resumes; None: at its end.
    dry_run: only find out what the request would do.
    """

    ep: Eventproc
    wait_ms: int
    request_id: str | None = None
    caller: Caller = TRUSTED
    last_event_id: str | None = None
    dry_run: bool = False

    async def run(self, operation: Operation) -> Request:
        """Submit the operation, and wait for its outcome; a repeated key finds the first one.

        Raises what it was refused for, StillPending, InvalidArgument for the key of another call, and Previewed for a
        dry run.
        """
        if self.dry_run:
            raise Previewed(await self.ep.requests.preview(operation))
        return await run_request(self.ep.db, operation, request_id=self.request_id, timeout_ms=self.wait_ms)

    async def verify_key(self) -> None:
        """Raise HttpProblem if the key belongs to a request, which is then another one than this call asks for."""
        if self.request_id is not None and (found := await self._find(self.request_id)) is not None:
            raise self._key_problem(found)

    def _key_problem(self, found: Request) -> HttpProblem:
        """Return the refusal of a call whose key belongs to another request, which not every caller may know."""
        known = f", {found.kind} of {found.target}" if self.caller.may(Permission.READ, found.target) else ""
        detail = (
            f"Idempotency-Key {self.request_id!r} belongs to another request{known}; "
            "repeat a key only with an equal call, and use a new one for each change"
        )
        return HttpProblem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)

    async def _find(self, request_id: str) -> Request | None:
        try:
            return await self.ep.requests.get(request_id)
        except NotFound:
            return None


@attrs.frozen
class EventStream:
    """The result of a route that sends events until its caller leaves. last_event_id: the last one that it got."""

    last_event_id: str | None


@attrs.frozen
class Parameter:
    """A parameter of a path, a query or a header.

    name: as it is written. argument: of the function. default: attrs.NOTHING if it is required.
    """

    name: str
    argument: str
    place: Literal["path", "query", "header"]
    kind: Any
    default: object


DRY_RUN: Final = Parameter(
    "dry_run",
    "dry_run",
    "query",
    Annotated[bool, Limits(about="Change nothing; answer with what the request would destroy.")],
    False,
)
"""Of every route whose request can be previewed."""


@attrs.frozen
class RestRoute:
    """What answers a method of a path.

    status: of a response without an error. errors: the statuses of Pravega's documents, beside the general ones.
    tag: groups it in the document. submits: whether it runs a request, so that a caller may limit the wait for it.
    has_dry_run: whether the request is one that `RestCall.run` submits, so that a caller may preview it.
    body: its type; None without one. result: its type; None for a response without a body.
    is_linked: whether the response is a page that links to the next one.
    need: what its caller needs.
    """

    method: str
    path: str
    answer: Answer
    tag: str
    status: int
    errors: tuple[int, ...]
    submits: bool
    has_dry_run: bool
    parameters: tuple[Parameter, ...]
    body: Any
    result: Any
    is_linked: bool
    need: Need

    @property
    def name(self) -> str:
        """Name of the function, unique among routes."""
        return self.answer.__name__

    @property
    def is_stream(self) -> bool:
        """Whether the response is a stream of events, which does not end by itself."""
        return self.result is EventStream

    @property
    def summary(self) -> str:
        """What it does: the first sentence of the function's documentation."""
        return (inspect.getdoc(self.answer) or "").split("\n")[0]


def route(
    method: str,
    path: str,
    answer: Answer,
    *,
    tag: str,
    status: int = 200,
    errors: tuple[int, ...] = (),
    submits: bool = False,
    has_dry_run: bool | None = None,
    need: Need | None = None,
) -> RestRoute:
    """Return a route whose parameters, body and result are those of the function's signature.

    has_dry_run: None: if it submits a request. need: what its caller needs; None: READ for a GET, else READ_UPDATE, on
    what the path names.
    """
    hints = get_type_hints(answer, include_extras=True)
    in_path = re.findall(r"{(\w+)}", path)
    parameters: list[Parameter] = []
    for each in list(inspect.signature(answer).parameters.values())[1:]:
        if each.name == "body":
            continue
        default = attrs.NOTHING if each.default is inspect.Parameter.empty else each.default
        place: Literal["path", "query", "header"] = (
            "path" if each.name in in_path else "header" if each.name in _HEADERS else "query"
        )
        name = _HEADERS.get(each.name, each.name.rstrip("_"))  # such an underscore avoids a word of Python
        parameters.append(Parameter(name, each.name, place, hints[each.name], default))
    has_dry_run = submits if has_dry_run is None else has_dry_run
    if has_dry_run:
        parameters.append(DRY_RUN)
    assert {each.name for each in parameters if each.place == "path"} == set(in_path), path
    returned = hints["return"]
    is_linked = get_origin(returned) is Linked
    result = None if returned is type(None) else get_args(returned)[0] if is_linked else returned
    return RestRoute(
        method=method,
        path=path,
        answer=answer,
        tag=tag,
        status=status,
        errors=errors,
        submits=submits,
        has_dry_run=has_dry_run,
        parameters=tuple(parameters),
        body=hints.get("body"),
        result=result,
        is_linked=is_linked,
        need=_need_of(method, [each.name for each in parameters]) if need is None else need,
    )


def names_of(arguments: Mapping[str, object]) -> tuple[str, str]:
    """Return the scope, and the stream, group or schedule in it, that a call names; "" for what it does not name."""
    scope, name = arguments.get("scope"), next((arguments[each] for each in _NAMES if each in arguments), "")
    return str(scope or ""), str(name)


def _need_of(method: str, parameters: Sequence[str]) -> Need:
    permission = Permission.READ if method == "GET" else Permission.READ_UPDATE
    if any(each in parameters for each in _NAMES):
        return Need(permission, Place.NAME)
    return Need(permission, Place.SCOPE if "scope" in parameters else Place.SERVER)


def page_of(
    found: Sequence[T], limit: int, key: Callable[[T], str], payload: Callable[[T], bytes] | None = None
) -> Page[T]:
    """Return the page of a list that was read with `limit + 1`. key: what `after` is for an entry.

    payload: of an entry, if the list ends at a number of bytes, too. Then the next page may be empty.
    """
    items = found[:limit]
    is_full = payload is not None and sum(len(payload(each)) for each in items) >= PAGE_BYTES_MAX
    return Page(items, key(items[-1]) if is_full or len(found) > limit else None)


def linked_page(
    found: Sequence[T], limit: int, key: Callable[[T], str], body: Callable[[Sequence[T]], U]
) -> Linked[U]:
    """Return such a page in a form of Pravega's. body: the value for the entries of the page."""
    page = page_of(found, limit, key)
    return Linked(body(found[:limit]), page.next)
