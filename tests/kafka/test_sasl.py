"""SASL: unmodified clients show who they are by SCRAM; what wrong ones learn; and whose connections end."""

from __future__ import annotations

import gc
import logging
import ssl
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaClient
from aiokafka.errors import KafkaError as AioError
from anyio import to_thread
from confluent_kafka import KafkaError, KafkaException, Producer
from kafka.errors import KafkaError as PythonError
from scramp import ScramClient

import kafka
from eventproc import Permission, open_blocking
from eventproc.runtime import Eventproc
from tests.groups.support import eventually
from tests.kafka.clients import PATIENCE_S, run_aiokafka
from tests.kafka.peer import KafkaPeer, answer_of, framed
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PASSWORD = "paſſwörd ½"
"""Clients do not normalize it, as RFC 5802 asks for: neither may the server."""
PLAIN_PASSWORD = "correct horse"
REFUSED, UNSUPPORTED = 58, 33


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kafka") / "served"
    with open_blocking(path, durability="os") as ep:
        ep.create_scope("shop")
        ep.create_topic("shop/orders")
        ep.users.add("ann", password=PASSWORD, scram=True)
        ep.users.grant("ann", Permission.READ, "shop/orders")
        ep.users.add("bob", password="only hashed")
        ep.users.add("carl", password=PLAIN_PASSWORD, scram=True)
    path.chmod(0o700)
    return path


@pytest.fixture(scope="module")
def server(certified_server: ServerProcess) -> ServerProcess:
    return certified_server


@pytest.fixture
def peer(server: ServerProcess, certified: dict[str, Path]) -> Iterator[KafkaPeer]:
    with KafkaPeer(server.kafka, certified["authority"]) as peer:
        yield peer


# Unmodified clients: each lists the topics that a user may see.


def confluent_topics(address: str, authority: Path, mechanism: str, user: str, password: str) -> list[str]:
    refused: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(authority),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "error_cb": lambda why: refused.append(why) if why.code() == KafkaError._AUTHENTICATION else None,
            "logger": logging.getLogger("librdkafka"),
        }
    )
    for _ in range(PATIENCE_S):  # it tries again
        try:
            return [*producer.list_topics(timeout=1).topics]
        except KafkaException:
            producer.poll(0)  # calls `error_cb`
            if refused:
                raise
    raise TimeoutError


def python_topics(address: str, authority: Path, mechanism: str, user: str, password: str) -> list[str]:
    settings: dict[str, Any] = {
        "bootstrap_servers": address,
        "bootstrap_timeout_ms": 5_000,  # it tries again until then
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(authority),
        "sasl_mechanism": mechanism,
        "sasl_plain_username": user,
        "sasl_plain_password": password,
    }
    consumer = kafka.KafkaConsumer(**settings)
    try:
        return [*consumer.topics()]
    finally:
        consumer.close()


def aio_topics(address: str, authority: Path, mechanism: str, user: str, password: str) -> list[str]:
    async def look() -> list[str]:
        client = AIOKafkaClient(
            bootstrap_servers=address,
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=str(authority)),
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        )
        try:
            await client.bootstrap()
            return [*(await client.fetch_all_metadata()).topics()]
        finally:
            await client.close()

    return run_aiokafka(look())


Topics = Callable[[str, Path, str, str, str], list[str]]

CLIENTS: tuple[tuple[str, Topics], ...] = (
    ("confluent-kafka", confluent_topics),
    ("kafka-python", python_topics),
    ("aiokafka", aio_topics),
)


