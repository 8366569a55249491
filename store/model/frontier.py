"""The frontier of a reader of a stream: the segments that it reads, and the segments that it may open later.

A segment is opened after all its predecessors were read to their ends. So two events of one key are read in the order
in which they were written, across any number of scales (architecture.md section 9, invariants 3 and 5).
Invariants: no segment is both held and waiting; a waiting segment waits for at least one predecessor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eventproc.store.model.cuts import NOT_REACHED, StreamCut, divide_cut
from eventproc.store.model.history import History, get_segment, predecessors, successors
from eventproc.store.model.ids import SegmentId, format_segment


class Frontier:
    """The segments of one reader; not safe for use by several threads.

    held: the segments being read, each with the offset of its next event, bytes.
    waiting: segments not opened yet, each with the predecessors that were not read to their ends. A segment
    appears here when the first of its predecessors was read to its end.
    """

    __slots__ = ("held", "waiting")

    def __init__(self, held: Mapping[SegmentId, int], waiting: Mapping[SegmentId, set[SegmentId]]) -> None:
        self.held: dict[SegmentId, int] = dict(held)
        self.waiting: dict[SegmentId, set[SegmentId]] = {each: set(ids) for each, ids in waiting.items()}

    @classmethod
    def from_cut(cls, cut: StreamCut, history: History) -> Frontier:
        """Return the frontier of a reader at the position `cut`, which must be valid (`verify_cut`)."""
        held = {identifier: offset for identifier, offset in cut.offsets.items() if offset >= 0}
        if len(held) == len(cut.offsets):
            return cls(held, {})
        division = divide_cut(cut, history)
        waiting = {
            identifier: {
                before
                for before in predecessors(history, identifier)
                if not division.is_behind(get_segment(history, before))
            }
            for identifier, offset in cut.offsets.items()
            if offset == NOT_REACHED
        }
        return cls(held, waiting)

    def advance(self, identifier: SegmentId, offset: int) -> None:
        """Set the offset of a held segment, which never moves back.

        The segment becomes the last of `held`, so a reader that reads some segments in that order reads all in turn.
        """
        before = self.held.pop(identifier)
        assert offset >= before, f"{format_segment(identifier)} moved back from {before} to {offset}"
        self.held[identifier] = offset

    def complete(
        self, identifier: SegmentId, successors: Mapping[SegmentId, tuple[SegmentId, ...]]
    ) -> tuple[SegmentId, ...]:
        """Remove a held segment that was read to its end; return the segments opened by that, at offset 0.

        successors: of that segment, each with all its predecessors, as `history.successors` returns them;
        empty if the stream is sealed.
        """
        del self.held[identifier]
        opened: list[SegmentId] = []
        for successor, before in successors.items():
            # If it is new here, its other predecessors are not complete: each of them would have entered it.
            remaining = self.waiting.setdefault(successor, set(before))
            remaining.discard(identifier)
            if not remaining:
                del self.waiting[successor]
                self.held[successor] = 0
                opened.append(successor)
        return tuple(opened)

    def pass_ended(
        self,
        history: History,
        is_end: Callable[[SegmentId, int], bool],
        *,
        passed_max: int | None = None,
    ) -> dict[SegmentId, tuple[SegmentId, ...]]:
        """Complete each held segment that is at its end, and so on with those that are opened by that.

        So one call passes all empty sealed segments that follow.

        Args:
            history: of the stream.
            is_end: whether a segment is sealed and ends at that offset. Asked once for each segment that is held.
            passed_max: segments to complete at most. None (default): all.

        Returns:
            The segments that were entered or passed, each with all its predecessors.
        """
        entered: dict[SegmentId, tuple[SegmentId, ...]] = {}
        open_now = list(self.held)
        passed = 0
        while open_now and passed != passed_max:
            segment = open_now.pop()
            if is_end(segment, self.held[segment]):
                passed += 1
                following = successors(history, segment)
                entered |= following
                open_now += self.complete(segment, following)
        return entered

    def offsets(self) -> dict[SegmentId, int]:
        """Return the offsets of this reader's stream cut; waiting segments are NOT_REACHED."""
        return {**self.held, **dict.fromkeys(self.waiting, NOT_REACHED)}

    @property
    def done(self) -> bool:
        """Whether the sealed stream was read to its end: no segment is held or waiting."""
        return not self.held and not self.waiting

    def check(self) -> None:
        """Assert the invariant at the head of this module."""
        assert not self.held.keys() & self.waiting.keys(), "a segment is both held and waiting"
        assert all(self.waiting.values()), "a segment waits for nothing"
