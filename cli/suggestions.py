"""Suggestions for a name that does not exist: the most similar names, and the command that lists all of them.

Cost: about 70 us for each of at most NAMES_MAX names. Only a command that fails pays it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import attrs

from eventproc.cli.help_texts import did_you_mean
from eventproc.errors import EventprocError, NotFound, SupervisorTerminated, TransactionNotFound
from eventproc.runtime import Eventproc

NAMES_MAX: Final = 5_000
"""Names that are compared with the mistyped one. Higher: a failed command in a large directory takes longer."""

SIMILAR_NAME: Final = 0.6
"""Least similarity of a suggested name, as `difflib` measures it (0 to 1)."""

SIMILAR_ID: Final = 0.9
"""Least similarity of a suggested id. Ids that were made at about the same time are similar without a typing error."""


_OTHERS: Final[Mapping[str, tuple[str, str, Callable[[Eventproc, str], Awaitable[object]]]]] = (
    MappingProxyType(
        {
            "group": ("share group", "share", Eventproc.share_group),
            "share group": ("group of readers or consumers", "group", Eventproc.group),
            "topic": ("stream without partitions", "stream", Eventproc.stream),
        }
    )
)
"""What may have the name instead, by the kind of the missing object: its kind, its commands, and what opens it."""


@attrs.frozen
class _Known:
    """What exists of the kind of the missing object.

    names: their names. command: lists them. similarity: least similarity of a suggestion.
    """

    names: Sequence[str]
    command: str
    similarity: float = SIMILAR_NAME


async def add_suggestions(ep: Eventproc, missing: NotFound) -> None:
    """Add a note to the error: names that it may have meant, and the command that lists what exists."""
    if missing.kind in _OTHERS:
        kind, noun, opened = _OTHERS[missing.kind]
        try:
            await opened(ep, missing.name)
        except EventprocError:
            pass
        else:
            missing.add_note(f"it is a {kind}: `eventproc {noun} describe {missing.name}` shows it")
            return
    try:
        known = await _known(ep, missing)
    except EventprocError:  # what the suggestion needs does not exist either
        return
    if known is None or isinstance(missing, SupervisorTerminated):  # its text says what to do
        return
    # A sealed segment has the typed name, and is not found in the current epoch.
    is_known = missing.name in known.names
    meant = "" if is_known else did_you_mean(missing.name, known.names, known.similarity)
    if isinstance(missing, TransactionNotFound):  # its text names the command that lists them
        note = meant
    else:
        note = f"{meant} `{known.command}` lists what exists".lstrip()
    if note:
        missing.add_note(note)


async def _known(ep: Eventproc, missing: NotFound) -> _Known | None:
    """Return what exists of that kind, or None if nothing lists it."""
    scope = missing.name.partition("/")[0]
    # Such as "segment of shop/orders in epoch 3".
    kind, _, rest = missing.kind.partition(" of ")
    owner = rest.partition(" ")[0]
    match kind:
        case "scope":
            return _named(await ep.scopes(limit=NAMES_MAX), "eventproc scope list")
        case "group" if owner == "supervisor":
            return _Known((), f"eventproc supervisor status {rest.split()[1].rstrip(',')}")
        case "supervisor":
            alive = await ep.supervisors(limit=NAMES_MAX)
            return _Known([each.id for each in alive], "eventproc supervisor list")
        case "table":
            return _named(await ep.tables(limit=NAMES_MAX), "eventproc table list")
        case "stream":
            return _named(await ep.streams(scope, limit=NAMES_MAX), f"eventproc stream list {scope}")
        case "topic":
            return _named(await ep.topics(scope, limit=NAMES_MAX), f"eventproc topic list {scope}")
        case "group":
            return _named(await ep.groups(scope, limit=NAMES_MAX), f"eventproc group list {scope}")
        case "share group":
            return _named(await ep.share_groups(scope, limit=NAMES_MAX), f"eventproc share list {scope}")
        case "segment" if owner:
            stream = await ep.stream(owner)
            segments = [*await stream.segments(), *await stream.sealed_segments(limit=NAMES_MAX)]
            return _Known([str(each.id) for each in segments], f"eventproc stream segments {owner}")
        case "transaction" if isinstance(missing, TransactionNotFound):
            stream = await ep.stream(missing.stream)
            begun = [*await stream.transactions(), *await stream.transactions(finished=True)]
            return _Known([each.id for each in begun], "", SIMILAR_ID)
        case "reader":
            members = (await (await ep.group(owner)).describe()).members
            return _Known([each.reader for each in members], f"eventproc group describe {owner}")
        case "checkpoint":
            kept = await (await ep.group(owner)).checkpoints()
            return _named(kept, f"eventproc group checkpoints {owner}")
        case "user":
            return _named(await ep.users.list(limit=NAMES_MAX), "eventproc user list")
        case "grant" | "token" if owner == "user":
            return _Known((), f"eventproc user describe {rest.partition(' ')[2]}")
        case "state by key":
            return _Known((), "eventproc processor list")
        case "state" if owner:
            return _Known((), f"eventproc state show {owner}")
        case "dead letter":
            return _Known((), f"eventproc dead-letter list {owner}")
        case "request" | "schedule" | "task":
            return _Known((), f"eventproc {kind} list")
        case "delayed event":
            return _Known((), "eventproc delayed list")
        case "job" if owner:
            return _Known((), f"eventproc job list {owner}")
        case _:
            return None


def _named(found: Iterable[Any], command: str) -> _Known:
    return _Known([each.name for each in found], command)
