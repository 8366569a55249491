"""The unmodified client of Pravega with users, delegation tokens and TLS."""

from __future__ import annotations

import base64
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import anyio
import attrs
import httpx
import pytest
import trustme
from anyio import to_thread

import eventproc
from eventproc.base.clock import SystemClock
from eventproc.cluster.segment_containers import CONTAINERS, container_of
from eventproc.runtime import Eventproc
from eventproc.server.access import authority
from eventproc.server.access.delegation import CLOCK_SKEW_MS
from eventproc.server.endpoints import Addresses, serve_endpoints
from eventproc.store.access import users
from eventproc.store.access.permissions import Grant
from eventproc.store.database import Tx
from eventproc.testing import VirtualClock
from eventproc.testing.crash import PATIENCE_S, environment
from tests.groups.support import eventually
from tests.server.access_support import READ, UPDATE, add_user
from tests.server.support import ClientProcess, ServerProcess, run_client
from tests.server.test_client import in_order, payloads, wait_written

pytestmark = [pytest.mark.subprocess, pytest.mark.linux]  # other systems have no wheel of the client


@attrs.frozen
class Site:
    """A directory with users, and the files of its certificate. tokens: of each user."""

    directory: Path
    tokens: Mapping[str, str]
    authorities: Path
    certificate: Path
    key: Path

    @property
    def options(self) -> tuple[str, ...]:
        """What a server needs in order to encrypt."""
        return "--certificate", str(self.certificate), "--key", str(self.key)

    def settings(self, user: str) -> dict[str, str]:
        """Return the settings of a client: a token in place of the password, and whom it trusts."""
        return {**credentials(user, self.tokens[user]), "tls_cert_path": str(self.authorities)}


def credentials(user: str, password: str) -> dict[str, str]:
    return {"auth_method": "Basic", "auth_username": user, "auth_password": password}


async def make(directory: Path) -> dict[str, str]:
    """Make a directory with streams and users; return the tokens of these."""
    grants = {
        "admin": [(UPDATE, "*")],
        "app": [(UPDATE, "s/t*"), (UPDATE, "s/readers"), (UPDATE, "s/readers_kvtable")],
        "viewer": [(READ, "s/t")],
    }

    def add(tx: Tx) -> dict[str, str]:
        return {name: add_user(tx, name, *given) for name, given in grants.items()}

    async with eventproc.open(directory, durability="os") as ep:
        await ep.create_scope("s")
        for name in ("s/t", "s/txns"):
            await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(2))
        return await ep.db.write(add)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("site")
    directory, authorities = folder / "served", folder / "authorities"
    issuer = trustme.CA()
    issued = issuer.issue_cert("localhost")
    (folder / "cert.pem").write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(folder / "key.pem")
    authorities.mkdir()
    issuer.cert_pem.write_to_path(authorities / "ca.pem")
    tokens = anyio.run(make, directory)
    directory.chmod(0o700)
    return Site(directory, tokens, authorities, folder / "cert.pem", folder / "key.pem")


@pytest.fixture(scope="module")
def server(site: Site) -> Iterator[ServerProcess]:
    with ServerProcess(site.directory, *site.options, rest=True) as server:
        yield server


@pytest.fixture(scope="module")
async def ep(site: Site, server: ServerProcess) -> AsyncIterator[Eventproc]:
    """The same directory, opened by this process."""
    async with eventproc.open(site.directory, host=False) as ep:
        yield ep


def test_scopes_and_streams_are_managed_under_tls_by_a_user_who_may(
    server: ServerProcess, site: Site
) -> None:
    said = run_client(server.port, "manage", lines=11, settings=site.settings("admin"))
    assert said[:2] == [[True, False], [True, False]]
    assert said[-1] == [False, True, False]


async def test_a_client_commits_a_transaction_under_tls_with_tokens(
    server: ServerProcess, site: Site, ep: Eventproc
) -> None:
    with ClientProcess(server.port, "transactions", "txns", settings=site.settings("app")) as client:
        client.hear()
        client.go_on()
        assert client.hear() == "committed"

    async def are_visible() -> bool:
        return len(await payloads(ep, "s/txns")) == 100

    await eventually(ep, are_visible)


def test_a_client_is_refused_what_its_user_may_not_do(server: ServerProcess, site: Site) -> None:
    said = run_client(server.port, "forbidden", "t", lines=3, settings=site.settings("viewer"))
    assert "nothing" not in said


