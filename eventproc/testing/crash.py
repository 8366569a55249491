"""Real processes on a real directory, killed or suspended at a known point; then the directory is opened again.

A process runs an async function of the test with the directory open, or a program. The test exchanges lines with it
over its standard input and output, and so waits for signals, never for a duration.
"""

from __future__ import annotations

import inspect
import os
import pickle
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack
from os import PathLike
from pathlib import Path
from typing import Concatenate, Final, ParamSpec, Self, TypeVar

import anyio
import attrs

from eventproc.processors import App
from eventproc.runtime import Eventproc, open as open_directory
from eventproc.store.database import Durability
from eventproc.store.faults import NO_FAULTS
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.testing.checkers import check_directory
from eventproc.testing.faults import SignalAt, SignalName
from eventproc.testing.virtual_runtime import create_streams

P = ParamSpec("P")
T = TypeVar("T")

PATIENCE_S: Final = 60
"""How long a test waits for a line, a signal or the end of a process. It only turns a hanging test into a failure.
Lower: a busy machine fails tests. Higher: a test that hangs fails later."""

SIZE_BYTES: Final = 8
"""Bytes of the number of the bytes that a process is given."""

CHILD: Final = "eventproc.testing.crash_child"
"""The module that runs a function in a process of its own."""


def kill_now() -> None:
    """Kill this process with SIGKILL: call it in a process that `CrashDirectory.start` started."""
    signal.pthread_kill(threading.get_ident(), signal.SIGKILL)


def environment(modules: Sequence[str | PathLike[str]] = ()) -> dict[str, str]:
    """Return the environment of a process that can import what this one can, and from the folders `modules`."""
    folders = [*map(str, modules), *(folder for folder in sys.path if folder)]
    return os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}


