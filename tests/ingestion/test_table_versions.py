"""The version of a table: it changes with what a caller read, and not with what is published later."""

from __future__ import annotations

from functools import partial

import pytest

from eventproc.errors import TableChanged
from eventproc.store.database import Tx
from eventproc.store.ingestion.published import (
    drop_files,
    files_of_version,
    replace_files,
    table_version,
    used_files,
)
from eventproc.store.model.ingestion import NewFile
from tests.ingestion.support import Bench


def file_of(path: str) -> NewFile:
    return NewFile(path=path, start_ms=0, end_ms=10, rows=3, bytes=9, min_ms=1, max_ms=2)


def published(tx: Tx, path: str) -> None:
    """Add a file as a publication does: with its sequence."""
    replace_files(tx, "clicks", [], [file_of(path)])
    tx.execute("UPDATE published SET sequence = 'clicks-0/0' WHERE path = ?", (path,))


async def test_a_version_holds_while_supervisors_publish_and_has_none_of_their_files(bench: Bench) -> None:
    await bench.db.write(partial(published, path="a"))
    version = await bench.db.read(partial(table_version, name="clicks"))
    await bench.db.write(partial(published, path="b"))
    found = await bench.db.read(partial(files_of_version, name="clicks", version=version))
    assert [each.path for each in found] == ["a"]


@pytest.mark.parametrize("change", ["compact", "drop", "fill", "forget"])
async def test_a_version_ends_when_what_it_holds_is_replaced_or_dropped(bench: Bench, change: str) -> None:
    if change != "fill":
        await bench.db.write(partial(published, path="a"))
    version = await bench.db.read(partial(table_version, name="clicks"))

    def act(tx: Tx) -> None:
        if change in ("compact", "fill"):
            replace_files(tx, "clicks", used_files(tx, "clicks"), [file_of("b")])
        else:
            drop_files(tx, "clicks")
        if change == "forget":  # the next file gets the same id
            tx.execute("DELETE FROM published")
            published(tx, "b")

    await bench.db.write(act)
    with pytest.raises(TableChanged):
        await bench.db.read(partial(files_of_version, name="clicks", version=version))
