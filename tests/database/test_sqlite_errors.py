"""Errors of the store below become errors of this library that say what the caller should do."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eventproc.store.database.files import translate_error
from eventproc.store.model.errors import Corrupt, DiskFull, EventprocError, Retryable, StoreUnusable


def fill(path: Path) -> None:
    with closing(sqlite3.connect(path / "db")) as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.execute("PRAGMA max_page_count = 3")
        connection.execute("INSERT INTO t VALUES (zeroblob(100000))")


def read_other_file(path: Path) -> None:
    (path / "db").write_bytes(b"no database" * 1_000)
    with closing(sqlite3.connect(path / "db")) as connection:
        connection.execute("SELECT * FROM sqlite_master")


def read_damaged_text(path: Path) -> None:
    with closing(sqlite3.connect(path / "db")) as connection:
        connection.execute("SELECT CAST(x'ff' AS TEXT)").fetchone()


def open_missing_folder(path: Path) -> None:
    sqlite3.connect(path / "missing" / "db")


@pytest.mark.acceptance("A13", differs="there is no connection that can be lost: the store is a file")
@pytest.mark.parametrize(
    "act, kinds",
    [
        (fill, (DiskFull, Retryable)),
        (read_other_file, (Corrupt,)),
        (read_damaged_text, (Corrupt,)),
        (open_missing_folder, (StoreUnusable,)),
    ],
)
def test_an_error_of_the_store_says_what_to_do(
    act: Callable[[Path], None], kinds: tuple[type[EventprocError], ...], tmp_path: Path
) -> None:
    with pytest.raises(sqlite3.Error) as caught:
        act(tmp_path)
    found = translate_error(caught.value, "data")
    assert all(isinstance(found, kind) for kind in kinds), found


def test_an_error_of_the_caller_stays_as_it_is() -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(sqlite3.Error) as caught:
        connection.execute("SELECT x FROM missing")
    assert translate_error(caught.value, "data") is caught.value
