"""Two machines on one server: one after the other is cut off, killed or suspended, and comes back.

python -m tests.torture.two_machines CYCLES         `make torture-machines CYCLES=n`

A machine is a network namespace with an address of its own; they share nothing but the server. Needs root.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import anyio
import anyio.to_thread

import eventproc
from eventproc.testing import check
from tests.spark.cluster import Machine
from tests.support.postgres import Server, running_server
from tests.system.protocol import say
from tests.torture.machine import STREAM

MACHINES: Final = (1, 2)
SERVICES: Final = "10.9.0.1"
"""Address of what the machines of a cluster share."""

PORT: Final = 5544
AWAY_S: Final = 25
BACK_S: Final = 12
SETTLED_S: Final = 4
"""Age of an event after which it should have been seen, unless its machine was just lost."""

TAKEN_OVER_S: Final = 12
"""How long the events of a machine that was cut off or killed may wait for the other one."""

KEYS: Final = 16


@contextmanager
def network(machines: Sequence[int] = MACHINES) -> Iterator[None]:
    """Give each machine a namespace with a link to this one."""
    with ExitStack() as ends:
        for each in machines:
            run_command(f"ip netns add m{each}")
            ends.callback(run_command, f"ip netns del m{each}")
            run_command(f"ip link add r{each} type veth peer name e{each} netns m{each}")
            ends.callback(run_command, f"ip link del r{each}")
            run_command(f"ip addr add 10.9.{each}.1/24 dev r{each}")
            run_command(f"ip link set r{each} up")
            run_command(f"ip netns exec m{each} ip addr add 10.9.{each}.2/24 dev e{each}")
            run_command(f"ip netns exec m{each} ip link set e{each} up")
        yield


@contextmanager
def cluster_network(machines: Sequence[int]) -> Iterator[None]:
    """Do as `network`, let the machines reach each other, and give this one an address that no cut takes away."""
    with network(machines), ExitStack() as ends:
        run_command(f"ip addr add {SERVICES}/32 dev lo")
        ends.callback(run_command, f"ip addr del {SERVICES}/32 dev lo")
        run_command("sysctl -q -w net.ipv4.ip_forward=1")
        for each in machines:
            run_command(f"ip netns exec m{each} ip link set lo up")
            run_command(f"ip netns exec m{each} ip route add default via 10.9.{each}.1")
        yield


def machine_of(number: int) -> Machine:
    """Return a machine of the network, as a cluster needs it."""
    return Machine(f"10.9.{number}.2", ("nsenter", f"--net=/run/netns/m{number}"))


class TwoMachines:
    """One run."""

    def __init__(self, server: Server, folder: str) -> None:
        """folder: for the temporary files of each machine."""
        self._server = server
        self._folder = folder
        self._running = {each: self._start(each) for each in MACHINES}
        self._written: dict[int, float] = {}
        self._seen: dict[int, tuple[float, str]] = {}
        self._ended = False

    async def run(self, ep: eventproc.Eventproc, cycles: int) -> None:
        """Write all the time, and let machines leave and come back. Raises AssertionError."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._write, await ep.stream(STREAM))
            tasks.start_soon(self._watch)
            await anyio.sleep(BACK_S)
            for cycle in range(cycles):
                await self._lose(MACHINES[cycle % 2], ("cut", "kill", "suspend")[cycle % 3])
            self._ended = True
            await anyio.sleep(SETTLED_S)
            tasks.cancel_scope.cancel()
        for each in self._running.values():
            each.kill()
            each.wait()
        check_seen(self._server, "two", self._written)
        await check(ep.db)

    def _start(self, machine: int) -> subprocess.Popen[bytes]:
        url = f"postgresql://postgres@10.9.{machine}.1:{PORT}/postgres?schema=two"
        enter = f"nsenter --net=/run/netns/m{machine}"
        process = subprocess.Popen(
            [*enter.split(), sys.executable, "-m", "tests.torture.machine", url, f"m{machine}"],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": tempfile.mkdtemp(dir=self._folder)},
        )
        assert process.stdout is not None and process.stdout.readline() == b"up\n", "it has started"
        return process

    async def _write(self, stream: eventproc.Stream) -> None:
        async with stream.writer() as writer:
            while not self._ended:
                number = len(self._written)
                await writer.write(b"%d" % number, key=f"k{number % KEYS}")
                self._written[number] = time.monotonic()
                await anyio.sleep(0.005)

    async def _watch(self) -> None:
        last = 0
        while True:
            rows = await anyio.to_thread.run_sync(
                self._server.execute,
                f"SELECT place, number, machine FROM two_app.app_seen WHERE place > {last} ORDER BY place",
            )
            for place, number, machine in rows:
                last = place
                self._seen.setdefault(number, (time.monotonic(), machine))
            await anyio.sleep(0.1)

    async def _lose(self, machine: int, how: str) -> None:
        first = max(len(self._written) - KEYS, 0)
        process = self._running[machine]
        if how == "cut":
            run_command(f"ip link set r{machine} down")
        else:
            process.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
        await anyio.sleep(AWAY_S)
        old = [
            number
            for number in range(first, len(self._written))
            if self._written[number] < time.monotonic() - SETTLED_S
        ]
        late_s = max(self._seen[each][0] - self._written[each] for each in old if each in self._seen)
        unseen = sum(each not in self._seen for each in old)
        say(f"m{machine}, {how}: the longest wait {late_s:.1f} s, {unseen} events wait for it")
        # A suspended machine lives: its connections answer, and nobody takes over.
        assert how == "suspend" or (unseen == 0 and late_s <= TAKEN_OVER_S), "the other has taken over"
        if how == "cut":
            run_command(f"ip link set r{machine} up")
        elif how == "kill":
            process.wait()
            self._running[machine] = self._start(machine)
        else:
            process.send_signal(signal.SIGCONT)
        await anyio.sleep(BACK_S)
        assert self._running[machine].poll() is None, "it works again"


def check_seen(server: Server, schema: str, written: Collection[int]) -> None:
    """Raise AssertionError unless machines have seen each event that was written once, in the order of its key."""
    rows = server.execute(f"SELECT number, key FROM {schema}_app.app_seen ORDER BY place")
    assert Counter(number for number, _ in rows) == Counter(written), "each event is seen once"
    by_key: defaultdict[str, list[int]] = defaultdict(list)
    for number, key in rows:
        by_key[key].append(number)
    assert all(each == sorted(each) for each in by_key.values()), "in the order of its key"
    say(f"{len(rows)} events, each seen once and in the order of its key")


def run_command(command: str) -> None:
    """Run a command. Raises CalledProcessError."""
    subprocess.run(command.split(), check=True)


async def _live(server: Server, folder: str, cycles: int) -> None:
    async with eventproc.open(f"{server.url}&schema=two") as ep:
        await ep.create_scope("s")
        await ep.create_stream(STREAM, scaling=eventproc.ScalingPolicy.fixed(4))
        machines = await anyio.to_thread.run_sync(TwoMachines, server, folder)
        await machines.run(ep, cycles)


def main(cycles: str) -> None:
    with (
        network(),
        running_server(listen="10.9.1.1,10.9.2.1", port=PORT) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        anyio.run(_live, server, folder, int(cycles))


if __name__ == "__main__":
    main(*sys.argv[1:])
