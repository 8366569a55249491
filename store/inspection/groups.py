"""The rows of groups that no record names."""

from __future__ import annotations

from collections.abc import Iterator

from eventproc.store.database import Tx
from eventproc.store.key_states import DROPPED, STATE, dropped_key
from eventproc.store.records import find


def group_names_of_rows(tx: Tx) -> dict[str, list[str]]:
    """Return the names of the groups that have rows, by table."""
    return {
        table: [name for (name,) in tx.execute(f"SELECT DISTINCT group_name FROM {table}").fetchall()]
        for table in ("group_segment", "group_member", "delivery", "rate_limit")
    }


def unrecorded_states(tx: Tx) -> Iterator[str]:
    """Yield each group with rows of a stream that the record of its state does not name: nothing would delete these."""
    for group, stream_id in tx.execute(
        "SELECT group_name, stream_id FROM key_state UNION SELECT group_name, stream_id FROM watermark"
    ).fetchall():
        found = find(tx, STATE, group)
        # The sweep deletes the rows of a dropped one.
        is_dropped = find(tx, DROPPED, dropped_key(group, stream_id)) is not None
        if not is_dropped and (found is None or found.value.stream_id != stream_id):
            yield group
