"""The names of Parquet files that tasks write for tables, and which of them nobody will publish. Pure.

A name says which instance may publish the file, and when it was begun.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from typing import Final

from eventproc.base.clock import Clock, id_ms, new_id
from eventproc.store.chunks.index import ABANDONED_MS, SINK_COMMIT_MS
from eventproc.store.file_store import PART_SUFFIX

SCRATCH: Final = "_tasks"
"""Folder, within that of tables, of what is not published yet: a folder for each task."""

SUFFIX: Final = ".parquet"

PUBLISH_MS: Final = SINK_COMMIT_MS
"""Age of a file up to which it may be published. The sweep takes older ones for left behind at ABANDONED_MS."""

_WRITTEN: Final = re.compile(
    rf"([^/]+)/([^/]+)/([0-9a-f-]{{36}})_([0-9a-f-]{{36}}){re.escape(SUFFIX)}(?:{re.escape(PART_SUFFIX)})?"
)


def new_table_path(folder: str, instance: str, clock: Clock) -> str:
    """Return the path of a new file. It names the instance that may publish it, and its time."""
    return f"{folder}/{instance}_{new_id(clock)}{SUFFIX}"


def is_left_behind(path: str, now_ms: int, is_alive: Callable[[str], bool], tasks: Container[str]) -> bool:
    """Return whether nobody should publish a file, because its instance has died or it is too old.

    tasks: that run. What they have read is not too old: they publish it in other files. It may be published already. A
    file that eventproc did not write is not left behind.
    """
    if (found := _WRITTEN.fullmatch(path)) is None:
        return False
    folder, name, instance, id = found.groups()
    is_read = folder == SCRATCH and name in tasks
    return not is_alive(instance) or (not is_read and now_ms - id_ms(id) > ABANDONED_MS)


def are_young(paths: Iterable[str], now_ms: int) -> bool:
    """Return whether files may be published: no sweep took them for left behind, and none is about to."""
    written = [id_ms(found[4]) for each in paths if (found := _WRITTEN.fullmatch(each))]
    return all(now_ms - each <= PUBLISH_MS for each in written)
