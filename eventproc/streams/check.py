"""What an event may be, before it is given to a writer: its size, its event time, its headers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventproc.store.model.errors import InvalidArgument
from eventproc.store.model.limits import (
    EVENT_BYTES_MAX,
    HEADER_NAME_CHARS_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
)


def check_size(payload: bytes) -> None:
    """Raise InvalidArgument for a payload of more than EVENT_BYTES_MAX."""
    if len(payload) > EVENT_BYTES_MAX:
        raise InvalidArgument(
            what="event", value=f"{len(payload)} bytes", reason=f"an event has at most {EVENT_BYTES_MAX}"
        )


def check_extra(event_time: int | None, headers: Mapping[str, str] | None) -> None:
    """Raise InvalidArgument for an event time that does not fit 64 bits, and for headers above their limits."""
    if event_time is not None and not -(2**63) < event_time < 2**63:
        raise InvalidArgument(what="event time", value=str(event_time), reason="it must fit 64 bits of ms")
    if headers:
        _check_headers(headers)


def _check_headers(headers: Mapping[Any, Any]) -> None:
    if len(headers) > HEADERS_COUNT_MAX:
        raise InvalidArgument(what="headers", value=str(len(headers)), reason=f"at most {HEADERS_COUNT_MAX}")
    size = 0
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidArgument(
                what="header", value=f"{name!r}: {value!r}", reason="name and value must be str"
            )
        if len(name) > HEADER_NAME_CHARS_MAX:
            raise InvalidArgument(
                what="header name",
                value=f"{name[:40]}…",
                reason=f"at most {HEADER_NAME_CHARS_MAX} characters",
            )
        size += len(name) + len(value)
    if size > HEADERS_BYTES_MAX:
        raise InvalidArgument(
            what="headers", value=f"{size} characters", reason=f"at most {HEADERS_BYTES_MAX}"
        )
