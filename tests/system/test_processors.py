"""Processes that run a processor are killed and stopped: the next one goes on, and nothing is lost or done twice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from random import Random

import attrs
import pytest

import eventproc
from eventproc.groups.operations import reader_offline
from eventproc.store import faults
from eventproc.store.groups import progress_by_segment
from eventproc.store.model.progress import Progress
from eventproc.testing import check
from tests.support.child_process import ChildProcess
from tests.system.processing import GROUP, SEEN_EACH, SOURCE, TARGET
from tests.system.support import WorkerProcesses, read_all, wait_dead

pytestmark = pytest.mark.torture

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


def start(processes: WorkerProcesses, name: str, order: str, kind: str, *rest: object) -> ChildProcess:
    return ChildProcess(
        ["-m", "tests.system.processing", str(processes.base), name, order, kind, *map(str, rest)]
    )


def heard(worker: ChildProcess, *expected: str) -> None:
    """Return when the worker has said the lines that begin so, in this order; others may come between."""
    for each in expected:
        while not (line := worker.hear()).startswith(each):
            assert line, f"process {worker.pid} ended instead of saying {each!r}"


async def found(ep: eventproc.Eventproc) -> None:
    """Make the streams."""
    await ep.create_scope(SOURCE.partition("/")[0])
    for name in (SOURCE, TARGET):
        await ep.create_stream(name, scaling=eventproc.ScalingPolicy.fixed(SEGMENTS))


def fill(processes: WorkerProcesses, rows: Iterator[tuple[bytes, str]]) -> int:
    """Write the rows; return how many."""

    async def main(ep: eventproc.Eventproc) -> int:
        await found(ep)
        async with (await ep.stream(SOURCE)).writer() as writer:
            return await writer.write_many(rows)

    processes.found(durability="os")
    return processes.call(main)


def durable(processes: WorkerProcesses) -> dict[int, Progress]:
    """Return {segment: what of it is finished, durably}."""

    async def main(ep: eventproc.Eventproc) -> dict[int, Progress]:
        known = await ep.db.read(lambda tx: progress_by_segment(tx, GROUP))
        return {int(segment): progress for (_, segment), progress in known.items()}

    return processes.call(main, host=False)


def handled(processes: WorkerProcesses, name: str) -> list[Handled]:
    """Return what a process noted, but for a line it was killed in."""
    lines = (processes.journal / f"{name}.handled").read_bytes().split(b"\n")[:-1]
    return [
        (int(segment), int(number), int(count), key.decode())
        for segment, number, count, key in map(bytes.split, lines)
    ]


def lives(
    processes: WorkerProcesses, order: str, kind: str, events: int, kills: int
) -> Iterator[tuple[str, dict[int, Progress]]]:
    """Let processes begin and be killed, and one finish; yield each, with what was durable before it began.

    The first writes of a process are for opening and joining, so chance decides whether a death at a write comes early.
    """
    random, pause = Random(3), events // (KILLS + 2)
    for life in range(kills):
        before = durable(processes) if life else {}
        death = DEATHS[life // 2] if life % 2 else None
        with start(
            processes, f"life{life}", order, kind, *(() if death is None else ("-", "kill", *death))
        ) as worker:
            if death is None:
                heard(worker, f"seen {random.randrange(pause // 3, pause) // SEEN_EACH * SEEN_EACH}")
                worker.kill()
            else:
                wait_dead(worker)
        yield f"life{life}", before
    worked = sum(bool(handled(processes, f"life{life}")) for life in range(kills))
    assert worked >= kills // 2, f"only {worked} processes came to handle anything"
    before = durable(processes)
    with start(processes, "last", order, kind) as worker:
        heard(worker, "idle")
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
@pytest.mark.parametrize(("order", "by"), [("segment", 0), ("key", 3), ("none", None)])
def test_killed_processes_lose_nothing_and_repeat_only_what_was_not_durable(
    processes: WorkerProcesses, order: str, by: int | None, kind: str, size: Size
) -> None:
    choose, events = Random(17), min(EVENTS_EACH * size.factor, EVENTS_MAX)
    fill(processes, ((b"%d" % number, f"k{choose.randrange(KEYS)}") for number in range(events)))
    by_life = []
    for name, before in lives(processes, order, kind, events, size.kills):
        seen = handled(processes, name)
        check_life(seen, before, by)
        by_life.append(seen)
    check_whole(by_life, by, events)
    check_outputs(processes, events, ordered=by is not None)


def check_outputs(processes: WorkerProcesses, events: int, *, ordered: bool = True) -> None:
    """Assert that the outputs of each event are there once, those of a key in order, and that all invariants hold."""

    async def main(ep: eventproc.Eventproc) -> list[tuple[str | None, bytes]]:
        await check(ep.db)
        return await read_all(ep, TARGET)

    read = processes.call(main)
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
    processes: WorkerProcesses, kind: str
) -> None:
    fill(processes, ((b"%d" % number, f"k{number % AT_ONCE}") for number in range(FEW)))
    with start(processes, "sleeper", "key", kind, FEW // 2) as sleeper, ExitStack() as others:
        heard(sleeper, "open", *["gated"] * AT_ONCE)
        sleeper.stop_outside(processes.directory / "write.lock")
        processes.call(expire_all, host=False)
        heir = others.enter_context(start(processes, "heir", "key", kind))
        heard(heir, "idle")
        check_outputs(processes, FEW)
        progress = durable(processes)
        sleeper.resume()
        sleeper.say("go")
        heard(sleeper, "log eventproc.groups")
        assert sleeper.finish() == heir.finish() == 0
    assert durable(processes) == progress
    check_outputs(processes, FEW)
    seen = handled(processes, "heir")
    assert {each[2] for each in seen} >= set(range(FEW // 2, FEW))


async def expire_all(ep: eventproc.Eventproc) -> None:
    """Take from the readers of the group what they own."""
    for member in (await ep.processor(GROUP)).members:
        await ep.db.write(partial(reader_offline, group=GROUP, reader=member.reader))
