"""Processes that run a processor are killed and stopped: the next one goes on, and nothing is lost or done twice."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random

import anyio
import anyio.to_thread
import attrs
import pytest

import eventproc
from eventproc.groups.operations import reader_offline
from eventproc.processors.declarations import OrderName
from eventproc.store import faults
from eventproc.store.groups import progress_by_segment
from eventproc.store.model.progress import Progress
from eventproc.testing import CrashDirectory, CrashProcess, check
from tests.support.child_process import stop_outside
from tests.system.protocol import SayHandler, read_all, say

pytestmark = pytest.mark.torture

SOURCE = "work/in"
TARGET = "work/out"
GROUP = "work/group"

SEEN_EACH = 250
YIELD_EACH = 17
"""One call in so many waits, so that calls for many keys run at the same time."""

EVENTS_MAX = 100_000
EVENTS_EACH = 20_000
"""Events that go through within `make test`; a hunt takes so many times as many, up to EVENTS_MAX."""

KEYS = 500
FEW = 48
AT_ONCE = 8
"""Events and keys where a person could count them."""

KILLS = 10
KILLS_QUICK = 4
"""Processes killed one after the other, within a hunt and within `make test`: each costs a second to begin."""

SEGMENTS = 4


DEATHS = (
    (faults.WRITE_BEGUN, 8),
    (faults.WRITE_COMMIT, 9),
    (faults.WRITE_COMMITTED, 8),
    (faults.WRITE_COMMIT, 8),
    (faults.WRITE_COMMITTED, 9),
)
"""Points of a write at which a process dies, and how many of them it reaches. The other lives end from outside."""

Handled = tuple[int, int, int, str]
"""(segment, event number, what its payload counts, key)"""


@attrs.frozen
class Size:
    """How much a test does: `factor` times the events of `make test`, and `kills` processes."""

    factor: int
    kills: int


@pytest.fixture
def size(pytestconfig: pytest.Config) -> Size:
    hunt = pytestconfig.getoption("--hunt")
    assert isinstance(hunt, float)
    factor = max(round(hunt), 1)
    return Size(factor, KILLS if factor > 1 else KILLS_QUICK)


class HandlerNotes:
    """What this process handled: "segment number payload key", a line each, without a buffer."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._seen = 0

    def note(self, event: eventproc.Event) -> None:
        os.write(
            self._file,
            b"%d %d %s %s\n" % (event.segment, event.number, event.payload, (event.key or "").encode()),
        )
        self._seen += 1
        if self._seen % SEEN_EACH == 0:
            say(f"seen {self._seen}")


class HandlerGate:
    """Lets calls for events that count less than `begin` pass, and all once it is open."""

    def __init__(self, begin: int | None) -> None:
        self.opened = anyio.Event()
        self._begin = begin

    async def passed(self, event: eventproc.Event) -> None:
        if self._begin is not None and int(event.payload) >= self._begin and not self.opened.is_set():
            say("gated")
            await self.opened.wait()


def make_app(
    order: OrderName | None, notes: HandlerNotes, gate: HandlerGate, *, exactly_once: bool
) -> eventproc.App:
    app = eventproc.App()

    @app.processor(SOURCE, group=GROUP, order=order, exactly_once=exactly_once)
    async def work(event: eventproc.Event, context: eventproc.Context) -> None:
        await gate.passed(event)
        if event.number % YIELD_EACH == 0:
            await anyio.lowlevel.checkpoint()
        for part in (b"a", b"b"):
            context.emit(TARGET, event.payload + part, key=event.key)
        notes.note(event)

    return app