@pytest.fixture(params=CLIENTS, ids=[name for name, _ in CLIENTS])
def topics(request: pytest.FixtureRequest, server: ServerProcess, certified: dict[str, Path]) -> Any:
    """The topics that a client sees, of a mechanism, a user and a password."""
    return partial(request.param[1], server.kafka, certified["authority"])


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "PLAIN"])
def test_a_client_is_known_by_its_password(topics: Any, mechanism: str) -> None:
    assert topics(mechanism, "ann", PASSWORD) == ["orders"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_refused_with_what_it_may_be(
    topics: Any, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # what a client leaves open when it gives up
        with pytest.raises((KafkaException, AioError, PythonError)):
            topics(mechanism, "ann", "another password")
        gc.collect()
    assert "the credentials are wrong, or the password of the user was set without SCRAM" in caplog.text


# What is sent and answered, byte by byte.


def authenticate(peer: KafkaPeer, data: bytes) -> tuple[int, str, bytes]:
    """Return the code, the reason and the bytes of the answer to a message of a mechanism."""
    found = peer.ask("SaslAuthenticate", 1, auth_bytes=data)
    return found.error_code, found.error_message or "", bytes(found.auth_bytes)


def choose(peer: KafkaPeer, mechanism: str, version: int = 1) -> tuple[int, list[str]]:
    found = peer.ask("SaslHandshake", version, mechanism=mechanism)
    return found.error_code, found.mechanisms


def begin(peer: KafkaPeer, user: str, password: str, mechanism: str = MECHANISMS[0]) -> Any:
    """Exchange the first messages of SCRAM, and return a client that can make the proof."""
    client: Any = ScramClient([mechanism], user, password)
    assert choose(peer, mechanism)[0] == 0
    code, _, reply = authenticate(peer, client.get_client_first().encode())
    assert code == 0
    client.set_server_first(reply.decode())
    return client


def prove(peer: KafkaPeer, user: str, password: str, mechanism: str = MECHANISMS[0]) -> tuple[int, str]:
    client = begin(peer, user, password, mechanism)
    code, reason, reply = authenticate(peer, client.get_client_final().encode())
    if code == 0:
        client.set_server_final(reply.decode())  # the server knows the user, too
    return code, reason


def plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def seen(peer: KafkaPeer) -> list[str] | None:
    """Return the topics that the client may see; None if the server closes the connection."""
    peer.send(framed("Metadata", 5, topics=None, allow_auto_topic_creation=False))
    answer = peer.take()
    if not answer:
        return None
    return [each.name for each in answer_of("Metadata", 5, answer).topics]


def test_a_handshake_names_all_mechanisms_and_refuses_others(peer: KafkaPeer) -> None:
    assert choose(peer, "SCRAM-SHA-1") == (UNSUPPORTED, ["PLAIN", *MECHANISMS])
    assert choose(peer, "SCRAM-SHA-512")[0] == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_strangers_do_not_learn_which_users_exist_or_have_verifiers(peer: KafkaPeer, mechanism: str) -> None:
    firsts: dict[str, set[tuple[str, str]]] = {}
    for user in ("ann", "bob", "nobody") * 2:
        choose(peer, mechanism)
        code, _, reply = authenticate(peer, f"n,,n={user},r=mine".encode())
        nonce, salt, iterations = reply.decode().split(",")
        assert (code, nonce[:7], len(nonce), len(salt)) == (0, "r=mine"[:6] + nonce[6], 38, 26)
        firsts.setdefault(user, set()).add((salt, iterations))
    assert [len(each) for each in firsts.values()] == [1, 1, 1]
    assert len({salt for each in firsts.values() for salt, _ in each}) == 3
    assert len({iterations for each in firsts.values() for _, iterations in each}) == 1
    refusals = {prove(peer, user, "only hashed", mechanism) for user in ("ann", "bob", "nobody")}
    assert [code for code, _ in refusals] == [REFUSED]


def send_bare(peer: KafkaPeer, data: bytes) -> bytes:
    """Send a message of a mechanism without a call around it, and return the answer."""
    peer.send(len(data).to_bytes(4, "big") + data)
    return peer.take()


def test_messages_may_be_sent_without_calls_after_a_handshake_of_version_0(peer: KafkaPeer) -> None:
    assert choose(peer, "SCRAM-SHA-1", 0)[0] == UNSUPPORTED
    assert choose(peer, "PLAIN", 0)[0] == 0
    assert send_bare(peer, plain("ann", PASSWORD)) == b""
    assert seen(peer) == ["orders"]
    assert choose(peer, MECHANISMS[1], 0)[0] == 0
    client: Any = ScramClient([MECHANISMS[1]], "carl", PLAIN_PASSWORD)
    client.set_server_first(send_bare(peer, client.get_client_first().encode()).decode())
    client.set_server_final(send_bare(peer, client.get_client_final().encode()).decode())
    assert seen(peer) == []


@pytest.mark.parametrize("wrong", [b"", plain("ann", "wrong"), b"x" * 3_000])
def test_a_wrong_message_without_a_call_ends_its_connection(peer: KafkaPeer, wrong: bytes) -> None:
    assert choose(peer, "PLAIN", 0)[0] == 0
    assert send_bare(peer, wrong) == b""
    assert peer.take() == b""


def test_a_nonce_that_repeats_the_part_of_the_client_is_taken(peer: KafkaPeer) -> None:
    client = begin(peer, "carl", PLAIN_PASSWORD)
    client.nonce = client.c_nonce + client.nonce  # as librdkafka did before 2.6.1
    code, _, reply = authenticate(peer, client.get_client_final().encode())
    assert code == 0
    client.set_server_final(reply.decode())
    assert seen(peer) == []
    other = begin(peer, "carl", PLAIN_PASSWORD)
    other.nonce = other.c_nonce + other.c_nonce + other.nonce
    assert authenticate(peer, other.get_client_final().encode())[0] == REFUSED


MALFORMED = (
    b"",
    b"\0",
    b"\xff\xfe",
    b"n,,",
    b"n,,n=ann",
    b"n,,r=mine,n=ann",
    b"n,a=bob,n=ann,r=mine",
    b"p=tls-unique,,n=ann,r=mine",
    b"n,,n=,r=mine",
    b"n,,n==3,r=mine",
    b"n,,n=ann,r=",
    b"n,,m=x,n=ann,r=mine",
    b"n,,n=ann,r=mine,tokenauth=true",
    b"n,,n=ann,r=" + b"x" * 60_000,
)


@pytest.mark.parametrize("first", MALFORMED, ids=range(len(MALFORMED)))
def test_a_first_message_that_is_wrong_is_refused_and_a_right_one_may_follow(
    peer: KafkaPeer, first: bytes
) -> None:
    assert choose(peer, MECHANISMS[0])[0] == 0
    assert authenticate(peer, first)[0] == REFUSED
    assert authenticate(peer, b"n,,n=ann,r=mine")[0] == 0
    assert authenticate(peer, b"c=biws,r=mine,p=AAAA")[0] == REFUSED
    assert seen(peer) is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda proof: "",
        lambda proof: proof.rpartition(",")[0],
        lambda proof: proof[:-8] + "AAAAAAA=",
        lambda proof: proof.replace(",p=", ",x=1,p="),
        lambda proof: proof + ",x=" + "x" * 3_000,
        lambda proof: proof.replace("c=biws", "c=eSws"),
        lambda proof: proof.replace(",r=", ",r=x"),
        lambda proof: proof.rpartition("=")[0].rpartition("=")[0] + "=***",
    ],
)
def test_a_proof_that_is_wrong_is_refused_and_ends_the_exchange(
    peer: KafkaPeer, wrong: Callable[[str], str]
) -> None:
    proof = begin(peer, "carl", PLAIN_PASSWORD).get_client_final()
    assert authenticate(peer, wrong(proof).encode())[0] == REFUSED
    assert authenticate(peer, proof.encode())[0] == REFUSED
    assert seen(peer) is None


