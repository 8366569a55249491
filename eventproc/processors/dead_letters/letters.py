"""Dead letters: events that a processor gave up, kept with the reason until somebody redrives or drops them.

A letter is appended by the transaction that makes its event finished, so no event is lost, or there twice. It is
an ordinary event of an ordinary stream; what happened stands in its headers. To redrive it is to append the
original to the group's redrive stream, which the group reads like its others; to drop it is to let go of it.
Both finish the letter in the same transaction. See docs/design/dead-letters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Literal, Protocol, TypeAlias

import attrs

from eventproc.groups import GROUP, add_stream, group_name
from eventproc.processors.dead_letters.letter import DeadLetter as DeadLetter
from eventproc.processors.dead_letters.letter import FailedEvent as FailedEvent
from eventproc.processors.dead_letters.letter import letter_headers, read_letter, redriven_headers
from eventproc.processors.dead_letters.store import (
    LetterId,
    LetterSpan,
    after,
    chosen,
    default_stream,
    ensure_stream,
    letter_streams,
    letters_in,
    offset_of,
    open_letter_stream,
    overlap,
    pending,
    progress_group,
    redrive_stream,
    truncate_finished,
)
from eventproc.processors.dead_letters.store import verify_letter_stream as verify_letter_stream
from eventproc.processors.emit import Emission, append_emissions
from eventproc.store.database import Database, Tx
from eventproc.store.model.argument_checks import check_int, check_iterable, check_str
from eventproc.store.model.errors import NotFound
from eventproc.store.progress import EventRef, finish_events
from eventproc.store.records import get
from eventproc.store.segments import READ_BYTES_MAX

LIST_MAX: Final = 100
"""Letters listed at once unless asked for otherwise."""

STEP_LETTERS_MAX: Final = 1000
"""Letters that one transaction redrives; a few ms under the write lock. More holds up writers for longer."""

STEP_SPANS_MAX: Final = 256
"""Runs of letters that one transaction drops: each costs the look-ups of one event, whatever its length."""

Ids: TypeAlias = Iterable[str] | Literal["all"]
"""Which letters: one, some, by their ids, or all that are pending."""


@attrs.frozen
class LetterCount:
    """How many letters, and what they take in their segments."""

    letters: int
    size_bytes: int


@attrs.frozen
class LetterStep:
    """What a transaction did to letters, and which it left for the next."""

    count: int
    rest: list[LetterSpan]


def append_letters(tx: Tx, group: str, stream: str | None, letters: Sequence[FailedEvent]) -> None:
    """Append the letters to the group's dead-letter stream, made when it is not there.

    For the transaction that makes their events finished. stream: None for the default, `<group>-dead-letters`.
    Whatever an event's headers and its error, a letter fits. Raises StreamSealed, NotFound or IllegalTransition
    (the stream was sealed, its scope is gone or going) and as `verify_letter_stream`: the processor must stop
    then, with its events unfinished. One append, however many letters.
    """
    if not letters:
        return
    name = default_stream(group) if stream is None else stream
    open_letter_stream(tx, group, name)
    returning = redrive_stream(group)
    append_emissions(
        tx,
        [
            Emission(
                name,
                letter.event.payload,
                letter.event.key,
                letter.event.event_time,
                letter_headers(letter, came_back=letter.stream == returning),
            )
            for letter in letters
        ],
    )


def list_letters(tx: Tx, group: str, limit: int = LIST_MAX, after_id: str | None = None) -> list[DeadLetter]:
    """Return pending letters in the order of their ids, those after the letter `after_id`.

    At most `limit`, and no more than about READ_BYTES_MAX of payloads, but one at least while there is one: an
    empty list is the end. Raises NotFound (no such group, and no letters of one), InvalidArgument.
    """
    limit = check_int("limit", limit, least=1)
    spans = choose(tx, group, "all")
    if after_id is not None:
        spans = after(spans, LetterId.parse(after_id))
    found: list[DeadLetter] = []
    size_bytes = 0
    for span, event in letters_in(tx, spans):
        found.append(read_letter(str(span.letter(event.number)), span.stream.name, event))
        size_bytes += len(event.payload)
        if len(found) == limit or size_bytes >= READ_BYTES_MAX:
            break
    return found


def get_letter(tx: Tx, group: str, letter: str) -> DeadLetter:
    """Return a pending letter. Raises NotFound, also for one that was redriven or dropped; InvalidArgument."""
    for span, event in letters_in(tx, choose(tx, group, [letter]), bytes_max=1):
        return read_letter(str(span.letter(event.number)), span.stream.name, event)
    raise NotFound(kind=f"dead letter of {group}", name=f"{letter} (it was redriven or dropped)")


def count_letters(tx: Tx, group: str, ids: Ids) -> LetterCount:
    """Return how many of the letters are pending, and their size. Raises as `choose`."""
    count = size_bytes = 0
    for span in choose(tx, group, ids):
        stream, segment = span.stream.stream_id, span.segment
        count += span.high - span.low
        size_bytes += offset_of(tx, stream, segment, span.high) - offset_of(tx, stream, segment, span.low)
    return LetterCount(count, size_bytes)


def choose(tx: Tx, group: str, ids: Ids) -> list[LetterSpan]:
    """Return which of the letters are pending; finished ones are left out.

    Raises NotFound (a letter that never was or is gone; no such group, and no letters of one), InvalidArgument.
    """
    if not letter_streams(tx, group):
        get(tx, GROUP, group)
    if isinstance(ids, str):
        return pending(tx, group) if ids == "all" else chosen(tx, group, [LetterId.parse(ids)])
    reason = "it must be the id of a letter, such as '0.0:17', several of them, or 'all'"
    return chosen(tx, group, [LetterId.parse(each) for each in check_iterable("dead letters", ids, reason)])


def redrive(tx: Tx, group: str, ids: Ids) -> int:
    """Redrive the letters, in this transaction; return how many were pending. Raises as `redrive_step`."""
    return _all_steps(tx, partial(redrive_step, tx, group), choose(tx, group, ids))


def drop(tx: Tx, group: str, ids: Ids) -> int:
    """Drop the letters, in this transaction; return how many were pending. Raises as `choose`."""
    return _all_steps(tx, partial(drop_step, tx, group), choose(tx, group, ids))


def redrive_step(
    tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int = STEP_LETTERS_MAX
) -> LetterStep:
    """Append the originals of some of the letters to the group's redrive stream, and finish these letters.

    The stream is made when it is not there, and the group reads it from then on. A letter that is not pending any
    more is left out. Raises NotFound (no such group), GroupStreamReplaced and StreamSealed (somebody did that to
    the redrive stream); then nothing changed. At most STEP_LETTERS_MAX letters and about READ_BYTES_MAX.
    """
    waiting = overlap(spans, pending(tx, group))
    name = redrive_stream(group)
    emissions: list[Emission] = []
    refs: list[EventRef] = []
    last, size_bytes = None, 0
    for span, event in letters_in(tx, waiting):
        headers = redriven_headers(event)
        emissions.append(Emission(name, event.payload, event.key, event.event_time, headers))
        refs.append(EventRef.of(event, group=progress_group(group), stream_id=span.stream.stream_id))
        last, size_bytes = span.letter(event.number), size_bytes + len(event.payload)
        if len(refs) == letters_max or size_bytes >= READ_BYTES_MAX:
            break
    if last is None:
        return LetterStep(0, [])
    ensure_stream(tx, name)
    add_stream(tx, group, name)
    append_emissions(tx, emissions)
    for ref in refs:
        finish_events(tx, ref, 1)
    _truncate(tx, group, waiting)
    return LetterStep(len(refs), after(waiting, last))


def drop_step(
    tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int = STEP_SPANS_MAX
) -> LetterStep:
    """Finish some of the letters; one that is not pending any more is left out. At most STEP_SPANS_MAX runs."""
    waiting = overlap(spans, pending(tx, group))
    done, rest = waiting[:letters_max], waiting[letters_max:]
    for span in done:
        stream, segment = span.stream.stream_id, span.segment
        end = offset_of(tx, stream, segment, span.high)
        ref = EventRef(progress_group(group), stream, segment, span.low, end)
        finish_events(tx, ref, span.high - span.low)
    _truncate(tx, group, done)
    return LetterStep(sum(span.high - span.low for span in done), rest)


class _Stepping(Protocol):
    def __call__(self, tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int) -> LetterStep: ...


class DeadLetters:
    """The dead letters of one group, of any number of processes; made by `Eventproc.dead_letters`."""

    def __init__(self, db: Database, group: str, *, step_letters_max: int = STEP_LETTERS_MAX) -> None:
        """group: "scope/group". Raises InvalidArgument for what names none."""
        self._db = db
        self._group = group_name(group)
        self._step_letters_max = step_letters_max

    @property
    def group(self) -> str:
        """The group's full name."""
        return self._group

    async def list(self, *, limit: int = LIST_MAX, after: str | None = None) -> list[DeadLetter]:
        """Return a page of pending letters, those after the letter of that id; an empty one is the end.

        At most `limit`, and about 4 MiB of payloads. Raises NotFound (no such group), InvalidArgument.
        """
        return await self._db.read(partial(list_letters, group=self._group, limit=limit, after_id=after))

    async def get(self, letter: str) -> DeadLetter:
        """Return the pending letter of that id. Raises NotFound, also when it is not pending any more."""
        check_str("dead letter", letter)
        return await self._db.read(partial(get_letter, group=self._group, letter=letter))

    async def count(self, ids: Ids = "all") -> LetterCount:
        """Return how many of the letters are pending, and their size. Raises NotFound, InvalidArgument."""
        return await self._db.read(partial(count_letters, group=self._group, ids=ids))

    async def redrive(self, ids: Ids) -> int:
        """Give the originals back to the group, which handles them again; return how many were pending.

        They come behind what the group reads of their streams: where the order of a key must hold, drop the letter
        and mend what it meant by hand. Repeating a call that was interrupted is fine: each letter goes once, and
        one that fails anew is a new letter, not among those asked for. Raises NotFound, GroupStreamReplaced,
        StreamSealed, InvalidArgument. One transaction per 1000 letters, or 4 MiB.
        """
        return await self._in_steps(redrive_step, ids, self._step_letters_max)

    async def drop(self, ids: Ids) -> int:
        """Let go of letters, for ever; return how many were pending. Repeating it is fine.

        Raises NotFound, InvalidArgument.
        """
        return await self._in_steps(drop_step, ids, STEP_SPANS_MAX)

    async def _in_steps(self, step: _Stepping, ids: Ids, letters_max: int) -> int:
        # What is pending now, and nothing that comes later: a poisonous letter comes again while this runs.
        spans = await self._db.read(partial(choose, group=self._group, ids=ids))
        count = 0
        while spans:
            done = await self._db.write(
                partial(step, group=self._group, spans=spans, letters_max=letters_max)
            )
            count, spans = count + done.count, done.rest
        return count


def _all_steps(tx: Tx, step: Callable[[Sequence[LetterSpan]], LetterStep], spans: list[LetterSpan]) -> int:
    count = 0
    while spans:
        done = step(spans)
        count, spans = count + done.count, done.rest
    return count


def _truncate(tx: Tx, group: str, spans: Sequence[LetterSpan]) -> None:
    for stream in dict.fromkeys(span.stream for span in spans):
        truncate_finished(tx, group, stream)
