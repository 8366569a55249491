"""A damaged database: each command tells the truth or reports an error in one line, and `verify` finds the damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventproc.store.database.connections import PAGE_BYTES
from tests.backup.support import flip_byte
from tests.cli.conftest import Cli

LARGE = b"x" * 9_000 + b"\n"


@pytest.fixture
def stocked(shop: Cli) -> Cli:
    """Small events, which lie in their rows, and large ones, which lie in blobs."""
    shop("write", "shop/orders", stdin=LARGE * 5).ok()
    return shop


def database_of(cli: Cli) -> Path:
    return cli.directory / "eventproc.db"


@contextmanager
def damaged(cli: Cli, damage: Callable[[Path], None]) -> Iterator[None]:
    """Damage the database, and put it back afterwards."""
    path = database_of(cli)
    before = path.read_bytes()
    damage(path)
    yield
    for name in ("eventproc.db-wal", "eventproc.db-shm", "log.record"):
        (cli.directory / name).unlink(missing_ok=True)
    path.write_bytes(before)


def check_answers(cli: Cli, expected: str, what: object) -> int:
    """Assert that no command gives a wrong answer or a traceback; return the exit code of `verify`."""
    read, verified = cli("read", "shop/orders"), cli("verify", "-o", "json")
    assert read.code == 0 or read.err.count("\n") == 1, (what, read)
    assert verified.err.count("\n") <= 1, (what, verified)
    assert "this is a bug" not in read.err + verified.err, (what, read, verified)
    if read.code == 0:
        assert read.out == expected, what
    else:
        assert verified.code != 0, (what, read)
    return verified.code


def test_a_flipped_byte_in_any_page_is_never_a_wrong_answer(stocked: Cli) -> None:
    expected = stocked("read", "shop/orders").ok()
    dice = random.Random(0)
    pages = database_of(stocked).stat().st_size // PAGE_BYTES
    found = 0
    for page in range(pages):
        for at in (0, dice.randrange(100, PAGE_BYTES), PAGE_BYTES - 4):
            position = page * PAGE_BYTES + at
            with damaged(stocked, lambda path, position=position: flip_byte(path, position)):  # type: ignore[misc]
                found += check_answers(stocked, expected, (page, at)) != 0
    assert found > pages


def test_a_database_that_was_cut_anywhere_is_never_a_wrong_answer(stocked: Cli) -> None:
    expected = stocked("read", "shop/orders").ok()
    size = database_of(stocked).stat().st_size
    for length in [
        1,
        100,
        PAGE_BYTES,
        PAGE_BYTES + 1,
        *range(2 * PAGE_BYTES, size, 5 * PAGE_BYTES),
        size - 1,
    ]:

        def cut(path: Path, length: int = length) -> None:
            with path.open("r+b") as file:
                file.truncate(length)

        with damaged(stocked, cut):
            assert check_answers(stocked, expected, length) != 0, length


def test_a_page_that_was_replaced_is_never_a_wrong_answer(stocked: Cli) -> None:
    expected = stocked("read", "shop/orders").ok()
    pages = database_of(stocked).stat().st_size // PAGE_BYTES
    for page in range(0, pages, 3):

        def replace(path: Path, page: int = page) -> None:
            with path.open("r+b") as file:
                file.seek((page + 1) % pages * PAGE_BYTES)
                other = file.read(PAGE_BYTES)
                file.seek(page * PAGE_BYTES)
                file.write(other)

        with damaged(stocked, replace):
            check_answers(stocked, expected, page)
