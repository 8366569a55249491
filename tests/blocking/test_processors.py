"""Running an app from a script, a notebook or a Spark driver: the same work without `await`, and what Ctrl-C does."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import anyio
import pytest

import eventproc
from eventproc.blocking import BlockingEventproc
from eventproc.groups import READERS, ensure_group
from eventproc.processors import NotAProcessorGroup
from eventproc.store.model.errors import AlreadyExists, InvalidArgument, NotFound, NotSupported
from tests.support.child_process import PATIENCE_S, ChildProcess

pytestmark = pytest.mark.usefixtures("stream")

EVENTS = 20
AT_ONCE = 3

BEGIN = """
import anyio, logging, signal, sys, threading
import eventproc

def say(line):
    print(line, flush=True)

def interrupt(number, frame):  # as pyspark's, which cancels its jobs before
    raise KeyboardInterrupt

if sys.argv[2] == "driver":
    signal.signal(signal.SIGINT, interrupt)

class PrintingHandler(logging.Handler):
    def emit(self, record):
        if record.getMessage().startswith("draining"):
            say("draining")

logging.getLogger("eventproc.processors").addHandler(PrintingHandler())
logging.getLogger("eventproc.processors").setLevel(logging.INFO)
go = threading.Event()
app = eventproc.App()

@app.processor("shop/orders", group="mailer", concurrency=3)
async def mail(event: eventproc.Event) -> None:
    say("begun")
    try:
        while not go.is_set():
            await anyio.sleep(0.005)
    except BaseException:
        say("cancelled")
        raise
    say("done")

def listen():
    sys.stdin.readline()
    go.set()

threading.Thread(target=listen, daemon=True).start()
"""

BLOCKING = (
    BEGIN
    + """
with eventproc.open_blocking(sys.argv[1]) as ep:
    with ep.run(app) as running:
        try:
            running.wait()
        except KeyboardInterrupt:
            say("interrupted")
            raise
"""
)

NOTEBOOK = (
    BEGIN
    + """
opened = eventproc.open_blocking(sys.argv[1])
ep = opened.__enter__()
try:
    with ep.run(app) as running:
        try:
            running.wait()
        except KeyboardInterrupt:
            say("interrupted")
            raise
except KeyboardInterrupt:
    say("next cell")
with ep.run(app) as running:
    running.wait_idle()
say(f"lag {ep.processor('shop/mailer').group.events}")
"""
)

AWAITED = (
    BEGIN
    + """
async def main():
    async with eventproc.open(sys.argv[1]) as ep, ep.run(app) as running:
        try:
            await running.wait()
        except anyio.get_cancelled_exc_class():
            say("interrupted")
            raise

