"""What comes next in segments of a stream: from memory where this process just committed it, else in one read."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Final

from eventproc.store.database import Database
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import READ_BYTES_MAX, RECENT_EVENTS, EventRun
from eventproc.streams.fetch import Fetched, Limit, fetch

BATCH_BYTES_MAX: Final = 2**20
"""Bytes of events taken from memory at once. More costs less each, and makes a consumer that stops between
two of them repeat more."""


class Puller:
    """Takes what follows; used in `with`, during which what this process commits to the stream is kept for it."""

    def __init__(self, db: Database, stream: str, stream_id: int) -> None:
        self._db = db
        self._stream = stream
        self._stream_id = stream_id
        self._recent = db.shared[RECENT_EVENTS]
        self._owed = False  # a fetch for segments that Recent had nothing of, while it had of others
        self._open = ExitStack()

    def __enter__(self) -> Puller:
        self._open.enter_context(self._recent.watching(self._stream_id))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, why: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    async def pull(self, wanted: Mapping[SegmentId, Limit]) -> Fetched:
        """Return what follows in the wanted segments, {segment: (offset, limit)}; nothing if nothing does.

        The first of them are served best, so a caller puts last what it got of. Raises what `fetch` raises.
        """
        runs, missing = self._find_recent(wanted)
        # Memory alone would starve a segment that lies further back, and never notice that one ended.
        if not missing or (runs and not self._owed):
            self._owed = bool(missing)
            return Fetched(runs, {})
        fetched = await self._db.read(
            lambda tx: fetch(tx, self._stream, self._stream_id, missing, READ_BYTES_MAX)
        )
        self._owed = False
        return Fetched(runs + fetched.runs, fetched.ended)

    def _find_recent(
        self, wanted: Mapping[SegmentId, Limit]
    ) -> tuple[list[EventRun], dict[SegmentId, Limit]]:
        """Return what this process committed just behind the reader, and the segments it has nothing of."""
        runs: list[EventRun] = []
        missing: dict[SegmentId, Limit] = {}
        share = BATCH_BYTES_MAX // max(len(wanted), 1)
        for segment, (offset, limit) in wanted.items():
            begun, size_bytes = len(runs), 0
            while size_bytes < share:
                run = self._recent.find(self._stream_id, segment, offset)
                if run is None or (limit is not None and run.end > limit):
                    break
                runs.append(run)
                size_bytes += run.end - run.start
                offset = run.end
            if len(runs) == begun:
                missing[segment] = (offset, limit)
        return runs, missing
