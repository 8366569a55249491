"""Transactions at the shell: listed, described and decided; a file that is written whole or not at all."""

from __future__ import annotations

import signal
from typing import Any

import anyio
import pytest

import eventproc
from eventproc.cli import exit_codes
from eventproc.store.model.errors import TransactionPending
from tests.cli.conftest import Cli
from tests.cli.support import PATIENCE_S, started

ROWS = b"".join(b'{"k":"k%d","n":%d}\n' % (number % 3, number) for number in range(10))


def begin(cli: Cli, *payloads: bytes, lease_ms: int | None = 60_000) -> str:
    """Begin a transaction with these events; return its id. Its owner goes away."""

    async def act() -> str:
        async with eventproc.open(cli.directory, host=False) as ep:
            txn = await (await ep.stream("shop/orders")).begin(lease_ms=lease_ms)
            await txn.write_many((payload, "customer-42") for payload in payloads)
            await txn.flush()
            return txn.id

    return anyio.run(act)


def listed(cli: Cli, *arguments: object) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = cli("txn", "list", "shop/orders", "-o", "json", *arguments).json()
    return found


def count(cli: Cli) -> int:
    return len(cli("read", "shop/orders").rows())


def test_a_transaction_is_listed_and_described_with_owner_size_and_lease(shop: Cli) -> None:
    txn_id = begin(shop, b"1", b"22")
    (row,) = listed(shop)
    assert (row["id"], row["state"], row["events"], row["size_bytes"]) == (txn_id, "open", 2, 19)
    assert (row["lease_ms"], row["owner"], row["owner_alive"]) == (60_000, None, False)
    assert 0 < row["lease_left_ms"] <= 60_000
    assert row["age_ms"] >= 0
    described = shop("txn", "describe", "shop/orders", txn_id, "-o", "json").json()
    assert {**described, "age_ms": 0, "lease_left_ms": 0} == {**row, "age_ms": 0, "lease_left_ms": 0}
    table = shop("txn", "list", "shop/orders").ok().splitlines()
    assert table[0].split()[:3] == ["ID", "STATE", "CREATED"]
    assert table[1].startswith(txn_id)
    assert "lease_ms" in shop("txn", "describe", "shop/orders", txn_id).ok()


def test_commit_makes_it_visible_and_says_where_it_landed(shop: Cli) -> None:
    txn_id = begin(shop, b"1", b"2")
    assert shop("txn", "commit", "shop/orders", txn_id).ok() == ""
    assert count(shop) == 5
    assert listed(shop) == []
    (row,) = listed(shop, "--finished")
    assert (row["id"], row["state"], row["appended"]) == (
        *(txn_id, "committed"),
        [{"segment": "0.0", "offset": 99, "number": 3, "count": 2}],
    )
    shown = shop("txn", "describe", "shop/orders", txn_id).ok().splitlines()
    assert shown[-2:] == ["SEGMENT  OFFSET  NUMBER  COUNT", "0.0      99      3       2"]
    assert shop("txn", "commit", "shop/orders", txn_id).code == 0
    assert count(shop) == 5


def test_decided_transaction_is_committed_by_the_next_host(shop: Cli) -> None:
    txn_id = begin(shop, b"1")
    assert "decided" in shop("txn", "commit", "shop/orders", txn_id, "--no-wait").err
    assert [row["state"] for row in listed(shop)] == ["committing"]
    assert count(shop) == 3
    shop("txn", "commit", "shop/orders", txn_id).ok()
    assert count(shop) == 4


def test_a_wait_that_ends_before_the_commit_timed_out_and_says_how_to_wait_again() -> None:
    why = TransactionPending(stream="shop/orders", txn="1", waited_ms=1500)
    assert exit_codes.exit_code(why) == 5
    assert "after 1.5 s" in exit_codes.error_line(why)
    assert "`eventproc txn commit shop/orders 1`" in exit_codes.error_line(why)


def test_abort_drops_it_and_a_later_commit_is_refused(shop: Cli) -> None:
    txn_id = begin(shop, b"1")
    assert "aborted" in shop("txn", "abort", "shop/orders", txn_id, "--yes").err
    assert "begin a new one" in shop("txn", "commit", "shop/orders", txn_id).refused(4)
    shop("txn", "abort", "shop/orders", txn_id, "--yes").ok()
    assert count(shop) == 3


def test_dry_run_of_abort_refuses_the_same_and_changes_nothing(shop: Cli) -> None:
    txn_id = begin(shop, b"1", b"22")
    dry = ("txn", "abort", "--dry-run", "shop/orders", txn_id)
    would = {"dry_run": True, "would": "abort", "target": "shop/orders", "id": txn_id, "already_done": False}
    assert shop(*dry, "-o", "json").json() == {
        **would,
        "events": 2,
        "bytes": 19,
        "streams": ["shop/orders"],
    }
    assert [row["state"] for row in listed(shop)] == ["open"]
    shop("txn", "abort", "shop/orders", txn_id, "--yes").ok()
    assert shop(*dry, "-o", "json").json()["already_done"]
    committed = begin(shop, b"1")
    shop("txn", "commit", "shop/orders", committed).ok()
    refused = [
        shop("txn", "abort", option, "shop/orders", committed).refused(4) for option in ("--yes", "--dry-run")
    ]
    assert refused[0] == refused[1]
    assert "has no transaction" in shop("txn", "abort", "--dry-run", "shop/orders", "none").refused(3)


