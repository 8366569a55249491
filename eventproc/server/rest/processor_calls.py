"""Processors and their dead letters, as an operator sees and changes them."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import attrs

from eventproc.processors import ProcessorDescription
from eventproc.processors.dead_letters.dead_letter import DeadLetter
from eventproc.runtime import Eventproc
from eventproc.server.rest.method_answers import DIRECTORY, listing
from eventproc.server.rest.routes import (
    PAGE,
    After,
    LocalName,
    Page,
    PageLimit,
    RestCall,
    ScopeName,
    page_of,
)
from eventproc.store.access.permissions import Permission
from eventproc.store.records.plain import Limits

IDS_MAX = 10_000
"""Dead letters that a call names by their ids; "all" names any number. Higher: longer transactions."""

LetterId: TypeAlias = Annotated[str, Limits(about="Id of the dead letter, such as 0.0:17.")]


@attrs.frozen
class LettersBody:
    """Which dead letters: their ids; null: all that are pending."""

    ids: Annotated[tuple[str, ...], Limits(1, IDS_MAX)] | None


@attrs.frozen
class LettersReport:
    """How many dead letters were pending, and are not any more."""

    letters: int


list_processors = listing("list_processors", Eventproc.processors, DIRECTORY, ProcessorDescription)


async def describe_processor(call: RestCall, scope: ScopeName, group: LocalName) -> ProcessorDescription:
    """Show a processor: its lag, the event that blocks it, its processes, and its segments."""
    return await call.ep.processor(f"{scope}/{group}")


async def pause_processor(call: RestCall, scope: ScopeName, group: LocalName) -> ProcessorDescription:
    """Pause a processor in all processes. Running handlers finish."""
    await call.ep.pause_processor(f"{scope}/{group}")
    return await call.ep.processor(f"{scope}/{group}")


async def resume_processor(call: RestCall, scope: ScopeName, group: LocalName) -> ProcessorDescription:
    """Resume a paused processor."""
    await call.ep.resume_processor(f"{scope}/{group}")
    return await call.ep.processor(f"{scope}/{group}")


async def list_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, after: After = None, limit: PageLimit = PAGE
) -> Page[DeadLetter]:
    """List the pending dead letters of a group, to a caller that may read the streams that hold them."""
    found = await call.ep.dead_letters(f"{scope}/{group}").list(limit=limit + 1, after=after)
    return page_of([_readable(call, each) for each in found], limit, lambda each: each.id)


async def describe_dead_letter(
    call: RestCall, scope: ScopeName, group: LocalName, letter: LetterId
) -> DeadLetter:
    """Show a dead letter: the event, its origin, and the error."""
    return _readable(call, await call.ep.dead_letters(f"{scope}/{group}").get(letter))


async def redrive_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, body: LettersBody
) -> LettersReport:
    """Let the processor handle events again, in no particular order relative to its waiting ones."""
    return LettersReport(await call.ep.dead_letters(f"{scope}/{group}").redrive(_ids(body)))


async def drop_dead_letters(
    call: RestCall, scope: ScopeName, group: LocalName, body: LettersBody
) -> LettersReport:
    """Delete dead letters permanently."""
    return LettersReport(await call.ep.dead_letters(f"{scope}/{group}").drop(_ids(body)))


def _ids(body: LettersBody) -> tuple[str, ...] | Literal["all"]:
    return "all" if body.ids is None else body.ids


def _readable(call: RestCall, letter: DeadLetter) -> DeadLetter:
    """Return a letter. Its payload is that of another stream. Raises NotPermitted."""
    call.caller.verify(Permission.READ, letter.stream)
    return letter
