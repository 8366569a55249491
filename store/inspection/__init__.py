"""Checks of the invariants of a database, read in one snapshot (architecture.md section 9).

The checks look at the rows. They avoid the code that wrote the rows where that is possible. Each check yields one line
of text for each invariant that does not hold. Cost: everything in the database is read once.
"""

from __future__ import annotations

from eventproc.store.database import Tx
from eventproc.store.inspection.extents import blob_violations
from eventproc.store.inspection.groups import (
    group_names_of_rows as group_names_of_rows,
    unrecorded_states as unrecorded_states,
)
from eventproc.store.inspection.streams import (
    catalog_violations,
    request_violations,
    stream_violations as stream_violations,
    streams_to_check as streams_to_check,
)
from eventproc.store.inspection.transactions import task_violations, txn_violations


def shared_violations(tx: Tx) -> list[str]:
    """Return a line for each invariant of the store, beside those of single streams, that does not hold."""
    return [
        *catalog_violations(tx),
        *blob_violations(tx),
        *request_violations(tx),
        *txn_violations(tx),
        *task_violations(tx),
    ]
