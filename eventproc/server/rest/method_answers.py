"""Answers that are a method of a public class, of the directory or of what the path names; or a change of a stream.

What it does, takes, returns and refuses is what Python's callers get; its documentation is that of the route.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Annotated, Any, Final, TypeAlias, get_args, get_type_hints

import attrs

from eventproc.groups import GroupStart
from eventproc.groups.position_texts import parse_group_start
from eventproc.ingestion.intervals import RowTime
from eventproc.ingestion.status import IngestWorkerInfo, SupervisorInfo
from eventproc.runtime import Eventproc
from eventproc.runtime.overview import Overview
from eventproc.server.rest.routes import (
    PAGE,
    After,
    AfterNumber,
    Answer,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.shares import ShareGroup
from eventproc.store.access.permissions import Permission
from eventproc.store.database import Tx
from eventproc.store.ingestion.logs import IngestLogLine
from eventproc.store.model.ingestion import DroppedFiles, TableDescription, TableInfo
from eventproc.store.model.list_pages import ListPage, PageOptions
from eventproc.store.records.plain import Limits
from eventproc.store.requests import Request
from eventproc.streams.request_calls import RequestOptions
from eventproc.topics import Group, TopicInfo, topic
from eventproc.workflows.requests import PRESENT, OfStream

Method = Callable[..., Awaitable[Any]]

_ARGUMENT: Final = re.compile(r"^( *)(\w+): (.+(?:\n\1 {2,}.+)*)", re.MULTILINE)
"""One of the arguments in the documentation of a method, or one of the options in that of a group of options."""

_LATER: Final = {
    **vars(topic),
    "RowTime": RowTime,
} | {
    each.__name__: each
    for each in (
        *(DroppedFiles, Group, IngestLogLine, IngestWorkerInfo, Overview, ShareGroup, SupervisorInfo),
        *(TableDescription, TableInfo, TopicInfo),
    )
}
"""Names in annotations of modules that import them for type checkers only."""

_IN_PATH: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "consumer": Annotated[str, Limits(about="Id of the consumer.")],
        "reader": Annotated[str, Limits(about="Name of the reader.")],
        "table": Annotated[str, Limits(about="Name of the table.")],
        "task": Annotated[str, Limits(about="Id of the task.")],
        "token": Annotated[str, Limits(about="Name of the token.")],
        "user": Annotated[str, Limits(about="Name of the user.")],
    }
)
"""Types of what a path names below the target."""


@attrs.frozen
class Target:
    """The object whose methods answer.

    find: returns it, or the first arguments of the functions that answer, for a call and the parameters of the path.
    parameters: types of these. arguments: how many it returns.
    """

    find: Callable[..., Any]
    parameters: Mapping[str, Any] = MappingProxyType({})
    arguments: int = 1

    async def of(self, call: RestCall, given: dict[str, Any]) -> tuple[Any, ...]:
        """Return what a call names, and take its parameters out of `given`. Raises NotFound."""
        found = self.find(call, *[given.pop(name) for name in self.parameters])
        found = await found if inspect.iscoroutine(found) else found
        return found if self.arguments > 1 else (found,)


def named(find: Callable[[Eventproc, str], Any], parameter: str = "group", arguments: int = 1) -> Target:
    """Return the target with a name in a scope. parameter: of the path, beside `scope`. arguments: as of a Target."""
    parameters = {"scope": ScopeName, parameter: LocalName}
    return Target(lambda call, scope, name: find(call.ep, f"{scope}/{name}"), parameters, arguments)


def seen(
    find: Callable[[Eventproc, str], Any],
    streams_of: Callable[[Tx, str], Iterable[str]],
    parameter: str = "group",
    arguments: int = 1,
) -> Target:
    """Return the target with a name in a scope, to callers that may read all of its streams.

    streams_of: returns their names. The rest: as for `named`.
    """
    target = named(find, parameter, arguments)

    async def found(call: RestCall, scope: str, name: str) -> Any:
        owner = target.find(call, scope, name)
        owner = await owner if inspect.iscoroutine(owner) else owner
        await verify_streams(call, f"{scope}/{name}", streams_of)
        return owner

    return attrs.evolve(target, find=found)


async def verify_streams(call: RestCall, name: str, streams_of: Callable[[Tx, str], Iterable[str]]) -> None:
    """Raise NotPermitted unless the caller may read all streams of what has a name. Raises NotFound."""
    if call.caller.readable is not None:
        call.caller.verify_streams(name, await call.ep.db.read(lambda tx: streams_of(tx, name)))


STREAMS_MAX: Final = 1_000
"""Streams that a call names. Higher: longer transactions."""

POSITION: Final = "head, tail, a time (ISO 8601, or ms), or a cut."

Position: TypeAlias = Annotated[str, Limits(about=POSITION)]
Streams: TypeAlias = Annotated[
    tuple[str, ...], Limits(1, STREAMS_MAX, "Streams, as scope/name. The caller needs READ on each.")
]
START: Final = "head, tail or a time; or cuts, at most one of each stream."

Start: TypeAlias = Annotated[tuple[Position, ...], Limits(1, STREAMS_MAX, START)]

DIRECTORY: Final = Target(lambda call: call.ep)


@attrs.frozen(kw_only=True)
class Text(Limits):
    """A text, or several. read: returns their value, for a call and the target; it may be a coroutine."""

    read: Callable[[RestCall, Any, Any], Any]


@attrs.frozen
class _Option:
    """What callers may give: its type, and what counts if they do not; attrs.NOTHING: they must."""

    kind: Any
    default: Any


def calling(
    method: Method,
    name: str,
    target: Target,
    in_path: Collection[str] = (),
    *,
    has_body: bool = False,
    submits: bool = False,
    by: str = "name",
    payload: Callable[[Any], bytes] | None = None,
    then: Method | None = None,
    shown: Callable[[RestCall, Any, Any], Any] | None = None,
    omitted: Collection[str] = (),
    **types: Any,
) -> Answer:
    """Return the answer that calls a method. One that takes `after` and `limit` answers with pages.

    in_path: what the path names. What is not of the target goes to the first arguments of the method.
    has_body: whether the options of the method are the fields of a body, and not parameters of the query.
    submits: whether the method makes a request, with the id and the wait that the caller asks for.
    by: field of an entry that `after` is. payload: of an entry, as for `page_of`.
    then: the method whose result is shown; None: that of `method`.
    shown: returns what the caller sees of the result, or of each entry of a page, for a call and the target.
    omitted, types: options that callers do not give, and types of options, where they are not those of the method.
    """
    below = {each: _IN_PATH[each] for each in in_path if each not in target.parameters}
    options = _options(method, target.arguments + len(below), omitted, types)
    is_page = {"after", "limit"} <= options.keys()
    texts = {
        each: about.read
        for each, option in options.items()
        for about in get_args(option.kind)
        if isinstance(about, Text)
    }

    async def answer(call: RestCall, **given: Any) -> Any:
        found = await target.of(call, given)
        first, body = [given.pop(each) for each in below], given.pop("body", None)
        if body is not None:
            given = attrs.asdict(body, recurse=False)
        elif is_page:
            given["limit"] = given.get("limit", PAGE) + 1
        for each in texts.keys() & given.keys():
            if given[each] is not None:
                read = texts[each](call, found[0], given[each])
                given[each] = await read if inspect.iscoroutine(read) else read
        if submits:
            given |= {"request_id": call.request_id, "timeout_ms": call.wait_ms}
        done = await method(*found, *first, **given)
        if shown is not None:
            done = [shown(call, found[0], each) for each in done] if is_page else shown(call, found[0], done)
        if is_page:
            return page_of(done, given["limit"] - 1, lambda each: str(getattr(each, by)), payload)
        return done if then is None else await then(*found)

    result = _result_of(then or method)
    parameters = {**target.parameters, **below}
    if has_body and options:
        parameters["body"] = _class_of(f"{_words(name)}Body", options, method)
    else:
        parameters |= {each: option.kind for each, option in options.items()}
    defaults = {each: option.default for each, option in options.items()}
    if is_page:
        defaults["limit"], entry = PAGE, get_args(result)
        result = Page[entry]  # type: ignore[valid-type]
    return _described(answer, name, method, parameters, defaults, result)


def changing(
    change: type[OfStream],
    name: str,
    then: Callable[[RestCall, Request], Awaitable[Any]],
    omitted: Collection[str] = (),
) -> Answer:
    """Return the answer that submits a change of a stream, whose fields are the body. The path names the stream.

    then: what is shown of the request that is done. omitted: fields that callers do not give.
    """
    fields = {
        each.name: _Option(each.type, each.default)
        for each in attrs.fields(attrs.resolve_types(change))
        if each.name not in ("stream", "stream_id", *omitted)
    }

    async def answer(call: RestCall, scope: str, stream: str, body: Any) -> Any:
        given = attrs.asdict(body, recurse=False)
        return await then(call, await call.run(change(f"{scope}/{stream}", PRESENT, **given)))

    body = _class_of(change.__name__, fields, change)
    parameters = {"scope": ScopeName, "stream": LocalName, "body": body}
    return _described(answer, name, change, parameters, {}, _result_of(then))


async def start_of(call: RestCall, streams: Sequence[str], texts: Sequence[str]) -> GroupStart:
    """Return where a group begins. Raises NotPermitted if the caller may not read a stream."""
    for each in streams:
        call.caller.verify(Permission.READ, each)
    return parse_group_start(texts, {each: (await call.ep.stream(each)).stream_id for each in streams})


def creating(
    method: Method,
    name: str,
    then: Method,
    *,
    submits: bool = False,
    omitted: Collection[str] = (),
    **types: Any,
) -> Answer:
    """Return the answer that creates what the body describes: the arguments of a method of the directory.

    The path names the scope. then: the method of what was created whose result is shown. The rest: as for `calling`.
    """
    fields = _options(method, 1, omitted, types)

    async def answer(call: RestCall, scope: str, body: Any) -> Any:
        given = attrs.asdict(body, recurse=False)
        given["name"] = f"{scope}/{body.name}"
        if "streams" in given:
            start = (body.start,) if isinstance(body.start, str) else body.start
            given["start"] = await start_of(call, body.streams, start)
        if submits:
            given |= {"request_id": call.request_id, "timeout_ms": call.wait_ms}
        return await then(await method(call.ep, **given))

    parameters = {"scope": ScopeName, "body": _class_of(f"{_words(name)}Body", fields, method)}
    return _described(answer, name, method, parameters, {}, _result_of(then))


def _options(
    method: Method, first: int, omitted: Collection[str], types: Mapping[str, Any]
) -> dict[str, _Option]:
    """Return the arguments of a method as options. first: how many are none."""
    hints = get_type_hints(method, localns=_LATER)
    about = _documented(method)
    found: dict[str, tuple[Any, Any]] = {}
    for each in list(inspect.signature(method).parameters.values())[first:]:
        if each.kind is Parameter.VAR_KEYWORD:
            (group,) = get_args(hints[each.name])
            given = get_type_hints(group)
            about |= _documented(group)
            if group is PageOptions:
                defaults = {each.name: each.default for each in attrs.fields(ListPage)}
            else:
                defaults = dict.fromkeys(given, None if "request_id" in given else attrs.NOTHING)
            found |= {name: (kind, defaults[name]) for name, kind in given.items()}
        else:
            default = attrs.NOTHING if each.default is Parameter.empty else each.default
            found[each.name] = hints[each.name], default
    if {"after", "limit"} <= found.keys():
        is_text = str in get_args(found["after"][0])
        types = {"after": After if is_text else AfterNumber, "limit": PageLimit, **types}
    return {
        name: _Option(
            types[name] if name in types else Annotated[kind, Limits(about=about.get(name, ""))], default
        )
        for name, (kind, default) in found.items()
        if name not in (*RequestOptions.__annotations__, *omitted)
    }


def _documented(described: Any) -> dict[str, str]:
    """Return what the documentation of a method says of each argument, or that of a group of options of each."""
    text = inspect.getdoc(described) or ""
    return {each[2]: " ".join(each[3].split()) for each in _ARGUMENT.finditer(text)}


def _words(name: str) -> str:
    return name.title().replace("_", "")


def _result_of(method: Method) -> Any:
    return get_type_hints(method, localns=_LATER)["return"]


def _class_of(name: str, options: Mapping[str, _Option], described: Any) -> Any:
    fields = {name: attrs.field(default=each.default, type=each.kind) for name, each in options.items()}
    kind = attrs.make_class(name, fields, frozen=True, kw_only=True)
    kind.__doc__ = described.__doc__
    return kind


def _described(
    answer: Any,
    name: str,
    described: Any,
    parameters: Mapping[str, Any],
    defaults: Mapping[str, Any],
    result: Any,
) -> Answer:
    """Give the answer a signature for `route`, and the documentation of what it does."""
    answer.__name__, answer.__doc__ = name, described.__doc__
    answer.__annotations__ = {**parameters, "return": result}
    keywords = [
        Parameter(each, Parameter.KEYWORD_ONLY, default=defaults.get(each, attrs.NOTHING))
        for each in parameters
    ]
    answer.__signature__ = Signature([Parameter("call", Parameter.POSITIONAL_ONLY), *keywords])
    return answer  # type: ignore[no-any-return]
