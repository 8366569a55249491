"""A standalone master and its workers, each a process, on this machine: what a cluster is, without the network."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

from eventproc.spark import prepare
from tests.spark.conftest import CHEAP

HOST = "127.0.0.1"


@contextmanager
def standalone_cluster(folder: Path, *, workers: int) -> Iterator[str]:
    """Run a master and so many workers of one core, and give the master's URL; they end with the block."""
    port = _free_port()
    url = f"spark://{HOST}:{port}"
    with ExitStack() as stack:
        master = ["master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0"]
        stack.enter_context(_running(master, folder))
        _wait_for(port)
        for number in range(workers):
            options = ["--host", HOST, "--cores", "1", "--memory", "512m", "--webui-port", "0"]
            place = folder / f"worker{number}"
            stack.enter_context(_running(["worker.Worker", *options, "--work-dir", str(place), url], folder))
        yield url


@contextmanager
def _running(command: list[str], folder: Path) -> Iterator[None]:
    home = Path(pyspark.__file__).parent
    (core,) = (home / "jars").glob("spark-core_*.jar")
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": HOST,
        "SPARK_SCALA_VERSION": core.name.split("_")[1].split("-")[
            0
        ],  # a worker does not find it out by itself
    }
    java = prepare(environment)
    options = [*CHEAP.split(), "-Xmx128m", f"-Dlog4j2.configurationFile={_log_configuration()}"]
    program = [str(java.home / "bin" / "java"), *options, "-cp", str(home / "jars" / "*")]
    name, *arguments = command
    started = [*program, f"org.apache.spark.deploy.{name}", *arguments]
    with subprocess.Popen(
        started, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield
        finally:
            process.kill()


def _log_configuration() -> str:
    import eventproc.spark

    return (Path(eventproc.spark.__file__).parent / "log4j2.properties").as_uri()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _wait_for(port: int) -> None:
    """Return when the master listens; a worker that connects too early waits for seconds before its next try."""
    while True:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
