"""One commit of a processor: what it has, what has to wait, and that the epochs of its own segments fence it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import cast

import anyio

from eventproc.groups import Membership, SegmentKey, SegmentOwnership
from eventproc.groups.owned_segment import InFlightRun, OwnedSegment
from eventproc.processors.dead_letters.operations import FailedEvent
from eventproc.processors.emit import Emission
from eventproc.processors.engine.commit import divided
from eventproc.processors.engine.committer import Outbox
from eventproc.processors.engine.engine import Engine
from eventproc.processors.handler import make_handler
from eventproc.processors.options import Options, ProcessingOrder
from eventproc.store.database import Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.limits import FINISHED_RANGES_MAX
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event
from tests.processors.support import STREAM, system, write
from tests.processors.worker import items_of, segment_at, settled, until

OPTIONS = Options(name="p", streams=(STREAM,), group="s/g", order=ProcessingOrder.KEY, concurrency=3)


class Scripted(Membership):
    """A membership that does what the test says: `give` and `ask_back`; `gate` holds up what is released."""

    def __init__(self) -> None:
        self.group, self.reader = "s/g", "r"
        self.moved: dict[SegmentOwnership, Progress] = {}
        self.released: list[SegmentKey] = []
        self.gate = anyio.Event()
        self._mine: dict[SegmentKey, SegmentOwnership] = {}
        self._surplus: set[SegmentKey] = set()
        self._changed = anyio.Event()

    def give(self, assigned: SegmentOwnership) -> None:
        self._mine[assigned.key] = assigned
        self.stir()

    def ask_back(self, key: SegmentKey) -> None:
        self._surplus.add(key)
        self.stir()

    def stir(self) -> None:
        self._changed.set()

    @property
    def owned(self) -> Mapping[SegmentKey, SegmentOwnership]:
        return dict(self._mine)

    @property
    def surplus(self) -> frozenset[SegmentKey]:
        return frozenset(self._surplus)

    @property
    def paused(self) -> bool:
        return False

    async def refresh(self) -> None:
        await anyio.lowlevel.checkpoint()

    async def wait_change(self, timeout_ms: int | None = None) -> None:
        await self._changed.wait()
        self._changed = anyio.Event()

    async def release(self, keys: Collection[SegmentKey]) -> None:
        self.released += keys
        await self.gate.wait()
        for key in keys:
            del self._mine[key]
            self._surplus.discard(key)

    def move(
        self, tx: Tx, moved: Mapping[SegmentOwnership, Progress], held: Iterable[SegmentOwnership] = ()
    ) -> None:
        self.moved.update(moved)

    def complete(self, tx: Tx, assigned: SegmentOwnership) -> Sequence[SegmentId]:
        raise AssertionError("no segment ends")

    def publish(self, tx: Tx, status: str) -> None:
        pass


def _emitted(owned: OwnedSegment, number: int) -> tuple[OwnedSegment, int, list[Emission]]:
    return owned, number, [Emission("s/out", b"%d" % number)]


def _letter(owned: OwnedSegment, number: int) -> tuple[OwnedSegment, FailedEvent]:
    event = Event(b"", None, 0, None, "s/t", SegmentId(0), 0, number, {})
    return owned, FailedEvent.of(event, ValueError(), attempts=1, processor="p", failed_ms=0)


def test_what_came_from_a_lost_cell_is_left_out() -> None:
    kept, lost = segment_at(), segment_at(segment=1)
    outbox: Outbox[OwnedSegment] = Outbox()
    for owned in (kept, lost):
        ((event, _),) = items_of(owned, [None])
        outbox.emitted.append(_emitted(owned, 0))
        outbox.letters.append(_letter(owned, 0))
        outbox.handled.append((owned, event))
    left = outbox.of({kept})
    assert [each[0] for each in (*left.emitted, *left.letters, *left.handled)] == [kept] * 3


def test_what_events_leave_waits_until_they_are_part_of_durable_progress() -> None:
    owned, count = segment_at(), 3 * FINISHED_RANGES_MAX
    items = items_of(owned, [None] * count)
    outbox: Outbox[OwnedSegment] = Outbox()
    for number in range(1, count, 2):
        cast("InFlightRun", items[number][1]).finish(number)
        outbox.emitted.append(_emitted(owned, number))
        outbox.letters.append(_letter(owned, number))
    now, later = divided(outbox, {owned: owned.snapshot()})
    durable = [number for number in range(1, count, 2) if owned.snapshot().is_finished(number)]
    assert len(durable) == FINISHED_RANGES_MAX
    assert [number for _, number, _ in now.emitted] == durable
    assert [letter.event.number for _, letter in now.letters] == durable
    assert [number for _, number, _ in later.emitted] == [n for n in range(1, count, 2) if n not in durable]
    assert len(now.letters) + len(later.letters) == len(outbox.letters)


async def test_a_segment_is_not_begun_again_while_it_is_released() -> None:
    seen: list[int] = []

    async def handle(event: Event) -> None:
        seen.append(event.number)

    membership = Scripted()
    async with system() as ep:
        await write(ep, "abc")
        stream = await ep.stream(STREAM)
        key = stream.stream_id, SegmentId(0)
        engine = Engine(ep.db, OPTIONS, lambda: make_handler(handle), membership)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.run)
            membership.give(SegmentOwnership(STREAM, *key, 1, Progress()))
            await until(lambda: len(seen) == 3)
            membership.ask_back(key)
            await until(lambda: bool(membership.released))
            (moved,) = membership.moved.values()
            assert moved.number == 3, "what was drained is durable before it is released"
            for _ in range(3):
                membership.stir()
                await settled()
            membership.gate.set()
            await settled()
            await engine.stop()
    assert seen == [0, 1, 2]
    assert membership.released == [key]
    assert not engine.segments
