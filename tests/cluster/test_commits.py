"""What goes wrong in one stream's commits does not stop the others', nor is it forgotten; the dead hold nothing."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import eventproc
from eventproc.cluster.timeouts import PROCESS_DIED
from eventproc.store.catalog import get_stream
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions import (
    create_txn,
    decide_commit,
    find_txn,
    get_txn,
    land_round,
    watch_txn,
)
from eventproc.workflows import commit
from eventproc.workflows.requests import CreateStream
from tests.transactions.hosting import by_key, events_of, make_room, serve, write
from tests.transactions.rooms import HIGH, Room
from tests.workflows.lives import Life, open_life


async def test_a_commit_that_fails_is_tried_again_behind_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = 2

    def land_or_fail(tx: Any, stream: str, *rest: Any) -> Any:
        nonlocal left
        if stream == "s/t" and left:
            left -= 1
            raise LookupError("a bug")
        return land_round(tx, stream, *rest)

    monkeypatch.setattr(commit, "land_round", land_or_fail)
    monkeypatch.setattr("eventproc.cluster.commits.FAILED_PAUSE_MS", 1)
    async with open_life() as life:
        bad = await make_room(life)
        txn_id = await bad.begin()
        await write(bad, txn_id, [(b"x", HIGH)])
        await bad.commit(txn_id)
        good = await _another(life)
        await life.db.write(lambda tx: decide_commit(tx, good.stream.stream_id, txn_id))
        done = await serve(life, good, [txn_id])
        assert done[0].state is TxnState.COMMITTED
        (committed,) = await serve(life, bad, [txn_id])
        assert (committed.state, left) == (TxnState.COMMITTED, 0)
        assert by_key(await events_of(bad)) == {HIGH: [b"x"]}
        assert by_key(await events_of(good)) == {}
        assert "a bell of s/t failed, and comes again" in caplog.text
        await life.check()


async def _another(life: Life) -> Room:
    """Make another stream, with an open transaction of the same id: ids are looked up within their stream."""
    await life.done(CreateStream("s/other", StreamConfig(scaling=ScalingPolicy.fixed(1))))
    stream = (await life.record("s/other")).value

    def begin(tx: Any) -> None:
        (txn_id,) = tx.execute("SELECT id FROM txn").fetchone()
        create_txn(tx, stream.name, stream.stream_id, txn_id, instance="x", lease_ms=None)

    await life.db.write(begin)
    return Room(life.db, stream)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a directory is opened on asyncio
async def test_what_lasts_while_its_process_lives_is_aborted_when_it_is_gone(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "d") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        stream_id = (await ep.db.read(lambda tx: get_stream(tx, "s/t"))).value.stream_id
        begin = partial(create_txn, stream="s/t", stream_id=stream_id, lease_ms=None)
        mine, its = "01900000-0000-7000-8000-000000000001", "01900000-0000-7000-8000-000000000002"
        await ep.db.write(partial(begin, txn_id=mine, instance=ep.db.instance_id))
        with ep.db.subscribe([watch_txn(stream_id, its)]) as changes:
            async with eventproc.open(tmp_path / "d", host=False) as other:
                await other.db.write(partial(begin, txn_id=its, instance=other.db.instance_id))
                assert (await ep.db.read(lambda tx: get_txn(tx, stream_id, its))).state is TxnState.OPEN
            while True:
                found = await ep.db.read(partial(find_txn, stream_id=stream_id, txn_id=its))
                assert found is not None
                if found.state is TxnState.ABORTED:
                    break
                await changes.wait()
        assert found.reason == PROCESS_DIED
        assert (await ep.db.read(lambda tx: get_txn(tx, stream_id, mine))).state is TxnState.OPEN
