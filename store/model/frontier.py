"""The frontier of one who reads a whole stream: which segments are being read, and which wait to be opened.

A segment is opened when all the segments it took over from were read to their ends, so two events of one
key are read in the order in which they were written, across any number of scales (architecture.md section
9, invariants 3 and 5). Invariant: nothing is both held and waiting; what waits, waits for at least one.
"""

from __future__ import annotations

from collections.abc import Mapping

from eventproc.store.model.cuts import NOT_REACHED, StreamCut, divide_cut
from eventproc.store.model.history import History, get_segment, predecessors
from eventproc.store.model.ids import SegmentId, format_segment


class Frontier:
    """What a whole-stream reader holds; not safe for use by several threads.

    held: the segments being read, each with the offset of its next event, bytes.
    waiting: segments not opened yet, each with the predecessors that were not read to their ends. Only
    those appear of which at least one predecessor was; the others are not known of yet.
    """

    __slots__ = ("held", "waiting")

    def __init__(self, held: Mapping[SegmentId, int], waiting: Mapping[SegmentId, set[SegmentId]]) -> None:
        self.held: dict[SegmentId, int] = dict(held)
        self.waiting: dict[SegmentId, set[SegmentId]] = {each: set(ids) for each, ids in waiting.items()}

    @classmethod
    def from_cut(cls, cut: StreamCut, history: History) -> Frontier:
        """Return the frontier of a reader that stands at `cut`, which must be valid (`verify_cut`)."""
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
        """Move a held segment's offset forward, or leave it.

        `held` then has it last: who reads in that order, and not from all each time, starves none.
        """
        before = self.held.pop(identifier)
        assert offset >= before, f"{format_segment(identifier)} moved back from {before} to {offset}"
        self.held[identifier] = offset

    def complete(
        self, identifier: SegmentId, successors: Mapping[SegmentId, tuple[SegmentId, ...]]
    ) -> tuple[SegmentId, ...]:
        """Drop a held segment that was read to its end; return the segments opened thereby, at offset 0.

        successors: what took over from it, each with all its predecessors, as `history.successors` gives
        them; empty when the stream is sealed.
        """
        del self.held[identifier]
        opened: list[SegmentId] = []
        for successor, before in successors.items():
            # Seen for the first time, its other predecessors cannot be complete: each of them would have
            # entered it here.
            remaining = self.waiting.setdefault(successor, set(before))
            remaining.discard(identifier)
            if not remaining:
                del self.waiting[successor]
                self.held[successor] = 0
                opened.append(successor)
        return tuple(opened)

    def offsets(self) -> dict[SegmentId, int]:
        """Return the offsets of the stream cut at which this reader stands: what waits is not reached."""
        return {**self.held, **dict.fromkeys(self.waiting, NOT_REACHED)}

    @property
    def done(self) -> bool:
        """Whether the stream was read to its end: it is sealed, and nothing is held or waits."""
        return not self.held and not self.waiting

    def check(self) -> None:
        """Assert the invariant at the head of this module."""
        assert not self.held.keys() & self.waiting.keys(), "a segment is both held and waiting"
        assert all(self.waiting.values()), "a segment waits for nothing"
