"""The calls of the controller, without a network and without users."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from eventproc.cluster.segment_containers import ContainerServer, SegmentContainers
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import TRUSTED, Authority, Caller
from eventproc.server.controller.service import Controller


def controller_of(ep: Eventproc) -> Controller:
    """Return the controller of a server that owns nothing yet."""
    server = ContainerServer(ep.db.instance_id, ("127.0.0.1", 1), ("127.0.0.1", 2))
    return Controller(ep.db, SegmentContainers(ep.db, server), Authority(ep.db))


def call(ep: Eventproc, name: str, caller: Caller = TRUSTED) -> Callable[..., Awaitable[Any]]:
    """Return the function of a call. It does not verify the rule's need."""
    return partial(controller_of(ep).reply, name, caller=caller)
