"""The two ways of a small transaction: committed directly, or decided and then committed by the host.

Modules that commit transactions use the fixture `commit_path`, and so run each test both ways.
"""

from __future__ import annotations

import pytest

from eventproc.store.database import Tx
from eventproc.store.transactions import TxnRecord, TxnStart, create_txn, decide_abort


@pytest.fixture(params=["direct", "by the host"])
def commit_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small transactions take each of the two ways: committed directly, or decided and committed by the host."""
    if request.param == "by the host":
        monkeypatch.setattr("eventproc.streams.staging.commit_directly", lambda *_, **__: None)
        monkeypatch.setattr("eventproc.streams.staging.abort_directly", _begin_first)


def _begin_first(tx: Tx, start: TxnStart, *, reason: str) -> TxnRecord:
    create_txn(tx, start.stream, start.stream_id, start.id, instance=start.instance, lease_ms=start.lease_ms)
    return decide_abort(tx, start.stream_id, start.id, reason=reason)
