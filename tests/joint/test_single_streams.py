"""One stream of a joint transaction alone: its failing commit is given up, and any other difference is reported."""

from __future__ import annotations

from functools import partial
from typing import Any

import anyio
import pytest

from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.inspection.transactions import txn_violations
from eventproc.store.model.errors import TransactionAborted
from eventproc.store.transactions import commit_round, watch_txn
from eventproc.streams import Stream
from tests.joint.support import states
from tests.support.reading import payloads_of


async def test_giving_up_drops_the_events_of_the_failing_stream_only(
    ep: Eventproc, targets: list[Stream], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_in_first(tx: Any, stream: Any, **options: Any) -> object:
        if stream.name == "s/a":
            raise LookupError("a bug")
        return commit_round(tx, stream, **options)

    monkeypatch.setattr("eventproc.workflows.commit_transactions.commit_round", fail_in_first)
    first = targets[0]
    async with ep.transaction() as txn:
        for target in targets:
            await txn.write(target, b"1")
        await txn.flush()
        await txn.commit(wait=False)
    seen = first.transaction_of(txn.id)
    with ep.db.subscribe([watch_txn(first.stream_id, txn.id)]) as changes, anyio.fail_after(20):
        while (await seen.status()).reason is None:
            await changes.wait()
    for target in targets[1:]:
        await target.transaction_of(txn.id).commit()
    await seen.abort(force=True)
    with pytest.raises(TransactionAborted, match="its commit failed: LookupError"):
        await seen.commit()
    assert [await payloads_of(target) for target in targets] == [[], [b"1"], [b"1"]]
    described = await targets[1].transaction_of(txn.id).status()
    assert described.streams == ("s/b", "s/c")
    assert (await states(ep, txn.id))["s/b"] == "committed"


async def test_a_stream_added_after_a_flush_agrees_with_the_others_at_the_end(
    ep: Eventproc, targets: list[Stream]
) -> None:
    def count_lease_from_later(tx: Tx) -> None:
        tx.execute("UPDATE txn SET lease_until_ms = lease_until_ms + 1000000")

    async with ep.transaction(lease_ms=60_000) as txn:
        await txn.write(targets[0], b"1")
        await txn.flush()
        await ep.db.write(count_lease_from_later)
        await txn.write(targets[1], b"1")
        await txn.abort()
    assert await ep.db.read(lambda tx: list(txn_violations(tx))) == []


async def test_streams_that_disagree_on_a_transaction_are_reported(
    ep: Eventproc, targets: list[Stream]
) -> None:
    def set_joint(tx: Tx, group: str) -> None:
        tx.execute("UPDATE txn SET joint = ? WHERE stream = 's/a'", (group,))

    async with ep.transaction() as txn:
        for target in targets:
            await txn.write(target, b"1")
    await ep.db.write(partial(set_joint, group="s/other"))
    (found,) = await ep.db.read(lambda tx: list(txn_violations(tx)))
    assert found == (
        f"the streams of joint transaction {txn.id} disagree: s/a committed, s/b committed, s/c committed"
    )
    await ep.db.write(partial(set_joint, group=""))
