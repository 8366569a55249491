"""What a writer sends together, and what an event may carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar, cast

import anyio
import attrs

from eventproc.store.model.errors import EventprocError, InvalidArgument
from eventproc.store.model.limits import HEADER_NAME_CHARS_MAX, HEADERS_BYTES_MAX, HEADERS_COUNT_MAX
from eventproc.store.segments import Landed
from eventproc.streams.lanes import Lane

P = TypeVar("P")


@attrs.frozen
class NewEvent(Generic[P]):
    """An event to be written, for `write_many`."""

    payload: P
    key: str | None = None
    event_time: int | None = None
    headers: Mapping[str, str] | None = None


@attrs.define(eq=False)
class Send:
    """Events that leave together, and what became of them.

    sequence: chosen by the caller, None for the writer's own count. posted: some events were posted, so
    that nobody awaits them and a failure must be kept. landed: where they lie, empty when they had been
    appended before.
    """

    lanes: list[Lane] = attrs.field(factory=list)
    size_bytes: int = 0
    sequence: int | None = None
    posted: bool = False
    done: anyio.Event = attrs.field(factory=anyio.Event)
    error: EventprocError | None = None
    landed: tuple[Landed, ...] = ()

    def settle(self, error: EventprocError | None) -> None:
        """Tell who waits: durable when `error` is None. Once; a second time changes nothing."""
        if not self.done.is_set():
            self.error = error
            self.done.set()

    async def wait(self) -> None:
        """Return when the events are durable. Raises what they failed for."""
        await self.done.wait()
        if self.error is not None:
            raise self.error


def check_event_time(event_time: int) -> None:
    """Raise InvalidArgument unless `event_time` is an int of 64 bits."""
    if type(event_time) is not int or not -(2**63) < event_time < 2**63:
        reason = "it must be an int of milliseconds that fits 64 bits"
        raise InvalidArgument(what="event time", value=str(event_time), reason=reason)


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the headers, which nobody else can change. Raises InvalidArgument."""
    copied = dict(headers)
    if len(copied) > HEADERS_COUNT_MAX:
        raise InvalidArgument(what="headers", value=str(len(copied)), reason=f"at most {HEADERS_COUNT_MAX}")
    size_bytes = 0
    for name, value in cast("dict[object, object]", copied).items():
        if not isinstance(name, str) or not isinstance(value, str):
            reason = "name and value must be str"
            raise InvalidArgument(what="header", value=f"{name!r}: {value!r}", reason=reason)
        if len(name) > HEADER_NAME_CHARS_MAX:
            reason = f"at most {HEADER_NAME_CHARS_MAX} characters"
            raise InvalidArgument(what="header name", value=f"{name[:40]}…", reason=reason)
        try:
            size_bytes += len(name.encode()) + len(value.encode())
        except UnicodeEncodeError:
            shown = f"{name}: {value}".encode("ascii", "backslashreplace").decode("ascii")
            reason = "it contains half of a surrogate pair, which no text does"
            raise InvalidArgument(what="header", value=shown[:80], reason=reason) from None
    if size_bytes > HEADERS_BYTES_MAX:
        raise InvalidArgument(
            what="headers", value=f"{size_bytes} bytes", reason=f"at most {HEADERS_BYTES_MAX}"
        )
    return copied
