"""How far a reader is in what it owns, without I/O."""

from __future__ import annotations

from eventproc.groups import SegmentOwnership
from eventproc.groups.cursors import SegmentCursors
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import EventRun

STREAM_ID = 4


def owning(*segments: int) -> SegmentCursors:
    cursors = SegmentCursors()
    owned = [SegmentOwnership("s/t", STREAM_ID, SegmentId(each), 1, Progress()) for each in segments]
    cursors.follow({each.key: each for each in owned})
    return cursors


def run_of(segment: int, *payloads: bytes) -> EventRun:
    size = sum(8 + len(payload) for payload in payloads)
    return EventRun(SegmentId(segment), 0, size, 0, 1000, list(payloads))


def test_what_is_taken_from_comes_last_the_next_time() -> None:
    cursors = owning(0, 1, 2)
    cursors.take(STREAM_ID, [run_of(0, b"a")])
    assert [cursor.key[1] for cursor in cursors] == [1, 2, 0]


def test_a_segment_that_was_lost_and_came_back_begins_at_its_new_epoch_and_progress() -> None:
    cursors = owning(0)
    cursors.take(STREAM_ID, [run_of(0, b"a", b"b")])
    again = SegmentOwnership("s/t", STREAM_ID, SegmentId(0), 3, Progress(1, 9))
    assert cursors.follow({again.key: again})
    (cursor,) = cursors
    assert cursor.assigned is again
    assert (cursor.taken, cursor.finished, cursor.saved) == (9, Progress(1, 9), Progress(1, 9))


def test_what_was_lost_while_it_was_being_read_is_left_out() -> None:
    cursors = owning(0, 1)
    cursors.drop([(STREAM_ID, SegmentId(0))])
    handings = cursors.take(STREAM_ID, [run_of(0, b"a", b"b"), run_of(1, b"c")])
    cursors.end(STREAM_ID, [SegmentId(0), SegmentId(1)])
    assert [handing.run.payloads for handing in handings] == [[b"c"]]
    assert [(cursor.key[1], cursor.ended) for cursor in cursors] == [(1, True)]
