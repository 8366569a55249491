"""Joint transactions at the shell: each of their streams lists them, and an abort holds for all of them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.conftest import Cli
from tests.support.child_process import ChildProcess

pytestmark = pytest.mark.subprocess

OWNER = """
    import sys
    import eventproc

    with eventproc.open_blocking(sys.argv[1], create=False) as ep:
        bills = ep.create_stream("shop/bills")
        group = ep.create_group("billing", ["shop/orders"])
        with group.reader("r") as reader:
            event = next(iter(reader))
            try:
                with ep.transaction(consumer=reader) as txn:
                    txn.write(bills, event.payload)
                    txn.write("shop/orders", b"seen")
                    txn.flush()
                    print(txn.id)
                    sys.stdin.readline()
            except eventproc.EventprocError as error:
                print(type(error).__name__)
        while bills.transactions() or ep.stream("shop/orders").transactions():
            pass  # the host, which is here, ends both parts
        print(bills.describe().events)
"""


def test_any_stream_of_a_joint_transaction_describes_and_aborts_it(shop: Cli) -> None:
    with ChildProcess.running(OWNER, shop.directory) as owner:
        txn_id = owner.hear()
        for name in ("shop/bills", "shop/orders"):
            (row,) = shop("txn", "list", name, "-o", "json").json()
            assert (row["id"], row["state"], row["events"]) == (txn_id, "open", 1)
            assert (row["streams"], row["group"]) == (["shop/bills", "shop/orders"], "shop/billing")
        refused = shop("txn", "commit", "shop/orders", txn_id).refused(4)
        assert f"`eventproc txn abort shop/orders {txn_id}`" in refused
        would: dict[str, Any] = shop("txn", "abort", "shop/bills", txn_id, "--dry-run", "-o", "json").json()
        assert would["streams"] == ["shop/bills", "shop/orders"]
        shop("txn", "abort", "shop/bills", txn_id, "--yes").ok()
        owner.say("go on")
        assert owner.hear() == "TransactionAborted"
        assert owner.hear() == "0"
    shop("txn", "abort", "shop/orders", txn_id, "--yes").ok()  # done already
    (row,) = shop("txn", "list", "shop/orders", "--finished", "-o", "json").json()
    assert (row["state"], row["reason"]) == ("aborted", "by its owner, in shop/bills")