@pytest.mark.parametrize("verb", [("describe",), ("commit",), ("abort", "--yes")])
def test_an_unknown_transaction_is_not_found(shop: Cli, verb: tuple[str, ...]) -> None:
    unknown = "01890a5d-ac96-774b-bcce-b302099a8057"
    assert unknown in shop("txn", *verb, "shop/orders", unknown).refused(3)
    assert "shop/none" in shop("txn", *verb, "shop/none", unknown).refused(3)


def test_committed_transaction_cannot_be_aborted(shop: Cli) -> None:
    txn_id = begin(shop, b"1")
    shop("txn", "commit", "shop/orders", txn_id).ok()
    assert "cannot be undone" in shop("txn", "abort", "shop/orders", txn_id, "--yes").refused(4)


def test_a_file_is_written_in_one_transaction_that_is_named(shop: Cli) -> None:
    command = ("write", "shop/orders", "--format", "jsonl", "--key", "k", "--transaction")
    done = shop(*command, stdin=ROWS)
    assert done.ok() == "written 10\n"
    (row,) = listed(shop, "--finished")
    assert f"transaction {row['id']}\n" in done.err
    assert sum(each["count"] for each in row["appended"]) == 10
    assert count(shop) == 13
    assert shop(*command, "-q", stdin=b"").ok() == "written 0\n"


def test_a_bad_row_writes_nothing(shop: Cli) -> None:
    command = ("write", "shop/orders", "--format", "jsonl", "--key", "k", "--transaction")
    done = shop(*command, stdin=ROWS + b"no json\n")
    assert (done.code, done.out) == (1, "")
    assert "line 11" in done.err
    assert "aborted: nothing was written" in done.err
    assert count(shop) == 3


@pytest.mark.subprocess
def test_ctrl_c_aborts_an_undecided_transaction(shop: Cli) -> None:
    with started("-C", shop.directory, "write", "shop/orders", "--transaction") as writer:
        assert writer.stdin is not None
        assert writer.stderr is not None
        writer.stdin.write(b"1\n2\n")
        writer.stdin.flush()
        said = writer.stderr.readline().decode().split()
        writer.send_signal(signal.SIGINT)
        out, err = writer.communicate(timeout=PATIENCE_S)
    assert said[0] == "transaction"
    assert (writer.returncode, out) == (130, b"")
    assert err.decode() == f"transaction {said[1]} is aborted: nothing was written\n"
    ended = shop("txn", "describe", "shop/orders", said[1], "-o", "json")
    assert ended.code == 3 or ended.json()["reason"] == "by its owner"
    assert count(shop) == 3


@pytest.mark.subprocess
def test_transaction_committed_elsewhere_is_not_reported_aborted(shop: Cli) -> None:
    with started("-C", shop.directory, "write", "shop/orders", "--transaction") as writer:
        assert writer.stdin is not None
        assert writer.stderr is not None
        writer.stdin.write(b"1\n")
        writer.stdin.flush()
        txn_id = writer.stderr.readline().decode().split()[1]
        while not [row for row in listed(shop) if row["events"]]:
            pass  # it is put down when it takes longer than a moment
        shop("txn", "commit", "shop/orders", txn_id).ok()
        _, err = writer.communicate(b"2\n", timeout=PATIENCE_S)
    assert writer.returncode == 4
    assert "begin a new one" in err.decode()
    assert "nothing was written" not in err.decode()
    assert count(shop) == 4


def test_failing_decided_transaction_is_aborted_by_force_only(
    shop: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LookupError("a bug")

    txn_id = begin(shop, b"1")
    monkeypatch.setattr("eventproc.workflows.commit_transactions.commit_round", fail)
    waited = shop("txn", "commit", "shop/orders", txn_id, "--timeout", 1)
    assert (waited.code, waited.out) == (5, "")
    assert "LookupError('a bug')" in waited.err
    assert f"`eventproc txn abort --force shop/orders {txn_id}`" in waited.err
    assert (
        shop("txn", "describe", "shop/orders", txn_id, "-o", "json").json()["reason"]
        == "LookupError('a bug')"
    )
    assert "cannot be undone" in shop("txn", "abort", "shop/orders", txn_id, "--yes").refused(4)
    dry = ("txn", "abort", "--dry-run", "shop/orders", txn_id)
    assert "cannot be undone" in shop(*dry).refused(4)
    assert shop(*dry, "--force", "-o", "json").json()["already_done"] is False
    shop("txn", "abort", "shop/orders", txn_id, "--force", "--yes").ok()
    assert count(shop) == 3
