"""The index of tags: which streams of a scope have a tag. Changed with the stream's record, in one transaction."""

from __future__ import annotations

from collections.abc import Collection

from eventproc.store.database import Tx


def change_tags(tx: Tx, stream: str, before: Collection[str], after: Collection[str]) -> None:
    """Update the index for a stream, "scope/stream", whose tags change. Touches only the rows that differ."""
    scope = stream.partition("/")[0]
    tx.executemany(
        "DELETE FROM stream_tag WHERE scope = ? AND tag = ? AND stream = ?",
        [(scope, tag, stream) for tag in before if tag not in after],
    )
    tx.executemany(
        "INSERT INTO stream_tag (scope, tag, stream) VALUES (?, ?, ?)",
        [(scope, tag, stream) for tag in after if tag not in before],
    )


def tagged_streams(tx: Tx, scope: str, tag: str, *, prefix: str, after: str, limit: int) -> list[str]:
    """Return names of the scope's streams with the tag, sorted, that begin with `prefix` and sort after `after`."""
    is_behind = after >= prefix  # one lower bound, as in `keys`
    rows = tx.execute(
        "SELECT stream FROM stream_tag WHERE scope = ? AND tag = ?"
        f" AND stream {'>' if is_behind else '>='} ? AND stream < ? ORDER BY stream LIMIT ?",
        (scope, tag, after if is_behind else prefix, prefix + "\U0010ffff", limit),
    )
    return [row[0] for row in rows]
