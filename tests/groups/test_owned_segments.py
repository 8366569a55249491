"""The segments that a reader owns, without I/O."""

from __future__ import annotations

from eventproc.groups import SegmentOwnership
from eventproc.groups.owned_segments import OwnedSegments
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.progress import Progress
from eventproc.store.segments import EventRun

STREAM_ID = 4


def owning(*segments: int) -> OwnedSegments:
    owned = OwnedSegments()
    ownership = [SegmentOwnership("s/t", STREAM_ID, SegmentId(each), 1, Progress()) for each in segments]
    owned.follow({each.key: each for each in ownership})
    return owned


def run_of(segment: int, *payloads: bytes) -> EventRun:
    size = sum(8 + len(payload) for payload in payloads)
    return EventRun(SegmentId(segment), 0, size, 0, 1000, list(payloads))


def test_what_is_taken_from_comes_last_the_next_time() -> None:
    segments = owning(0, 1, 2)
    segments.take(STREAM_ID, [run_of(0, b"a")])
    assert [owned.key[1] for owned in segments] == [1, 2, 0]


def test_a_segment_that_was_lost_and_came_back_begins_at_its_new_epoch_and_progress() -> None:
    segments = owning(0)
    segments.take(STREAM_ID, [run_of(0, b"a", b"b")])
    again = SegmentOwnership("s/t", STREAM_ID, SegmentId(0), 3, Progress(1, 9))
    (before,) = segments
    assert segments.follow({again.key: again}) == [before]
    (owned,) = segments
    assert owned.assigned is again
    assert (owned.offset, owned.finished, owned.durable) == (9, Progress(1, 9), Progress(1, 9))


def test_what_was_lost_while_it_was_being_read_is_left_out() -> None:
    segments = owning(0, 1)
    lost, kept = segments
    assert segments.drop([lost.key]) == [lost]
    assert segments.drop([lost.key]) == [], "it was lost before"
    assert list(segments) == [kept]
    handings = segments.take(STREAM_ID, [run_of(0, b"a", b"b"), run_of(1, b"c")])
    segments.end(STREAM_ID, [SegmentId(0), SegmentId(1)])
    assert [handing.run.payloads for handing in handings] == [[b"c"]]
    assert [(owned.key[1], owned.end) for owned in segments] == [(1, 9)]
