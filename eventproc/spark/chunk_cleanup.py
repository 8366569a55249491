"""Deletes exported files that no plan needs any more, for directories that only Spark has open.

A host does this, too (`cluster/sweeper.py`). Planners are no candidates for the host, so without this the exported
files of a directory that no other process opens would stay.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.chunks.index import (
    UNUSED_MS,
    delete_files,
    drop_unused,
    due_files,
    forget_deleted,
    next_unused,
)
from eventproc.store.model.errors import EventprocError
from eventproc.store.segments.holds import forget_expired_holds, has_expired_holds

LOG = logging.getLogger("eventproc.spark")


CLEAN_MS_MAX: Final = 1_000
"""How long a query deletes files before it goes on, in ms. Higher: its batch waits longer; lower: more batches wait."""

FILES_A_STEP: Final = 32
"""Files deleted between two looks at the clock, some ms each in object storage. Higher: as CLEAN_MS_MAX; lower: more
commits."""


def clean_chunks(directory: PlannerDirectory, *, unused_ms: int = UNUSED_MS) -> bool:
    """Mark exported files that no hold needs, and delete those that were marked `unused_ms` ago, for CLEAN_MS_MAX.

    Return whether some of these are left. Any number of processes may do this at the same time: the transaction that
    marks a file proves that it is unused.
    Raises OSError, Unreachable, and the errors of a write. Cost: two reads while all files are in use.
    """
    if directory.read(has_expired_holds):
        directory.write(forget_expired_holds)
    after: int | None = 0
    while after is not None and (first := directory.read(partial(next_unused, after=after))):
        after = directory.write(partial(drop_unused, after=first - 1))
    files, end_ms = directory.files, directory.db.clock.monotonic_ms() + CLEAN_MS_MAX
    while due := directory.read(partial(due_files, unused_ms=unused_ms, limit=FILES_A_STEP)):
        if directory.db.clock.monotonic_ms() >= end_ms:
            return True
        deleted, failure = delete_files(files, due)
        directory.write(partial(forget_deleted, paths=deleted))
        if failure is not None and not deleted:  # files behind one that cannot be deleted do not wait for it
            raise failure
    return False


def try_to_clean_chunks(directory: PlannerDirectory, *, unused_ms: int = UNUSED_MS) -> bool:
    """Do what `clean_chunks` does, and log a warning if it fails: a query that has its plan need not end for it."""
    try:
        return clean_chunks(directory, unused_ms=unused_ms)
    except (EventprocError, OSError) as why:
        LOG.warning("exported files could not be deleted and will be retried: %s", why)
        return False
