"""The OpenAPI 3.1 document, from the table of routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc._version import __version__
from eventproc.server.rest.operator_calls import RequestReport
from eventproc.server.rest.positions import PATTERN
from eventproc.server.rest.problems import PROBLEM_TYPE, SCHEMA
from eventproc.server.rest.routes import Parameter, RestRoute
from eventproc.store.records.plain import REFERENCE, STRICT, Schema, camel, schema_of

EVENTS_TYPE: Final = "text/event-stream"
"""Media type of a stream of events."""

_PROBLEM: Final = {PROBLEM_TYPE: {"schema": {"$ref": f"{REFERENCE}Problem"}}}

_WAIT_HEADERS: Final = [
    {
        "name": "Prefer",
        "in": "header",
        "description": "`wait=N`: answer after N seconds at the latest, with 202 if the request is pending.",
        "schema": {"type": "string"},
    },
    {
        "name": "Idempotency-Key",
        "in": "header",
        "description": "A UUID version 7, the id of the request: a repeated call finds the first one.",
        "schema": {"type": "string", "format": "uuid"},
    },
]


_NEXT_LINK: Final[Schema] = {
    "description": 'The next page, as `<...>; rel="next"`; missing on the last one.',
    "schema": {"type": "string"},
}

_RESUME_HEADER: Final = {
    "name": "Last-Event-ID",
    "in": "header",
    "description": "The `id` of the last event that was received: requests that changed since then are sent first.",
    "schema": {"type": "string", "pattern": f"^({PATTERN})$"},
}

_EVENTS: Final[Schema] = {
    "type": "string",
    "description": "Server-sent events: `request` with a RequestReport; `scope`, `group` and `share` with `name` and "
    "`change` (created, deleted); `instance` with `id`, `pid` and `change` (added, removed); `reset` when changes may "
    "have been missed, and `closed` at the end; both have a `reason`. Comments keep the connection alive.",
}


_PREVIEW: Final[Schema] = {
    "type": "object",
    "description": "With `dry_run`: what the request would do, as `eventproc ... --dry-run` prints it.",
    "properties": {
        "dry_run": {"const": True},
        "would": {"type": "string", "description": "Kind of the request."},
        "target": {"type": "string"},
        "already_done": {"type": "boolean", "description": "Whether there is nothing to do."},
    },
    "required": ["dry_run", "would", "target", "already_done"],
}

SECURITY_SCHEMES: Final[Mapping[str, Schema]] = MappingProxyType(
    {
        "basic": {
            "type": "http",
            "scheme": "basic",
            "description": "A user and its password. A token may stand in place of the password.",
        },
        "bearer": {"type": "http", "scheme": "bearer", "description": "A token of a user."},
    }
)

_CREDENTIALS: Final[list[Schema]] = [{each: []} for each in SECURITY_SCHEMES]
"""Either of the schemes."""

_NO_CREDENTIALS: Final[Schema] = {}
"""Stands beside them: a directory without users asks for none."""

_UNAUTHORIZED: Final = {
    "401": {
        "description": "The directory has users, and the credentials are missing, wrong or expired.",
        "content": _PROBLEM,
    },
    "403": {"description": "The user lacks what `x-permission` names.", "content": _PROBLEM},
}


def document(routes: Iterable[RestRoute]) -> dict[str, Any]:
    """Return the document. Deterministic: the order of the routes."""
    classes: dict[str, Schema] = {"Problem": dict(SCHEMA)}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, classes)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "eventproc",
            "version": __version__,
            "description": "The paths of Pravega's controller under /v1, those of an operator under "
            "/eventproc/v1, and the probes of Kubernetes.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(classes.items())),
            "securitySchemes": dict(SECURITY_SCHEMES),
        },
    }


def _operation(route: RestRoute, classes: dict[str, Schema]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": camel(route.name),
        "summary": route.summary,
        "tags": [route.tag],
        "parameters": [_parameter(each, classes) for each in route.parameters],
        "responses": _responses(route, classes),
        "security": [] if route.need.is_for_anyone else [*_CREDENTIALS, _NO_CREDENTIALS],
    }
    if not route.need.is_for_anyone:
        operation["x-permission"] = route.need.described
        operation["x-place"] = route.need.place.value
    if route.is_stream:
        operation["parameters"].append(_RESUME_HEADER)
    if route.submits:
        operation["parameters"] += _WAIT_HEADERS
    if route.body is not None:
        content = {"application/json": {"schema": schema_of(route.body, classes)}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _parameter(parameter: Parameter, classes: dict[str, Schema]) -> dict[str, Any]:
    schema = schema_of(parameter.kind, classes)
    about = schema.pop("description", None)
    if "anyOf" in schema:  # a parameter of an address is never null: it is left out
        schema = {**next(each for each in schema.pop("anyOf") if each != {"type": "null"}), **schema}
    required = parameter.default is attrs.NOTHING
    if not required and parameter.default is not None:
        schema["default"] = STRICT.unstructure(parameter.default)
    found = {"name": parameter.name, "in": parameter.place, "required": required, "schema": schema}
    return found if about is None else {**found, "description": about}


def _add_preview(responses: dict[str, Any]) -> None:
    """Add what a dry run answers with to the responses of a call that has one."""
    content = responses.setdefault("200", {"description": "A dry run."}).setdefault("content", {})
    done = content.get("application/json", {}).get("schema")
    content["application/json"] = {"schema": _PREVIEW if done is None else {"anyOf": [done, _PREVIEW]}}


def _responses(route: RestRoute, classes: dict[str, Schema]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": HTTPStatus(route.status).phrase}
    if route.is_stream:
        done["content"] = {EVENTS_TYPE: {"schema": _EVENTS}}
    elif route.result is not None:
        done["content"] = {"application/json": {"schema": schema_of(route.result, classes)}}
    if route.is_linked:
        done["headers"] = {"Link": _NEXT_LINK}
    responses = {str(route.status): done}
    if route.has_dry_run:
        _add_preview(responses)
    if route.submits:
        location = {"description": "Where to look at the request.", "schema": {"type": "string"}}
        responses["202"] = {
            "description": "The request is recorded, and not done yet.",
            "headers": {"Location": location},
            "content": {"application/json": {"schema": schema_of(RequestReport, classes)}},
        }
    for status in route.errors:
        responses[str(status)] = {"description": HTTPStatus(status).phrase, "content": _PROBLEM}
    if not route.need.is_for_anyone:
        responses |= _UNAUTHORIZED
    responses["default"] = {"description": "The call failed.", "content": _PROBLEM}
    return responses