async def process(
    ep: eventproc.Eventproc, notes: Path, order: OrderName | None, kind: str, begin: int | None
) -> None:
    """Run one processor, in a process of its own, until its input ends; then drain.

    Calls for events that count `begin` and more say "gated" and wait for a line on the input. It notes in a file each
    event whose call is about to return, emits two events for each, and says "seen N" now and then, and "idle" when
    nothing is left.
    """
    logging.basicConfig(handlers=[SayHandler()], level=logging.INFO)
    gate = HandlerGate(begin)
    async with ep.run(make_app(order, HandlerNotes(notes), gate, exactly_once=kind == "once")) as running:
        say("open")

        async def tell_idle() -> None:
            await running.wait_idle()
            say("idle")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(tell_idle)
            while await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True):
                gate.opened.set()
            tasks.cancel_scope.cancel()


class Processes:
    """The directory of one test, and the processes on it, by name."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.crash = CrashDirectory(base / "store", durability="os")

    def start(
        self,
        name: str,
        order: OrderName | None,
        kind: str,
        begin: int | None = None,
        death: tuple[str, int] | None = None,
    ) -> CrashProcess:
        at, nth = death or (None, 1)
        return self.crash.start(process, self.base / name, order, kind, begin, at=at, nth=nth)

    def handled(self, name: str) -> list[Handled]:
        """Return what a process noted, but for a line it was killed in."""
        lines = (self.base / name).read_bytes().split(b"\n")[:-1]
        return [
            (int(segment), int(number), int(count), key.decode())
            for segment, number, count, key in map(bytes.split, lines)
        ]


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    found = Processes(tmp_path)
    with found.crash:
        yield found


async def fill(ep: eventproc.Eventproc, rows: Iterator[tuple[bytes, str]]) -> None:
    """Make the streams, and write the rows."""
    await ep.create_scope(SOURCE.partition("/")[0])
    for name in (SOURCE, TARGET):
        await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(SEGMENTS))
    async with (await ep.stream(SOURCE)).writer() as writer:
        await writer.write_many(rows)


async def durable(ep: eventproc.Eventproc) -> dict[int, Progress]:
    """Return {segment: what of it is finished, durably}."""
    known = await ep.db.read(lambda tx: progress_by_segment(tx, GROUP))
    return {int(segment): progress for (_, segment), progress in known.items()}


def lives(
    processes: Processes, order: OrderName | None, kind: str, events: int, kills: int
) -> Iterator[tuple[str, dict[int, Progress]]]:
    """Let processes begin and be killed, and one finish; yield each, with what was durable before it began.

    The first writes of a process are for opening and joining, so chance decides whether a death at a write comes early.
    """
    random, pause = Random(3), events // (KILLS + 2)
    for life in range(kills):
        before = processes.crash.run(durable) if life else {}
        death = DEATHS[life // 2] if life % 2 else None
        worker = processes.start(f"life{life}", order, kind, death=death)
        if death is None:
            worker.wait_for(f"seen {random.randrange(pause // 3, pause) // SEEN_EACH * SEEN_EACH}")
            worker.kill()
        else:
            while worker.hear():
                pass
            worker.wait_killed()
        yield f"life{life}", before
    worked = sum(bool(processes.handled(f"life{life}")) for life in range(kills))
    assert worked >= kills // 2, f"only {worked} processes came to handle anything"
    before = processes.crash.run(durable)
    worker = processes.start("last", order, kind)
    worker.wait_for("idle")
    assert worker.finish() == 0
    yield "last", before


def check_life(seen: list[Handled], before: dict[int, Progress], by: int | None) -> None:
    """Assert that a process handled nothing twice, nothing that was finished before it began, and all in order.

    by: the index of what keeps an order (key 3, segment 0), None for none.
    """
    assert len({each[:2] for each in seen}) == len(seen), "one process handled an event twice"
    again = [each for each in seen if each[0] in before and before[each[0]].is_finished(each[1])]
    assert not again, f"{len(again)} events were handled again though that was durable: {again[:3]}"
    if by is None:
        return
    last: dict[object, int] = {}
    for each in seen:
        assert each[2] > last.get(each[by], -1), f"{each} came after {last[each[by]]}"
        last[each[by]] = each[2]


def check_whole(by_life: list[list[Handled]], by: int | None, events: int) -> None:
    """Assert that every event was handled, and that each process went on where those before it were, in order.

    So what is handled again of a key, or of a segment, is what came last of it: nothing older comes between.
    """
    places = {each[2]: each[by or 0] for seen in by_life for each in seen}
    assert places.keys() == set(range(events))
    if by is None:
        return
    following: dict[int, int] = {}
    first: dict[object, int] = {}
    previous: dict[object, int] = {}
    for count in range(events):
        place = places[count]
        first.setdefault(place, count)
        following[previous.get(place, -1 - count)] = count
        previous[place] = count
    reached: dict[object, int] = {}
    for seen in by_life:
        last: dict[object, int] = {}
        for each in seen:
            place, count = each[by], each[2]
            if place in last:
                assert count == following[last[place]], f"{each} came behind {last[place]}"
            elif place in reached:
                assert count <= following.get(reached[place], events), f"{each} came behind {reached[place]}"
            else:
                assert count == first[place], f"{each} came first, not {first[place]}"
            last[place] = count
        reached |= {place: max(count, reached.get(place, -1)) for place, count in last.items()}


@pytest.mark.parametrize("kind", ["once", "least"])
@pytest.mark.parametrize(("order", "by"), [("segment", 0), ("key", 3), (None, None)])
def test_killed_processes_lose_nothing_and_repeat_only_what_was_not_durable(
    processes: Processes, order: OrderName | None, by: int | None, kind: str, size: Size
) -> None:
    choose, events = Random(17), min(EVENTS_EACH * size.factor, EVENTS_MAX)
    processes.crash.run(fill, ((b"%d" % number, f"k{choose.randrange(KEYS)}") for number in range(events)))
    by_life = []
    for name, before in lives(processes, order, kind, events, size.kills):
        seen = processes.handled(name)
        check_life(seen, before, by)
        by_life.append(seen)
    check_whole(by_life, by, events)
    check_outputs(processes, events, ordered=by is not None)


def check_outputs(processes: Processes, events: int, *, ordered: bool = True) -> None:
    """Assert that the outputs of each event are there once, those of a key in order, and that all invariants hold."""

    async def main(ep: eventproc.Eventproc) -> list[tuple[str | None, bytes]]:
        await check(ep.db)
        return await read_all(ep, TARGET)

    read = processes.crash.run(main)
    assert len(read) == 2 * events
    assert len({payload for _, payload in read}) == 2 * events
    if not ordered:
        return
    last: dict[str | None, tuple[int, bytes]] = {}
    for key, payload in read:
        place = int(payload[:-1]), payload[-1:]
        assert place > last.get(key, (-1, b"")), f"{key}: {place} came after {last[key]}"
        last[key] = place


@pytest.mark.parametrize("kind", ["once", "least"])
def test_a_suspended_process_that_was_expired_moves_and_emits_nothing(
    processes: Processes, kind: str
) -> None:
    processes.crash.run(fill, ((b"%d" % number, f"k{number % AT_ONCE}") for number in range(FEW)))
    sleeper = processes.start("sleeper", "key", kind, FEW // 2)
    for expected in ("open", *["gated"] * AT_ONCE):
        sleeper.wait_for(expected)
    stop_outside(sleeper, processes.crash.path / "write.lock")
    processes.crash.run(expire_all)
    heir = processes.start("heir", "key", kind)
    heir.wait_for("idle")
    check_outputs(processes, FEW)
    progress = processes.crash.run(durable)
    sleeper.resume()
    sleeper.say("go")
    sleeper.wait_for("log eventproc.groups")
    assert sleeper.finish() == heir.finish() == 0
    assert processes.crash.run(durable) == progress
    check_outputs(processes, FEW)
    seen = processes.handled("heir")
    assert {each[2] for each in seen} >= set(range(FEW // 2, FEW))


async def expire_all(ep: eventproc.Eventproc) -> None:
    """Take from the readers of the group what they own."""
    for member in (await ep.processor(GROUP)).members:
        await ep.db.write(partial(reader_offline, group=GROUP, reader=member.reader))
