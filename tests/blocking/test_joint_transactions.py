"""Joint transactions without `await`: the same promises, from a thread."""

from __future__ import annotations

from pathlib import Path

import pytest

import eventproc
from eventproc.describe import PingResult
from eventproc.store.model.errors import InvalidArgument
from eventproc.streams import NewEvent


def test_a_thread_consumes_and_produces_exactly_once(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "store") as ep:
        ep.create_scope("s")
        source, bills = ep.create_stream("s/in"), ep.create_stream("s/bills", payload=str)
        audit = ep.create_stream("s/audit")
        with source.writer() as writer:
            writer.write_many((b"%d" % number, "k") for number in range(5))
        group = ep.create_group("g", ["s/in"])

        def consume(fail_at: int | None) -> None:
            with group.reader("r") as reader:
                for event in reader.until(source.tail()):
                    with ep.transaction(consumer=reader) as txn:
                        txn.write(bills, event.payload.decode(), key="k")
                        assert txn.write_many("s/audit", [(event.payload, "k")]) == 1
                        if int(event.payload) == fail_at:
                            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            consume(fail_at=3)
        consume(fail_at=None)
        for target, wanted in ((bills, ["0", "1", "2", "3", "4"]), (audit, [b"0", b"1", b"2", b"3", b"4"])):
            with target.reader() as found:
                assert [event.payload for event in found.until(target.tail())] == wanted


def test_a_block_of_a_thread_can_flush_and_abort(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "store") as ep:
        ep.create_scope("s")
        target = ep.create_stream("s/a")
        with ep.transaction() as txn:
            with pytest.raises(InvalidArgument):
                txn.write("s/a", "text")  # type: ignore[call-overload]
            txn.write(target, b"1")
            txn.flush()
            (described,) = txn.status()
            assert (described.streams, described.events, txn.streams) == (("s/a",), 1, ("s/a",))
            assert txn.ping() is PingResult.OK
            txn.abort()
        assert target.describe().events == 0
        with ep.transaction() as txn:
            txn.write(target, b"2")
            txn.commit()
        assert [each.count for each in txn.appended["s/a"]] == [1]


def test_an_event_that_a_transaction_cannot_have_is_refused_and_the_others_are_written(
    tmp_path: Path,
) -> None:
    with eventproc.open_blocking(tmp_path / "store") as ep:
        ep.create_scope("s")
        target = ep.create_stream("s/a")
        with ep.transaction() as txn:
            for refused in (NewEvent(b"", delay_ms=1), NewEvent(b"", id="a")):
                with pytest.raises(InvalidArgument, match="transaction"):
                    txn.write_many(target, [(b"before", None), refused, (b"never", None)])
        with target.reader() as found:
            assert [event.payload for event in found.until(target.tail())] == [b"before"] * 2
