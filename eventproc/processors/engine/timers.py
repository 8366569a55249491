"""The timers of one processor in one process: finds those that are due, and lets event time go on.

See docs/design/event-time.md.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from typing import Final

import attrs

from eventproc.groups.owned_segment import OwnedSegment
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.states import FiredTimer, KeyStateCache
from eventproc.processors.options import Options
from eventproc.processors.retry import retry_transient
from eventproc.processors.timers import TimerEvent
from eventproc.store.catalog import StoredHistory, find_stream
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import progress_times, watch_progress
from eventproc.store.key_states import due_timers
from eventproc.store.model.errors import NotFound
from eventproc.store.model.history import get_segment
from eventproc.store.model.ids import printable
from eventproc.store.model.ranges import KEY_SPACE, KeyRange, canonical
from eventproc.store.model.routing import point
from eventproc.store.segments import NO_HEADERS
from eventproc.store.watermarks import advance_watermark, is_set_back, next_watermark, stored_watermark

LOG = logging.getLogger("eventproc.processors")

LOOK_MS: Final = 1_000
"""Longest pause between two looks for due timers: a segment that falls silent wakes nobody. Higher: the windows of a
silent segment close later. Lower: an idle processor reads more often."""

TIMERS_A_LOOK: Final = 1_000
"""Timers that looks find and no worker has taken yet. The next look follows the commit of their calls. Higher: their
events wait in memory. Lower: more looks when the windows of many keys end at once."""

ROWS_A_LOOK: Final = 10_000
"""Rows that one look reads: also those of timers whose calls run, or wait for a retry. If so many wait, later ones wait
too. Higher: each look takes longer, some 10 ms for these, and the events of the timers that wait need memory."""

assert TIMERS_A_LOOK < ROWS_A_LOOK, "timers that wait for a retry keep later ones waiting"


@attrs.frozen
class SeenTimers:
    """What a look has found. due: keys, and the event times at which they are called."""

    watermark_ms: int | None
    due: list[tuple[str, int]]


class Timers:
    """Hands out the timers of the owned segments that are due, and lets the watermark rise. `run` is one task."""

    def __init__(
        self,
        db: Database,
        options: Options,
        segments: OwnedSegments,
        states: KeyStateCache,
        ready: Callable[[], None],
    ) -> None:
        """ready: called when there is something to `take`."""
        self._db = db
        self._options = options
        self._segments = segments
        self._states = states
        self._call_ready = ready
        self._ready: deque[Item] = deque()
        self._handed_out: defaultdict[OwnedSegment, set[str]] = defaultdict(set)
        self._ranges: dict[OwnedSegment, KeyRange | None] = {}

    async def run(self) -> None:
        """Look whenever progress became durable, and every LOOK_MS, until cancelled."""
        with self._db.subscribe([watch_progress(self._options.group)]) as changes:
            while True:
                await self._look()
                await changes.wait(LOOK_MS)

    async def read_watermark(self) -> None:
        """Learn the watermark that other processes may have acted upon: before the events of a new segment."""
        group, name = self._options.group, self._options.streams[0]

        def read(tx: Tx) -> int | None:
            stream = find_stream(tx, name)
            return None if stream is None else stored_watermark(tx, group, stream.value.stream_id)

        what = f"reading the watermark of {self._options.label}"
        self._note(await retry_transient(lambda: self._db.read(read), what, self._db.clock, LOG))

    def take(self, timers_max: int) -> list[Item]:
        """Hand out some of the timers that are due."""
        taken: list[Item] = []
        while self._ready and len(taken) < timers_max:
            item = self._ready.popleft()
            if not item[1].owned.closing:
                taken.append(item)
        return taken

    def finished(self, owned: OwnedSegment, key: str | None) -> None:
        """Note that the call for a timer ended."""
        if key is not None and owned in self._handed_out:
            self._handed_out[owned].discard(key)

    def _note(self, watermark_ms: int | None) -> None:
        before = self._states.watermark_ms
        if watermark_ms is not None and (before is None or before < watermark_ms):
            self._states.watermark_ms = watermark_ms

    async def _look(self) -> None:
        mine = [each for each in self._segments if not each.closing]
        for gone in [each for each in self._handed_out if each not in self._segments]:
            del self._handed_out[gone]
        self._ranges = {each: found for each, found in self._ranges.items() if each in self._segments}
        if not mine:
            return
        clock, what = self._db.clock, f"looking for timers of {self._options.label}"
        look = partial(self._find, owned=mine, rows_max=self._rows_max)
        advance = partial(self._advance, owned=mine, rows_max=self._rows_max)
        seen = await retry_transient(lambda: self._db.read(look), what, clock, LOG)
        if seen is None:
            step, streams = Step.PROCESSOR_WATERMARK, frozenset({mine[0].assigned.stream})
            seen = await retry_transient(
                lambda: self._db.write(advance, step=step, streams=streams), what, clock, LOG
            )
        self._note(seen.watermark_ms)
        self._put(seen)

    @property
    def _rows_max(self) -> int:
        """How many rows a look reads: those of timers that workers have taken come first, and are passed over."""
        taken = sum(map(len, self._handed_out.values())) - len(self._ready)
        return min(max(taken, 0) + TIMERS_A_LOOK, ROWS_A_LOOK)

    def _find(self, tx: Tx, owned: list[OwnedSegment], rows_max: int) -> SeenTimers | None:
        """Return what is due; None if event time has come further than is stored, or the clock was set back."""
        group, stream_id = self._options.group, owned[0].key[0]
        if is_set_back(tx, group, stream_id):
            return None
        stored = stored_watermark(tx, group, stream_id)
        reached = next_watermark(tx, group, stream_id, self._options.idle_ms)
        if reached is not None and (stored is None or stored < reached):
            return None
        return self._due(tx, owned, stored, rows_max)

    def _advance(self, tx: Tx, owned: list[OwnedSegment], rows_max: int) -> SeenTimers:
        """Store how far event time has come, and return what is due then."""
        reached = advance_watermark(tx, self._options.group, owned[0].key[0], self._options.idle_ms)
        return self._due(tx, owned, reached, rows_max)

    def _due(self, tx: Tx, owned: list[OwnedSegment], reached_ms: int | None, rows_max: int) -> SeenTimers:
        for each in owned:
            if each not in self._ranges:
                self._ranges[each] = self._range_of(tx, each)
        if reached_ms is None:
            return SeenTimers(None, [])
        mine = canonical([found for each in owned if (found := self._ranges[each]) is not None])
        stream_id = owned[0].key[0]
        due = due_timers(tx, stream_id, self._options.group, reached_ms, mine, rows_max)
        return SeenTimers(reached_ms, due)

    def _range_of(self, tx: Tx, owned: OwnedSegment) -> KeyRange | None:
        """Return the part of the key space that a segment has; None if its stream no longer knows that."""
        stream = find_stream(tx, owned.assigned.stream)
        if stream is None or stream.value.stream_id != owned.key[0]:
            return None
        try:
            return get_segment(StoredHistory(tx, stream.value), owned.key[1]).range
        except NotFound:  # it was sealed long ago: its successors call its keys
            return None

    def _put(self, seen: SeenTimers) -> None:
        came = len(self._ready)
        self._ready += self._events(seen)
        if len(self._ready) > came:
            self._call_ready()

    def _events(self, seen: SeenTimers) -> Iterator[Item]:
        """Yield what stands for the timers. Its call gets the time that its key's timer has by then."""
        assert seen.watermark_ms is not None or not seen.due, "without a watermark nothing is due"
        mine = [
            (found, each) for each, found in self._ranges.items() if found is not None and not each.closing
        ]
        mine.sort(key=itemgetter(0))
        lows = [each.low for each, _ in mine]
        for key, timer_ms in seen.due if mine else ():
            place = point(key)
            within, owned = mine[bisect_right(lows, place) - 1]
            if not within.contains(place):
                continue  # its segment was given away meanwhile
            handed_out = self._handed_out[owned]
            if key in handed_out or not self._states.may_be_due(key, owned):
                continue
            handed_out.add(key)
            event = TimerEvent(
                payload=b"",
                key=key,
                timestamp=seen.watermark_ms or 0,
                event_time=timer_ms,
                stream=owned.assigned.stream,
                segment=printable(owned.key[1]),
                offset=0,
                number=-1,
                headers=NO_HEADERS,
            )
            yield event, FiredTimer(owned)


def has_due_timers(tx: Tx, options: Options) -> bool:
    """Return whether a timer of a processor is due, also as event time has come further than is stored."""
    if options.on_timer is None or (stream := find_stream(tx, options.streams[0])) is None:
        return False
    stream_id, group = stream.value.stream_id, options.group
    reached = next_watermark(tx, group, stream_id, options.idle_ms)
    stored = stored_watermark(tx, group, stream_id)
    times = [each for each in (stored, reached) if each is not None]
    if not times or not progress_times(tx, group):  # without open segments nobody calls any
        return False
    return bool(due_timers(tx, stream_id, group, max(times), [KEY_SPACE], 1))
