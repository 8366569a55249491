"""Putting an event into its lane: checked and encoded, the same for writers and for transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from eventproc.store.model.limits import EVENT_BYTES_MAX, FRAME_BYTES
from eventproc.store.model.routing import check_key
from eventproc.streams.check import check_event_time, check_headers, check_size
from eventproc.streams.lanes import Lanes


def put(
    lanes: Lanes, data: bytes, key: str | None, event_time: int | None, headers: Mapping[str, str] | None
) -> int:
    """Put an event into the lane of its key; return its size in the segment. Raises InvalidArgument, nothing is put."""
    size = len(data) + FRAME_BYTES
    if size > EVENT_BYTES_MAX:
        check_size(data)
    if headers is not None:
        headers = check_headers(headers)
    if event_time is not None:
        check_event_time(event_time)
    try:
        lane = lanes.find(key) or lanes.open(key)
    except TypeError:  # no hash: it cannot even be looked up
        lane = lanes.open(check_key(cast("str", key)))
    lane.payloads.append(data)
    lane.keys.append(key)
    if event_time is not None or headers or lane.has_extra:
        lane.add_extra(event_time, headers or None)
    return size
