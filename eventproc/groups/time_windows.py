"""Between which times of its writers a group stands: the windows in time of its position."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from eventproc.groups.cuts import lazy_cuts
from eventproc.groups.truncation import continued_cut
from eventproc.store.catalog import StoredHistory, StreamRecord, get_stream
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.marks import find_window
from eventproc.store.model.argument_checks import invalid_argument
from eventproc.store.model.cuts import DividedCut, StreamCut, divide_cut
from eventproc.store.model.errors import InvalidCut, NotFound
from eventproc.store.model.time_marks import TimeWindow


def group_windows(
    tx: Tx, group: str, stream: str | None, passed: Mapping[int, int]
) -> tuple[list[TimeWindow], dict[int, int]]:
    """Return the windows in time of a group, in its streams or in one of them, and the marks that it has passed.

    passed: {stream id: number of the last mark passed}, as an earlier call returned it.
    Raises NotFound, StreamReplaced, and InvalidArgument for a stream that the group does not read.
    """
    windows: list[TimeWindow] = []
    now_passed: dict[int, int] = {}
    for where, find_cut in lazy_cuts(tx, group):
        if stream in (None, where.name):
            record = get_stream(tx, where.name, stream_id=where.stream_id).value
            position = _position(tx, group, record, find_cut)
            window, last = find_window(tx, record, position, passed.get(where.stream_id, 0))
            windows.append(window)
            now_passed[where.stream_id] = last
    if stream is not None and not windows:
        raise invalid_argument("stream", stream, f"group {group} does not read it")
    return windows, now_passed


def _position(tx: Tx, group: str, stream: StreamRecord, find_cut: Callable[[], StreamCut]) -> DividedCut:
    """Return where a group stands in a stream: at the head at least, because events before it are gone."""
    history = StoredHistory(tx, stream)
    head = divide_cut(head_cut(tx, stream), history)
    # The history may have forgotten a segment in which the group stands. Then it continues elsewhere.
    for find in (find_cut, partial(continued_cut, tx, group, stream)):
        try:
            return head.later(divide_cut(find(), history))
        except (NotFound, InvalidCut):
            pass
    return head
