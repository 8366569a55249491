"""Answers that are a method of a public class, of the directory or of what the path names; or a change of a stream.

What it does, returns and refuses is what Python's callers get; its documentation is that of the route.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from inspect import Parameter, Signature
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.runtime import Eventproc
from eventproc.server.rest.routes import (
    PAGE,
    After,
    Answer,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.store.requests import Request
from eventproc.workflows.requests import PRESENT, OfStream

Method = Callable[..., Awaitable[Any]]


@attrs.frozen
class Target:
    """The object whose methods answer.

    find: returns it, for a call and the parameters of the path. parameters: types of these.
    """

    find: Callable[..., Any]
    parameters: Mapping[str, Any] = MappingProxyType({})

    async def of(self, call: RestCall, given: dict[str, Any]) -> Any:
        """Return the object that a call names, and take its parameters out of `given`. Raises NotFound."""
        found = self.find(call, *[given.pop(name) for name in self.parameters])
        return await found if inspect.iscoroutine(found) else found


def named(find: Callable[[Eventproc, str], Any], parameter: str = "group") -> Target:
    """Return the target with a name in a scope. parameter: of the path, beside `scope`."""
    parameters = {"scope": ScopeName, parameter: LocalName}
    return Target(lambda call, scope, name: find(call.ep, f"{scope}/{name}"), parameters)


DIRECTORY: Final = Target(lambda call: call.ep)


def calling(
    name: str, method: Method, target: Target, result: Any, *, then: Method | None = None, **parameters: Any
) -> Answer:
    """Return the answer that calls a method.

    result: its type. then: the method whose result is shown; None: that of `method`.
    parameters: types of the method's parameters, in its order. One named `body` is a class of attrs, whose fields are
    options of the method.
    """

    async def answer(call: RestCall, **given: Any) -> Any:
        found, body = await target.of(call, given), given.pop("body", None)
        options = {} if body is None else attrs.asdict(body, recurse=False)
        done = await method(found, *given.values(), **options)
        return done if then is None else await then(found)

    return _described(answer, name, method, {**target.parameters, **parameters}, {}, result)


def listing(
    name: str,
    method: Method,
    target: Target,
    entry: Any,
    *,
    by: str = "name",
    after: Any = After,
    **filters: Any,
) -> Answer:
    """Return the answer that lists pages by a method, which takes `after` and `limit`.

    entry: type of an entry. by: its field that `after` is. filters: types of the method's other options.
    """

    async def answer(call: RestCall, **given: Any) -> Page[Any]:
        limit = given.pop("limit", PAGE)
        found = await method(await target.of(call, given), limit=limit + 1, **given)
        return page_of(found, limit, lambda each: str(getattr(each, by)))

    optional = dict.fromkeys((*filters, "after")) | {"limit": PAGE}
    parameters = {**target.parameters, **filters, "after": after, "limit": PageLimit}
    return _described(answer, name, method, parameters, optional, Page[entry])


def changing(
    name: str,
    change: type[OfStream],
    result: Any,
    then: Callable[[RestCall, Request], Awaitable[Any]],
    *,
    omitted: tuple[str, ...] = (),
) -> Answer:
    """Return the answer that submits a change of a stream, whose fields are the body. The path names the stream.

    result, then: what is shown of the request that is done. omitted: fields that callers do not give.
    """
    fields = {
        each.name: attrs.field(default=each.default, type=each.type, kw_only=True)
        for each in attrs.fields(attrs.resolve_types(change))
        if each.name not in ("stream", "stream_id", *omitted)
    }
    kind = attrs.make_class(change.__name__, fields)
    kind.__doc__ = change.__doc__

    async def answer(call: RestCall, scope: str, stream: str, body: Any) -> Any:
        given = attrs.asdict(body, recurse=False)
        return await then(call, await call.run(change(f"{scope}/{stream}", PRESENT, **given)))

    parameters = {"scope": ScopeName, "stream": LocalName, "body": kind}
    return _described(answer, name, change, parameters, {}, result)


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
        Parameter(each, Parameter.KEYWORD_ONLY, default=defaults.get(each, Parameter.empty))
        for each in parameters
    ]
    answer.__signature__ = Signature([Parameter("call", Parameter.POSITIONAL_ONLY), *keywords])
    return answer  # type: ignore[no-any-return]
