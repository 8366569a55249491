"""Logs of Pravega's clients: segments that clients write and read by a name, and that belong to no stream.

Readers of Pravega agree on the state of their group in the one segment of a stream, "scope/_RG<group>", which the
controller makes and deletes with the group. Here it is a segment under an id that no stream has, so that no list, count
or policy of streams has to leave it out. Only clients know what is in it. Source: docs/design/endpoints.md.
"""

from __future__ import annotations

from typing import Final

import attrs

from eventproc.store.catalog import new_stream_id
from eventproc.store.database import Tx
from eventproc.store.model.errors import NotFound
from eventproc.store.model.ids import SegmentId
from eventproc.store.records import RecordKind, create, delete, find, get, keys
from eventproc.store.segments import create_segments, delete_segments, truncate_segments

CLIENT_SEGMENT: Final = SegmentId(0)
"""The one segment of a client's log."""

GROUP_LOG_PREFIX: Final = "_RG"
"""What the name of a reader group follows in the name of the log in which its readers agree."""

MARK_LOG_PREFIX: Final = "_MARK"
"""What the name of a stream follows in the name of the log with its marks of time."""


@attrs.frozen
class ClientLog:
    """A log. stream_id: the id of its segment, from the same counter as the ids of streams, and never reused."""

    stream_id: int


CLIENT_LOG: Final = RecordKind(name="client log", value=ClientLog)


def client_log_name(prefix: str, owner: str) -> str:
    """Return the name of the log of "scope/owner", a group or a stream."""
    scope, _, local = owner.partition("/")
    return f"{scope}/{prefix}{local}"


def owner_of_log(local: str, *prefixes: str) -> str | None:
    """Return the name, within its scope, of what a log of this name belongs to; None if it is no such name."""
    return next((local.removeprefix(each) for each in prefixes if local.startswith(each)), None)


def create_client_log(tx: Tx, name: str) -> None:
    """Create an empty log, "scope/_name". Two rows. Raises AlreadyExists."""
    log = ClientLog(new_stream_id(tx))
    create(tx, CLIENT_LOG, name, log)
    create_segments(tx, log.stream_id, (CLIENT_SEGMENT,))


def delete_client_log(tx: Tx, name: str) -> None:
    """Delete a log, if it exists. Clients get NotFound from now on; the reaper frees its bytes."""
    if (found := find(tx, CLIENT_LOG, name)) is not None:
        delete(tx, CLIENT_LOG, found)
        delete_segments(tx, name, found.value.stream_id)


def find_client_log(tx: Tx, name: str) -> int | None:
    """Return the id of the segment of a log, None if it does not exist. One look-up."""
    found = find(tx, CLIENT_LOG, name)
    return None if found is None else found.value.stream_id


def truncate_client_log(tx: Tx, name: str, offset: int) -> None:
    """Move the head of a log to the boundary of an event. Raises NotFound."""
    if (log := find_client_log(tx, name)) is None:
        raise NotFound(kind="stream", name=name)
    truncate_segments(tx, name, log, {CLIENT_SEGMENT: offset}, passed=())


def list_client_logs(tx: Tx) -> dict[str, int]:
    """Return the ids of the segments of all logs, by name."""
    return {name: get(tx, CLIENT_LOG, name).value.stream_id for name in keys(tx, CLIENT_LOG)}
