"""Connections of peers that are not known yet: few, and not for long.

A stranger is a connection that has shown no valid token while callers need credentials. Without a bound, anybody could
hold all connections of a server. When there are too many strangers the oldest one has to go, because a client shows its
token within milliseconds, so that those that stay are the ones that want none of the server.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import anyio

from eventproc.server.frames import ConnectionOver

STRANGER_S: Final = 30
"""How long a connection may take to its first valid token, in s: the time that the Rust client waits for an answer.
Higher: idle strangers hold their places for longer; lower: a slow client that renews its token is cut off."""

STRANGERS_MAX: Final = 200
"""Strangers at a time: a tenth of all connections. Higher: strangers leave fewer places to those that are known; lower:
of many clients that connect simultaneously some must do so again."""


class Stranger:
    """A connection that is not known yet. scope: cancelled when the connection has to go."""

    def __init__(self, strangers: dict[Stranger, None], scope: anyio.CancelScope) -> None:
        self._strangers = strangers
        self.scope = scope
        self.why = f"it has shown no valid token for {STRANGER_S} s"

    def accept(self) -> None:
        """Note that the peer has shown a valid token: the connection stays."""
        if self._strangers.pop(self, self) is None:
            self.scope.deadline = math.inf

    def refuse(self, why: str) -> None:
        """End the connection."""
        self._strangers.pop(self, None)
        self.why = why
        self.scope.cancel()


class Strangers:
    """The strangers among the connections of one server."""

    def __init__(self) -> None:
        self._found: dict[Stranger, None] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._found)

    @contextmanager
    def bounding(self, *, needs_token: bool) -> Iterator[Stranger]:
        """Bound the connection that the block serves, until it is accepted; the oldest stranger may have to go for it.

        needs_token: whether the peer must show one at all.

        Raises ConnectionOver at the end of the block if the connection had to go.
        """
        if not needs_token:
            yield Stranger({}, anyio.CancelScope())
            return
        scope = anyio.CancelScope(deadline=anyio.current_time() + STRANGER_S)
        stranger = Stranger(self._found, scope)
        with scope:
            if len(self._found) >= STRANGERS_MAX:
                why = f"{STRANGERS_MAX} newer connections have shown no valid token either"
                next(iter(self._found)).refuse(why)
            self._found[stranger] = None
            try:
                yield stranger
            finally:
                self._found.pop(stranger, None)
        if scope.cancelled_caught:
            raise ConnectionOver(stranger.why)
