"""`eventproc copy` at the shell."""

from __future__ import annotations

from pathlib import Path

import eventproc
from tests.cli.conftest import Cli
from tests.cli.support import EVENTS
from tests.cli.test_streams import everything


def test_copy_is_a_store_with_the_same_events(shop: Cli, tmp_path: Path) -> None:
    before = everything(shop)
    done = shop("copy", shop.directory, tmp_path / "new")
    assert (done.code, done.out) == (0, "")
    assert done.err == f"{tmp_path / 'new'} is a complete copy: {EVENTS} events in 1 streams\n"
    again = shop("copy", shop.directory, tmp_path / "new")
    assert (again.code, again.out) == (4, "")
    assert "it is not empty; name a new or empty directory, or another schema" in again.err
    made = shop("copy", tmp_path / "new", tmp_path / "next", "-o", "json").json()
    assert (made["done"], made["events"], made["left_tables"]) == ("copy", EVENTS, [])
    shop.directory = tmp_path / "next"
    assert everything(shop) == before
    assert shop("verify", "-o", "json").json()["healthy"]


def test_open_transaction_is_refused_or_aborted_in_the_copy(shop: Cli, tmp_path: Path) -> None:
    with eventproc.open_blocking(shop.directory) as ep:
        transaction = ep.stream("shop/orders").begin(lease_ms=600_000)
        transaction.write(b"staged")
        transaction.flush()
    refused = shop("copy", shop.directory, tmp_path / "new")
    assert refused.code == 4
    assert f"transaction {transaction.id} of shop/orders" in refused.err
    assert "--abort-open" in refused.err
    assert not (tmp_path / "new").exists()
    shop("copy", shop.directory, tmp_path / "new", "--abort-open").ok()
