"""Going on behind what was truncated: against a twin that only knows which segments were read to their ends."""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, strategies as st

from eventproc.groups.truncation import behind_both
from eventproc.store.model.cuts import StreamCut, verify_cut
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.frontier import Frontier
from tests.model.support import Family, histories, lengths_of, standings
from tests.support.list_history import ListHistory


@given(st.data())
def test_what_lies_behind_either_is_passed_and_nothing_else(data: st.DataObject) -> None:
    stream = data.draw(histories())
    lengths = data.draw(lengths_of(stream))
    own, other = data.draw(standings(stream, lengths)), data.draw(standings(stream, lengths))
    family = Family.of(stream)
    read = own.read | other.read
    expected = {
        each: max(own.cut.offsets.get(each, 0), other.cut.offsets.get(each, 0), 0)
        for each in family.ready(read)
    }
    waiting = {each: set(family.before[each] - read) for each in family.waiting(read)}
    for kept in _kept(stream, other.cut):
        found = behind_both(Frontier.from_cut(own.cut, stream), other.cut, kept)
        assert (found.held, found.waiting) == (expected, waiting)
        found.check()


def _kept(stream: ListHistory, cut: StreamCut) -> Iterator[ListHistory]:
    """Yield the history as it may have been compacted with its head at `cut`."""
    for first in range(len(stream.epochs)):
        kept = ListHistory(stream.stream, stream.epochs[first:])
        try:
            verify_cut(cut, kept)
        except (InvalidCut, NotFound):
            return
        yield kept
