"""Where the dead letters of a group are stored: in which streams, which events are pending, and under which ids.

A pending dead letter is an event of one of the group's dead-letter streams that the pseudo group `_letters/<group>` has
not finished; each can be finished alone. A record keeps the streams in the order of their first use, so that an id
never names another dead letter, also after the processor gets another stream, or a stream is deleted and created again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

import attrs

from eventproc.store.catalog import StoredHistory, find_stream, get_stream, insert_stream
from eventproc.store.catalog.queries import head_cut
from eventproc.store.database import Tx
from eventproc.store.model.argument_checks import check_str
from eventproc.store.model.errors import InvalidArgument, NotFound
from eventproc.store.model.frontier import Frontier
from eventproc.store.model.history import successors
from eventproc.store.model.ids import SegmentId, format_segment, parse_segment
from eventproc.store.model.names import StreamName
from eventproc.store.model.policies import StreamConfig
from eventproc.store.progress import get_progress, has_other_group
from eventproc.store.records import RecordKind, create, find, get, keys, replace
from eventproc.store.segments import Event, SegmentState, known_state, read, segment_ids, segment_state
from eventproc.store.segments.offsets import offset_of_number
from eventproc.workflows.create_stream import check as check_create
from eventproc.workflows.requests import CreateStream, TruncateStream
from eventproc.workflows.truncate_stream import apply as truncate

READ_AHEAD_BYTES: Final = 256 * 2**10
"""Bytes of dead letters in one read, give or take one extent. Higher: events are decoded that a page or a step then
does not use. Lower: more look-ups."""

_ID: Final = re.compile(r"([0-9.]+):([0-9]{1,18})(?:@([0-9]{1,9}))?", re.ASCII)


@attrs.frozen
class DeadLetterStream:
    """A stream that holds dead letters. A stream that was deleted and created again has another id."""

    name: str
    stream_id: int


@attrs.frozen
class DeadLetterStreams:
    """The streams that hold or held a group's dead letters, in the order of their first use."""

    group: str
    streams: tuple[DeadLetterStream, ...]


def _box_may_follow(before: DeadLetterStreams | None, after: DeadLetterStreams) -> str | None:
    if before is not None and after.streams[: len(before.streams)] != before.streams:
        return "dead-letter streams keep their order, because ids name them by it"
    return None


LETTERS: Final = RecordKind(name="letters", value=DeadLetterStreams, invariant=_box_may_follow)


@attrs.frozen
class LetterId:
    """The permanent id of a dead letter: segment and event number in the group's `ordinal`-th stream.

    As text `0.0:17`; from the second stream on `0.0:17@2`.
    """

    ordinal: int
    segment: SegmentId
    number: int

    @classmethod
    def parse(cls, text: str) -> LetterId:
        """Return the id for its text. Raises InvalidArgument."""
        if not (match := _ID.fullmatch(check_str("dead letter", text))):
            reason = "it must look like 0.0:17, as `eventproc dead-letter list` prints it"
            raise InvalidArgument(what="dead letter", value=text, reason=reason)
        return cls(max(int(match[3] or 1), 1), parse_segment(match[1]), int(match[2]))

    def __str__(self) -> str:
        suffix = "" if self.ordinal == 1 else f"@{self.ordinal}"
        return f"{format_segment(self.segment)}:{self.number}{suffix}"


@attrs.frozen
class LetterSpan:
    """Letters [low, high), at least one, of a segment of the group's `ordinal`-th stream."""

    ordinal: int
    stream: DeadLetterStream
    segment: SegmentId
    low: int
    high: int

    @property
    def place(self) -> tuple[int, SegmentId]:
        """The sort key of spans: stream and segment."""
        return self.ordinal, self.segment

    def letter(self, number: int) -> LetterId:
        """Return the id of a letter of this segment."""
        return LetterId(self.ordinal, self.segment, number)


def default_stream(group: str) -> str:
    """Return the name of the default stream of a group's dead letters."""
    return f"{group}-dead-letters"


def redrive_stream(group: str) -> str:
    """Return the name of the stream to which a group's dead letters are redriven."""
    return f"{group}-redrive"


def progress_group(group: str) -> str:
    """Return the pseudo group whose progress says which dead letters of the group are finished."""
    return f"_letters/{group}"


