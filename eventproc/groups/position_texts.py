"""Start positions of groups, as people write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eventproc.groups import GroupStart
from eventproc.store.model.cuts import StreamCut
from eventproc.store.model.errors import InvalidArgument
from eventproc.streams import Stream
from eventproc.streams.position_texts import parse_position
from eventproc.streams.stream import Start


def parse_group_start(texts: Sequence[str], streams: Mapping[str, int]) -> GroupStart:
    """Return the start position of a group.

    texts: head, tail or a time; or cuts, at most one per stream. streams: {name: stream id}.
    """
    if len(texts) == 1 and "=" not in texts[0]:
        return parse_position(texts[0], *next(iter(streams.items())))
    return parse_cuts(texts, streams)


def parse_cuts(texts: Sequence[str], streams: Mapping[str, int]) -> dict[str, StreamCut]:
    """Return the cuts in `texts` by stream; a cut begins with its stream's id. Raises InvalidArgument."""
    by_id = {str(stream_id): name for name, stream_id in streams.items()}
    found: dict[str, StreamCut] = {}
    for text in texts:
        # A cut of a stream that is not listed is matched with the first one, whose check refuses it.
        name = by_id.get(text.partition(":")[0], next(iter(streams)))
        cut = parse_position(text, name, streams[name])
        if not isinstance(cut, StreamCut):
            raise InvalidArgument(
                what="cut", value=text, reason="it must be a cut, as `eventproc stream cut` prints it"
            )
        if name in found:
            raise InvalidArgument(
                what="cut", value=text, reason=f"{name} already has a cut; give one per stream"
            )
        found[name] = cut
    return found


async def cut_at_position(stream: Stream, position: Start) -> StreamCut:
    """Return the cut at a position of the stream."""
    return position if isinstance(position, StreamCut) else await stream.cut_at(position)
