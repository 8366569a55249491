"""The command line on a store on a server: every command takes a URL where it takes a directory."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import urllib.request
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

import eventproc
from tests.cli.conftest import Cli, run_here
from tests.cli.support import COMMAND, REPOSITORY, StartedCommand, environment
from tests.server.rest_client import RestClient
from tests.server.support import ServerProcess
from tests.support.postgres import Server, running_server

pytestmark = pytest.mark.subprocess

EVENTS = b'{"k":"a","n":1}\n{"k":"b","n":2}\n{"k":"a","n":3}\n'
PASSWORD = "s3cret"
SPEC = """
io: {streams: [shop/orders]}
schema: {datasource: clicks, dimensions: [k]}
"""


@pytest.fixture(autouse=True)
def variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EVENTPROC_DIR", raising=False)


@pytest.fixture
def cli(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Commands on a store that does not exist yet."""
    cli = Cli(tmp_path, capsys)
    cli.url = url
    return cli


@pytest.fixture
def shop(cli: Cli) -> Cli:
    """A store with the stream shop/orders."""
    for command in ("init", "scope create shop", "stream create shop/orders --segments 2"):
        cli(*command.split()).ok()
    return cli


def with_password(url: str) -> str:
    return url.replace("postgres@", f"postgres:{PASSWORD}@")


def test_events_go_through_commands_as_in_a_directory(shop: Cli) -> None:
    shop("write", "shop/orders", "-", "--format", "jsonl", "--key", "k", stdin=EVENTS).ok()
    assert sorted(json.loads(row["payload"])["n"] for row in shop("read", "shop/orders").rows()) == [1, 2, 3]
    shop("group", "create", "billing", "--stream", "shop/orders").ok()
    assert len(shop("read", "--group", "shop/billing", "--max", 2).rows()) == 2
    assert shop("group", "lag", "shop/billing", "--output", "json").json()["events"] == 1
    assert shop("stream", "describe", "shop/orders", "--output", "json").json()["events"] == 3
    shop("stream", "split", "shop/orders", "0.0").ok()
    [instance] = shop("cluster", "list", "--output", "json").json()
    assert instance["opened_ms"] > 0
    report = shop("verify", "--output", "json").json()
    assert (report["kind"], report["healthy"], report["problems"]) == ("server", True, [])
    assert report["bytes"] > 0
    shop("stream", "seal", "shop/orders", "--yes").ok()
    assert shop("stream", "delete", "shop/orders", "--yes").ok() == ""


def test_init_creates_the_schema_once_and_names_it(cli: Cli, url: str, server: Server) -> None:
    schema = url.rpartition("=")[2]
    assert cli("init", "--durability", "os").err.endswith(f"?schema={schema} is ready\n")
    made = f"SELECT 1 FROM pg_namespace WHERE nspname IN ('{schema}', '{schema}_app')"
    assert server.execute(made) == [(1,), (1,)]
    assert cli("init").err.endswith("exists already\n")
    assert "leave --durability out" in cli("init", "--durability", "fsync").refused(4)


def test_store_that_does_not_exist_or_cannot_be_reached_is_one_error(
    cli: Cli, url: str, server: Server
) -> None:
    assert "eventproc init" in cli("scope", "list").refused(6)
    server.execute("CREATE ROLE guest LOGIN")
    cli("init").ok()
    cli.url = url.replace("postgres@", "guest@")
    assert "permission denied" in cli("scope", "list").refused(6)
    cli.url = "postgresql://postgres@127.0.0.1:1/postgres"
    assert "127.0.0.1:1" in cli("scope", "list").refused(6)
    for wrong, text in [
        (f"{url}&colour=red", "options"),
        (url.replace("schema=", "schema=Big-"), "schema"),
        ("mysql://u@h/d", "mysql://..."),
        ("postgresql://postgres@/nowhere" + url[url.index("?") :], "nowhere"),
    ]:
        cli.url = wrong
        done = cli("scope", "list")
        assert done.code in {2, 6}
        assert text in done.refused(done.code)


REFUSED = {
    "backup there": "pg_dump",
    "backup there --background": "pg_dump",
    "restore there": "-C DIR",
    "compact": "autovacuum",
    "compact --background": "autovacuum",
    "init --chunks there": "s3://BUCKET/PREFIX",
    "stream offload shop/orders --older-than 0": "s3://BUCKET/PREFIX",
    "supervisor submit spec.yaml": "s3://BUCKET/PREFIX",
    "ingest worker": "s3://BUCKET/PREFIX",
}
"""Commands that need a directory, and a part of what they say to do instead."""


