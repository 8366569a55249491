"""A server and its synchronous standby: one dies, the other is promoted, and the first comes back as the standby.

python -m tests.torture.promotions CYCLES         `make torture-promotions CYCLES=n`

Two machines handle the events that this process writes meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final

import anyio
import anyio.to_thread

import eventproc
from eventproc.testing import check
from tests.support.postgres import DATABASE, Server, running_server
from tests.system.protocol import say
from tests.torture.machine import STREAM
from tests.torture.two_machines import KEYS, check_seen

SCHEMA: Final = "promoted"

BETWEEN_S: Final = 3
"""How long the servers work together before one dies."""

GOES_ON_S: Final = 30
"""How long writes may wait after a standby was promoted and has one itself."""


class Promotions:
    """One run."""

    def __init__(self, primary: Server, standby: Server) -> None:
        self._primary, self._standby = primary, standby
        folders = f"{primary.folder},{standby.folder}"
        self._url = f"postgresql://postgres@/{DATABASE}?host={folders}&port=5432,5432&schema={SCHEMA}"
        self._written: list[int] = []
        self._ended = False

    async def run(self, cycles: int) -> None:
        """Write all the time, and let the primary die. Raises AssertionError."""
        await anyio.to_thread.run_sync(self._standby.follow, self._primary)
        async with eventproc.open(self._url) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(4))
            machines = [await anyio.to_thread.run_sync(self._start, name) for name in ("m1", "m2")]
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._write, stream)
                for cycle in range(cycles):
                    await anyio.sleep(BETWEEN_S)
                    await self._promote(cycle)
                self._ended = True
            await self._settle()
            for each in machines:
                assert each.poll() is None, "a machine works until the end"
                each.kill()
                each.wait()
            await anyio.to_thread.run_sync(check_seen, self._primary, SCHEMA, self._written)
            await check(ep.db)

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.torture.machine", self._url, name], stdout=subprocess.PIPE
        )
        assert process.stdout is not None and process.stdout.readline() == b"up\n", "it has started"
        return process

    async def _write(self, stream: eventproc.Stream) -> None:
        async with stream.writer() as writer:
            while not self._ended:
                number = len(self._written)
                try:
                    await writer.write(b"%d" % number, key=f"k{number % KEYS}")
                except eventproc.Retryable as why:
                    say(f"written again: {why}")  # it says that nothing was changed
                    continue
                self._written.append(number)
                await anyio.sleep(0.005)

    async def _promote(self, cycle: int) -> None:
        before, began = len(self._written), time.monotonic()
        await anyio.to_thread.run_sync(self._primary.kill)
        self._primary, self._standby = self._standby, self._primary
        await anyio.to_thread.run_sync(self._primary.promote)
        await anyio.to_thread.run_sync(self._standby.follow, self._primary)
        follows_s = time.monotonic() - began
        await _until(lambda: len(self._written) > before + 1)
        say(
            f"{cycle}: a standby again after {follows_s:.1f} s, writes after {time.monotonic() - began:.1f} s"
        )

    async def _settle(self) -> None:
        """Wait until the machines have seen what was written."""
        count = f"SELECT count(*) FROM {SCHEMA}_app.app_seen"
        await _until(lambda: self._primary.execute(count)[0][0] >= len(self._written))


async def _until(is_true: Callable[[], bool]) -> None:
    with anyio.fail_after(GOES_ON_S):
        while True:
            if await anyio.to_thread.run_sync(is_true):
                return
            await anyio.sleep(0.1)


def main(cycles: str) -> None:
    with running_server() as primary, running_server() as standby:
        standby.stop()
        anyio.run(Promotions(primary, standby).run, int(cycles))


if __name__ == "__main__":
    main(*sys.argv[1:])
