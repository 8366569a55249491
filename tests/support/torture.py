"""What tortures share: processes that are killed and suspended, a device that is full, progress, and accounts.

A torture lets clients work on some processes and disturbs these at random moments. At the end it compares what was
acknowledged with what is stored. It waits for acknowledgements between two disturbances, so that each of them has
something to destroy.
"""

from __future__ import annotations

import errno
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final, Protocol, TypeVar

import anyio
import attrs
import psutil
from anyio import to_thread

from eventproc.testing.crash import PATIENCE_S, environment
from tests.support.child_process import REPOSITORY

LOOK_S: Final = 0.05
"""Pause between two looks at the progress."""

STALL_S: Final = 600
"""How long nothing may be acknowledged. Most of it is for a machine that has other work."""

SUSPENDED_SHARE: Final = 0.4
"""Share of the disturbances that suspend a process. Half of the suspended processes are killed then."""


class Victim(Protocol):
    """A process that a torture disturbs."""

    def suspend(self) -> None:
        """Suspend it until `resume` or `kill`."""

    def resume(self) -> None:
        """Let it continue."""

    def kill(self) -> None:
        """Kill it with SIGKILL, and return when it has ended."""


V = TypeVar("V", bound=Victim)


class EndedEarly(AssertionError):
    """A process ended before it was ready, for instance because the device is full."""


class TortureProcess:
    """A process with its children, in a process group of its own. Its output is appended to a log.

    command: arguments of the interpreter, such as "-m" and a module. variables: further ones of its environment.
    enter: the command that runs a program on the machine of the process.
    """

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        variables: Mapping[str, str] | None = None,
        *,
        enter: Sequence[str] = (),
    ) -> None:
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*enter, sys.executable, *command],
                cwd=REPOSITORY,
                env={**environment(), **(variables or {})},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its id, also that of its group."""
        return self._process.pid

    def code(self) -> int | None:
        """Return the exit code; None while it runs."""
        return self._process.poll()

    def is_suspended(self) -> bool:
        """Return whether it is suspended, also by itself."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).status() == psutil.STATUS_STOPPED
        return False

    def suspend(self) -> None:
        """Suspend it and its children."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it and its children continue."""
        self._signal(signal.SIGCONT)

    def kill(self, *, alone: bool = False) -> None:
        """Kill it, and its children unless `alone`, and return when it has ended."""
        if alone:
            self._process.kill()
        else:
            self._signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def finish(self) -> int:
        """Ask it to end (SIGTERM), and return its exit code."""
        self._process.terminate()
        return self._process.wait(PATIENCE_S)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


class SmallDevice:
    """A device of a few MiB, mounted at a folder during its block: it is filled up, and freed again. Needs root."""

    def __init__(self, folder: Path, mib: int) -> None:
        self.folder = folder
        self.is_full = False
        self._mib = mib
        self._filler = folder / "filler"

    def __enter__(self) -> SmallDevice:
        self.folder.mkdir(parents=True)
        options = ["-t", "tmpfs", "-o", f"size={self._mib}m", "torture"]
        subprocess.run(["mount", *options, str(self.folder)], check=True)
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True)

    def fill(self) -> None:
        """Take all the space that is left."""
        self.is_full = True
        with self._filler.open("ab", buffering=0) as filler:
            for size in (2**20, 2**12):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError as why:
                    if why.errno != errno.ENOSPC:
                        raise

    def free(self) -> None:
        """Give the space back."""
        self._filler.unlink()
        self.is_full = False


@attrs.frozen
class TorturePace:
    """Longest times, in s, that are chosen at random.

    run: a process runs so long before the next disturbance. suspended: it is suspended so long. roomy, full: the device
    has space so long, and has none so long.
    """

    run: float = 1.5
    suspended: float = 2.0
    roomy: float = 20.0
    full: float = 2.0


@attrs.define
class TortureReport:
    """What happened. full: times that the device was full. pause_s: longest time between two steps of a client."""

    kills: int = 0
    suspensions: int = 0
    full: int = 0
    pause_s: int = 0


