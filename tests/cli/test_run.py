"""`eventproc run`: its log, an app's own logging, several workers, and reloading."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from eventproc.cli.worker_processes import send_signal
from tests.cli.conftest import Cli
from tests.cli.support import PATIENCE_S, RunProcess

pytestmark = pytest.mark.subprocess

APP = """
import logging
import pathlib
import eventproc

app = eventproc.App()
log = logging.getLogger("shop")

@app.processor("shop/orders", group="mailer", retry=eventproc.RetryPolicy(attempts=1))
async def mail(event, context):
    context.log.info("mail sent", extra={"address": pathlib.Path("street")})
    log.debug("a detail")
    log.info("an own message")
    if event.payload == b"bad":
        raise ValueError("no such address")
"""


class Run(RunProcess):
    """`eventproc run` with the app of the module shop."""

    def hear_json(self, *texts: str) -> dict[str, Any]:
        """Return the next line that contains all texts as an object."""
        row = json.loads(self.hear(*texts))
        assert isinstance(row, dict)
        return row

    def end(self, number: signal.Signals | None = signal.SIGTERM) -> int:
        """Send a signal, read the rest of the log, and return the exit code."""
        if number is not None:
            self.process.send_signal(number)
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        self.heard += rest.splitlines(keepends=True)
        return self.process.returncode

    def started(self, count: int) -> dict[int, int]:
        """Return the process ids of the next `count` workers that were started, by number."""
        found = {}
        for _ in range(count):
            words = self.hear("eventproc.run: worker ", " started (pid ").split()
            found[int(words[words.index("worker") + 1])] = int(words[-1].rstrip(")"))
        return found


StartRun = Callable[..., Run]


@pytest.fixture
def run(shop: Cli, tmp_path: Path) -> StartRun:
    """Start `eventproc run` in a folder whose module shop has the code `prefix` before the app."""

    def start(*arguments: object, prefix: str = "", app: str = APP) -> Run:
        (tmp_path / "shop.py").write_text(prefix + app)
        return Run(shop.directory, tmp_path, "shop:app", *arguments)

    return start


def test_what_handlers_log_is_shown_with_processor_and_event(run: StartRun) -> None:
    with run() as server:
        line = server.hear("mail sent")
        assert " INFO    eventproc.processors.handler: mail: shop/orders segment " in line
        assert " event 0 (key 'customer-42'): mail sent" in line
        assert " INFO    shop: an own message" in server.hear("an own message")
        assert server.end() == 0
    assert not any("a detail" in line for line in server.heard)


def test_json_log_has_an_object_in_each_line(shop: Cli, run: StartRun) -> None:
    with run("--log-format", "json") as server:
        row = server.hear_json('"mail sent"')
        assert (row["level"], row["logger"]) == ("info", "eventproc.processors.handler")
        assert (row["processor"], row["stream"], row["key"]) == ("mail", "shop/orders", "customer-42")
        assert (row["number"], row["attempt"], row["address"]) == (0, 1, "street")
        assert "worker" not in row
        shop("write", "shop/orders", stdin=b"bad\n").ok()
        letter = server.hear_json("became a dead letter")
        assert (letter["error_type"], letter["error"]) == ("ValueError", "no such address")
        assert "in mail" in letter["traceback"]
        assert server.end() == 0
    rows = [json.loads(line) for line in server.heard]
    assert all(row.keys() >= {"time", "level", "logger", "message"} for row in rows)


@pytest.mark.parametrize("code, prefix, said", [(1, "1 /", "SyntaxError"), (1, "1 / 0", "ZeroDivisionError")])
def test_json_log_also_has_the_error_that_ends_the_command(
    run: StartRun, code: int, prefix: str, said: str
) -> None:
    with run("--log-format", "json", prefix=prefix) as server:
        assert server.end(None) == code
    (row,) = [json.loads(line) for line in server.heard]
    assert (row["level"], said in row["message"], "(shop.py, line 1)" in row["message"]) == (
        "error",
        True,
        True,
    )


@pytest.mark.parametrize(
    "level, shown", [("debug", ["a detail", "an own"]), ("info", ["an own"]), ("warning", [])]
)
def test_log_level_chooses_what_is_shown(shop: Cli, run: StartRun, level: str, shown: list[str]) -> None:
    shop("write", "shop/orders", stdin=b"bad\n").ok()
    with run("--log-level", level) as server:
        server.hear("became a dead letter")
        assert server.end() == 0
    assert [text for text in ("a detail", "an own") if any(text in line for line in server.heard)] == shown


BASIC = "import logging\nlogging.basicConfig(format='OWN %(levelname)s %(message)s', level='{level}')\n"


def test_logging_that_the_app_configures_is_left_alone(run: StartRun) -> None:
    with run(prefix=BASIC.format(level="INFO")) as server:
        assert server.hear("mail sent") == "OWN INFO mail sent\n"
        assert server.end() == 0
    assert all(line.startswith("OWN INFO ") for line in server.heard)


def test_log_level_also_holds_for_an_app_that_configures_logging(run: StartRun) -> None:
    with run("--log-level", "debug", prefix=BASIC.format(level="INFO")) as server:
        assert server.hear("a detail") == "OWN DEBUG a detail\n"
        assert server.end() == 0


def test_log_format_is_refused_if_the_app_configures_logging(run: StartRun) -> None:
    with run("--log-format", "text", prefix=BASIC.format(level="INFO")) as server:
        assert server.end(None) == 2
    assert "the app configures logging itself" in server.heard[-1]
    assert "leave --log-format out" in server.heard[-1]


@pytest.mark.parametrize("call", ["logging.warning('early')", "logging.getLogger('x').warning('early')"])
def test_a_message_during_the_import_is_no_configuration(run: StartRun, call: str) -> None:
    with run(prefix=f"import logging\n{call}\n") as server:
        assert "early" in server.hear("early")
        assert " INFO    eventproc.run: serving " in server.hear("serving")
        assert server.end() == 0


def test_a_level_that_the_app_sets_on_the_root_logger_stays(run: StartRun) -> None:
    prefix = "import logging\nlogging.getLogger().setLevel(logging.DEBUG)\n"
    with run(prefix=prefix) as server:
        assert " DEBUG   shop: a detail" in server.hear("a detail")
        assert server.end() == 0


@pytest.mark.parametrize("options", [(), ("--workers", "2")])
def test_metrics_are_served_and_nothing_else_of_rest(run: StartRun, options: tuple[str, ...]) -> None:
    with run("--metrics", "0", *options) as server:
        address = server.hear(" eventproc.run: metrics: ").split()[-1]
        with httpx.Client(base_url=address.removesuffix("metrics"), trust_env=False) as http:
            found = http.get("/metrics").text.splitlines()
            assert 'eventproc_group_readers{group="shop/mailer"} ' in "\n".join(found)
            assert "eventproc_rest_connections 1.0" in found
            assert http.get("/v1/health/liveness").status_code == 200
            assert http.get("/v1/scopes").status_code == 404
            assert "/v1/scopes" not in http.get("/openapi.json").json()["paths"]
        assert server.end() == 0


def test_metrics_for_other_machines_are_refused_without_users(run: StartRun) -> None:
    with run("--metrics", "0.0.0.0:0") as server:
        assert server.end(None) == 2
    assert "the directory has no users" in server.heard[-1]


def test_plain_without_metrics_is_refused(shop: Cli) -> None:
    assert "--plain is about --metrics" in shop("run", "--plain").refused(2)


def test_workers_share_the_work_and_one_that_dies_is_started_again(shop: Cli, run: StartRun) -> None:
    with run("--workers", 2) as server:
        pids = server.started(2)
        assert set(pids) == {1, 2}
        for _ in pids:
            server.hear("] eventproc.run: serving ")
        os.kill(pids[1], signal.SIGKILL)
        server.hear("worker 1 was ended by SIGKILL; starting it again in 0.5 s")
        again = server.started(1)
        assert again.keys() == {1}
        server.hear("[1] eventproc.run: serving ")
        shop("write", "shop/orders", stdin=b"more\n").ok()
        server.hear("] eventproc.processors.handler: mail: shop/orders ")
        assert server.end() == 0
    assert any("draining 2 workers; a second signal kills them" in line for line in server.heard)
    assert shop("processor", "describe", "shop/mailer", "-o", "json").json()["members"] == []


def test_log_lines_of_workers_have_their_numbers_in_json(run: StartRun) -> None:
    with run("--workers", 2, "--log-format", "json") as server:
        assert {server.hear_json('"serving ')["worker"] for _ in range(2)} == {1, 2}
        assert server.end(signal.SIGINT) == 0
    assert all(json.loads(line) for line in server.heard)


def test_a_worker_that_cannot_begin_ends_the_supervisor_with_its_code(run: StartRun) -> None:
    with run("--workers", 2, app="app = 3\n") as server:
        assert server.end(None) == 2
    assert any("must be an eventproc.App" in line for line in server.heard)
    assert any("before it served; ending" in line for line in server.heard)


SIGNALLED_AT_ITS_START = """
import os
import signal

