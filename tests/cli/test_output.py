"""`--output` is honoured or refused by every command of the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import anyio
import click
import pytest

import eventproc
from eventproc.groups import ensure_group
from eventproc.ingestion.loop import handle_next
from eventproc.processors.dead_letters.operations import FailedEvent, append_letters
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.ownership import claim
from eventproc.store.segments import Event
from tests.cli.conftest import Cli
from tests.cli.support import GROUP
from tests.cli.test_command_tree import LEAVES
from tests.cli.test_transactions import begin
from tests.ingestion.support import publish_rows

MAILER = "shop/mailer"
REFUSING: Final = frozenset(
    {"run", "serve", "ui", "completion", "help", "ingest worker", "request new-id", "state export"}
)
"""Commands with one form of output: a server's log, a shell's script, help texts, JSON lines, and an id."""


def _request_id(cli: Cli) -> str:
    return cli("stream", "split", "shop/orders", "0.0", "--no-wait").ok().strip()


def _split(cli: Cli) -> str:
    cli("stream", "split", "shop/orders", "0.0").ok()
    return "2.1"


def _topic(cli: Cli) -> str:
    cli("topic", "create", "shop/clicks", "--partitions", "2").ok()
    cli("write", "shop/clicks", "--partition", "1", stdin=b"1\n2\n").ok()
    return "shop/clicks"


def _compacted(cli: Cli) -> str:
    name = _topic(cli)
    cli("topic", "alter", name, "--compact-after", "0", "--tombstones", "60").ok()
    return name


def _share(cli: Cli) -> str:
    cli("share", "create", "shop/work", "--stream", "shop/orders").ok()
    return "shop/work"


def _sealed(cli: Cli) -> str:
    cli("stream", "seal", "shop/orders", "--yes").ok()
    return "shop/orders"


def _user(cli: Cli) -> str:
    cli("user", "add", "ann", "--no-password").ok()
    cli("user", "grant", "ann", "READ_UPDATE", "shop").ok()
    cli("user", "add-token", "ann", "first").ok()
    return "ann"


def _flights(cli: Cli) -> str:
    path = cli.directory.parent / "rows.csv"
    path.write_text("tailnum,dep_delay\n" + "".join(f"N{number % 7},{number}\n" for number in range(40)))
    return str(path)


def _new_folder(cli: Cli) -> str:
    return str(cli.directory.parent / "monday")


def _backup(cli: Cli) -> str:
    cli("backup", _new_folder(cli)).ok()
    return _new_folder(cli)


def _directory(cli: Cli) -> str:
    return str(cli.directory)


def _restored(cli: Cli) -> str:
    return str(cli.directory.parent / "restored")


def _task(cli: Cli) -> str:
    cli("scope", "create", "emptied").ok()
    cli("scope", "delete", "emptied", "--recursive", "--yes", "--background").ok()
    return str(json.loads(cli("task", "list", "-o", "json").ok())[0]["id"])


def _job(cli: Cli) -> str:
    """Submit a job to a share group, and return its id."""
    return str(json.loads(cli("job", "submit", _share(cli), "hello", "-o", "json").ok())["id"])


def _delayed(cli: Cli) -> str:
    cli("write", "shop/orders", "--delay", "3600", stdin=b"later\n").ok()
    return str(json.loads(cli("delayed", "list", "-o", "json").ok())[0]["id"])


def _states(cli: Cli) -> str:
    cli("state", "import", GROUP, _exported(cli)).ok()
    return GROUP


def _exported(cli: Cli) -> str:
    path = cli.directory.parent / "states.jsonl"
    path.write_text('{"key": "ana", "value": {"count": 1}}\n')
    return str(path)


def _schedule(cli: Cli) -> str:
    cli("schedule", "create", "shop/close", "--cron", "0 18 * * *", "--stream", "shop/orders").ok()
    return "shop/close"


def _txn(cli: Cli) -> str:
    return begin(cli, b"1\n")


def _spec(cli: Cli) -> str:
    path = cli.directory.parent / "orders.json"
    spec = {"id": "totals", "io": {"streams": ["shop/orders"]}, "schema": {"datasource": "orders"}}
    path.write_text(json.dumps(spec))
    return str(path)


def _supervisor(cli: Cli) -> str:
    cli("supervisor", "submit", _spec(cli)).ok()
    return "totals"


def submit_and_run(cli: Cli) -> str:
    """Return a supervisor that has run once, and has published nothing of the stream."""
    spec = {
        "id": "totals",
        "io": {"streams": ["shop/orders"], "use_earliest_offset": True, "start_delay_ms": 0},
        "schema": {"datasource": "orders"},
    }
    path = cli.directory.parent / "behind.json"
    path.write_text(json.dumps(spec))
    cli("supervisor", "submit", path).ok()
    run_supervisor(cli)
    return "totals"


def run_supervisor(cli: Cli) -> None:
    """Handle the oldest notice of the supervisor, or let it run."""

    async def run() -> None:
        async with eventproc.open(cli.directory, create=False, host=False) as ep:
            owner = await ep.db.write(partial(claim, name="bucket", instance=ep.db.instance_id))
            await handle_next(ep.db, owner, "totals", ep.db.peers.is_alive)

    anyio.run(run)


def _ingestion_task(cli: Cli) -> str:
    """Return the id of a task that waits for a worker."""
    return f"{submit_and_run(cli)}-1-00000000-0"


def _picture(cli: Cli) -> str:
    return str(cli.directory.parent / "totals.svg")


def _table(cli: Cli) -> str:
    async def publish() -> None:
        async with eventproc.open(cli.directory, host=False) as ep:
            await publish_rows(ep.db, 1, 2)

    anyio.run(publish)
    return "clicks"


NEEDS_SPARK: Final = frozenset({"table query", "table compact", "table overwrite"})
"""Commands that start Spark; tests/spark/test_ingestion_task.py runs them."""


INVOCATIONS: Final[Mapping[str, tuple[str | Callable[[Cli], str], ...]]] = MappingProxyType(
    {
        "init": (),
        "scope create": ("more",),
        "scope list": (),
        "scope delete": ("shop", "--recursive", "--yes"),
        "stream list": (),
        "stream describe": ("shop/orders",),
        "stream segments": ("shop/orders",),
        "stream epochs": ("shop/orders",),
        "stream scales": ("shop/orders",),
        "stream plot": ("shop/orders", _picture),
        "stream segment": ("shop/orders", "0.0"),
        "stream size": ("shop/orders",),
        "stream compare": ("shop/orders", "head", "tail"),
        "stream cut": ("shop/orders",),
        "stream create": ("shop/more",),
        "stream update": ("shop/orders", "--segments", "3"),
        "stream truncate": ("shop/orders", "--cut", "tail", "--yes"),
        "stream offload": ("shop/orders",),
        "stream seal": ("shop/orders", "--yes"),
        "stream delete": (_sealed, "--yes"),
        "stream split": ("shop/orders", "0.0"),
        "stream merge": ("shop/orders", _split, "3.1"),
        "stream scale": ("shop/orders", "--seal", "0.0,1.0", "--ranges", "0-0.3,0.3-1"),
        "topic list": (),
        "topic describe": (_topic,),
        "topic positions": (_topic, "0"),
        "topic create": ("shop/more", "--partitions", "2"),
        "topic alter": (_topic, "--partitions", "3"),
        "topic truncate": (_topic, "--cut", "tail", "--yes"),
        "topic compact": (_compacted,),
        "topic delete": (_topic, "--yes"),
        "write": ("shop/orders",),
        "read": ("shop/orders",),
        "group list": (),
        "group describe": (GROUP,),
        "group lag": (GROUP,),
        "group checkpoints": (GROUP,),
        "group members": (GROUP,),
        "group partitions": (GROUP,),
        "group create": ("shop/more", "--stream", "shop/orders"),
        "group reset": (GROUP, "--to", "tail"),
        "group update": (GROUP, "--patience", "30"),
        "group checkpoint": (GROUP, "first"),
        "group offline": (GROUP, "r1"),
        "group delete": (GROUP, "--yes"),
        "share list": (),
        "share describe": (_share,),
        "share create": ("shop/more", "--stream", "shop/orders"),
        "share update": (_share, "--lock", "5"),
        "share offline": (_share, "w"),
        "share reset": (_share, "--to", "tail"),
        "share delete": (_share, "--yes"),
        "txn list": ("shop/orders",),
        "txn describe": ("shop/orders", _txn),
        "txn commit": ("shop/orders", _txn),
        "txn abort": ("shop/orders", _txn, "--yes"),
        "processor list": (),
        "processor describe": (MAILER,),
        "processor pause": (MAILER,),
        "processor resume": (MAILER,),
        "state show": (_states,),
        "state import": (GROUP, _exported),
        "state drop": (_states, "--yes"),
        "cluster list": (),
        "cluster describe": (),
        "schedule create": ("shop/close", "--cron", "0 18 * * *", "--stream", "shop/orders"),
        "schedule list": (),
        "schedule show": (_schedule,),
        "schedule next": (_schedule,),
        "schedule pause": (_schedule,),
        "schedule resume": (_schedule,),
        "schedule delete": (_schedule, "--yes"),
        "delayed list": (),
        "delayed show": (_delayed,),
        "delayed cancel": (_delayed,),
        "delayed move": (_delayed, "--delay", "60"),
        "job submit": (_share, "hello"),
        "job list": (_share,),
        "job show": (_share, _job),
        "job cancel": (_share, _job),
        "job retry": (_share, _job),
        "task list": (),
        "task describe": (_task,),
        "task wait": (_task,),
        "task cancel": (_task,),
        "ingest workers": (),
        "ingest logs": (_ingestion_task,),
        "supervisor submit": (_spec,),
        "supervisor list": (),
        "supervisor status": (_supervisor,),
        "supervisor lag": (_supervisor,),
        "supervisor tasks": (_supervisor,),
        "supervisor describe": (_supervisor,),
        "supervisor history": (_supervisor,),
        "supervisor plot": (_supervisor, _picture),
        "supervisor suspend": (_supervisor,),
        "supervisor resume": (_supervisor,),
        "supervisor handoff": (_supervisor,),
        "supervisor reset": (_supervisor,),
        "supervisor terminate": (_supervisor,),
        "supervisor shutdown": (_supervisor,),
        "supervisor backfill": (submit_and_run,),
        "table list": (),
        "table describe": (_table,),
        "table drop": (_table, "--yes"),
        "dead-letter list": (MAILER,),
        "dead-letter show": (MAILER, "0.0:0"),
        "dead-letter redrive": (MAILER, "--all"),
        "dead-letter drop": (MAILER, "--all", "--yes"),
        "request show": (_request_id,),
        "request list": (),
        "request wait": (_request_id,),
        "user list": (),
        "user add": ("bob", "--no-password"),
        "user describe": (_user,),
        "user grant": (_user, "READ", "shop/*"),
        "user revoke": (_user, "shop"),
        "user password": (_user, "--remove"),
        "user add-token": (_user, "second"),
        "user delete-token": (_user, "first"),
        "user delete": (_user, "--yes"),
        "top": (),
        "doctor": (),
        "backup": (_new_folder,),
        "restore": (_backup, "-C", _restored),
        "copy": (_directory, _restored, "--abort-open"),
        "verify": (),
        "compact": (),
        "demo": (_flights,),
        "version": (),
    }
)
"""A successful invocation of every command that honours --output; a function prepares an argument."""


def add_dead_letter(cli: Cli) -> None:
    """Make the processor group shop/mailer, with one dead letter."""

    def give_up(tx: Tx) -> None:
        ensure_group(tx, MAILER, ["shop/orders"])
        event = Event(b"1", "customer-42", 1000, None, "shop/orders", SegmentId(0), 170, 0, {})
        error = ValueError("no money")
        letter = FailedEvent.of(event, error, attempts=1, processor="mailer", failed_ms=2000)
        append_letters(tx, MAILER, None, [letter])

    async def act() -> None:
        async with eventproc.open(cli.directory, host=False) as ep:
            await ep.db.write(give_up)

    anyio.run(act)


each_invocation = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.subprocess] if name in ("group offline", "demo") else [])
        for name in INVOCATIONS
    ],
)
"""Decorator of a test of each successful invocation; some of them start processes."""


def test_every_command_has_an_invocation_or_refuses_output() -> None:
    assert set(LEAVES) == set(INVOCATIONS) | REFUSING | NEEDS_SPARK


@each_invocation
@pytest.mark.parametrize("form", ["--output=json", "--quiet"])
def test_command_prints_one_json_document_or_quietly_its_result_and_nothing_else(
    billing: Cli, name: str, form: str, request: pytest.FixtureRequest
) -> None:
    if name == "group offline":
        request.getfixturevalue("as_reader")
    add_dead_letter(billing)
    arguments = [each if isinstance(each, str) else each(billing) for each in INVOCATIONS[name]]
    done = billing(*name.split(), *arguments, form, stdin=b"1\n2\n")
    if form == "--quiet":
        assert (done.code, done.err) == (0, "")
    else:
        assert isinstance(json.loads(done.ok()), (dict, list))


@pytest.mark.parametrize("name", sorted(REFUSING))
def test_a_command_with_one_form_of_output_refuses_the_option(cli: Cli, name: str) -> None:
    why = cli(*name.split(), "--output", "json").refused(2)
    assert f"`eventproc {name}` has only one form of output; leave --output out" in why


@pytest.mark.parametrize("name", [name for name in LEAVES if name not in REFUSING])
def test_output_offers_table_json_and_jsonl_everywhere(name: str) -> None:
    (option,) = (each for each in LEAVES[name].params if "--output" in each.opts)
    assert isinstance(option.type, click.Choice)
    assert list(option.type.choices) == ["table", "json", "jsonl"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("stream", "seal", "shop/orders", "--yes", "--no-wait"),
        ("stream", "split", "shop/orders", "0.0", "--no-wait"),
    ],
)
def test_a_request_that_is_not_waited_for_is_an_object_in_json(shop: Cli, arguments: tuple[str, ...]) -> None:
    row = shop(*arguments, "-o", "json").json()
    assert row["status"] == "pending"
    assert shop("request", "wait", row["request_id"], "-o", "json").json()["status"] == "done"


def test_write_prints_one_document_or_an_object_for_each_number(shop: Cli) -> None:
    assert shop("write", "shop/orders", "-o", "json", stdin=b"1\n2\n").json() == {"written": 2}
    assert shop("write", "shop/orders", "-o", "jsonl", stdin=b"").rows() == [{"written": 0}]
    assert shop("write", "shop/orders", "--transaction", "-o", "json", stdin=b"3\n").json() == {"written": 1}


def test_times_of_a_job_are_shown_as_times(shop: Cli) -> None:
    shop("job", "submit", "shop/mail", "hello", "--stream", "shop/orders", "--id", "17").ok()
    for words in (("job", "list", "shop/mail"), ("job", "show", "shop/mail", "17")):
        assert re.search(r"(?i)\bsubmitted\b(.|\n)* \d{4}-\d\d-\d\dT", shop(*words).ok())