@pytest.mark.parametrize("command", REFUSED)
def test_command_that_needs_a_directory_names_the_remedy(
    shop: Cli, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(SPEC)
    assert REFUSED[command] in shop(*command.split()).refused(2)


def test_guide_lists_the_commands_that_are_refused() -> None:
    page = (REPOSITORY / "docs/guide/several-machines.md").read_text()
    rows = [line.split("|") for line in page.splitlines() if "| refused: " in line]
    listed = [name for _, names, *_ in rows for name in re.findall("`([^`]+)`", names)]
    assert {next(name for name in listed if each.startswith(name)) for each in REFUSED} == set(listed)


def test_doctor_shows_the_server_and_who_uses_the_store(shop: Cli, url: str, server: Server) -> None:
    with eventproc.open_blocking(url) as ep:
        found = shop("doctor", "--output", "json").json()
        [other] = found["instances"]
        assert (other["instance"], other["state"]) == (ep.cluster.list()[0].id, "alive")
    assert (found["healthy"], found["tables"], found["invariants"]) == (True, "ok", "ok")
    assert found["server"].startswith("PostgreSQL ")
    assert abs(found["clock_ahead_ms"]) < 60_000
    assert (found["settings"]["fsync"], found["settings"]["synchronous_commit"]) == ("on", "on")
    assert found["connections"] >= 8
    assert (found["standbys"], found["connections_waiting"]) == (0, 0)
    schema = url.rpartition("=")[2]
    assert (found["sql_role"], found["schema"]) == (f"{schema}_app", found["schema_known"])
    server.execute(f"DROP TABLE {schema}.attribute; ALTER TABLE {schema}.writer ADD more bigint")
    done = shop("doctor", "--quick")
    assert done.code == 6
    assert "the table attribute is missing; the table writer has a column too many, more INTEGER" in done.out


def test_password_is_refused_as_an_argument_and_never_printed(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = with_password(url)
    parameter = f"{url}&PASSWORD={PASSWORD}"
    for arguments in (
        ["-C", secret, "init"],
        ["init", secret],
        ["verify", secret],
        ["-C", parameter, "init"],
    ):
        assert run_here(None, *arguments) == 2
    monkeypatch.setenv("EVENTPROC_DIR", secret)
    for command in (
        "init",
        "init",
        "scope create s",
        "doctor",
        "verify",
        "cluster list",
        "--debug backup there",
    ):
        run_here(None, *command.split())
    assert run_here(None, "init", "elsewhere") == 2
    for wrong in (
        f"postgresql://u:{PASSWORD}/x@h/d",
        f"postgresql://u:{PASSWORD}%zz@h/d",
        f"mysql://u:{PASSWORD}@h",
    ):
        monkeypatch.setenv("EVENTPROC_DIR", wrong)
        assert run_here(None, "scope", "list") == 2
    printed = capsys.readouterr()
    assert "EVENTPROC_DIR, PGPASSWORD" in printed.err
    assert PASSWORD not in printed.out + printed.err


APP = """
import eventproc

app = eventproc.App()


def total(tx, events):
    tx.execute("CREATE TABLE IF NOT EXISTS app_total (name text PRIMARY KEY, count integer)")
    tx.execute(
        "INSERT INTO app_total VALUES ('all', ?) ON CONFLICT (name) DO UPDATE SET"
        " count = app_total.count + excluded.count",
        (len(events),),
    )


@app.processor("shop/orders", group="totals", exactly_once=True, on_commit=total)
async def forward(event, context):
    context.emit("shop/out", event.payload, key=event.key)
"""


def test_serve_runs_an_app_exactly_once_beside_rest(shop: Cli, url: str, tmp_path: Path) -> None:
    shop("stream", "create", "shop/out").ok()
    (tmp_path / "shop.py").write_text(APP)
    ports = ["--controller-port", "0", "--segment-store-port", "0", "--rest", "0"]
    with StartedCommand(
        [*COMMAND, "serve", "shop:app", *ports],
        cwd=tmp_path,
        env=environment(EVENTPROC_DIR=with_password(url)),
        stderr=subprocess.PIPE,
    ) as served:
        assert served.stderr is not None
        heard: list[str] = []
        while "REST: " not in "".join(heard[-1:]):
            heard.append(served.stderr.readline().decode())
            assert heard[-1], heard
        address = heard[-1].partition("REST: ")[2].partition("/openapi")[0]
        with urllib.request.urlopen(f"{address}/v1/scopes") as answer:
            assert {"scopeName": "shop"} in json.load(answer)["scopes"]
        shop("write", "shop/orders", "-", "--format", "jsonl", "--key", "k", stdin=EVENTS).ok()
        out = shop("read", "shop/out", "--follow", "--max", 3).rows()
        assert sorted(json.loads(row["payload"])["n"] for row in out) == [1, 2, 3]
        served.send_signal(signal.SIGTERM)
        said = "".join(heard) + served.stderr.read().decode()
    assert (served.returncode, PASSWORD in said) == (0, False), said
    with eventproc.open_blocking(url) as ep:
        assert ep.query("SELECT count FROM app_total") == [(3,)]


def test_serving_process_says_within_seconds_that_its_store_cannot_be_reached() -> None:
    with running_server() as server, ExitStack() as ended:
        assert run_here(None, "init", server.url) == 0
        serving = ended.enter_context(ServerProcess(server.url, rest=True))
        client = ended.enter_context(closing(RestClient(serving.rest)))
        assert client.get("/readyz") == {"database": "UP", "host": "UP"}
        server.stop()
        try:
            health = client.get("/v1/health")
            said = client.call("GET", "/readyz").body["detail"]
        finally:
            server.start()
        assert (health["status"], health["readiness"], health["liveness"]) == ("DOWN", False, True)
        assert "cannot be reached" in health["details"]["database"]
        assert ("database: Unreachable: " in said, "postgresql:" in said) == (True, False), said
        while client.get("/v1/health/readiness") is not True:
            pass  # each call waits for the server
