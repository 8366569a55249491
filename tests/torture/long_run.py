"""Four instances on 200 streams, killed, suspended, restarted and disturbed for minutes; then everything is checked.

python -m tests.torture.long_run MINUTES [SEED [STREAMS [server]]]         `make torture MINUTES=n`

With "server" the store lies on a PostgreSQL server, which crashes too, and whose connections are terminated.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Final, TypeVar

import anyio
import attrs

import eventproc
from eventproc.testing import CrashDirectory, CrashProcess, check
from tests.support.postgres import Server, running_server
from tests.support.reading import events_of
from tests.system.protocol import check_rows
from tests.torture.instance import COPIED, COPIES, SCOPE, copying_app, name_of

T = TypeVar("T")

INSTANCES: Final = 4
STREAMS: Final = 200
SUSPENDED_STEPS_MAX: Final = 3
"""For so many steps an instance stays suspended, perhaps inside the write lock."""

OUTSIDER_S: Final = 3
"""How long a foreign checkpoint waits, perhaps for an instance that is suspended in a transaction. In as many steps as
that may last, the other instances must not have waited for 30 s, after which they give up."""

POINTS: Final = (
    *("write.begun", "write.commit", "write.committed", "checkpoint", "close.last", "close.copied"),
    *("writer.append.commit", "transaction.stage.committed", "transaction.end.committed"),
    *("processor.progress.commit", "processor.progress.committed", "group.join.committed"),
    *("group.refresh.commit", "request.run.commit", "request.run.committed", "host.claim.committed"),
    *("host.progress.commit", "host.sweep.committed", "extent.join.commit"),
)
"""Where some instances kill themselves."""

MORTAL_SHARE: Final = 0.5
MORTAL_COUNTS: Final = (1, 2, 5, 20, 100)

Rows = list[tuple[str | None, bytes]]


@attrs.define
class TortureCounts:
    """What was done, for the last line."""

    kills: int = 0
    deaths: int = 0
    suspensions: int = 0
    restarts: int = 0
    forks: int = 0
    outsiders: int = 0
    terminations: int = 0
    crashes: int = 0


class LongTorture:
    """The store of one run, and what happens to its instances."""

    def __init__(
        self, base: Path, *, seed: int, streams: int = STREAMS, server: Server | None = None
    ) -> None:
        """server: where the store lies; None: in a directory."""
        self.counts = TortureCounts()
        self.base = base
        self._server = server
        self._durability = (
            "os" if server is None else "fsync"
        )  # a crash of the server is a loss of power to it
        self.directory = CrashDirectory(base / "store", durability="os")
        self._address = str(base / "store") if server is None else server.store("torture")
        (base / "address").write_text(self._address)
        self._journal = base / "journal"
        self._journal.mkdir()
        self._random = Random(seed)
        self._seed, self._streams = seed, streams
        self._started = 0
        self._instances: list[CrashProcess] = []
        self._suspended: dict[CrashProcess, int] = {}
        self._mortal: set[CrashProcess] = set()
        self._began_s = monotonic()

    def run(self, seconds: float) -> str:
        """Torture for so long, check everything, and return the summary. Raises AssertionError."""
        with self.directory:
            self._run(self._create)
            self._instances = self._start(INSTANCES)
            until = monotonic() + seconds
            while monotonic() < until:
                self._step()
            for process in list(self._suspended):
                self._resume(process)
            for process in self._instances:
                self._finish(process)
        return self._check(monotonic() - self._began_s)

    def _run(self, work: Callable[[eventproc.Eventproc], Awaitable[T]]) -> T:
        """Open the store in this process, and return what the work returns."""
        return anyio.run(self._open_and, work)

    async def _open_and(self, work: Callable[[eventproc.Eventproc], Awaitable[T]]) -> T:
        async with eventproc.open(self._address, durability=self._durability) as ep:
            return await work(ep)

    async def _create(self, ep: eventproc.Eventproc) -> None:
        await ep.create_scope(SCOPE)
        await ep.create_stream(COPIES, scaling=eventproc.ScalingPolicy.fixed(3))
        for number in range(self._streams):
            await ep.create_stream(name_of(number), scaling=eventproc.ScalingPolicy.fixed(1 + number % 3))

    def _start(self, count: int) -> list[CrashProcess]:
        """Start instances at the same time, and return them when all have opened the store."""
        started = [self._spawn() for _ in range(count)]
        for process in started:
            assert process.hear() == "open", self._logs()
        return started

    def _spawn(self) -> CrashProcess:
        name, mortal = self._next_name(), self._random.random() < MORTAL_SHARE
        death = self._random.choice(POINTS), str(self._random.choice(MORTAL_COUNTS))
        process = self.directory.start_program(
            *(
                "-m",
                "tests.torture.instance",
                str(self.base),
                name,
                f"{self._seed} {name}",
                str(self._streams),
            ),
            *(death if mortal else ()),
        )
        if mortal:
            self._mortal.add(process)
        return process

    def _ask(self, process: CrashProcess, line: str, expected: str) -> bool:
        """Let the instance do something; if it killed itself meanwhile, replace it and return False."""
        try:
            answer = process.ask(line)
        except BrokenPipeError:
            answer = ""
        if answer == expected:
            return True
        assert answer == "" and process in self._mortal, f"{answer!r}\n{self._logs()}"
        process.wait_killed()
        self._replace(process)
        self.counts.deaths += 1
        return False

    def _finish(self, process: CrashProcess) -> None:
        code = process.finish()
        self.counts.deaths += code != 0
        assert code == 0 or (code == -signal.SIGKILL and process in self._mortal), f"{code}\n{self._logs()}"

    def _next_name(self) -> str:
        self._started += 1
        return f"i{self._started}"

    def _step(self) -> None:
        for process, steps in list(self._suspended.items()):
            if steps == 0:
                self._resume(process)
            else:
                self._suspended[process] = steps - 1
        running = [process for process in self._instances if process not in self._suspended]
        acts: list[Callable[[CrashProcess], None]] = [
            *(self._kill, self._kill, self._kill, self._suspend, self._restart, self._fork),
            *(
                (self._read_from_outside, self._checkpoint_from_outside)
                if self._server is None
                else (self._terminate, self._terminate, self._crash)
            ),
        ]
        process = self._random.choice(running)
        self._random.choice(acts)(process)
        # Only an instance that runs goes on; one that is suspended inside the write lock lets all others wait.
        if not self._suspended:
            self._ask(self._random.choice(self._instances), "wait", "sent")

    def _kill(self, process: CrashProcess) -> None:
        """Kill an instance, or several at once, as when their machine dies."""
        others = [each for each in self._instances if each not in (process, *self._suspended)]
        victims = [process, *self._random.sample(others, self._random.randint(0, len(others)))]
        for each in victims:
            each.kill()
        self._replace(*victims)
        self.counts.kills += len(victims)

    def _restart(self, process: CrashProcess) -> None:
        if self._suspended:  # it may hold the write lock, and the end of another instance would wait for it
            return
        self._finish(process)
        self._replace(process)
        self.counts.restarts += 1

    def _replace(self, *processes: CrashProcess) -> None:
        if self._suspended:
            self._resume(*self._suspended)
        for process, other in zip(processes, self._start(len(processes)), strict=True):
            self._instances[self._instances.index(process)] = other

    def _suspend(self, process: CrashProcess) -> None:
        if len(self._suspended) < INSTANCES - 1:
            process.stop()
            self._suspended[process] = self._random.randrange(SUSPENDED_STEPS_MAX)
            self.counts.suspensions += 1

    def _resume(self, *processes: CrashProcess) -> None:
        for process in processes:
            del self._suspended[process]
            process.resume()

    def _fork(self, process: CrashProcess) -> None:
        if self._suspended:
            return
        self.counts.forks += self._ask(process, f"fork {self._next_name()}", "forked")

    def _read_from_outside(self, _: CrashProcess) -> None:
        self._use_sqlite("SELECT count(*) FROM extent")

    def _checkpoint_from_outside(self, _: CrashProcess) -> None:
        self._use_sqlite(f"PRAGMA wal_checkpoint({self._random.choice(['PASSIVE', 'FULL', 'TRUNCATE'])})")

    def _terminate(self, _: CrashProcess) -> None:
        """Terminate the connections of all instances."""
        assert self._server is not None, "one of the acts on a server"
        ended = self._server.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'eventproc%'"
        )
        self.counts.terminations += len(ended)

    def _crash(self, _: CrashProcess) -> None:
        """Let the server crash, and start it again."""
        assert self._server is not None, "one of the acts on a server"
        self._server.kill()
        self._server.start()
        self.counts.crashes += 1

    def _use_sqlite(self, statement: str) -> None:
        """Let a program that knows nothing of eventproc use the database."""
        path = self.directory.path / "eventproc.db"
        with closing(sqlite3.connect(path, timeout=OUTSIDER_S)) as outsider:
            outsider.execute(statement).fetchall()
        self.counts.outsiders += 1

    def _logs(self) -> str:
        return "\n".join(
            f"{path.name}:\n{text[-4000:]}"
            for path in sorted(self._journal.glob("*.log"))
            if "Traceback" in (text := path.read_text())
        )

    def _acked(self) -> dict[int, dict[str, int]]:
        """Return {stream: {writer: rows that were acknowledged}}."""
        acked: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for path in self._journal.glob("*.acks"):
            for line in path.read_text().splitlines():
                number, writer, rows = line.split()
                acked[int(number)][writer] = int(rows)
        return acked

    def _check(self, seconds: float) -> str:
        self._run(_check)
        acked = self._acked()
        found = self._run(self._read_streams)
        rows = 0
        for number in range(self._streams):
            rows += sum(check_rows(found[number], acked[number]).values())
        self._run(_copy_all)
        copies = self._run(partial(_read, name=COPIES))
        originals = [each for number in range(COPIED) for each in found[number]]
        assert Counter(copies) == Counter(originals), "an event was not copied exactly once"
        check_rows(copies, {}, by_batch=False)
        self._run(_check)
        sends = sum(len(path.read_text().splitlines()) for path in self._journal.glob("*.acks"))
        counts = self.counts
        return (
            f"torture: {seconds:.0f} s, seed {self._seed}, {self._streams} streams, {sends} sends, {rows} events,"
            f" {len(copies)} copies; {counts.kills} kills, {counts.deaths} deaths at points,"
            f" {counts.suspensions} suspensions, {counts.restarts} restarts, {counts.forks} forks,"
            f" {counts.outsiders} foreign openers, {counts.terminations} terminated connections,"
            f" {counts.crashes} crashes of the server; all checks passed"
        )

    async def _read_streams(self, ep: eventproc.Eventproc) -> dict[int, Rows]:
        return {number: await _read(ep, name_of(number)) for number in range(self._streams)}


async def _check(ep: eventproc.Eventproc) -> None:
    await check(ep.db)


async def _copy_all(ep: eventproc.Eventproc) -> None:
    async with ep.run(copying_app()) as running:
        await running.wait_idle()


async def _read(ep: eventproc.Eventproc, name: str) -> Rows:
    return [(event.key, event.payload) for event in await events_of(await ep.stream(name))]


def main(minutes: str, seed: str = "0", streams: str = str(STREAMS), form: str = "directory") -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as ends:
        server = ends.enter_context(running_server()) if form == "server" else None
        torture = LongTorture(Path(folder), seed=int(seed), streams=int(streams), server=server)
        sys.stdout.write(torture.run(float(minutes) * 60) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
