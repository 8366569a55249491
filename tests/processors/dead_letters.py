"""Dead letters for tests: events as a processor gets them, letters of them, and all that a group has."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest

import eventproc
from eventproc.groups import ensure_group
from eventproc.processors.dead_letters.dead_letter import DeadLetter, FailedEvent
from eventproc.processors.dead_letters.operations import DeadLetters, append_letters
from eventproc.runtime import Eventproc
from eventproc.store.model.ids import SegmentId
from eventproc.store.segments import NO_HEADERS, Event
from eventproc.testing import check

GROUP = "s/g"
LETTERS = "s/g-dead-letters"
REDRIVE = "s/g-redrive"


@pytest.fixture
async def ep() -> AsyncIterator[Eventproc]:
    """A system whose group s/g reads s/t."""
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        await ep.db.write(lambda tx: ensure_group(tx, GROUP, ["s/t"]))
        yield ep
        await check(ep.db)


@pytest.fixture
def box(ep: Eventproc) -> DeadLetters:
    return ep.dead_letters(GROUP)


def event(
    number: int,
    payload: bytes | None = None,
    *,
    key: str | None = None,
    event_time: int | None = None,
    headers: Mapping[str, str] = NO_HEADERS,
    stream: str = "s/t",
) -> Event:
    """Return an event as a processor gets it."""
    payload = b"%d" % number if payload is None else payload
    key = f"k{number % 3}" if key is None else key
    return Event(payload, key, 1000 + number, event_time, stream, SegmentId(0), 10 * number, number, headers)


def letter(failed: Event, why: Exception | None = None) -> FailedEvent:
    error = ValueError("bad") if why is None else why
    return FailedEvent.of(failed, error, attempts=5, processor="billing", failed_ms=7)


async def fail(ep: Eventproc, *failed: Event, stream: str | None = None, group: str = GROUP) -> None:
    """Append letters of the events to the group's dead-letter stream."""
    letters = [letter(each) for each in failed]
    await ep.db.write(partial(append_letters, group=group, stream=stream, letters=letters))


async def everything(box: DeadLetters, limit: int = 100) -> list[DeadLetter]:
    """Return all letters, page by page."""
    found: list[DeadLetter] = []
    while page := await box.list(limit=limit, after=found[-1].id if found else None):
        found += page
    return found


async def ids(box: DeadLetters) -> list[str]:
    return [each.id for each in await everything(box)]
