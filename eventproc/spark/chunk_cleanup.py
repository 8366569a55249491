"""Deletes exported files that no plan needs any more, for directories that only Spark has open.

A host does this, too (`cluster/chunk_sweep.py`). Planners are no candidates for the host, so without this the exported
files of a directory that no other process opens would stay.
"""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import Final

from eventproc.spark.planner_directory import PlannerDirectory
from eventproc.store.chunks.index import drop_unused, next_unused, put_aside
from eventproc.store.model.errors import EventprocError
from eventproc.store.segments.file_blobs import GONE_SUFFIX
from eventproc.store.segments.holds import forget_expired_holds, has_expired_holds

LOG = logging.getLogger("eventproc.spark")

ASIDE_MS: Final = 60_000
"""How long a file that was put aside stays readable for readers with an older snapshot, as with a host."""

ASIDE_MAX: Final = 64
"""Files renamed in one transaction, which holds the write lock."""


def clean_chunks(directory: PlannerDirectory, *, aside_ms: int = ASIDE_MS) -> None:
    """Put exported files aside that no hold needs, and unlink those that were put aside `aside_ms` ago.

    Any number of processes may do this at the same time: the transaction that drops a file's row proves that it is
    unused, and the rename checks that no row names it.
    Raises OSError, and the errors of a write. Cost: one read while all files are in use, and a look into the folder.
    """
    _unlink(directory.folder, directory.db.clock.wall_ms() - aside_ms)
    if directory.read(has_expired_holds):
        directory.write(forget_expired_holds)
    after: int | None = 0
    while after is not None and (first := directory.read(partial(next_unused, after=after))):
        after, paths = directory.write(partial(drop_unused, after=first - 1))
        for begin in range(0, len(paths), ASIDE_MAX):
            some = paths[begin : begin + ASIDE_MAX]
            directory.write(partial(put_aside, folder=directory.folder, paths=some))


def try_to_clean_chunks(directory: PlannerDirectory, *, aside_ms: int = ASIDE_MS) -> None:
    """Do what `clean_chunks` does, and log a warning if it fails: a query that has its plan need not end for it."""
    try:
        clean_chunks(directory, aside_ms=aside_ms)
    except (EventprocError, OSError) as why:
        LOG.warning("exported files could not be deleted and will be retried: %s", why)


def _unlink(folder: Path, before_ms: int) -> None:
    for file in folder.glob(f"*/*/*{GONE_SUFFIX}"):
        try:
            if file.stat().st_ctime * 1000 <= before_ms:  # a rename sets it
                file.unlink()
        except FileNotFoundError:
            continue  # another process was faster