class CrashProcess:
    """A process of a test. It is killed at the end of the block, or of the `CrashDirectory` that started it.

    Args:
        command: the program and its arguments. The first may be a path to a Python script or "-m".
        cwd: its working directory. None (default): that of the test.
        modules: further folders from which it can import, besides those of the test. Default: none.
    """

    def __init__(
        self,
        command: Sequence[str | PathLike[str]],
        *,
        cwd: str | PathLike[str] | None = None,
        modules: Sequence[str | PathLike[str]] = (),
    ) -> None:
        self._process = subprocess.Popen(
            [sys.executable, *map(str, command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(modules),
            cwd=cwd,
            bufsize=0,
        )
        self._heard = b""
        self._is_suspended = False

    def __repr__(self) -> str:
        return f"CrashProcess(pid={self.pid})"

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid

    def say(self, line: str) -> None:
        """Send a line to its standard input.

        Args:
            line: the line, without its end.

        Raises:
            BrokenPipeError: it has ended.
        """
        assert self._process.stdin is not None, "the input is a pipe"
        self._process.stdin.write(line.encode() + b"\n")

    def _give(self, data: bytes) -> None:
        """Send bytes to its standard input, behind their number. Returns when it has taken nearly all of many."""
        assert self._process.stdin is not None, "the input is a pipe"
        left = memoryview(len(data).to_bytes(SIZE_BYTES) + data)
        while left:
            left = left[self._process.stdin.write(left) :]

    def hear(self) -> str:
        """Return the next line that it printed; "" at the end of its output, when it and its children have ended.

        Raises:
            TimeoutError: it printed nothing for `PATIENCE_S`.
        """
        return self._next_line() or ""

    def _next_line(self) -> str | None:
        """Do as `hear` does, but return None at the end: a line may be empty."""
        assert self._process.stdout is not None, "the output is a pipe"
        output = select.poll()  # `select` knows the first 1,024 descriptors of a process only
        output.register(self._process.stdout, select.POLLIN)
        while b"\n" not in self._heard:
            if not output.poll(PATIENCE_S * 1000):
                raise TimeoutError(f"process {self.pid} printed nothing for {PATIENCE_S} s")
            more = os.read(self._process.stdout.fileno(), 65536)
            if not more:
                break
            self._heard += more
        if not self._heard:
            return None
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()

    def ask(self, line: str) -> str:
        """Send a line, and return the next one that it prints."""
        self.say(line)
        return self.hear()

    def wait_for(self, expected: str) -> str:
        """Return the next line that begins with `expected`; other lines may come before it.

        Raises:
            AssertionError: the process ended without such a line.
            TimeoutError: as `hear`.
        """
        heard: list[str] = []
        while (line := self._next_line()) is not None:
            if line.startswith(expected):
                return line
            heard.append(line)
        raise AssertionError(f"process {self.pid} ended without printing {expected!r}; it printed {heard}")

    def stop(self) -> None:
        """Suspend it (SIGSTOP), and return when all its threads are suspended, or it has ended."""
        self._process.send_signal(signal.SIGSTOP)
        self._wait_until_stopped_or_ended()

    def wait_stopped(self) -> None:
        """Return when it is suspended, for instance by itself at a fault point.

        Raises:
            AssertionError: it ended instead.
        """
        self._wait_until_stopped_or_ended()
        code = self._process.returncode
        assert code is None, f"process {self.pid} was not suspended: it ended with {code}"

    def _wait_until_stopped_or_ended(self) -> None:
        changes = os.WUNTRACED | os.WCONTINUED
        while self._process.poll() is None:
            pid, status = os.waitpid(self.pid, changes | os.WNOHANG if self._is_suspended else changes)
            if pid == 0:
                return
            self._is_suspended = os.WIFSTOPPED(status)
            if not self._is_suspended and not os.WIFCONTINUED(status):
                self._process.returncode = os.waitstatus_to_exitcode(status)

    def resume(self) -> None:
        """Let a suspended process continue (SIGCONT)."""
        self._is_suspended = False
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill it (SIGKILL), and return when it has ended."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def wait_killed(self) -> None:
        """Return when it was killed by SIGKILL, as at a fault point.

        Raises:
            AssertionError: it ended in another way.
            subprocess.TimeoutExpired: it did not end for `PATIENCE_S`.
        """
        code = self._process.wait(PATIENCE_S)
        assert code == -signal.SIGKILL, f"process {self.pid} was not killed: it ended with {code}"

    def finish(self) -> int:
        """Close its input, wait for its end, and return its exit code."""
        assert self._process.stdin is not None, "the input is a pipe"
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)

    def __enter__(self) -> Self:
        """Return the process itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None, "both are pipes"
            pipe.close()


@attrs.frozen
class ChildTask:
    """What a process of its own has to do: call a function with the open directory.

    module: name of the function's module.
    source: the module's file, for one that no import finds.
    arguments: a pickled tuple. It is loaded after the module, which may have the classes of the arguments.
    fault: (point, nth, signal) of `SignalAt`; None: none.
    """

    directory: str
    module: str
    source: str | None
    function: str
    arguments: bytes
    host: bool
    fault: tuple[str, int, SignalName] | None


class CrashDirectory:
    """A directory, and the processes that a test runs, kills and suspends on it. The fixture `eventproc_crash` is one.

    Args:
        path: the directory. It is created by the first call of `run` or `start`.
        durability: of a new directory, as for `eventproc.open`. Default: "fsync".
    """

    def __init__(self, path: str | PathLike[str], *, durability: Durability | str | None = None) -> None:
        self.path = Path(path)
        self._durability = durability
        self._processes = ExitStack()

    def __repr__(self) -> str:
        return f"CrashDirectory({str(self.path)!r})"

    def run(
        self,
        main: Callable[Concatenate[Eventproc, P], Awaitable[T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Open the directory in this process, call `main(ep, ...)`, close it, and return the result.

        Args:
            main: an async function that takes the open directory.
            args: further arguments.
            kwargs: further arguments by name.
        """

        async def call() -> T:
            async with open_directory(self.path, durability=self._durability_if_new()) as ep:
                return await main(ep, *args, **kwargs)

        return anyio.run(call)

    def write(self, stream: str, *payloads: object, key: str | None = None) -> None:
        """Append events, durably. The stream is created if it does not exist.

        Args:
            stream: name, "scope/stream".
            payloads: bytes, or values of one type that has a codec.
            key: routing key of all of them. None (default): any segment.
        """
        self.run(_write, stream, payloads, key)

    def run_app(self, *apps: App) -> None:
        """Run apps in this process until they have handled everything, as after a restart.

        Args:
            apps: the apps.

        Raises:
            ProcessorFailed: a processor failed.
        """
        self.run(_run_apps, apps)

    def start(
        self,
        main: Callable[..., Awaitable[object]],
        *args: object,
        at: str | None = None,
        nth: int = 1,
        signal: SignalName = "kill",
        host: bool = True,
    ) -> CrashProcess:
        """Start a process that opens the directory and calls `main(ep, ...)`.

        Args:
            main: an async function at the top level of a module, which takes the open directory. It may print lines
                for the test.
            args: further arguments; they must pickle.
            at: the point at which the process gets the signal, a name of `fault_points()`. It counts from when the
                directory is open. None (default): none.
            nth: how often the point is reached, including the signal; from 1.
            signal: "kill" (default) or "stop".
            host: whether the process may run the internal processors. Default: True.

        Raises:
            InvalidArgument: the function is not at the top level of a module, or `at`, `nth` or `signal` is not valid.
        """
        if "<" in main.__qualname__ or "." in main.__qualname__:
            reason = "another process imports it: it must be at the top level of a module"
            raise invalid_argument("function", main.__qualname__, reason)
        fault = None if at is None else (at, nth, signal)
        if fault is not None:
            SignalAt(*fault[:2], signal=signal)
        self.run(_nothing)
        source, arguments = inspect.getsourcefile(main), pickle.dumps(args)
        task = ChildTask(str(self.path), main.__module__, source, main.__qualname__, arguments, host, fault)
        process = self.start_program("-m", CHILD)
        process._give(pickle.dumps(task))  # a command line has room for 128 kB
        return process

    def start_program(self, *command: str | PathLike[str]) -> CrashProcess:
        """Start a Python program on the directory, which it opens itself.

        Args:
            command: arguments of the interpreter: a script or "-m" and a module, and their arguments.
        """
        return self._processes.enter_context(CrashProcess(command))

    def check(self) -> None:
        """Kill nothing, wait until every request has its outcome, and assert that all invariants hold.

        Raises:
            AssertionError: with one line for each invariant that does not hold.
        """
        anyio.run(check_directory, self.path)

    def __enter__(self) -> Self:
        """Return the directory itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill all processes that were started on it."""
        self._processes.close()

    def _durability_if_new(self) -> Durability | str | None:
        return None if self.path.exists() and any(self.path.iterdir()) else self._durability


async def _nothing(_: Eventproc) -> None:
    """Open the directory only, so that it exists."""
    await anyio.lowlevel.checkpoint()


async def _write(ep: Eventproc, stream: str, payloads: Sequence[object], key: str | None) -> None:
    await create_streams(ep, [stream])
    for payload in payloads[:1]:
        async with (await ep.stream(stream)).writer(payload=type(payload)) as writer:
            await writer.write_many((each, key) for each in payloads)


async def _run_apps(ep: Eventproc, apps: Sequence[App]) -> None:
    await create_streams(
        ep, [name for app in apps for processor in app.processors for name in processor.options.streams]
    )
    groups = {processor.options.group for app in apps for processor in app.processors}
    async with AsyncExitStack() as stack:
        running = [await stack.enter_async_context(ep.run(app)) for app in apps]
        is_idle = False
        while not is_idle:  # one app may emit to another one that was idle before
            for each in running:
                await each.wait_idle()
            is_idle = not any(each.group.events for each in await ep.processors() if each.name in groups)


async def run_child(task: ChildTask, main: Callable[..., Awaitable[object]]) -> None:
    """Open the directory, and call the function of `task` with it."""
    faults = None if task.fault is None else SignalAt(*task.fault[:2], signal=task.fault[2], armed=False)
    async with open_directory(task.directory, create=False, host=task.host, faults=faults or NO_FAULTS) as ep:
        if faults is not None:
            faults.arm()
        await main(ep, *pickle.loads(task.arguments))
