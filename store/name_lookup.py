"""Names of scopes, streams, groups and segments, read without opening the directory, for the completion of a shell.

Only for a process that does nothing else: its connection is unknown to the file guard of `store/database`. It reads,
writes nothing, waits for no lock, and returns nothing where it cannot read. Importing `store/database` would take
longer than a shell may let a person wait.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

NAMES_MAX: Final = 500
"""Names that a shell gets. More would not help a person to choose."""

_LAST: Final = "\U0010ffff"
"""Sorts after every character of a name."""


def stored_names(directory: Path, kind: str, prefix: str) -> list[str]:
    """Return the names of a kind that begin with `prefix`, except the system's.

    kind: "scope", "stream", "topic", "group" or "supervisor".
    """
    if kind == "supervisor":
        with _connected(directory) as connection:
            rows = connection.execute(
                "SELECT id FROM supervisor_state WHERE id >= ? AND id < ? ORDER BY id LIMIT ?",
                (prefix, prefix + _LAST, NAMES_MAX),
            )
            return [name for (name,) in rows]
    # A topic is a stream whose record says that it has partitions.
    record, marked = ("stream", '"partitions"') if kind == "topic" else (kind, "")
    with _connected(directory) as connection:
        rows = connection.execute(
            "SELECT key FROM record WHERE kind = ? AND key >= ? AND key < ? AND key NOT LIKE '\\_%' ESCAPE '\\'"
            " AND instr(CAST(body AS TEXT), ?) ORDER BY key LIMIT ?",
            (record, prefix, prefix + _LAST, marked, NAMES_MAX),
        )
        return [key for (key,) in rows]


def stored_segments(directory: Path, stream: str) -> list[str]:
    """Return the ids of the active segments of a stream, such as "2.1"."""
    from eventproc.store.model.ids import SegmentId, format_segment

    with _connected(directory) as connection:
        rows = connection.execute(
            "SELECT body FROM record WHERE kind = 'stream' AND key = ?", (stream,)
        ).fetchall()
        stream_ids = [json.loads(body.partition(b":")[2])["stream_id"] for (body,) in rows]
        found = connection.execute(
            "SELECT segment FROM segment WHERE stream_id = ? AND sealed_length IS NULL ORDER BY segment LIMIT ?",
            (*stream_ids, NAMES_MAX),
        )
        return [format_segment(SegmentId(segment)) for (segment,) in found]


@contextmanager
def _connected(directory: Path) -> Iterator[sqlite3.Connection]:
    path = directory / "eventproc.db"
    log = path.with_name("eventproc.db-wal")
    # Without a log no process has the directory open. SQLite would make an empty log, and leave it behind.
    closed = "" if log.exists() and log.stat().st_size else "&immutable=1"
    with closing(
        sqlite3.connect(f"file:{quote(str(path))}?mode=ro{closed}", uri=True, timeout=0)
    ) as connection:
        yield connection


UNREADABLE: Final = (sqlite3.Error, OSError, ValueError, LookupError)
"""Errors of this module: there is no directory, it is of another version, or it cannot be read now."""
