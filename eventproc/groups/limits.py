"""Where a reader stops that reads up to a cut: in segments known when it began, and in those that open later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from eventproc.groups.keys import SegmentKey
from eventproc.store.database import Database, Tx
from eventproc.store.groups import GroupStream
from eventproc.store.model.arguments import items_of, refused
from eventproc.store.model.cuts import StreamCut, as_cut
from eventproc.store.model.errors import StreamReplaced
from eventproc.store.model.ids import SegmentId
from eventproc.streams.fetch import limits_of


class StopOffsets:
    """Bounds of one iteration. A stream of the group without a cut is not read."""

    def __init__(
        self, db: Database, streams: Iterable[GroupStream], until: StreamCut | Iterable[StreamCut]
    ) -> None:
        """Raises InvalidArgument for what is no cut of a stream that the group reads, StreamReplaced."""
        self._db = db
        self._cuts: dict[int, StreamCut] = {}
        self._limits: dict[SegmentKey, int | None] = {}
        by_name = {stream.name: stream for stream in streams}
        reason = "it must be a stream cut, or several"
        for cut in [until] if isinstance(until, StreamCut) else items_of("end of reading", until, reason):
            stream = by_name.get(as_cut(cut, "end of reading").stream)
            if stream is None:
                raise refused("end of reading", cut, f"the group reads {', '.join(by_name)}")
            if stream.stream_id != cut.stream_id:
                raise StreamReplaced(stream=cut.stream, stream_id=cut.stream_id, current_id=stream.stream_id)
            self._cuts[cut.stream_id] = cut

    def of(self, key: SegmentKey) -> int | None:
        """Return the offset at which to stop, None to read to the end. The segment must have been asked about."""
        return self._limits[key]

    async def ask(self, offsets: Mapping[SegmentKey, int]) -> None:
        """Learn where to stop in segments that stand at `offsets`. Raises InvalidCut; a read when any is new."""
        new = {key: offset for key, offset in offsets.items() if key not in self._limits}
        if new or not self._limits:
            self._limits |= await self._db.read(partial(self._ask, new=new))

    def _ask(self, tx: Tx, new: Mapping[SegmentKey, int]) -> dict[SegmentKey, int | None]:
        found: dict[SegmentKey, int | None] = dict.fromkeys(new, 0)
        for stream_id, cut in self._cuts.items():
            held: dict[SegmentId, int] = {
                key[1]: offset for key, offset in new.items() if key[0] == stream_id
            }
            limits = limits_of(tx, cut.stream, cut, held)
            found |= {(stream_id, segment): limits.get(segment) for segment in held}
        return found