async def test_rest_under_tls_has_the_same_users(server: ServerProcess, site: Site) -> None:
    trusted = ssl.create_default_context(cafile=str(site.authorities / "ca.pem"))
    base = server.rest.replace("127.0.0.1", "localhost")
    async with httpx.AsyncClient(base_url=base, verify=trusted, trust_env=False, timeout=PATIENCE_S) as http:
        missing = await http.get("/v1/scopes/s")
        assert (missing.status_code, missing.json()["status"]) == (401, 401)
        assert "Basic" in missing.headers["www-authenticate"]
        basic = base64.b64encode(f"viewer:{site.tokens['viewer']}".encode()).decode()
        for header in (f"Bearer {site.tokens['viewer']}", f"Basic {basic}"):
            headers = {"Authorization": header}
            assert (await http.get("/v1/scopes/s/streams/t", headers=headers)).status_code == 200
            refused = await http.delete("/v1/scopes/s/streams/t", headers=headers)
            assert (refused.status_code, refused.headers["content-type"]) == (403, "application/problem+json")
            assert "READ_UPDATE" in refused.json()["detail"]
        assert (await http.get("/v1/health/readiness")).status_code == 200


async def test_nothing_is_lost_or_doubled_when_one_of_two_servers_is_killed_under_tls_with_tokens(
    server: ServerProcess, site: Site, ep: Eventproc
) -> None:
    """A writer and a reader know the controller of the first server; half of the segments are at the second one."""
    stream = await ep.create_stream("s/two", scaling=eventproc.ScalingPolicy.fixed(4))
    settings = site.settings("app")
    with (
        ClientProcess(server.port, "write", "two", 1500, 14, 20, settings=settings) as writer,
        ClientProcess(server.port, "read", "two", "two-readers", 1500, settings=settings) as reader,
    ):
        assert writer.hear() == "half"
        second = ServerProcess(site.directory, *site.options)
        assert await stores_of(ep, "s/two", 4) == {server.ports[1], second.ports[1]}
        writer.go_on()
        await wait_written(stream, 1000)
        assert second.end(signal.SIGKILL) == -signal.SIGKILL
        assert writer.hear() == "written"
        assert sorted(reader.hear()) == sorted(f"k{number % 14}:{number}" for number in range(1500))
    assert in_order(await payloads(ep, "s/two"), 1500, 14)
    assert await stores_of(ep, "s/two", 4) == {server.ports[1]}


async def stores_of(ep: Eventproc, stream: str, segments: int) -> set[int]:
    """Return the ports of the segment stores that own the segments of a stream."""
    found = await ep.db.read(CONTAINERS.read)
    ports = {each.instance: each.segment_store[1] for each in found.members}
    containers = [container_of(stream, number) for number in range(segments)]
    owners = [found.owners[each] for each in containers if each is not None]
    return {ports[each.instance] for each in owners if each is not None}


@pytest.mark.acceptance("G4")
async def test_a_client_gets_another_token_when_its_own_has_expired_and_nothing_is_lost_or_doubled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life_ms = 4_000  # the client renews a token that has less than 5 s left
    monkeypatch.setattr(authority, "TOKEN_LIFE_MS", life_ms)
    clock = VirtualClock(start_ms=SystemClock().wall_ms())
    async with eventproc.open_memory(clock=clock) as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
        token = await ep.db.write(lambda tx: add_user(tx, "app", (UPDATE, "s/t")))
        addresses = Addresses(controller_port=0, segment_store_port=0)
        async with serve_endpoints(ep, addresses) as bound:
            with ClientProcess(
                bound.controller_port, "write", "t", 300, settings=credentials("app", token)
            ) as client:
                assert await to_thread.run_sync(client.hear) == "half"
                clock.advance(life_ms + CLOCK_SKEW_MS)
                client.go_on()
                assert await to_thread.run_sync(client.hear) == "written"
        assert in_order(await payloads(ep, "s/t"), 300)


# What a server refuses when it begins.


def started(directory: Path, *options: str) -> str:
    """Return what a server says that does not begin."""
    command = [sys.executable, "-m", "eventproc", "-C", str(directory), "serve", *options]
    command += ["--controller-port", "0", "--segment-store-port", "0"]
    done = subprocess.run(
        command, env=environment(), stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode != 0
    return done.stderr


def test_a_directory_that_others_can_read_is_not_served_to_users(site: Site) -> None:
    site.directory.chmod(0o755)
    try:
        assert re.search(r"chmod o= ", started(site.directory))
    finally:
        site.directory.chmod(0o700)


async def test_servers_of_a_directory_ask_for_credentials_as_soon_as_it_has_a_user(tmp_path: Path) -> None:
    directory = tmp_path / "served"
    async with eventproc.open(directory, durability="os"):
        directory.chmod(0o700)
    with ServerProcess(directory, rest=True) as server:
        async with (
            eventproc.open(directory, host=False) as ep,
            httpx.AsyncClient(base_url=server.rest, trust_env=False, timeout=PATIENCE_S) as http,
        ):
            assert (await http.get("/v1/scopes")).status_code == 200
            await ep.db.write(lambda tx: users.add_user(tx, "ann", None, [Grant("*", UPDATE)]))

            async def is_closed() -> bool:
                return (await http.get("/v1/scopes")).status_code == 401

            await eventually(ep, is_closed)
        assert server.end(signal.SIGTERM) == 0
