"""Four processes read one group under load while its stream scales, two are killed and one is stopped for too long."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import attrs

import eventproc
from eventproc.groups import GroupDescription
from tests.support.child_process import ChildProcess
from tests.system.group_worker import FENCED, GROUP, NOTES
from tests.system.protocol import STREAM, check_rows
from tests.system.support import WorkerProcesses, hear

LEASE_MS = 2_000
READERS = ("ann", "ben", "cat", "dan")


@attrs.frozen
class LoggedDelivery:
    reader: str
    key: str
    payload: bytes


class Readers:
    """The processes of a group, and what was delivered to them."""

    def __init__(self, processes: WorkerProcesses, stack: ExitStack) -> None:
        self.processes = processes
        self.harmed: set[str] = set()
        self.living = {name: stack.enter_context(self._start(name)) for name in READERS}

    def _start(self, name: str) -> ChildProcess:
        worker = ChildProcess(["-m", "tests.system.group_worker", str(self.processes.base), name])
        hear(worker, "open")
        return worker

    def kill(self, name: str) -> None:
        self.harmed.add(name)
        self.living.pop(name).kill()

    def stop_until_expired(self, name: str) -> None:
        """Stop a reader outside the lock of the writers, until the others took it for dead."""
        self.harmed.add(name)
        self.living[name].stop_outside(self.processes.directory / "write.lock")
        while name in {member.reader for member in self.described().members}:
            pass

    def owner(self, *, besides: str | None = None) -> str:
        """Return the owner of a segment, once it has one: between a release and an acquisition it has none."""
        while True:
            for segment in self.described().segments:
                if segment.owner in self.living and segment.owner != besides:
                    return segment.owner

    def described(self) -> GroupDescription:
        async def describe(ep: eventproc.Eventproc) -> GroupDescription:
            return await (await ep.reader_group(GROUP)).describe()

        return self.processes.call(describe, host=False)

    def deliveries(self) -> list[LoggedDelivery]:
        """Return the deliveries so far, in order; a reader that was fenced meanwhile counts as harmed."""
        found: list[LoggedDelivery] = []
        for line in (self.processes.journal / NOTES).read_bytes().splitlines():
            reader, key, *payload = line.split(b" ", 2)
            if key.decode() == FENCED:  # also by a machine that is too busy for a sign of life
                self.harmed.add(reader.decode())
            else:
                found.append(LoggedDelivery(reader.decode(), key.decode(), payload[0]))
        return found


async def make(ep: eventproc.Eventproc) -> None:
    await ep.create_reader_group(GROUP, [STREAM], lease_ms=LEASE_MS)


async def grow(ep: eventproc.Eventproc) -> None:
    await (await ep.stream(STREAM)).split(0, 8)


async def shrink(ep: eventproc.Eventproc) -> None:
    stream = await ep.stream(STREAM)
    active = [segment.id for segment in await stream.segments()]
    assert len(active) == 8
    await stream.scale(seal=active, ranges=[(0.0, 0.5), (0.5, 1.0)])


async def seal(ep: eventproc.Eventproc) -> None:
    await (await ep.stream(STREAM)).seal()


def first_of_each(deliveries: Sequence[LoggedDelivery]) -> list[tuple[str | None, bytes]]:
    return list(dict.fromkeys((each.key, each.payload) for each in deliveries))


def test_nothing_is_lost_through_scales_kills_and_suspended_readers(
    processes: WorkerProcesses,
) -> None:
    processes.found(durability="os")
    processes.call(make)
    with (
        ExitStack() as stack,
        processes.start("write", "ada") as ada,
        processes.start("write", "bob") as bob,
    ):
        readers = Readers(processes, stack)
        hear(readers.living[readers.owner()], "seen")
        processes.call(grow)
        for reader in readers.living.values():
            hear(reader, "seen")
        readers.kill("ann")
        hear(readers.living["ben"], "seen")
        readers.stop_until_expired("cat")
        before = len(readers.deliveries())
        processes.call(shrink)
        readers.living["cat"].resume()
        hear(readers.living["cat"], f"log eventproc.groups {GROUP}: reader 'cat' was expired")
        hear(ada, "written")
        readers.kill(readers.owner(besides="cat"))
        hear(ada, "written")
        assert (ada.finish(), bob.finish()) == (0, 0)
        processes.call(seal)
        for reader in readers.living.values():
            hear(reader, "closed")
        assert readers.described().segments == ()
    written = processes.check()
    deliveries = readers.deliveries()
    assert check_rows(first_of_each(deliveries), processes.acked()) == written
    unharmed = [each for each in deliveries if each.reader not in readers.harmed]
    assert len(unharmed) == len({(each.key, each.payload) for each in unharmed}), (
        "no death, and delivered twice"
    )
    assert len(_late(deliveries, before, "cat", readers.harmed)) <= 1, "only the event in hand"


def _late(
    deliveries: Sequence[LoggedDelivery], since: int, reader: str, harmed: set[str]
) -> list[LoggedDelivery]:
    """Return the deliveries to `reader` of events that another live reader had finished."""
    done: set[tuple[str, bytes]] = set()
    late: list[LoggedDelivery] = []
    for number, each in enumerate(deliveries):
        event = each.key, each.payload
        if each.reader not in harmed:
            done.add(event)
        elif number >= since and each.reader == reader and event in done:
            late.append(each)
    return late