def verify_letter_stream(tx: Tx, group: str, stream: str | None, reads: Iterable[str] = ()) -> None:
    """Raise InvalidArgument when `stream` (None: the default) cannot hold the group's dead letters.

    Raises NotFound or IllegalTransition when it cannot be created, because its scope does not exist or is being
    deleted. Called when a processor starts, so that a mistake shows then and not at the first dead letter.
    reads: the streams of the group. None of them may hold its dead letters: they would be read and fail without end.
    """
    name = str(StreamName.parse(stream or default_stream(group)))
    StreamName.parse(redrive_stream(group))
    if name in (redrive_stream(group), *reads):
        reason = f"{group} reads it, so its dead letters would return to it without end"
        raise InvalidArgument(what="dead-letter stream", value=name, reason=reason)
    if (found := find_stream(tx, name)) is None:
        check_create(tx, CreateStream(name, StreamConfig()))
        return
    wanted = DeadLetterStream(name, found.value.stream_id)
    for other in keys(tx, LETTERS):
        if other != group and wanted in get(tx, LETTERS, other).value.streams:
            reason = f"it holds the dead letters of {other}; each group has a stream of its own"
            raise InvalidArgument(what="dead-letter stream", value=name, reason=reason)


def open_letter_stream(tx: Tx, group: str, name: str) -> None:
    """Create the stream unless it exists, and record that it holds dead letters of the group.

    Raises NotFound and IllegalTransition if its scope was deleted or is being deleted, and as `verify_letter_stream`.
    Cost: two look-ups if it was recorded before.
    """
    stream, box = ensure_stream(tx, name), find(tx, LETTERS, group)
    if box is not None and stream in box.value.streams:
        return
    verify_letter_stream(tx, group, name)
    if box is None:
        create(tx, LETTERS, group, DeadLetterStreams(group, (stream,)))
    else:
        replace(tx, LETTERS, box, DeadLetterStreams(group, (*box.value.streams, stream)))


def ensure_stream(tx: Tx, name: str) -> DeadLetterStream:
    """Return the stream, created with one segment unless it exists. Raises NotFound and IllegalTransition."""
    found = find_stream(tx, name)
    if found is not None:
        return DeadLetterStream(name, found.value.stream_id)
    config = StreamConfig()
    check_create(tx, CreateStream(name, config))
    return DeadLetterStream(name, insert_stream(tx, name, config).stream_id)


def letter_streams(tx: Tx, group: str) -> list[tuple[int, DeadLetterStream, bool]]:
    """Return the streams that hold or held the group's dead letters: ordinal, stream, whether it still exists."""
    box = find(tx, LETTERS, group)
    streams = [] if box is None else box.value.streams
    return [(ordinal, each, _is_there(tx, each)) for ordinal, each in enumerate(streams, 1)]


def pending(tx: Tx, group: str) -> list[LetterSpan]:
    """Return the dead letters that are neither redriven nor dropped, in the order of their ids.

    Cost: two look-ups for each segment that still exists; no event is read.
    """
    tx.flush_pending()  # appends of this transaction count too
    spans = []
    for ordinal, stream, there in letter_streams(tx, group):
        for segment in segment_ids(tx, stream.stream_id) if there else ():
            state = _state(tx, stream, segment)
            if state is None:
                continue
            progress = get_progress(tx, progress_group(group), stream.stream_id, segment)
            low = max(progress.number, state.head_number)
            for begin, end, _ in (*progress.finished, (state.tail_number, state.tail_number, state.tail)):
                if low < begin:
                    spans.append(LetterSpan(ordinal, stream, segment, low, begin))
                low = max(low, end)
    return spans


def chosen(tx: Tx, group: str, ids: Iterable[LetterId]) -> list[LetterSpan]:
    """Return the pending ones among these dead letters; finished ones are left out.

    Raises NotFound for one that never existed, or was deleted with its stream or by a truncation.
    """
    waiting, singles = pending(tx, group), []
    for letter in ids:
        stream, state = _find_segment(tx, group, letter)
        if letter.number >= state.tail_number:
            raise _no_letter(group, letter)
        single = LetterSpan(letter.ordinal, stream, letter.segment, letter.number, letter.number + 1)
        if overlap([single], waiting):
            singles.append(single)
        elif not get_progress(tx, progress_group(group), stream.stream_id, letter.segment).is_finished(
            letter.number
        ):
            raise _no_letter(group, letter, f"{stream.name} was truncated behind it")
    return join(singles)


def overlap(spans: Sequence[LetterSpan], others: Sequence[LetterSpan]) -> list[LetterSpan]:
    """Return the intersection of `spans` and `others`; each is sorted and free of overlaps."""
    found, rest = [], list(reversed(others))
    for span in spans:
        while rest and (
            rest[-1].place < span.place or (rest[-1].place == span.place and rest[-1].high <= span.low)
        ):
            rest.pop()
        for other in reversed(rest):
            if other.place != span.place or other.low >= span.high:
                break
            found.append(attrs.evolve(span, low=max(span.low, other.low), high=min(span.high, other.high)))
    return found


