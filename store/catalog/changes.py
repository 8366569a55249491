"""Notices streams that come, go, or get another policy: a counter of changes, and the subscription to it."""

from __future__ import annotations

from typing import Final

from eventproc.store.database import Tx, Watch
from eventproc.store.records import count_up, counted

COUNTER: Final = "catalog"
"""Name of a counter: how many streams were created and deleted, or got another policy."""

_TOPIC: Final = ("catalog",)


def note_change(tx: Tx) -> None:
    """Wake the subscribers of the catalog. Called in each transaction that creates or deletes a stream, or changes
    its policies. One row."""
    count_up(tx, COUNTER)
    tx.wake(_TOPIC)


def catalog_version(tx: Tx) -> int:
    """Return a number that grows whenever a stream is created or deleted, or gets another policy. One look-up."""
    return counted(tx, COUNTER)


WATCH_CATALOG: Final = Watch(_TOPIC, catalog_version)
"""The subscription to changes of `catalog_version`. Each wake-up costs one look-up."""
