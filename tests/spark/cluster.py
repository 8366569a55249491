"""A standalone master and its workers, each a process, on this machine: what a cluster is, without the network."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import attrs
import psutil
import pyspark

from eventproc.spark import prepare
from tests.spark.conftest import CHEAP

HOST = "127.0.0.1"

EXECUTOR = "CoarseGrainedExecutorBackend"
"""In the command of an executor."""


@attrs.frozen
class Machine:
    """Where a worker runs. enter: the command that runs a program there."""

    host: str = HOST
    enter: tuple[str, ...] = ()


@contextmanager
def standalone_cluster(
    folder: Path,
    workers: Sequence[Machine] = (Machine(), Machine()),
    *,
    host: str = HOST,
    cores: int = 1,
    memory: str = "512m",
) -> Iterator[str]:
    """Run a master at an address, and workers; give the master's URL. They end with the block.

    cores, memory: of each worker.
    """
    port = _free_port(host)
    url = f"spark://{host}:{port}"
    with ExitStack() as stack:
        master = ["master.Master", "--host", host, "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_running(master, folder, Machine(host)))
        _wait_for(host, port)
        for number, each in enumerate(workers):
            options = ["--host", each.host, "--cores", str(cores), "--memory", memory, "--webui-port", "0"]
            command = ["worker.Worker", *options, "--work-dir", str(folder / f"worker{number}"), url]
            stack.enter_context(_running(command, folder, each))
        yield url


@contextmanager
def _running(command: list[str], folder: Path, machine: Machine) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    (core,) = (home / "jars").glob("spark-core_*.jar")
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": machine.host,
        "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[
            0
        ],  # a worker does not find it out by itself
    }
    java = prepare(environment)
    options = [*CHEAP.split(), "-Xmx128m", f"-Dlog4j2.configurationFile={_log_configuration()}"]
    program = [str(java.home / "bin" / "java"), *options, "-cp", str(home / "jars" / "*")]
    name, *arguments = command
    started = [*machine.enter, *program, f"org.apache.spark.deploy.{name}", *arguments]
    with subprocess.Popen(
        started, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.kill()


def executors() -> list[psutil.Process]:
    """Return the executors of the clusters that this process runs."""
    found: list[psutil.Process] = []
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "java" in each.name() and any(EXECUTOR in part for part in each.cmdline()):
                found.append(each)
    return found


def _log_configuration() -> str:
    import eventproc.spark

    return (Path(eventproc.spark.__file__).parent / "log4j2.properties").as_uri()


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(host: str, port: int) -> None:
    """Return when the master listens; a worker that connects too early waits for seconds before its next try."""
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((host, port)) == 0:
                return
