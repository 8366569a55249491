"""What users embed the library in: pytest-asyncio, Starlette, IPython, and programs that forget to close."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from IPython.core.interactiveshell import InteractiveShell
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Mount, Route

import eventproc
from tests.support.child_process import REPOSITORY, ChildProcess

PYTEST_ASYNCIO = """
import eventproc
import pytest
import pytest_asyncio


@pytest_asyncio.fixture(params=["memory", "directory"])
async def ep(request, tmp_path):
    opening = eventproc.open_memory() if request.param == "memory" else eventproc.open(tmp_path / "data")
    async with opening as ep:
        await ep.create_scope("shop")
        yield ep


@pytest_asyncio.fixture
async def orders(ep):
    return await ep.create_stream("shop/orders")


@pytest_asyncio.fixture
async def writer(orders):
    async with orders.writer() as writer:
        yield writer


@pytest_asyncio.fixture
async def running(ep, orders):
    app = eventproc.App()
    app.seen = []

    @app.processor("shop/orders")
    async def handle(event: eventproc.Event) -> None:
        app.seen.append(event.payload)

    async with ep.run(app) as running:
        yield running, app.seen


@pytest.mark.asyncio
async def test_an_order(writer, running):
    await writer.write(b"apple")
    await running[0].wait_idle()
    assert running[1] == [b"apple"]


@pytest.mark.asyncio
async def test_a_group(ep, orders, writer):
    await writer.post(b"apple")
    await writer.flush()
    group = await ep.create_group("billing", ["shop/orders"])
    reader = await group.reader("r1")
    async for event in reader.until(await orders.tail()):
        assert event.payload == b"apple"
    await reader.close()
"""


@pytest.mark.subprocess
def test_yield_fixtures_of_pytest_asyncio_open_and_close(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(PYTEST_ASYNCIO)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_default_fixture_loop_scope = function\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "4 passed" in ended.stdout, ended.stdout + ended.stderr


class Shop:
    """A part of a web application, with a start and a stop of its own."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def start(self) -> None:
        self.ep = await eventproc.open(self._path, durability="os")
        await self.ep.create_scope("shop")
        self.orders = await self.ep.create_stream("shop/orders", payload=str)
        self.writer = await self.orders.writer()

    async def stop(self) -> None:
        await self.writer.close()
        await self.ep.close()

    async def order(self, request: Request) -> PlainTextResponse:
        await self.writer.write(request.path_params["item"])
        async with self.orders.reader() as reader:
            items = [event.payload async for event in reader.until(await self.orders.tail())]
        return PlainTextResponse(" ".join(items))


@asynccontextmanager
async def serving(web: Starlette) -> AsyncIterator[None]:
    """Start and end the application in a task of its own, as a server does."""
    started, leave = anyio.Event(), anyio.Event()

    async def lifespan() -> None:
        async with web.router.lifespan_context(web):
            started.set()
            await leave.wait()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lifespan)
        await started.wait()
        yield
        leave.set()


@pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)
async def test_a_starlette_application_opens_and_closes_with_its_lifespan(tmp_path: Path) -> None:
    shops = [Shop(tmp_path / "left"), Shop(tmp_path / "right")]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for shop in shops:
                await shop.start()
                stack.push_async_callback(shop.stop)
            yield

    mounts = [
        Mount(f"/{number}", routes=[Route("/order/{item}", shop.order)]) for number, shop in enumerate(shops)
    ]
    for expected in ("apple", "apple apple"):  # opened again after it was closed
        web = Starlette(routes=mounts, lifespan=lifespan)
        async with serving(web), httpx.AsyncClient(transport=httpx.ASGITransport(web)) as client:
            for number in range(2):
                assert (await client.get(f"http://shop/{number}/order/apple")).text == expected
        assert all(shop.ep.closed for shop in shops)


