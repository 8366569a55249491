"""What a command of the segment store needs: a permission on the stream or table of the segment that it names.

A command with a token needs READ_UPDATE unless it is among READS, so that a new one is never allowed by mistake.
"""

from __future__ import annotations

from typing import Any, Final, cast

import attrs

from eventproc.server.access.needs import owner_of
from eventproc.server.wire import commands as c
from eventproc.server.wire.codec import Message
from eventproc.server.wire.table_commands import ANSWERS
from eventproc.store.access.permissions import EVERYTHING, Permission
from eventproc.store.key_value_tables import permitted_names

READS: Final[frozenset[type[Message]]] = frozenset(
    {
        c.ReadSegment,
        c.GetStreamSegmentInfo,
        c.GetSegmentAttribute,
        c.GetTableSegmentInfo,
        c.ReadTable,
        c.ReadTableKeys,
        c.ReadTableEntries,
        c.ReadTableEntriesDelta,
    }
)
"""Commands that change nothing."""

OF_WRITERS: Final[frozenset[type[Message]]] = frozenset(
    {c.AppendBlock, c.AppendBlockEnd, c.ConditionalAppend, c.ConditionalBlockEnd}
)
"""Commands without a token, which name a writer that a `SetupAppend` has set up on the same connection."""

WITHOUT_NEED: Final[frozenset[type[Message]]] = frozenset({c.Hello, c.KeepAlive, c.Padding, c.PartialEvent})
"""Commands that neither change nor show anything."""

_SEGMENT_FIELDS: Final = ("segment", "parent", "target")


@attrs.frozen
class CommandNeed:
    """What allows a command: the token of this writer, or its own token with a permission on one of the resources."""

    request_id: int
    permission: Permission
    resources: tuple[str, ...]
    token: str
    writer: bytes | None = None


def need_of(command: Message) -> CommandNeed | None:
    """Return what a command needs; None for one that needs nothing.

    A command that has neither a token nor a writer needs a token that no client can have.
    """
    kind = type(command)
    if kind in WITHOUT_NEED:
        return None
    fields = cast("Any", command)
    request_id = getattr(command, "request_id", 0)
    if kind in OF_WRITERS:
        return CommandNeed(request_id, Permission.READ_UPDATE, (), "", fields.writer)
    permission = Permission.READ if kind in READS else Permission.READ_UPDATE
    segment = segment_of(command)
    resource = EVERYTHING if segment is None else resource_of(segment)
    resources = permitted_names(resource) if kind in ANSWERS else (resource,)
    return CommandNeed(request_id, permission, resources, getattr(command, "token", ""))


def segment_of(command: Message) -> str | None:
    """Return the name of the segment that a command is about; None for one that names none."""
    return next((getattr(command, each) for each in _SEGMENT_FIELDS if hasattr(command, each)), None)


def resource_of(segment: str) -> str:
    """Return the stream, group or table of a segment's name, "scope/name/number.#epoch.epoch".

    A name without a scope is that of a table that only a token for everything could allow; there is none.
    """
    scope, _, rest = segment.partition("/")
    name, slash, _ = rest.partition("/")
    return f"{scope}/{owner_of(name)}" if slash else EVERYTHING
