"""Transactions without await: the block commits or aborts, on whichever thread, and the buffer loses nothing."""

from __future__ import annotations

import os
import signal
import threading

import anyio
import pytest

from eventproc.blocking import BlockingStream
from eventproc.blocking.buffer import POSTS_MAX
from eventproc.describe import PingResult, TxnState
from eventproc.store.model.errors import DiskFull, InvalidArgument, TransactionAborted, TransactionDecided
from eventproc.streams import NewEvent, Transaction


def payloads(stream: BlockingStream) -> list[bytes]:
    with stream.reader() as reader:
        return [event.payload for event in reader.until(stream.tail())]


@pytest.mark.usefixtures("commit_path")
def test_leaving_the_block_makes_all_visible_in_the_order_of_writing(stream: BlockingStream) -> None:
    count = 2 * POSTS_MAX + 10
    with stream.transaction() as txn:
        for number in range(count):
            txn.write(b"%d" % number, key="k")
        assert txn.write_many([(b"a", "k"), NewEvent(b"b", "k", 5, {"h": "v"})]) == 2
        txn.write(b"last", key="k")
        assert payloads(stream) == []
        assert txn.status().events == count + 3
    assert payloads(stream) == [*(b"%d" % number for number in range(count)), b"a", b"b", b"last"]
    assert [each.count for each in txn.appended] == [count + 3]
    assert stream.transactions() == []
    assert [each.id for each in stream.transactions(finished=True)] == [txn.id]


@pytest.mark.usefixtures("commit_path")
def test_an_exception_and_an_interrupt_abort(stream: BlockingStream) -> None:
    def fail() -> None:
        with stream.transaction() as txn:
            txn.write(b"1")
            raise ZeroDivisionError(txn.id)

    def be_interrupted() -> None:
        with stream.transaction(lease_ms=None) as txn:
            txn.write(b"2")
            os.kill(os.getpid(), signal.SIGINT)
            stream.transaction_of(txn.id).commit()

    with pytest.raises(ZeroDivisionError) as failed:
        fail()
    assert stream.transaction_of(str(failed.value)).status().reason == "by its owner"
    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert payloads(stream) == []
    with stream.transaction(payload=str) as txn:
        txn.write("the loop goes on")
    assert payloads(stream) == [b"the loop goes on"]


@pytest.mark.usefixtures("commit_path")
def test_events_written_before_an_interrupted_call_are_not_lost(
    stream: BlockingStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    reaching = Transaction.write_many
    left = 5

    async def write_many(txn: Transaction[bytes], events: list[NewEvent[bytes]]) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            raise DiskFull(path="a test")
        if left == -5:
            main = threading.main_thread().ident
            assert main is not None
            signal.pthread_kill(main, signal.SIGINT)
            await anyio.sleep_forever()
        return await reaching(txn, events)

    monkeypatch.setattr(Transaction, "write_many", write_many)
    with stream.transaction() as txn:
        for number in range(20):
            txn.write(b"%d" % number, key="k")
        with pytest.raises(DiskFull):
            txn.flush()
        with pytest.raises(KeyboardInterrupt):
            txn.flush()
        txn.write(b"20", key="k")
    assert payloads(stream) == [b"%d" % number for number in range(21)]


@pytest.mark.usefixtures("commit_path")
def test_a_refusal_at_the_last_hand_over_is_raised(stream: BlockingStream) -> None:
    def write_late() -> None:
        with stream.transaction() as txn:
            txn.write(b"1", key="k")
            txn.flush()
            stream.transaction_of(txn.id).abort()
            assert txn.ping() is PingResult.ABORTED
            txn.write(b"2", key="k")

    with pytest.raises(TransactionAborted):
        write_late()
    assert payloads(stream) == []


@pytest.mark.usefixtures("commit_path")
def test_a_wrong_payload_is_refused_and_does_not_abort_the_transaction(
    stream: BlockingStream,
) -> None:
    with stream.transaction(payload=str) as txn:
        with pytest.raises(InvalidArgument):
            txn.write(b"bytes")  # type: ignore[arg-type]
        txn.write("text")
    assert payloads(stream) == [b"text"]


@pytest.mark.usefixtures("commit_path")
def test_begun_without_a_block_it_is_pinged_committed_and_decided_once(stream: BlockingStream) -> None:
    txn = stream.begin(lease_ms=5_000)
    assert txn.ping(lease_ms=10**7) is PingResult.LEASE_TOO_LARGE
    assert txn.ping(lease_ms=6_000) is PingResult.OK
    txn.write(b"1", key="k")
    same = stream.transaction_of(txn.id, payload=str)
    txn.flush()
    same.write("2", key="k")
    same.commit()
    with pytest.raises(TransactionDecided, match="cannot be undone"):
        txn.abort()
    assert txn.status().state is TxnState.COMMITTED
    assert payloads(stream) == [b"1", b"2"]
