"""Dead letters: appending them, and the handle that lists, redrives and drops them.

The transaction that finishes an event appends its dead letter, so no event is lost or duplicated. A dead letter is an
ordinary event of an ordinary stream; its headers say what happened. Redriving appends the original to the group's
redrive stream, which the group reads like its others. Redriving and dropping finish the dead letter in the same
transaction. See docs/design/dead-letters.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Generic, Literal, Protocol, TypeAlias

import attrs
from typing_extensions import TypeVar

from eventproc.groups import GROUP, add_stream, group_name
from eventproc.processors.dead_letters.dead_letter import (
    DeadLetter as DeadLetter,
    FailedEvent as FailedEvent,
    letter_headers,
    read_letter,
    redriven_headers,
)
from eventproc.processors.dead_letters.store import (
    LetterId,
    LetterSpan,
    after,
    chosen,
    default_stream,
    ensure_stream,
    letter_streams,
    letters_in,
    open_letter_stream,
    overlap,
    pending,
    progress_group,
    redrive_stream,
    truncate_finished,
    verify_letter_stream as verify_letter_stream,
)
from eventproc.processors.emit import Emission, append_emissions
from eventproc.processors.errors import NotAProcessorGroup
from eventproc.store.database import Database, Tx
from eventproc.store.faults import Step
from eventproc.store.groups import PROCESSOR, SHARE, add_share_stream
from eventproc.store.key_states import STATE
from eventproc.store.model.argument_checks import check_int, check_iterable, check_str
from eventproc.store.model.errors import NotFound, NotSupported
from eventproc.store.payload_pages import PAGE_BYTES_MAX
from eventproc.store.progress import EventRef, finish_events
from eventproc.store.records import find, get
from eventproc.store.segments import READ_BYTES_MAX, job_of
from eventproc.store.segments.offsets import offset_of_number
from eventproc.streams.codec import PayloadCodec, decode_of

T = TypeVar("T", default=bytes)

LIST_MAX: Final = 100
"""Default size of a page of dead letters."""

STEP_LETTERS_MAX: Final = 1000
"""Most dead letters that one transaction redrives, a few ms under the write lock. Higher: writers wait longer."""

STEP_SPANS_MAX: Final = 256
"""Most spans of dead letters that one transaction drops: each costs the look-ups of one event, whatever its length."""

Ids: TypeAlias = Iterable[str] | Literal["all"]
"""Which dead letters: some, by their ids, or all that are pending."""


@attrs.frozen
class LetterCount:
    """A number of dead letters.

    Attributes:
        letters: How many.
        size_bytes: Bytes that they take in their segments.
    """

    letters: int
    size_bytes: int


@attrs.frozen
class LetterStep:
    """What one transaction did.

    count: how many dead letters it redrove or dropped.
    rest: those left for the next transaction.
    """

    count: int
    rest: list[LetterSpan]


def append_letters(tx: Tx, group: str, stream: str | None, letters: Sequence[FailedEvent]) -> None:
    """Append dead letters to the group's dead-letter stream, which is created if needed.

    Call it in the transaction that finishes their events. Every event and every error fits into a dead letter.
    stream: None for the default, `<group>-dead-letters`.
    Raises StreamSealed, NotFound or IllegalTransition (the stream is sealed, or its scope is deleted or being deleted),
    and as `verify_letter_stream`. The processor must stop then, with the events unfinished.
    Cost: one append, however many dead letters.
    """
    if not letters:
        return
    name = default_stream(group) if stream is None else stream
    open_letter_stream(tx, group, name)
    returning = redrive_stream(group)
    jobs = {
        job: (letter.error, letter.attempts)
        for letter in letters
        if (job := job_of(letter.event.headers, group)) is not None
    }
    if jobs:
        from eventproc.store.jobs import fail_jobs  # few programs need it

        fail_jobs(tx, group, jobs)
    append_emissions(
        tx,
        [
            Emission(
                name,
                letter.event.payload,
                letter.event.key,
                letter.event.event_time,
                letter_headers(letter, came_back=letter.event.stream == returning),
            )
            for letter in letters
        ],
    )


def list_letters(
    tx: Tx, group: str, limit: int, after_id: str | None = None, decode: Callable[[bytes], T] | None = None
) -> list[DeadLetter[T]]:
    """Return pending dead letters in the order of their ids, those after the id `after_id`.

    At most `limit`, and about PAGE_BYTES_MAX of payloads, but at least one if there is one: an empty list is the end.
    Raises NotFound (neither the group nor dead letters of it exist) and InvalidArgument.
    """
    limit = check_int("limit", limit, least=1)
    spans = choose(tx, group, "all")
    if after_id is not None:
        spans = after(spans, LetterId.parse(after_id))
    found: list[DeadLetter[T]] = []
    size_bytes = 0
    for span, event in letters_in(tx, spans):
        found.append(read_letter(group, str(span.letter(event.number)), span.stream.name, event, decode))
        size_bytes += len(event.payload)
        if len(found) == limit or size_bytes >= PAGE_BYTES_MAX:
            break
    return found


def get_letter(tx: Tx, group: str, letter: str, decode: Callable[[bytes], T] | None = None) -> DeadLetter[T]:
    """Return a pending dead letter. Raises NotFound, also if it was redriven or dropped, and InvalidArgument."""
    for span, event in letters_in(tx, choose(tx, group, [letter]), bytes_max=1):
        return read_letter(group, str(span.letter(event.number)), span.stream.name, event, decode)
    raise NotFound(kind=f"dead letter of {group}", name=f"{letter} (it was redriven or dropped)")


def count_letters(tx: Tx, group: str, ids: Ids) -> LetterCount:
    """Return how many of these dead letters are pending, and their size. Raises as `choose`."""
    count = size_bytes = 0
    for span in choose(tx, group, ids):
        stream, segment = span.stream.stream_id, span.segment
        count += span.high - span.low
        size_bytes += offset_of_number(tx, stream, segment, span.high) - offset_of_number(
            tx, stream, segment, span.low
        )
    return LetterCount(count, size_bytes)


def choose(tx: Tx, group: str, ids: Ids) -> list[LetterSpan]:
    """Return the pending ones among these dead letters; finished ones are left out.

    Raises NotFound (one never existed or was deleted; neither the group nor dead letters of it exist), InvalidArgument,
    and NotAProcessorGroup.
    """
    if not letter_streams(tx, group) and (kind := get(tx, GROUP, group).value.kind) not in (PROCESSOR, SHARE):
        raise NotAProcessorGroup(group=group, kind=kind)
    if isinstance(ids, str):
        return pending(tx, group) if ids == "all" else chosen(tx, group, [LetterId.parse(ids)])
    reason = "it must be the id of a letter, such as '0.0:17', several of them, or 'all'"
    return chosen(tx, group, [LetterId.parse(each) for each in check_iterable("dead letters", ids, reason)])


def redrive_step(
    tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int = STEP_LETTERS_MAX
) -> LetterStep:
    """Append the originals of some dead letters to the group's redrive stream, and finish the dead letters.

    The stream is created if needed, and the group reads it from then on. Dead letters that are no longer pending are
    left out.
    letters_max: the most dead letters; the step also ends at about READ_BYTES_MAX of payloads.
    Raises NotFound (the group does not exist), NotSupported (its processor keeps a state by key), GroupStreamReplaced
    and StreamSealed (of the redrive stream); then nothing changed.
    """
    waiting = overlap(spans, pending(tx, group))
    name = redrive_stream(group)
    emissions: list[Emission] = []
    refs: list[EventRef] = []
    jobs: list[str] = []
    last, size_bytes = None, 0
    for span, event in letters_in(tx, waiting):
        headers = redriven_headers(event)
        emissions.append(Emission(name, event.payload, event.key, event.event_time, headers))
        refs.append(EventRef.of(event, group=progress_group(group), stream_id=span.stream.stream_id))
        if (job := job_of(event.headers, group)) is not None:
            jobs.append(job)
        last, size_bytes = span.letter(event.number), size_bytes + len(event.payload)
        if len(refs) == letters_max or size_bytes >= READ_BYTES_MAX:
            break
    if last is None:
        return LetterStep(0, [])
    if find(tx, STATE, group) is not None:  # the keys of another stream have states of their own
        what = f"redriving dead letters of {group}, whose processor keeps a state by key,"
        remedy = (
            "write their events to its stream again, and drop them; or drop a state that it keeps no more"
            f" (`eventproc state drop {group}`)"
        )
        raise NotSupported(what=what, remedy=remedy)
    ensure_stream(tx, name)
    if get(tx, GROUP, group).value.kind == SHARE:
        add_share_stream(tx, group, name)
    else:
        add_stream(tx, group, name)
    append_emissions(tx, emissions)
    if jobs:
        from eventproc.store.jobs import free_jobs  # few programs need it

        free_jobs(tx, group, dict.fromkeys(jobs))
    for ref in refs:
        finish_events(tx, ref, 1)
    _truncate(tx, group, waiting)
    return LetterStep(len(refs), after(waiting, last))


def drop_step(
    tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int = STEP_SPANS_MAX
) -> LetterStep:
    """Finish some dead letters, at most `letters_max` spans; those that are no longer pending are left out."""
    waiting = overlap(spans, pending(tx, group))
    done, rest = waiting[:letters_max], waiting[letters_max:]
    for span in done:
        stream, segment = span.stream.stream_id, span.segment
        end = offset_of_number(tx, stream, segment, span.high)
        ref = EventRef(progress_group(group), stream, segment, span.low, end)
        finish_events(tx, ref, span.high - span.low)
    _truncate(tx, group, done)
    return LetterStep(sum(span.high - span.low for span in done), rest)


class _Stepping(Protocol):
    def __call__(self, tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int) -> LetterStep: ...


class DeadLetters(Generic[T]):
    """The dead letters of one group, from any process; `Eventproc.dead_letters` returns it.

    T is the type of their originals' payloads, bytes by default.
    """

    def __init__(
        self, db: Database, group: str, codec: PayloadCodec[T], *, step_letters_max: int = STEP_LETTERS_MAX
    ) -> None:
        """Create the handle; nothing is read.

        group: "scope/group". Raises InvalidArgument for another form. codec: decodes the payloads of the originals.
        step_letters_max: see STEP_LETTERS_MAX.
        """
        self._db = db
        self._group = group_name(group)
        self._decode = decode_of(codec)
        self._step_letters_max = step_letters_max

    def __repr__(self) -> str:
        return f"DeadLetters({self._group!r})"

    @property
    def group(self) -> str:
        """The group's name, as "scope/group"."""
        return self._group

    async def list(self, *, limit: int = LIST_MAX, after: str | None = None) -> list[DeadLetter[T]]:
        """Return a page of pending dead letters; an empty page is the end.

        Args:
            limit: The most dead letters of the page, which also ends at about 4 MiB of payloads. Default: 100.
            after: Return those after this id. None (default): from the first.

        Raises:
            NotFound: The group does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: `limit` is less than 1, or `after` is not an id.
        """
        return await self._db.read(lambda tx: list_letters(tx, self._group, limit, after, self._decode))

    async def get(self, letter: str) -> DeadLetter[T]:
        """Return a pending dead letter.

        Args:
            letter: Its id, such as "0.0:17".

        Raises:
            NotFound: There is no such dead letter, or it is no longer pending.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: `letter` is not an id.
        """
        check_str("dead letter", letter)
        return await self._db.read(lambda tx: get_letter(tx, self._group, letter, self._decode))

    async def count(self, ids: Ids = "all") -> LetterCount:
        """Return how many dead letters are pending, and their size.

        Args:
            ids: Which ones; "all" (default) for all.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: An id is malformed.
        """
        return await self._db.read(partial(count_letters, group=self._group, ids=ids))

    async def redrive(self, ids: Ids) -> int:
        """Return the originals to the group, which handles them again; return how many were pending.

        The processor handles them in no particular order relative to its waiting events. Events of one key that are
        redriven keep their order among themselves. If the order of a key must hold otherwise, drop the dead letter and
        correct its effect by hand. An interrupted call may be repeated: each dead letter is redriven once.
        An event that fails again is a new dead letter and not part of this call.

        Args:
            ids: Which ones; "all" for those that are pending now.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            GroupStreamReplaced: The redrive stream was deleted and created again.
            StreamSealed: The redrive stream is sealed.
            NotSupported: The processor keeps a state by key. Write the events to its stream again, and drop these.
            InvalidArgument: An id is malformed.

        Cost:
            One transaction for each 1000 dead letters, or 4 MiB.
        """
        return await self._in_steps(redrive_step, ids, self._step_letters_max)

    async def drop(self, ids: Ids) -> int:
        """Delete dead letters permanently; return how many were pending. The call may be repeated.

        Args:
            ids: Which ones; "all" for those that are pending now.

        Raises:
            NotFound: The group, or a dead letter, does not exist.
            NotAProcessorGroup: The group belongs to readers.
            InvalidArgument: An id is malformed.
        """
        return await self._in_steps(drop_step, ids, STEP_SPANS_MAX)

    async def _in_steps(self, step: _Stepping, ids: Ids, letters_max: int) -> int:
        # Only those that are pending now: an event that keeps failing becomes a new dead letter while this runs.
        spans = await self._db.read(partial(choose, group=self._group, ids=ids))
        count = 0
        while spans:
            done = await self._db.write(
                partial(step, group=self._group, spans=spans, letters_max=letters_max),
                step=Step.DEAD_LETTER_DECIDE,
            )
            count, spans = count + done.count, done.rest
        return count


def _truncate(tx: Tx, group: str, spans: Sequence[LetterSpan]) -> None:
    for stream in dict.fromkeys(span.stream for span in spans):
        truncate_finished(tx, group, stream)
