"""Suggestions for a name that does not exist: the most similar names, and the command that lists all of them.

Cost: one read transaction, and about 20 us for each of at most NAMES_MAX names. Only a command that fails pays it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import attrs

from eventproc.cli.help_texts import did_you_mean
from eventproc.errors import EventprocError, NotFound, SupervisorTerminated, TransactionNotFound
from eventproc.groups.operations import list_checkpoints
from eventproc.store.access.users import USER
from eventproc.store.catalog import get_stream, list_scopes, list_streams, stream_names
from eventproc.store.database import Database, Tx
from eventproc.store.groups import OWNED, SHARE, group_names, member_statuses
from eventproc.store.ingestion import known_supervisors
from eventproc.store.ingestion.published import list_tables
from eventproc.store.model.ids import format_segment
from eventproc.store.records import keys
from eventproc.store.segments import segment_ids
from eventproc.store.transactions import list_finished, list_open

NAMES_MAX: Final = 5_000
"""Names that are compared with the mistyped one. Higher: a failed command in a large directory takes longer."""

SIMILAR_NAME: Final = 0.6
"""Least similarity of a suggested name, as `difflib` measures it (0 to 1)."""

SIMILAR_ID: Final = 0.9
"""Least similarity of a suggested id. Ids that were made at about the same time are similar without a typing error."""


@attrs.frozen
class _Known:
    """What exists of the kind of the missing object.

    names: their names. command: lists them. similarity: least similarity of a suggestion.
    """

    names: Iterable[str]
    command: str
    similarity: float = SIMILAR_NAME


async def add_suggestions(db: Database, missing: NotFound) -> None:
    """Add a note to the error: names that it may have meant, and the command that lists what exists."""
    try:
        note = await db.read(lambda tx: _note(tx, missing))
    except EventprocError:  # what the suggestion needs does not exist either
        return
    if note is not None:
        missing.add_note(note)


def _note(tx: Tx, missing: NotFound) -> str | None:
    known = _known(tx, missing)
    if known is None or isinstance(missing, SupervisorTerminated):  # its text says what to do
        return None
    names = list(islice(known.names, NAMES_MAX))
    # A sealed segment has the typed name, and is not found in the current epoch.
    meant = "" if missing.name in names else did_you_mean(missing.name, names, known.similarity)
    listed = f"`{known.command}` lists what exists"
    if isinstance(missing, TransactionNotFound):  # its text names that command
        return meant or None
    return f"{meant} {listed}" if meant else listed


def _known(tx: Tx, missing: NotFound) -> _Known | None:
    """Return what exists of that kind, or None if nothing lists it."""
    scope = missing.name.partition("/")[0]
    # Such as "segment of shop/orders in epoch 3".
    kind, _, rest = missing.kind.partition(" of ")
    owner = rest.partition(" ")[0]
    match kind:
        case "scope":
            return _Known([each.name for each in list_scopes(tx)], "eventproc scope list")
        case "stream":
            return _Known(stream_names(tx, scope), f"eventproc stream list {scope}")
        case "topic":
            topics = [each.name for each in list_streams(tx, scope) if each.config.is_topic]
            return _Known(topics, f"eventproc topic list {scope}")
        case "group" if owner == "supervisor":
            return _Known((), f"eventproc supervisor status {rest.split()[1].rstrip(',')}")
        case "supervisor":
            return _Known(known_supervisors(tx), "eventproc supervisor list")
        case "table":
            return _Known([each.name for each in list_tables(tx)], "eventproc table list")
        case "group":
            return _Known(group_names(tx, scope, kinds=OWNED), f"eventproc group list {scope}")
        case "share group":
            return _Known(group_names(tx, scope, kinds=[SHARE]), f"eventproc share list {scope}")
        case "segment" if owner:
            ids = segment_ids(tx, get_stream(tx, owner).value.stream_id)
            return _Known(map(format_segment, ids), f"eventproc stream segments {owner}")
        case "transaction" if isinstance(missing, TransactionNotFound):
            stream_id = get_stream(tx, missing.stream).value.stream_id
            found = [*list_open(tx, stream_id), *list_finished(tx, stream_id)]
            return _Known([each.id for each in found], "", SIMILAR_ID)
        case "reader":
            readers = [reader for reader, _ in member_statuses(tx, owner)]
            return _Known(readers, f"eventproc group describe {owner}")
        case "checkpoint":
            names = [each.name for each in list_checkpoints(tx, owner)]
            return _Known(names, f"eventproc group checkpoints {owner}")
        case "user":
            return _Known(keys(tx, USER), "eventproc user list")
        case "grant" | "token" if owner == "user":
            return _Known((), f"eventproc user describe {rest.partition(' ')[2]}")
        case "dead letter":
            return _Known((), f"eventproc dead-letter list {owner}")
        case "request":
            return _Known((), "eventproc request list")
        case _:
            return None
