"""The response that sends changes to one caller: server-sent events, with a comment when nothing happens."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Caller, NotAuthenticated, TooManyPasswords
from eventproc.server.rest.changes import (
    ChangeFeed,
    FollowedRequests,
    Notice,
    Watcher,
    follow_requests,
    is_kept,
    new_change,
)
from eventproc.server.rest.openapi import EVENTS_TYPE
from eventproc.server.rest.positions import Position
from eventproc.store.model.errors import EventprocError

HEARTBEAT_S: Final = 15
"""Longest pause between two messages, and between two looks at the caller's permissions. Proxies close connections that
are idle for 30 s or more. Higher: a caller that is gone, or that lost its permissions, is noticed later."""

EVENTS_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
)
"""No proxy may keep events back."""

WATCHING: Final = ": watching\n\n"
"""The first message: changes from now on are sent."""

ALIVE: Final = ": alive\n\n"

NOT_KEPT: Final = "requests after this Last-Event-ID are not kept any more; read the lists again"
REVOKED: Final = "the credentials are not valid any more"


class ChangeResponse(StreamingResponse):
    """Sends a watcher its events, and removes the watcher when the caller leaves or the stream ends.

    position: where to resume. renew: returns the caller with its permissions of now.
    """

    def __init__(
        self,
        ep: Eventproc,
        feed: ChangeFeed,
        watcher: Watcher,
        position: Position | None,
        renew: Callable[[], Awaitable[Caller]],
    ) -> None:
        super().__init__(self._messages(), headers=EVENTS_HEADERS, media_type=EVENTS_TYPE)
        self._ep, self._feed, self._watcher = ep, feed, watcher
        self._position, self._renew = position, renew

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until the caller leaves or the stream ends."""
        try:
            with self._watcher.deadline:  # a caller that reads nothing does not get to see the end
                await super().__call__(scope, receive, send)
        finally:
            self._feed.remove(self._watcher)

    async def _messages(self) -> AsyncIterator[str]:
        clock = self._ep.db.clock
        look_ms = clock.monotonic_ms() + HEARTBEAT_S * 1000
        await self._feed.wait_following()
        yield WATCHING
        try:
            if self._position is not None:
                async for missed in self._missed(self._position):
                    yield missed
            while True:
                change = await self._watcher.next((look_ms - clock.monotonic_ms()) / 1000)
                if clock.monotonic_ms() >= look_ms:
                    self._watcher.caller = await self._renew()
                    look_ms = clock.monotonic_ms() + HEARTBEAT_S * 1000
                if change is None or not self._watcher.may_read(change):  # not any more since it was queued
                    yield ALIVE
                else:
                    yield self._watcher.text(change)
        except anyio.EndOfStream:
            pass  # `end_reason` says why
        except NotAuthenticated:
            self._watcher.end(REVOKED)
        except (EventprocError, TooManyPasswords) as why:
            self._watcher.end(str(why))
        yield new_change("closed", None, Notice(self._watcher.end_reason)).text()

    async def _missed(self, position: Position) -> AsyncIterator[str]:
        """Yield what became of requests since a position; changes from now on are queued meanwhile."""
        if not await self._ep.db.read(partial(is_kept, position=position)):
            yield new_change("reset", None, Notice(NOT_KEPT)).text()
            return
        followed = FollowedRequests(position)
        while True:
            found = await self._ep.db.read(partial(follow_requests, before=followed))
            if found is None:
                yield new_change("reset", None, Notice(NOT_KEPT)).text()
                return
            for each in found.events:
                if self._watcher.may_read(each):
                    yield self._watcher.text(each)
            if found.is_all:
                return
            followed = found.followed
