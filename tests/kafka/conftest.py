"""A serving process with the scope `shop` for Kafka's clients, and its directory, opened by this process as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from zlib import crc32

import pytest
import trustme

import eventproc
from eventproc import open_blocking
from eventproc.runtime import Eventproc
from tests.server.support import ServerProcess


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files: the authority, the certificate, its key."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost")
    found = {name: folder / name for name in ("authority", "certificate", "key")}
    authority.cert_pem.write_to_path(found["authority"])
    found["certificate"].write_bytes(b"".join(each.bytes() for each in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(found["key"])
    return found


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kafka") / "served"
    with open_blocking(path, durability="os") as ep:
        ep.create_scope("shop")
    return path


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[ServerProcess]:
    with ServerProcess(directory, kafka_scope="shop") as server:
        yield server


@pytest.fixture(scope="module")
async def ep(directory: Path, server: ServerProcess) -> AsyncIterator[Eventproc]:
    async with eventproc.open(directory, host=False) as ep:
        yield ep


@pytest.fixture(scope="module")
def certified_server(directory: Path, certified: dict[str, Path]) -> Iterator[ServerProcess]:
    """Serves by TLS, for a directory with users: a module's `server`."""
    files = "--certificate", str(certified["certificate"]), "--key", str(certified["key"])
    with ServerProcess(directory, *files, kafka_scope="shop") as server:
        yield server


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> str:
    """A name that no other test has."""
    return f"t{crc32(request.node.name.encode()):x}"


@pytest.fixture
async def topic(ep: Eventproc, unique: str) -> str:
    """A topic of one partition, named after the test."""
    await ep.create_topic(f"shop/{unique}")
    return unique
