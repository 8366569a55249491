"""Clients of Kafka that are not Python's, at their default settings: kafkajs, the Java client and kcat.

`make kafka-clients` installs them, as CI does first. The tests run all of them, or none where that was never called.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import anyio
import pytest
from anyio import to_thread

from eventproc.runtime import Eventproc
from eventproc.testing.crash import PATIENCE_S
from tests.kafka.java_flows import java_flows
from tests.server.support import ServerProcess
from tests.tidy.source import ROOT
from tools.kafka_clients import INSTALLED, PINS

pytestmark = pytest.mark.subprocess

Flow: TypeAlias = Callable[[str, str], Any]
"""Returns what came of it, of the address of a server and the name of a topic."""


class OtherClient(NamedTuple):
    """A client. flows: all that clients do. resume: goes on as a member of a group after `flows`."""

    name: str
    flows: Flow
    resume: Flow


def run(*command: str | Path, said: bytes = b"") -> bytes:
    """Return what a command prints. said: its input."""
    path = {"NODE_PATH": str(INSTALLED / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
    done = subprocess.run(
        command,
        input=said,
        env=os.environ | path,
        capture_output=True,
        timeout=PATIENCE_S,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def kafkajs(part: str) -> Flow:
    return lambda address, topic: json.loads(run("node", PINS / "kafkajs.js", address, topic, part))


def java(part: str) -> Flow:
    def flow(address: str, topic: str) -> object:
        with java_flows(list(INSTALLED.glob("*.jar")), address, topic) as found:
            return getattr(found, part)()

    return flow


CLIENTS = [
    OtherClient("kafkajs", kafkajs("flows"), kafkajs("resume")),
    OtherClient("java", java("flows"), java("resume")),
]
IS_INSTALLED = INSTALLED.exists()

START = 1_700_000_000_000


def expected(topic: str) -> dict[str, object]:
    """Return what comes of the flows of any client."""
    key = b"key".hex()
    records: list[list[object]] = [
        [key, b"plain".hex(), [["name", b"value".hex()]]],
        [None, b"no key".hex(), []],
        [key, None, []],
        [key, "", []],
        ["ff00fe", b"binary key".hex(), []],
        [key, b"twice".hex(), [["name", b"1".hex()], ["name", b"2".hex()], ["binary", "ff"]]],
    ]
    return {
        "topics": {
            "created": True,
            "again": False,
            "before": [topic, f"{topic}-1", f"{topic}-2"],
            "after": [topic],
            "grown": 3,
        },
        "sent": [*range(6)],
        "read": [[0, number, *each, START + number] for number, each in enumerate(records)],
        "group": {"shared": [0, 1], "alone": [0, 1], "missing": 0},
        "commit": 6,
        "seek": {"byTime": 2, "ends": [0, 4], "sought": 3},
        # The end of a topic, and what a group has committed.
        "transactions": {
            "aborted": [0, -1],
            "open": [0, -1],
            "committed": [2, 2],
            "values": [b"1".hex(), b"2".hex()],
        },
    }


@pytest.mark.parametrize("client", CLIENTS if IS_INSTALLED else (), ids=lambda each: each.name)
async def test_a_client_does_what_clients_do_and_goes_on_with_another_server(
    client: OtherClient, server: ServerProcess, ep: Eventproc
) -> None:
    topic = f"by-{client.name}"
    assert await to_thread.run_sync(client.flows, server.kafka, topic) == expected(topic)
    with ServerProcess(ep.path or "", kafka_scope="shop") as other:
        found = await to_thread.run_sync(client.resume, other.kafka, topic)
    assert found == [[0, 6, None, b"later".hex()]]


class Kcat:
    """kcat with one server."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, *arguments: str, said: bytes = b"") -> bytes:
        return run("kcat", "-b", self.address, *arguments, said=said)

    def read(self, topic: str, *more: str) -> list[bytes]:
        """Return the values of the records of a topic's first partition."""
        settings = ("-p", "0", "-e", "-q", "-X", "isolation.level=read_committed")
        return self("-C", "-t", topic, *settings, *more).splitlines()

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run it while the block runs."""
        process = subprocess.Popen(
            ["kcat", "-b", self.address, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stderr is not None
        with closing(process.stdin), closing(process.stderr):
            try:
                yield process
            finally:
                process.kill()
                process.wait(PATIENCE_S)


def hear(process: subprocess.Popen[bytes], said: bytes) -> bytes:
    """Return the next line of a process that has these bytes."""
    assert process.stderr is not None
    return next(line for line in process.stderr if said in line)


@pytest.fixture(params=["kcat"] if IS_INSTALLED else ())
def kcat(server: ServerProcess) -> Kcat:
    return Kcat(server.kafka)


@pytest.fixture
async def orders(ep: Eventproc, topic: str) -> str:
    """A topic of two partitions: kcat creates none."""
    await (await ep.topic(f"shop/{topic}")).add_partitions(1)
    return topic


async def test_kcat_produces_and_reads_by_offset_and_by_time(kcat: Kcat, orders: str) -> None:
    (listed,) = json.loads(kcat("-L", "-J", "-t", orders))["topics"]
    assert [each["partition"] for each in listed["partitions"]] == [0, 1]
    produce = ("-P", "-t", orders, "-p", "0", "-X", "enable.idempotence=true")
    kcat(*produce, "-Z", "-K", "=", "-H", "name=1", "-H", "name=2", said=b"a=1\nb=\n=3")
    read = ("-C", "-t", orders, "-p", "0", "-e", "-q")
    found = [json.loads(each) for each in kcat(*read, "-J").splitlines()]
    assert [(each["key"], each["payload"]) for each in found] == [("a", "1"), ("b", None), (None, "3")]
    assert [each["headers"] for each in found] == [["name", "1", "name", "2"]] * 3
    between = int(time.time() * 1_000) + 1
    await anyio.sleep(0.01)
    kcat(*produce, said=b"later")
    assert kcat("-Q", "-t", f"{orders}:0:{between}").split() == [orders.encode(), b"[0]", b"offset", b"3"]
    assert kcat.read(orders, "-o", f"s@{between}") == [b"later"]
    assert kcat.read(orders, "-o", "2") == [b"3", b"later"]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_kcat_compresses_batches(kcat: Kcat, topic: str, codec: str) -> None:
    value = b"value " * 1_000
    with kcat.running("-P", "-t", topic, "-z", codec, "-d", "msg") as process:
        _, said = process.communicate(value, PATIENCE_S)
    assert b"not compressing batch" not in said
    assert kcat.read(topic) == [value]


async def test_kcat_shares_partitions_and_goes_on_where_it_has_committed(
    kcat: Kcat, orders: str, ep: Eventproc
) -> None:
    member = ("-G", orders, "-X", "auto.offset.reset=earliest", orders)
    all_assigned = f"assigned: {orders} [0], {orders} [1]".encode()
    with kcat.running(*member) as one:
        hear(one, all_assigned)
        with kcat.running(*member) as two:
            assert [hear(each, b"assigned: ").count(b"[") for each in (two, one)] == [1, 1]
            one.send_signal(signal.SIGTERM)
            assert one.wait(PATIENCE_S) == 0
            hear(two, all_assigned)
            two.send_signal(signal.SIGTERM)
            assert two.wait(PATIENCE_S) == 0
    kcat("-P", "-t", orders, "-p", "0", said=b"1\n2")
    assert kcat(*member, "-e", "-q").splitlines() == [b"1", b"2"]
    with ServerProcess(ep.path or "", kafka_scope="shop") as other:
        kcat("-P", "-t", orders, "-p", "1", said=b"3")
        assert Kcat(other.kafka)(*member, "-e", "-q").splitlines() == [b"3"]


async def test_kcat_commits_transactions_and_aborts_one_that_was_killed(kcat: Kcat, topic: str) -> None:
    transaction = ("-P", "-t", topic, "-X", f"transactional.id={topic}")
    with kcat.running(*transaction, "-d", "msg") as process:
        assert process.stdin is not None
        process.stdin.write(b"never\n" * 50_000)  # it takes its input in large pieces
        process.stdin.flush()
        hear(process, b"delivered")  # it is killed at the end of the block
    kcat(*transaction, said=b"1\n2")
    assert kcat.read(topic) == [b"1", b"2"]
