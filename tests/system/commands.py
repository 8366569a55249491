"""What a worker in the role `serve` or `guest` does on command: one line in, one line out."""

from __future__ import annotations

import functools
import sys

import anyio.to_thread

import eventproc
from eventproc.cluster.host import CONTROLLER
from eventproc.store.model.errors import EventprocError, LockHeld
from eventproc.store.ownership import find_owner
from eventproc.workflows.requests import DeleteScope
from tests.system.say import say


async def obey(ep: eventproc.Eventproc) -> None:
    """Do what the input says until it ends; say the result, or the error by its class."""
    while line := await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
        try:
            say(await _do(ep, line.split()))
        except EventprocError as error:
            say(f"{type(error).__name__} {error}")


async def _do(ep: eventproc.Eventproc, words: list[str]) -> str:
    match words:
        case ["hosting"]:
            owner = await ep.db.read(functools.partial(find_owner, name=CONTROLLER))
            return "yes" if owner is not None and owner.instance == ep.db.instance_id else "no"
        case ["split", name, timeout_ms]:
            stream = await ep.stream(name)
            first = (await stream.segments())[0].id
            await stream.split(first, timeout_ms=int(timeout_ms))
            return f"epoch {(await stream.describe()).epoch}"
        case ["streams", scope, count]:
            await ep.create_scope(scope)
            for number in range(int(count)):
                await ep.create_stream(f"{scope}/{number}")
            return "made"
        case ["delete", scope]:
            return (await ep.requests.submit(DeleteScope(scope))).id
        case ["wait", request_id, timeout_ms]:
            request = await ep.requests.wait(request_id, timeout_ms=int(timeout_ms))
            return f"{request.status} {request.finished_ms}"
        case ["write", name, payload]:
            async with (await ep.stream(name)).writer() as writer:
                await writer.write(payload.encode())
            return "written"
        case ["count", name]:
            return str((await (await ep.stream(name)).describe()).events)
        case ["holder", timeout_ms]:
            try:
                await ep.db.write(lambda tx: tx.mark_changed(), timeout_ms=int(timeout_ms))
            except LockHeld as held:
                return f"held {held.pid}"
            return "free"
        case unknown:
            raise ValueError(unknown)