class Torture:
    """The progress of the clients, and the disturbances, until so many processes were killed."""

    def __init__(
        self, report: TortureReport, *, kills: int, seed: int, pace: TorturePace | None = None
    ) -> None:
        self.random: Final = Random(seed)
        self.ended = False
        """Whether the clients are to end."""
        self._report = report
        self._kills = kills
        self._pace = pace or TorturePace()
        self._device: SmallDevice | None = None
        self._steps: Counter[str] = Counter()
        self._waited = 0
        self._stepped: dict[str, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether enough processes were killed."""
        return self._report.kills >= self._kills

    def step(self, client: str) -> None:
        """Note that a client goes on."""
        now = time.monotonic()
        pause, self._stepped[client] = now - self._stepped.get(client, now), now
        self._report.pause_s = max(self._report.pause_s, round(pause))
        self._steps[client] += 1

    async def wait_steps(self) -> None:
        """Wait until a client goes on, for each call of this once. Raises AssertionError after STALL_S."""
        before, until = self._steps.total(), time.monotonic() + STALL_S
        while self._steps.total() <= max(before, self._waited):
            if self._steps.total() > before:  # another call has returned for this step
                before, until = self._steps.total(), time.monotonic() + STALL_S
            assert time.monotonic() < until, f"no client went on for {STALL_S} s: {self._steps}"
            await anyio.sleep(LOOK_S)
        self._waited = self._steps.total()

    async def disturb(self, victims: list[V], replace: Callable[[V], V]) -> None:
        """Kill and suspend each of the processes again and again, each time when the clients have gone on.

        replace: starts a process in place of a killed one. It runs in a thread, and may raise EndedEarly while the
        device is full.
        """
        async with anyio.create_task_group() as tasks:
            for place in range(len(victims)):
                tasks.start_soon(self._disturb, victims, place, replace)

    async def _disturb(self, victims: list[V], place: int, replace: Callable[[V], V]) -> None:
        while not self.is_over:
            await anyio.sleep(self.random.uniform(0, self._pace.run))
            await self.wait_steps()
            victim = victims[place]
            is_suspended = self.random.random() < SUSPENDED_SHARE
            if is_suspended:
                self._report.suspensions += 1
                victim.suspend()
                await anyio.sleep(self.random.uniform(0, self._pace.suspended))
            if is_suspended and self.random.random() < 0.5:
                victim.resume()
                continue
            self._report.kills += 1
            if self._report.kills % 10 == 0:
                say(f"{self._report}; {dict(sorted(self._steps.items()))}")
            await to_thread.run_sync(victim.kill)
            victims[place] = await self._start(partial(replace, victim))

    async def _start(self, start: Callable[[], V]) -> V:
        """Start a process, again and again while the device is full. Raises EndedEarly if it is not."""
        while True:
            was_full, before = self._device is not None and self._device.is_full, self._report.full
            try:
                return await to_thread.run_sync(start)
            except EndedEarly:
                if not was_full and self._report.full == before:
                    raise
            await anyio.sleep(LOOK_S)

    async def fill(self, device: SmallDevice) -> None:
        """Fill the device up, and free it, again and again."""
        self._device = device
        while not self.is_over:
            await anyio.sleep(self.random.uniform(0, self._pace.roomy))
            await self.wait_steps()
            until = time.monotonic() + self.random.uniform(0, self._pace.full)
            self._report.full += 1
            try:
                while time.monotonic() < until:
                    await to_thread.run_sync(device.fill)
                    await anyio.sleep(LOOK_S)
            finally:
                device.free()


class KeyAccount:
    """How many events of each key there are. They are numbered from 0, and come in this order."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)

    def take(self, key: str, number: int) -> None:
        """Count an event. Raises AssertionError if it is not the next one of its key."""
        assert number == self.counts[key], f"{key}: {number} comes after {self.counts[key] - 1}"
        self.counts[key] += 1


def say(text: str) -> None:
    """Write a line with the time to the standard error."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stderr.flush()


@contextmanager
def torture_folder(name: str, mib: int = 0) -> Iterator[tuple[Path, SmallDevice | None]]:
    """Give a folder for logs, and a device of that size for the directory, if it is not 0.

    Both are removed at the end; after an error their content is kept, and the folder named.
    """
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    try:
        if not mib:
            yield folder, None
        else:
            with SmallDevice(folder / "device", mib) as device:
                try:
                    yield folder, device
                except BaseException:
                    subprocess.run(["cp", "--archive", str(device.folder), str(folder / "kept")], check=True)
                    raise
    except BaseException:
        say(f"the directory and the logs are kept in {folder}")
        raise
    shutil.rmtree(folder)


def run_torture(
    name: str, seed: int, mib: int, run: Callable[[Path, SmallDevice | None], Awaitable[object]]
) -> None:
    """Run a torture in a folder of its own, on a small device if `mib` is not 0, and say what happened."""
    began = time.monotonic()
    with torture_folder(name, mib) as (folder, device):
        report = anyio.run(run, folder, device)
    say(f"{math.ceil(time.monotonic() - began)} s, seed {seed}: {report}; all accounts are exact")