def after(spans: Iterable[LetterSpan], letter: LetterId) -> list[LetterSpan]:
    """Return the part of sorted spans after the dead letter."""
    place, low = (letter.ordinal, letter.segment), letter.number + 1
    same = [
        attrs.evolve(each, low=max(each.low, low))
        for each in spans
        if each.place == place and each.high > low
    ]
    return same + [each for each in spans if each.place > place]


def join(spans: Iterable[LetterSpan]) -> list[LetterSpan]:
    """Return the spans sorted; those that touch or overlap are joined."""
    joined: list[LetterSpan] = []
    for span in sorted(spans, key=lambda span: (span.place, span.low)):
        if joined and joined[-1].place == span.place and span.low <= joined[-1].high:
            joined[-1] = attrs.evolve(joined[-1], high=max(joined[-1].high, span.high))
        else:
            joined.append(span)
    return joined


def letters_in(
    tx: Tx, spans: Sequence[LetterSpan], *, bytes_max: int = READ_AHEAD_BYTES
) -> Iterator[tuple[LetterSpan, Event]]:
    """Yield the events of sorted spans, each with its span.

    Neighbouring spans are read together: if every second dead letter is finished, a blob is not read again for each.
    bytes_max: how much to read ahead.
    """
    for _, group in groupby(spans, key=lambda span: span.place):
        wanted = list(reversed(list(group)))
        number = wanted[-1].low
        while wanted:
            stream, segment = wanted[-1].stream, wanted[-1].segment
            number = max(number, wanted[-1].low)
            offset = offset_of_number(tx, stream.stream_id, segment, number)
            for event in _events(tx, stream, segment, offset, bytes_max):
                number = event.number + 1
                if event.number >= wanted[-1].low:
                    yield wanted[-1], event
                    if number == wanted[-1].high:
                        wanted.pop()
                if not wanted:
                    break


def truncate_finished(tx: Tx, group: str, stream: DeadLetterStream) -> None:
    """Truncate a dead-letter stream up to the first gap in its finished dead letters.

    Uses the function of the truncation workflow, in this transaction: it is one step, needs no host and no request, and
    no crash can separate it from the dead letters that were finished. A stream that another group reads is not
    truncated: that is up to its owner. A sealed stream cannot be truncated.
    """
    record = get_stream(tx, stream.name, stream_id=stream.stream_id).value
    if has_other_group(tx, progress_group(group), stream.stream_id) or not record.is_writable:
        return
    history = StoredHistory(tx, record)
    frontier = Frontier.from_cut(head_cut(tx, record), history)
    ended = list(frontier.held)
    while ended:
        segment = ended.pop()
        state = known_state(tx, stream.stream_id, segment)
        progress = get_progress(tx, progress_group(group), stream.stream_id, segment)
        offset = max(progress.offset, state.head)
        frontier.advance(segment, offset)
        if state.sealed and offset == state.tail:
            ended += frontier.complete(segment, successors(history, segment))
    truncate(tx, TruncateStream(record.name, record.stream_id, frontier.offsets()), "")


def _events(
    tx: Tx, stream: DeadLetterStream, segment: SegmentId, offset: int, bytes_max: int
) -> Iterator[Event]:
    for run in read(tx, stream.stream_id, {segment: (offset, None)}, bytes_max=bytes_max).runs:
        yield from run.events(stream.name)


def _state(tx: Tx, stream: DeadLetterStream, segment: SegmentId) -> SegmentState | None:
    return segment_state(tx, stream.stream_id, segment)


def _is_there(tx: Tx, stream: DeadLetterStream) -> bool:
    found = find_stream(tx, stream.name)
    return found is not None and found.value.stream_id == stream.stream_id


def _find_segment(tx: Tx, group: str, letter: LetterId) -> tuple[DeadLetterStream, SegmentState]:
    found = next((each for each in letter_streams(tx, group) if each[0] == letter.ordinal), None)
    if found is None:
        raise _no_letter(group, letter)
    _, stream, there = found
    if not there:
        raise _no_letter(group, letter, f"{stream.name} was deleted with it")
    state = _state(tx, stream, letter.segment)
    if state is None:
        raise _no_letter(group, letter)
    return stream, state


def _no_letter(group: str, letter: LetterId, why: str = "") -> NotFound:
    return NotFound(kind=f"dead letter of {group}", name=f"{letter} ({why})" if why else str(letter))