anyio.run(main)
"""
)


def write(ep: BlockingEventproc, count: int = EVENTS) -> None:
    with ep.stream("shop/orders").writer() as writer:
        writer.write_many((b"%d" % number, str(number)) for number in range(count))


def test_an_app_runs_beside_the_block_until_nothing_is_left(ep: BlockingEventproc) -> None:
    app, seen = eventproc.App(), list[bytes]()

    @app.processor("shop/orders", group="mailer", order=None)
    def mail(event: eventproc.Event) -> None:
        assert threading.current_thread() is not threading.main_thread()
        seen.append(event.payload)

    write(ep)
    with ep.run(app) as running:
        running.wait_idle(timeout_ms=PATIENCE_S * 1000)
        (status,) = running.status()
        assert (status.group, status.finished, status.lag_events) == ("shop/mailer", EVENTS, 0)
        running.stop()
        running.wait()
    assert sorted(map(int, seen)) == list(range(EVENTS))


def test_an_async_handler_that_calls_without_await_is_told_what_to_do(ep: BlockingEventproc) -> None:
    app, said = eventproc.App(), list[str]()

    @app.processor("shop/orders")
    async def mail(event: eventproc.Event) -> None:
        with pytest.raises(NotSupported) as refused:
            ep.stream("shop/orders")
        said.append(str(refused.value))

    write(ep, 1)
    with ep.run(app) as running:
        running.wait_idle(timeout_ms=PATIENCE_S * 1000)
    [told] = said
    assert "let the handler be a plain function" in told


def test_function_in_a_transaction_that_calls_the_twin_is_refused_instead_of_waiting_for_itself(
    ep: BlockingEventproc,
) -> None:
    with pytest.raises(NotSupported, match="use the transaction that the function got"):
        ep.change_tables(lambda tx: ep.create_scope("garden"))
    app, said = eventproc.App(), list[str]()

    def count(tx: eventproc.AppTx, events: Sequence[eventproc.Event]) -> None:
        with pytest.raises(NotSupported) as refused:
            write(ep, 1)
        said.append(str(refused.value))

    @app.processor("shop/orders", exactly_once=True, on_commit=count)
    def mail(event: eventproc.Event) -> None:
        ep.create_scope("garden")

    write(ep, 1)
    with ep.run(app) as running:
        running.wait_idle(timeout_ms=PATIENCE_S * 1000)
    assert "such as on_commit" in said[0]


def test_a_paused_processor_does_nothing_until_it_is_resumed(ep: BlockingEventproc) -> None:
    app, called = eventproc.App(), threading.Event()

    @app.processor("shop/orders")
    async def mail(event: eventproc.Event) -> None:
        called.set()

    with ep.run(app) as running:
        ep.pause_processor("shop/mail")
        ep.pause_processor("shop/mail")
        assert ep.processor("shop/mail").group.paused
        while running.status()[0].state != "paused":
            pass
        write(ep)
        with pytest.raises(TimeoutError):
            running.wait_idle(timeout_ms=100)
        assert not called.is_set()
        running.resume("mail")
        running.wait_idle(timeout_ms=PATIENCE_S * 1000)
    assert called.is_set()
    assert [(each.name, each.group.events) for each in ep.processors()] == [("shop/mail", 0)]


def test_wait_and_the_end_of_the_block_raise_a_failed_processor(
    ep: BlockingEventproc,
) -> None:
    app = eventproc.App()

    @app.processor("shop/orders", on_failure="stop", retry=eventproc.RetryPolicy(attempts=1))
    async def mail(event: eventproc.Event) -> None:
        raise ValueError("no such address")

    @app.processor("shop/orders")
    async def bill(event: eventproc.Event) -> None:
        """Goes on, whatever becomes of the other one."""

    def run_until_it_fails(then: BaseException | None = None) -> None:
        with ep.run(app) as running:
            with pytest.raises(eventproc.ProcessorFailed, match="no such address"):
                running.wait()
            assert [each.state for each in running.status()] == ["failed", "running"]
            if then is not None:
                raise then

    write(ep, 1)
    with pytest.raises(eventproc.ProcessorFailed, match="no such address"):
        run_until_it_fails()
    with pytest.raises(KeyError, match="what the block raised"):
        run_until_it_fails(KeyError("what the block raised counts"))


def test_an_app_that_cannot_run_is_refused_before_the_block(ep: BlockingEventproc) -> None:
    def declared(stream: str) -> eventproc.App:
        app = eventproc.App()
        app.add(lambda _event: None, stream, group="shop/mailer", name="mail")
        return app

    with pytest.raises(NotFound, match="shop/none"), ep.run(declared("shop/none")):
        pass
    with pytest.raises(InvalidArgument, match=r"eventproc\.App"), ep.run("shop:app"):  # type: ignore[arg-type]
        pass
    ep.create_stream("shop/others")
    with ep.run(declared("shop/orders")):
        pass
    with pytest.raises(AlreadyExists, match="streams"), ep.run(declared("shop/others")):
        pass
    for action in (ep.processor, ep.pause_processor, ep.resume_processor):
        with pytest.raises(NotFound, match="shop/none"):
            action("shop/none")


def test_a_group_of_readers_is_no_processor(ep: BlockingEventproc, tmp_path: Path) -> None:
    async def make() -> None:
        async with eventproc.open(tmp_path / "data", host=False) as other:
            await other.db.write(lambda tx: ensure_group(tx, "shop/readers", ["shop/orders"], kind=READERS))

    anyio.run(make)
    assert ep.processors() == []
    with pytest.raises(NotAProcessorGroup, match="readers"):
        ep.pause_processor("shop/readers")


def begin(child: ChildProcess) -> None:
    """Hear that as many calls run as may, and interrupt the process."""
    assert [child.hear() for _ in range(AT_ONCE)] == ["begun"] * AT_ONCE
    os.kill(child.pid, signal.SIGINT)
    assert [child.hear(), child.hear()] == ["interrupted", "draining"]


@pytest.mark.subprocess
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (BLOCKING, "script"),
        (BLOCKING, "driver"),
        (AWAITED, "script"),
    ],  # awaited, a loop has Ctrl-C as its own
    ids=["blocking-script", "blocking-driver", "awaited-script"],
)
def test_ctrl_c_lets_running_calls_finish_and_saves_progress(
    ep: BlockingEventproc, tmp_path: Path, code: str, kind: str
) -> None:
    write(ep)
    with ChildProcess.running(code, tmp_path / "data", kind) as child:
        begin(child)
        child.say("go")
        assert [child.hear() for _ in range(AT_ONCE + 1)] == ["done"] * AT_ONCE + [""]
        assert child.finish() == -signal.SIGINT
    found = ep.processor("shop/mailer")
    assert found.group.events == EVENTS - AT_ONCE
    assert found.members == ()


def test_an_interrupt_that_wakes_no_wait_cancels_running_calls_soon(ep: BlockingEventproc) -> None:
    app, begun, grace_s = eventproc.App(), threading.Event(), PATIENCE_S

    @app.processor("shop/orders", group="mailer")
    async def mail(_: eventproc.Event) -> None:
        begun.set()
        await anyio.sleep_forever()

    write(ep, 1)
    running = ep.run(app, grace_ms=grace_s * 1000)
    assert begun.wait(PATIENCE_S)
    began = time.monotonic()
    # As a Ctrl-C that comes between the interpreter's last check and the wait.
    threading.Timer(0.5, _thread.interrupt_main).start()
    with pytest.raises(KeyboardInterrupt):
        running.close()
    assert time.monotonic() - began < grace_s / 2


@pytest.mark.subprocess
def test_a_second_ctrl_c_cancels_running_calls(ep: BlockingEventproc, tmp_path: Path) -> None:
    write(ep)
    with ChildProcess.running(BLOCKING, tmp_path / "data", "script") as child:
        begin(child)
        os.kill(child.pid, signal.SIGINT)
        said = list(iter(child.hear, ""))
        assert child.finish() != 0
    assert set(said) <= {"cancelled"}
    found = ep.processor("shop/mailer")
    assert (found.group.events, found.alive) == (EVENTS, 0)


@pytest.mark.subprocess
def test_the_next_cell_of_a_notebook_goes_on_where_the_interrupted_one_stopped(
    ep: BlockingEventproc, tmp_path: Path
) -> None:
    write(ep)
    with ChildProcess.running(NOTEBOOK, tmp_path / "data", "notebook") as child:
        begin(child)
        child.say("go")
        said = list(iter(child.hear, ""))
    assert said == [
        *["done"] * AT_ONCE,
        "next cell",
        *[line for line in said[AT_ONCE + 1 : -2] if line in ("begun", "done")],
        "draining",
        "lag 0",
    ]
    assert said.count("done") == EVENTS
