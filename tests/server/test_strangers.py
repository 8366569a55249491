"""Connections without a valid token: few, and not for long, so that they cannot keep clients out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import anyio
import pytest
from anyio.abc import SocketStream

from eventproc.runtime import Eventproc
from eventproc.server import strangers
from eventproc.server.access.authority import Authority, Caller
from eventproc.server.wire import commands as c
from eventproc.server.wire.connection import OURS
from eventproc.server.wire.listener import SegmentStore
from eventproc.store.access.users import get_user
from eventproc.testing.crash import PATIENCE_S
from tests.server.access_support import UPDATE, add_user, loaded
from tests.server.test_many_connections import greeted, serving, until
from tests.server.wire_peer import WRITER

pytestmark = pytest.mark.usefixtures("stream")


HARMLESS = c.KeepAlive().encode()


class Site:
    """A segment store that listens. port: where."""

    def __init__(self, store: SegmentStore, port: int, token: str) -> None:
        self.store = store
        self.port = port
        self._set_up = c.SetupAppend(1, WRITER, "s/t/0.#epoch.0", token).encode()

    async def show_token(self, stream: SocketStream) -> None:
        before = self.store.strangers
        await stream.send(self._set_up)
        assert await stream.receive()
        assert self.store.strangers == before - 1


@asynccontextmanager
async def serving_site(ep: Eventproc, authority: Authority, token: str = "") -> AsyncIterator[Site]:
    with anyio.fail_after(PATIENCE_S):
        async with serving(ep, authority) as (store, port):
            yield Site(store, port, token)


async def with_user(ep: Eventproc) -> tuple[Authority, str]:
    await ep.db.write(lambda tx: add_user(tx, "ann", (UPDATE, "s/t")))
    authority = await loaded(ep)
    caller = Caller(await ep.db.read(lambda tx: get_user(tx, "ann")))
    return authority, authority.delegation_token(caller, "s/t")


async def wait_closed(stream: SocketStream) -> None:
    with pytest.raises((anyio.EndOfStream, anyio.BrokenResourceError)):
        await stream.receive()


async def test_the_oldest_stranger_goes_for_a_new_one_and_known_connections_stay(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(strangers, "STRANGERS_MAX", 3)
    caplog.set_level("INFO", "eventproc.server")
    async with serving_site(ep, *await with_user(ep)) as site, AsyncExitStack() as stack:
        known, *others = [await stack.enter_async_context(await greeted(site.port)) for _ in range(3)]
        await site.show_token(known)
        others += [await stack.enter_async_context(await greeted(site.port)) for _ in range(2)]
        await wait_closed(others[0])
        assert "newer connections have shown no valid token" in caplog.text
        await until(lambda: site.store.strangers == 3)
        await site.show_token(others[1])
        await site.show_token(others[3])
        assert site.store.connections == 4


async def test_a_stranger_is_disconnected_after_its_time_and_a_known_connection_is_not(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "eventproc.server")
    async with serving_site(ep, *await with_user(ep)) as site, AsyncExitStack() as stack:
        known = await stack.enter_async_context(await greeted(site.port))
        await site.show_token(known)
        monkeypatch.setattr(strangers, "STRANGER_S", 0.05)
        silent = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", site.port))
        greeting = await stack.enter_async_context(await anyio.connect_tcp("127.0.0.1", site.port))
        with suppress(
            anyio.BrokenResourceError, anyio.EndOfStream
        ):  # on a slow machine its time may have passed
            await greeting.send(OURS.encode())
            await greeting.receive()
        await wait_closed(silent)
        await wait_closed(greeting)
        assert "no valid token for 0.05 s" in caplog.text
        await until(lambda: site.store.connections == 1)
        await known.send(HARMLESS)


async def test_without_users_no_connection_is_a_stranger(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "STRANGERS_MAX", 1)
    monkeypatch.setattr(strangers, "STRANGER_S", 0)
    async with serving_site(ep, await loaded(ep)) as site, AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(await greeted(site.port))
        assert (site.store.connections, site.store.strangers) == (3, 0)