from eventproc.runtime import Eventproc

run = Eventproc.run


def signalled(*args, **options):
    os.kill(os.getpid(), signal.SIGTERM)
    return run(*args, **options)


Eventproc.run = signalled
"""


def test_signal_before_the_server_has_begun_ends_it_in_order(run: StartRun) -> None:
    with run(prefix=SIGNALLED_AT_ITS_START) as server:
        server.hear("ended by a signal before it served")
        assert server.end(None) == 0


HANGING = APP + "    import anyio\n    log.info('hanging')\n    await anyio.sleep_forever()\n"


def test_workers_that_must_cancel_handlers_say_so_by_the_exit_code(run: StartRun) -> None:
    with run("--workers", 2, "--grace", 0.01, app=HANGING) as server:
        server.hear("hanging")
        assert server.end() == 128 + signal.SIGTERM
    assert any("cancelled: " in line for line in server.heard)


IGNORING = (
    "from eventproc.processors import run\n"
    "run.CANCELLED_MS = 50\n" + APP + "    import anyio\n"
    "    log.info('ignoring')\n"
    "    while True:\n"
    "        try:\n"
    "            await anyio.sleep_forever()\n"
    "        except BaseException:\n"
    "            pass\n"
)


def test_a_server_ends_and_names_the_handler_that_ignores_its_cancellation(run: StartRun) -> None:
    with run("--grace", 0.01, app=IGNORING) as server:
        server.hear("ignoring")
        assert server.end() == 128 + signal.SIGTERM
    assert any("was abandoned: the call of its handler for shop/" in line for line in server.heard)


@pytest.mark.acceptance("K39")
def test_second_signal_kills_the_workers(run: StartRun) -> None:
    with run("--workers", 2, app=HANGING) as server:
        server.hear("hanging")
        server.process.send_signal(signal.SIGINT)
        server.hear("] eventproc.run: draining: ")
        while server.process.poll() is None:  # one that follows immediately counts as the same
            server.process.send_signal(signal.SIGINT)
            try:
                server.process.wait(0.1)
            except subprocess.TimeoutExpired:
                continue
        # A further one may come when Python ends already.
        assert server.end(None) in (128 + signal.SIGINT, -signal.SIGINT)


def test_workers_drain_when_their_supervisor_is_killed(shop: Cli, run: StartRun) -> None:
    with run("--workers", 2) as server:
        for _ in range(2):
            server.hear("] eventproc.run: serving ")
        server.process.kill()
        assert server.end(None) == -signal.SIGKILL  # its output ends with the last worker
    assert sum("the supervisor is gone; draining" in line for line in server.heard) == 2
    assert shop("processor", "describe", "shop/mailer", "-o", "json").json()["members"] == []


@pytest.mark.acceptance("K39")
def test_a_signal_to_all_processes_of_a_unit_drains_them_once(run: StartRun) -> None:
    with run("--workers", 2) as server:
        for _ in range(2):
            server.hear("] eventproc.run: serving ")
        os.killpg(server.process.pid, signal.SIGTERM)
        assert server.end(None) == 0
    assert all(" INFO " in line for line in server.heard)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_signal_to_a_worker_that_has_ended_does_nothing(anyio_backend: str) -> None:
    process = await anyio.open_process(["true"])
    await process.wait()
    send_signal(process, signal.SIGTERM)
    await process.aclose()


def test_reload_starts_again_at_each_change_and_waits_after_a_broken_one(
    run: StartRun, tmp_path: Path
) -> None:
    with run("--reload") as server:
        server.hear("eventproc.run: serving ")
        (tmp_path / "shop.py").write_text(
            APP.replace("an own message", "a newer message") + "this is no Python\n"
        )
        server.hear("shop.py changed; starting again")
        server.hear("importing shop failed: SyntaxError: invalid syntax (shop.py, line ")
        server.hear("it is started again at the next change")
        (tmp_path / "other.py").write_text("TEXT = 'a newer message'\n")
        (tmp_path / "shop.py").write_text(APP.replace('"an own message"', "__import__('other').TEXT"))
        server.hear("changed; starting again")
        server.hear("eventproc.run: serving ")
        (tmp_path / "other.py").write_text("TEXT = 'the newest message'\n")
        server.hear("other.py changed; starting again")
        server.hear("eventproc.run: serving ")
        assert server.end(signal.SIGINT) == 0


@pytest.mark.parametrize("option", [("--workers", "2"), ("--reload",)])
def test_workers_and_reload_need_an_app(shop: Cli, option: tuple[str, ...]) -> None:
    assert "need an app" in shop("run", *option).refused(2)


@pytest.mark.parametrize("number", ["0", "257", "x"])
def test_a_wrong_number_of_workers_is_refused(shop: Cli, number: str) -> None:
    assert "--workers" in shop("run", "shop:app", "--workers", number).refused(2)