def test_cells_of_ipython_open_use_and_close(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    shell: Any = InteractiveShell()  # type: ignore[no-untyped-call]
    shell.history_manager.enabled = False
    cells = [
        f"import eventproc; ep = await eventproc.open({str(tmp_path / 'data')!r}, durability='os')",
        "await ep.create_scope('shop'); orders = await ep.create_stream('shop/orders', payload=str)",
        "writer = await orders.writer()",
        "await writer.post('apple')",
        "await writer.close()",
        "reader = await orders.reader(); events = reader.until(await orders.tail())",
        "event = await anext(events)",
        "await events.aclose(); await reader.close()",
        "await ep.close()",
    ]
    for cell in cells:
        result = shell.run_cell(cell, store_history=False)
        assert result.success, (cell, result.error_in_exec)
    assert shell.user_ns["event"].payload == "apple"
    shell.history_manager.end_session()


def test_cells_without_await_open_use_and_close(tmp_path: Path) -> None:
    ep = eventproc.open_blocking(tmp_path / "data", durability="os")
    ep.create_scope("shop")
    orders = ep.create_stream("shop/orders", payload=str)
    app, seen = eventproc.App(), list[str]()

    @app.processor("shop/orders", payload=str)
    def handle(event: eventproc.Event[str]) -> None:
        seen.append(event.payload)

    running = ep.run(app)
    writer = orders.writer()
    writer.post("apple")
    writer.flush()
    reader = orders.reader()
    assert [event.payload for event in reader.until(orders.tail())] == ["apple"]
    running.wait_idle()
    assert seen == ["apple"]
    unclosed = orders.writer()
    unclosed.post("pear")
    assert [repr(each) for each in (writer, reader, running)] == [
        "BlockingWriter('shop/orders', open)",
        "BlockingReader('shop/orders', open)",
        "BlockingRunning(handle; open)",
    ]
    for each in (reader, writer, running, ep, ep):
        each.close()
        assert each.closed
        assert "closed" in repr(each)
    with eventproc.open_blocking(tmp_path / "data") as again:
        assert again.stream("shop/orders").describe().events == 2  # closing the directory wrote the last one


def test_a_directory_without_await_that_is_dropped_warns(tmp_path: Path) -> None:
    ep = eventproc.open_blocking(tmp_path / "data", durability="os")
    loop, twin = ep._loop, ep._twin
    with pytest.warns(ResourceWarning, match="unclosed BlockingEventproc"):
        del ep
    loop.call(twin.close)
    loop.end(interrupted=False)


def ended(code: str, *arguments: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *options, "-c", textwrap.dedent(code), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=60)


UNCLOSED = {
    "dropped": "async def main(): await eventproc.open(sys.argv[1]); await anyio.sleep(0)",
    "kept": "async def main(): global ep; ep = await eventproc.open(sys.argv[1])",
    "in memory": "async def main(): global ep; ep = await eventproc.open_memory()",
    "with a stream": "async def main(): global s; ep = await eventproc.open(sys.argv[1]); "
    "await ep.create_scope('s'); s = await ep.create_stream('s/t'); del ep; "
    "await (await s.writer()).write(b'1')",
}


@pytest.mark.subprocess
@pytest.mark.parametrize("code", UNCLOSED.values(), ids=UNCLOSED)
@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_is_never_closed_warns_and_ends(tmp_path: Path, code: str, backend: str) -> None:
    if backend == "trio":
        code = code.replace("open(sys.argv[1])", "open_memory()")
    program = f"import anyio, eventproc, sys\n{code}\nanyio.run(main, backend={backend!r})\nprint('ended')"
    found = ended(program, tmp_path / "data", options=("-W", "always::ResourceWarning"))
    assert (found.returncode, found.stdout) == (0, "ended\n"), found.stderr
    assert found.stderr.count("ResourceWarning: unclosed Eventproc(") == 1, found.stderr
    assert "Traceback" not in found.stderr
    assert not list(tmp_path.glob("data/instances/*"))  # it was closed with the loop


@pytest.mark.subprocess
@pytest.mark.parametrize(
    "options", [(), ("-X", "dev", "-W", "ignore::ResourceWarning")], ids=["plain", "dev"]
)
def test_a_loop_that_is_dropped_does_not_hang(tmp_path: Path, options: tuple[str, ...]) -> None:
    program = """
        import asyncio, sys
        import eventproc
        async def start():
            return await eventproc.open(sys.argv[1], durability="os")
        loop = asyncio.new_event_loop()
        ep = loop.run_until_complete(start())
        loop.close()
        print("closed")
        blocking = eventproc.open_blocking(sys.argv[1])
        blocking.create_scope("shop")
        print("ended")
    """
    found = ended(program, tmp_path / "data", options=options)
    assert (found.returncode, found.stdout) == (0, "closed\nended\n"), found.stderr


CTRL_C = """
    import selectors, signal, sys
    import anyio, asyncio, trio
    import eventproc

    class Selector(selectors.DefaultSelector):
        interrupts = False

        def select(self, timeout=None):
            if self.interrupts and timeout != 0:  # asyncio itself loses a callback that an interrupt meets elsewhere
                self.interrupts = False
                signal.raise_signal(signal.SIGINT)
            return super().select(timeout)

    selector = Selector()

    async def interrupt_when_all_wait():
        await anyio.wait_all_tasks_blocked()
        selector.interrupts = True

    async def main():
        opening = eventproc.open(sys.argv[1], durability="os") if {backend!r} == "asyncio" else eventproc.open_memory()
        ep = await opening
        try:
            await ep.create_scope("shop")
            orders = await ep.create_stream("shop/orders")
            app = eventproc.App()
            begun, go_on = anyio.Event(), anyio.Event()

            @app.processor("shop/orders")
            async def handle(event):
                begun.set()
                try:
                    await go_on.wait()
                    if sys.argv[2] == "interrupt":
                        signal.raise_signal(signal.SIGINT)
                    if sys.argv[2] == "exit":
                        sys.exit(7)
                    print("handled", flush=True)
                except anyio.get_cancelled_exc_class():
                    print("cancelled", flush=True)
                    raise

            running = await ep.run(app)
            async with orders.writer() as writer:
                await writer.write(b"apple")
            await begun.wait()
            print("begun", flush=True)
            sys.stdin.readline()
            signal.raise_signal(signal.SIGINT)
            await anyio.sleep_forever()
        finally:
            print("closing", flush=True)
            if sys.argv[2] == "hang":
                second = asyncio.create_task(interrupt_when_all_wait())
            else:
                go_on.set()
            with anyio.CancelScope(shield=True):
                await ep.close()
            print("closed", flush=True)

    try:
        {run}
    except* KeyboardInterrupt:  # trio raises it in a group, if it waits in a nursery
        print("interrupted", flush=True)
"""


RUNNER = """
        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
            runner.run(main())"""


@pytest.mark.subprocess
@pytest.mark.parametrize(
    "backend, run", [("asyncio", "asyncio.run(main())"), ("trio", "trio.run(main)")], ids=["asyncio", "trio"]
)
def test_ctrl_c_lets_the_program_drain_and_close(tmp_path: Path, backend: str, run: str) -> None:
    said, left = interrupted(CTRL_C.format(backend=backend, run=run), tmp_path / "data", "finish")
    assert (said, left) == (["closing", "handled", "closed", "interrupted"], 0)


@pytest.mark.subprocess
def test_a_second_ctrl_c_cancels_the_calls_that_it_waits_for(tmp_path: Path) -> None:
    code = CTRL_C.format(backend="asyncio", run=RUNNER)
    said, left = interrupted(code, tmp_path / "data", "hang")
    assert (said, left) == (["closing", "cancelled", "interrupted"], 0)
    with eventproc.open_blocking(tmp_path / "data") as ep:
        assert ep.processor("shop/handle").group.events == 1


@pytest.mark.subprocess
@pytest.mark.parametrize("how, last, code", [("interrupt", ["interrupted"], 0), ("exit", [], 7)])
def test_what_a_handler_raises_to_end_the_program_ends_it(
    tmp_path: Path, how: str, last: list[str], code: int
) -> None:
    program = CTRL_C.format(backend="asyncio", run="asyncio.run(main())")
    assert interrupted(program, tmp_path / "data", how) == (["closing", *last], code)


def interrupted(code: str, *arguments: object) -> tuple[list[str], int]:
    """Run a program that interrupts itself; return what it says after that, and how it ends."""
    with ChildProcess.running(code, *arguments) as child:
        assert child.hear() == "begun"
        child.say("interrupt yourself")  # so that trio meets it in the main task
        return list(iter(child.hear, "")), child.finish()