def test_a_proof_is_of_one_exchange(peer: KafkaPeer) -> None:
    client = begin(peer, "carl", PLAIN_PASSWORD)
    proof = client.get_client_final().encode()
    assert authenticate(peer, proof)[0] == 0
    assert choose(peer, MECHANISMS[0])[0] == 0
    assert authenticate(peer, f"n,,{client.client_first_bare}".encode())[0] == 0
    assert authenticate(peer, proof)[0] == REFUSED


async def is_known(peer: KafkaPeer, user: str, password: str) -> bool:
    return (await to_thread.run_sync(prove, peer, user, password))[0] == 0


@pytest.mark.parametrize("change", ["password", "user"])
async def test_a_connection_ends_at_its_next_request_when_the_password_changes_or_the_user_is_deleted(
    ep: Eventproc, peer: KafkaPeer, change: str
) -> None:
    name, password = f"by-{change}", PLAIN_PASSWORD
    await ep.users.add(name, password=password, scram=True)
    await ep.users.grant(name, Permission.READ, "shop/orders")
    await eventually(ep, partial(is_known, peer, name, password))
    assert await to_thread.run_sync(seen, peer) == ["orders"]
    await ep.users.revoke(name, "shop/orders")

    async def sees_nothing() -> bool:
        return await to_thread.run_sync(seen, peer) == []

    await eventually(ep, sees_nothing)
    if change == "password":
        await ep.users.set_password(name, password, scram=True)  # also to the same one
    else:
        await ep.users.delete(name)

    async def is_over() -> bool:
        return await to_thread.run_sync(seen, peer) is None

    await eventually(ep, is_over)


async def test_a_client_may_authenticate_again_and_a_failure_then_changes_nothing(
    ep: Eventproc, peer: KafkaPeer
) -> None:
    for user in ("dora", "emil"):
        await ep.users.add(user, password=PLAIN_PASSWORD, scram=True)
    await ep.users.grant("dora", Permission.READ, "shop/orders")
    await eventually(ep, partial(is_known, peer, "emil", PLAIN_PASSWORD))
    assert seen(peer) == []
    assert prove(peer, "dora", PLAIN_PASSWORD, MECHANISMS[1]) == (0, "")
    assert seen(peer) == ["orders"]
    assert prove(peer, "emil", "another password")[0] == REFUSED
    assert seen(peer) == ["orders"]
    assert choose(peer, "PLAIN")[0] == 0
    assert authenticate(peer, plain("emil", PLAIN_PASSWORD)) == (0, "", b"")
    assert seen(peer) == []
    assert authenticate(peer, b"\0" + b"x" * 3_000)[0] == REFUSED
    assert seen(peer) == []
