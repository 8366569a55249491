"""What the internal streams still have to say: events that their groups have not finished."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from eventproc.store.catalog import SYSTEM_EPOCH, SystemStream
from eventproc.store.database import Tx
from eventproc.store.progress import get_progress
from eventproc.store.segments import read


def unfinished_events(tx: Tx, stream: SystemStream) -> Iterator[str]:
    """Yield the payloads of events of an internal stream that its group has not finished."""
    for segment in SYSTEM_EPOCH.ids:
        progress = get_progress(tx, stream.name, stream.stream_id, segment)
        progress.check()
        offset = progress.offset
        while runs := read(tx, stream.stream_id, {segment: (offset, None)}).runs:
            for event in chain.from_iterable(run.events(stream.name) for run in runs):
                assert event.number >= progress.number, f"event {event.number} lies at {progress.offset}"
                if not progress.is_finished(event.number):
                    yield event.payload.decode()
            offset = runs[-1].end
