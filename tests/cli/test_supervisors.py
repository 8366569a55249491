"""`eventproc supervisor` and `eventproc ingest` at the shell: changes of all supervisors, and what resets move."""

from __future__ import annotations

import json

import anyio
import pytest

import eventproc
from eventproc import EVENT_BYTES_MAX
from tests.cli.conftest import Cli
from tests.cli.test_output import run_supervisor, submit_and_run
from tests.ingestion.support import add_worker


@pytest.fixture
def clicks(shop: Cli) -> Cli:
    """A directory with the supervisors `a` and `b`, which no host runs."""
    for name in ("a", "b"):
        spec = {"id": name, "io": {"streams": ["shop/orders"]}, "schema": {"datasource": name}}
        path = shop.directory.parent / f"{name}.json"
        path.write_text(json.dumps(spec))
        shop("supervisor", "submit", str(path)).ok()
    return shop


def test_all_supervisors_are_suspended_resumed_and_terminated(clicks: Cli) -> None:
    clicks("supervisor", "suspend", "a").ok()
    done = clicks("supervisor", "suspend", "--all", "--output", "json").json()
    assert done == {"done": "suspend", "target": None, "supervisors": ["b"]}
    assert clicks("supervisor", "suspend", "--all").err == "suspended no supervisor\n"
    assert clicks("supervisor", "resume", "--all").err == "resumed a, b\n"
    assert clicks("supervisor", "terminate", "--all").err == "terminated a, b; the tasks publish\n"
    assert clicks("supervisor", "terminate", "--all").err == "terminated no supervisor\n"


def test_the_history_shows_which_versions_of_a_suspended_spec_were_submitted(clicks: Cli) -> None:
    clicks("supervisor", "suspend", "a").ok()
    path = clicks.directory.parent / "a.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "suspended": True, "retention_ms": 1}))
    clicks("supervisor", "submit", str(path)).ok()
    found = clicks("supervisor", "history", "a", "--output", "json").json()
    assert [each["change"] for each in found] == ["submitted", "suspended", "submitted"]


@pytest.mark.parametrize("arguments", [(), ("a", "--all")])
def test_a_change_is_of_one_supervisor_or_of_all(clicks: Cli, arguments: tuple[str, ...]) -> None:
    for verb in ("suspend", "resume", "terminate"):
        assert "give either SUPERVISOR or --all" in clicks("supervisor", verb, *arguments).refused(2)
    listed = clicks("supervisor", "list", "--output", "json").json()
    assert [each["suspended"] for each in listed] == [False, False]


def test_a_worker_is_listed_with_its_place_also_after_its_death(shop: Cli) -> None:
    async def register() -> None:
        async with eventproc.open(shop.directory, host=False) as ep:
            await add_worker(ep, ep.db.instance_id)

    anyio.run(register)
    (found,) = shop("ingest", "workers", "--output", "json").json()
    assert (found["machine"], found["pid"], found["slots"]) == ("m1", 7, 2)
    assert (found["alive"], found["tasks"]) == (False, [])
    heading, row = shop("ingest", "workers").ok().splitlines()
    assert heading.split() == ["INSTANCE", "ALIVE", "MACHINE", "PID", "SLOTS", "TASKS", "STARTED", "SEEN"]
    assert row.split()[1:6] == ["no", "m1", "7", "2", "0"]


def test_the_log_of_a_task_is_printed_and_can_be_followed_to_its_end(shop: Cli) -> None:
    task = f"{submit_and_run(shop)}-1-00000000-0"
    (line,) = shop("ingest", "logs", task).ok().splitlines()
    assert line.endswith("Z  created, as replica 0; it waits for a worker")
    assert "use --output jsonl" in shop("ingest", "logs", task, "--follow", "--output", "json").refused(2)
    assert "no ingestion task 'none'" in shop("ingest", "logs", "none").refused(3)
    shop("supervisor", "terminate", "totals").ok()
    run_supervisor(shop)
    printed = shop("ingest", "logs", task, "--follow", "--output", "jsonl").ok().splitlines()
    assert [json.loads(each)["message"] for each in printed][1:] == [
        "stopped: its group has ended, and had read nothing"
    ]


def test_a_spec_is_read_no_further_than_the_limit_of_other_inputs(shop: Cli) -> None:
    path = shop.directory.parent / "spec.json"
    path.write_bytes(b" " * (EVENT_BYTES_MAX + 1))
    assert "spec.json: it is longer than 8388600 bytes" in shop("supervisor", "submit", str(path)).refused(1)
