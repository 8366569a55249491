"""Errors as problem details (RFC 9457): one table from the class of an error to the status of its response."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

import attrs

from eventproc.errors import (
    AlreadyExists,
    Closed,
    Corrupt,
    DiskFull,
    EventprocError,
    Expired,
    Fenced,
    InvalidArgument,
    InvalidCut,
    InvalidSpec,
    NotFound,
    NotSupported,
    Pending,
    Rejected,
    Retryable,
    ScopeNotEmpty,
    StreamNotSealed,
    Truncated,
)
from eventproc.store.records.plain import Schema, to_dict

PROBLEM_TYPE: Final = "application/problem+json"
"""Media type of a problem."""

RETRY_AFTER_S: Final = 1
"""When a caller should try again after an error that changed nothing, in s."""

STATUS_OF: Final[tuple[tuple[type[EventprocError], HTTPStatus], ...]] = (
    (InvalidArgument, HTTPStatus.BAD_REQUEST),
    (InvalidCut, HTTPStatus.BAD_REQUEST),
    (InvalidSpec, HTTPStatus.BAD_REQUEST),
    (NotSupported, HTTPStatus.BAD_REQUEST),
    (NotFound, HTTPStatus.NOT_FOUND),
    (AlreadyExists, HTTPStatus.CONFLICT),
    (ScopeNotEmpty, HTTPStatus.PRECONDITION_FAILED),  # as Pravega
    (StreamNotSealed, HTTPStatus.PRECONDITION_FAILED),  # as Pravega
    (Expired, HTTPStatus.GONE),
    (Truncated, HTTPStatus.GONE),
    (DiskFull, HTTPStatus.INSUFFICIENT_STORAGE),
    (Closed, HTTPStatus.SERVICE_UNAVAILABLE),
    (Retryable, HTTPStatus.SERVICE_UNAVAILABLE),
    (Pending, HTTPStatus.SERVICE_UNAVAILABLE),
    (Fenced, HTTPStatus.SERVICE_UNAVAILABLE),
    (Rejected, HTTPStatus.CONFLICT),
    (Corrupt, HTTPStatus.INTERNAL_SERVER_ERROR),
)
"""The status of each error; the first class that fits decides."""

TYPES: Final = "urn:eventproc:error:"
"""Begins the type of a problem that is an error of eventproc; its class follows, as docs/errors.md lists it."""

SCHEMA: Final[Schema] = {
    "type": "object",
    "description": "Why a call failed (RFC 9457).",
    "properties": {
        "type": {"type": "string", "description": f"{TYPES}CLASS, or about:blank for an error of HTTP."},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "What failed, on which object, why, and what to do."},
        "fields": {"type": "object", "description": "The fields of the error, by name."},
    },
    "required": ["type", "title", "status", "detail"],
    "additionalProperties": False,
}
"""What every problem looks like."""


class HttpProblem(Exception):
    """A call that HTTP refuses, before eventproc sees it.

    status: of the response. detail: what is wrong. headers: of the response.
    """

    def __init__(self, status: HTTPStatus, detail: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers = status, detail, dict(headers or {})


@attrs.frozen
class Problem:
    """A problem, and the headers of its response."""

    body: dict[str, Any]
    headers: dict[str, str] = attrs.field(factory=dict)

    @property
    def status(self) -> int:
        """The status of its response."""
        return int(self.body["status"])


def status_of(kind: type[EventprocError]) -> HTTPStatus:
    """Return the status for a class of errors."""
    return next(
        (status for each, status in STATUS_OF if issubclass(kind, each)), HTTPStatus.INTERNAL_SERVER_ERROR
    )


def problem_of(why: Exception) -> Problem:
    """Return the problem for an error. One that is not raised on purpose says nothing about the inside."""
    if isinstance(why, EventprocError):
        status = status_of(type(why))
        retry = {"Retry-After": str(RETRY_AFTER_S)} if status is HTTPStatus.SERVICE_UNAVAILABLE else {}
        name = type(why).__name__
        body = _body(TYPES + name, _in_words(name), status, str(why)) | {
            "fields": to_dict(why) if attrs.has(type(why)) else {}
        }
        return Problem(body, retry)
    if isinstance(why, HttpProblem):
        return Problem(_body("about:blank", why.status.phrase, why.status, why.detail), why.headers)
    status = HTTPStatus.INTERNAL_SERVER_ERROR
    detail = f"{type(why).__name__}; the log of the server has the rest"
    return Problem(_body("about:blank", status.phrase, status, detail))


def _body(kind: str, title: str, status: HTTPStatus, detail: str) -> dict[str, Any]:
    return {"type": kind, "title": title, "status": int(status), "detail": detail}


def _in_words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).capitalize()
