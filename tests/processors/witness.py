"""What handlers began and finished, and what must hold of that at every moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import Event


class Witness:
    """Events are known by segment and number, and by key and count: their payload counts those of their key.

    alone: no two calls of different processes may run for what follows each other, and no event is handled twice;
    who was cut off does not know that others took over.
    """

    def __init__(self, order: str | None, *, alone: bool) -> None:
        self.order = order
        self.alone = alone
        self.finished: defaultdict[SegmentId, set[int]] = defaultdict(set)
        self.by_key: defaultdict[str | None, set[int]] = defaultdict(set)
        self.times: Counter[tuple[SegmentId, int]] = Counter()
        self.problems: list[str] = []  # an assertion within a handler would only be one of its failures
        self._running: set[object] = set()

    def cut_off(self) -> None:
        """All processes died."""
        self._running.clear()

    @contextmanager
    def calls(self, owner: object, events: Sequence[Event]) -> Iterator[None]:
        """A call for these events begins, and at the block's end returns, or fails."""
        queues = {self._lane(owner, event) for event in events} - {None}
        if queues & self._running:
            self.problems.append(f"two calls for {queues & self._running} at once")
        begun: defaultdict[object, set[int]] = defaultdict(set)
        for event in events:
            self._check_order(event, begun)
        self._running |= queues
        try:
            yield
        finally:
            self._running -= queues
        for event in events:
            self.finish(event)
            self.times[event.segment, event.number] += 1

    def finish(self, event: Event) -> None:
        """The event is done with, in whatever way."""
        self.finished[event.segment].add(event.number)
        self.by_key[event.key].add(int(event.payload))

    def _lane(self, owner: object, event: Event) -> object:
        queue = {"segment": event.segment, "key": event.key, None: None}[self.order]
        return None if queue is None else (None if self.alone else owner, queue)

    def _check_order(self, event: Event, begun: defaultdict[object, set[int]]) -> None:
        """No event is begun before those it follows were finished, or are before it in the same call."""
        count = int(event.payload)
        if self.order is not None and event.key is not None:
            missing = set(range(count)) - self.by_key[event.key] - begun[event.key]
            if missing:
                self.problems.append(f"{event.key}: {count} is begun before {sorted(missing)[:5]}")
            begun[event.key].add(count)
        if self.order == "segment":
            missing = set(range(event.number)) - self.finished[event.segment] - begun[event.segment]
            if missing:
                self.problems.append(f"{event.segment}: {event.number} is begun before {sorted(missing)[:5]}")
            begun[event.segment].add(event.number)

    def verify(self, segment: SegmentId, progress: Progress) -> None:
        """Durable progress covers nothing that is not finished."""
        assert not self.problems, self.problems[:3]
        passed = set(range(progress.number)).union(*(range(low, high) for low, high, _ in progress.finished))
        assert passed <= self.finished[segment], (
            f"{segment}: {progress} passes unfinished {sorted(passed - self.finished[segment])[:5]}"
        )

    def verify_end(self, written: Mapping[str | None, int]) -> None:
        """Every event was finished; where nobody was cut off, once."""
        assert not self.problems, self.problems[:3]
        for key, count in written.items():
            missing = set(range(count)) - self.by_key[key]
            assert not missing, f"{key}: {sorted(missing)[:5]} were never finished"
        if self.alone:
            twice = [each for each, times in self.times.items() if times > 1]
            assert not twice, f"handled twice: {sorted(twice)[:5]}"
