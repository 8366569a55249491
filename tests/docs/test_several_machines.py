"""The example of the guide's page on several machines does what it says, without containers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click
import psycopg
import pytest
import yaml

from eventproc.cli.main import root
from tests.cli.support import COMMAND, StartedCommand
from tests.docs.page import ROOT
from tests.support.postgres import Server
from tests.support.s3_server import s3, s3_process, url

__all__ = ["s3", "s3_process", "url"]  # fixtures

PATIENCE: Final = 300
"""How often the table is read until it has all orders. Each time takes a second or more."""

EXAMPLE = ROOT / "docs/examples/several-machines"


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A copy of the example with secrets."""
    folder = tmp_path / "example"
    shutil.copytree(EXAMPLE, folder)
    subprocess.run(["sh", folder / "secrets.sh"], check=True)
    return folder


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((EXAMPLE / "compose.yaml").read_text(encoding="utf-8"))
    return found


def commands() -> list[list[str]]:
    """Return what is run by the services: their commands, and those of their health checks."""
    services = compose()["services"].values()
    found = [each["command"] for each in services if "command" in each]
    found += [each["healthcheck"]["test"][1:] for each in services if "healthcheck" in each]
    return found


@pytest.mark.parametrize(
    "command",
    [each[each.index("eventproc") + 1 :] for each in commands() if "eventproc" in each],
    ids=" ".join,
)
def test_command_of_a_service_is_one_of_the_command_line(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(EXAMPLE)
    found: click.Command | None = root
    for word in command:
        if isinstance(found, click.Group) and not word.startswith("-"):
            found = found.get_command(click.Context(found), word)
    assert found is not None
    parsed: list[dict[str, object]] = []
    monkeypatch.setattr(found, "callback", lambda **values: parsed.append(values))
    root.main(command, standalone_mode=False)
    assert parsed != []


@pytest.mark.subprocess
def test_every_file_that_a_service_mounts_exists(example: Path) -> None:
    found = compose()
    services = found["services"].values()
    mounted = [each["file"] for each in found["secrets"].values()]
    sources = [each.split(":")[0] for service in services for each in service.get("volumes", ())]
    mounted += [each for each in sources if each.startswith(".")]
    assert [each for each in mounted if not (example / each).is_file()] == []
    assert {each for each in sources if not each.startswith(".")} == set(found["volumes"])
    named = [secret for service in services for secret in service.get("secrets", ())]
    assert {each if isinstance(each, str) else each["source"] for each in named} == set(found["secrets"])
    copied = [
        line.split()[1:-1] for line in (example / "Dockerfile").read_text().splitlines() if "COPY" in line
    ]
    assert [each for names in copied for each in names if not (example / each).is_file()] == []
    json.loads((example / "secrets/storage.json").read_text())


@pytest.mark.subprocess
def test_secrets_are_files_that_only_their_owner_reaches(example: Path) -> None:
    named = [name for service in compose()["services"].values() for name in service.get("environment", ())]
    secret = [each for each in named if any(word in each for word in ("PASS", "SECRET", "KEY"))]
    assert [each for each in secret if not each.endswith("_FILE")] == []
    assert (example / "secrets").stat().st_mode & 0o077 == 0


@pytest.fixture
def user(example: Path, server: Server, s3: object, url: str) -> Iterator[str]:
    """The address of the example's store, for its services; it was prepared twice."""
    server.execute((example / "roles.sql").read_text())
    server.execute((example / "secrets/passwords.sql").read_text())
    owner, user = (
        server.store("streams").replace("postgres@", f"streams_{each}@") for each in ("owner", "user")
    )
    prepare = [sys.executable, "prepare.py", url, "secrets/rest_password"]
    for _ in range(2):
        subprocess.run(prepare, cwd=example, env={**os.environ, "EVENTPROC_DIR": owner}, check=True)
    yield user
    server.execute(
        "DROP SCHEMA streams, streams_app CASCADE; DROP OWNED BY streams_owner, streams_user, streams_app"
    )
    server.execute("DROP ROLE streams_owner, streams_user, streams_app")


def write_orders(environment: dict[str, str], *customers: str) -> None:
    rows = "".join(json.dumps({"customer": each}) + "\n" for each in customers)
    write = [*COMMAND, "write", "shop/orders", "-", "--format", "jsonl", "--key", "customer"]
    subprocess.run(write, env=environment, input=rows.encode(), check=True)


@pytest.mark.subprocess
def test_services_run_with_the_roles_of_the_example(example: Path, user: str) -> None:
    environment = {**os.environ, "EVENTPROC_DIR": user}
    with StartedCommand(
        [*COMMAND, "run", "shop:app"],
        cwd=example,
        env=environment,
        stderr=subprocess.PIPE,
    ) as worker:
        write_orders(environment, "ana")
        assert worker.stderr is not None
        assert any(b"mail to ana" in line for line in worker.stderr)
        worker.send_signal(signal.SIGTERM)
    assert worker.returncode == 0
    with psycopg.connect(user.partition("&schema=")[0]) as connection:
        for forbidden in ("CREATE TABLE streams.more ()", "DROP TABLE streams.opening"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(forbidden.encode())


@pytest.mark.spark
def test_cluster_of_the_example_keeps_orders_in_a_table_that_another_engine_reads(
    example: Path, user: str, tmp_path: Path
) -> None:
    from eventproc.spark import prepare  # loads Spark

    port, page = free_port(), free_port()
    here = {
        "spark-master": "127.0.0.1",
        "7077": str(port),
        "8080": str(page),
        "/tmp/work": str(tmp_path / "work"),
    }
    environment = {**os.environ, "EVENTPROC_DIR": user, "POLARS_ICEBERG_PLANNER": "pyiceberg"}
    prepare(environment)
    programs = Path(sys.executable).parent
    environment["PATH"] = f"{programs}{os.pathsep}{environment['PATH']}"

    def translated(words: list[str]) -> list[str]:
        for name, value in here.items():
            words = [each.replace(name, value) for each in words]
        return words

    services = compose()["services"]
    with ExitStack() as running:

        def start(service: str, *more: str) -> subprocess.Popen[bytes]:
            command = translated(services[service]["command"])
            started = subprocess.Popen(
                [*command, *more], cwd=example, env=environment, start_new_session=True
            )
            running.callback(started.wait)
            running.callback(os.killpg, started.pid, signal.SIGKILL)
            return started

        start("worker-1")
        master = start("spark-master", "--webui-port", str(page))
        check = translated(services["spark-master"]["healthcheck"]["test"][1:])
        while subprocess.run(check, env=environment, stderr=subprocess.DEVNULL, check=False).returncode:
            assert master.poll() is None, "the master has ended"  # Compose checks again, too
        for each in ("spark-worker-1", "spark-worker-2"):
            start(each, "--webui-port", "0")
        start("ingest-worker")
        submit = services["submit"]["command"]
        for _ in range(2):
            subprocess.run(submit, cwd=example, env=environment, check=True)
        write_orders(environment, "ana", "bob", "ana")
        read = [sys.executable, "orders.py"]
        wanted, found = "customer,orders\nana,2\nbob,1\n", ""
        for _ in range(PATIENCE):
            ended = subprocess.run(read, cwd=example, env=environment, stdout=subprocess.PIPE, check=False)
            if (found := ended.stdout.decode()) == wanted:
                break
        assert found == wanted


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
