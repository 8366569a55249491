"""Simulates the transactions of one stream from a seed: clients, timers, scales, a seal and deaths.

The twin is a list per transaction: what its client staged, and what was decided as far as the client knows. At the end
the stream holds, for each key, exactly the events of the committed transactions, in the order of their decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from random import Random

import anyio
import attrs

import eventproc
from eventproc.base.clock import new_id
from eventproc.runtime import Eventproc
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Tx
from eventproc.store.model.errors import (
    Rejected,
    StreamSealed,
    TransactionAborted,
)
from eventproc.store.model.states import StreamState
from eventproc.store.model.transactions import PingResult, TxnState
from eventproc.store.transactions import TXN_STEP_LIMITS, find_txn
from eventproc.streams import Stream
from eventproc.testing import Deaths, VirtualClock
from tests.support.lives import ensured, hosted, live_through_deaths, scale_at_random
from tests.transactions.support import NAME, KeyedPayload, TxnStream, by_key, events_of, write

CLIENTS = 4
KEYS = [*(f"k{number}" for number in range(6)), None]


@attrs.define(eq=False)
class TransactionTwin:
    """A transaction as its client knows it. decided: what was acknowledged, "commit" or "abort"."""

    id: str
    began: bool = False
    events: list[KeyedPayload] = attrs.field(factory=list)
    pending: list[KeyedPayload] = attrs.field(factory=list)
    stagings: int = 0
    tried: set[str] = attrs.field(factory=set)
    decided: str | None = None


class TransactionSimulation:
    """State that outlives deaths: what clients remember, and the database."""

    def __init__(self, seed: int, *, deaths: int, transactions: int = 12, pace: float = 1) -> None:
        """pace: what pauses are multiplied by; 0 where time is real."""
        self.random = Random(seed)
        self.pace = pace
        self.deaths = deaths
        self.left = transactions
        self.twins: list[TransactionTwin] = []
        self.seal_early = self.random.random() < 0.3

    async def run(self) -> None:
        faults = Deaths()
        clock = VirtualClock(self.random.randrange(2**32))
        async with eventproc.open_memory(host=False, clock=clock, faults=faults) as ep:
            limits = ep.db.shared[TXN_STEP_LIMITS]
            limits.round_transactions, limits.round_rows = 3, self.random.choice([4, 8])
            limits.preparation_rows = self.random.choice([2, 6])
            live = partial(self._live, ep)
            await live_through_deaths(live, ep.db, faults, self.random, deaths=self.deaths, commits_max=60)
            await self._compare(ep)

    async def _live(self, ep: Eventproc) -> None:
        async with hosted(ep) as background:
            await ep.create_scope("s")
            stream = await ensured(ep, NAME)
            txn_stream = TxnStream(ep.db, await ep.db.read(lambda tx: get_stream(tx, NAME).value))
            if (await stream.describe()).state is StreamState.ACTIVE:
                background.start_soon(self._look, txn_stream)
                async with anyio.create_task_group() as actors:
                    for _ in range(CLIENTS):
                        actors.start_soon(self._client, txn_stream, stream)
                    for twin in self.twins:
                        actors.start_soon(self._resume, txn_stream, stream, twin)
                    actors.start_soon(self._scale, stream)
                    if self.seal_early:
                        actors.start_soon(self._seal_early, stream)
                await stream.seal()
            for twin in self.twins:
                await txn_stream.ended(twin.id)

    async def _pause(self, most_s: float) -> None:
        await anyio.sleep(self.random.random() * most_s * self.pace)

    async def _client(self, txn_stream: TxnStream, stream: Stream) -> None:
        while self.left > 0:
            self.left -= 1
            twin = TransactionTwin(new_id(txn_stream.db.clock))
            self.twins.append(twin)
            lease_ms = self.random.choice([None, 1_000, 3_000, 60_000])
            try:
                await txn_stream.begin(txn_id=twin.id, lease_ms=lease_ms)
            except StreamSealed:
                return
            twin.began = True
            await self._use(txn_stream, stream, twin)

    async def _use(self, txn_stream: TxnStream, stream: Stream, twin: TransactionTwin) -> None:
        """Stage, ping and decide, or leave it to its lease, until it is over."""
        try:
            for _ in range(self.random.randint(0, self.random.choice([8, 16]))):
                await self._stage(txn_stream, twin)
                if self.random.random() < 0.3:
                    await self._pause(1.5)
                if self.random.random() < 0.3 and await txn_stream.ping(twin.id) is not PingResult.OK:
                    raise Rejected
            fate = self.random.choice(["commit", "commit", "commit", "abort", "leave"])
            for _ in range(self.random.randint(1, 2)):
                if fate != "leave":
                    twin.tried.add(fate)
                    commit = self.random.choice((txn_stream.commit, txn_stream.commit_now))
                    await (commit if fate == "commit" else txn_stream.abort)(twin.id)
                    twin.decided = fate
            if twin.decided == "commit" and self.random.random() < 0.5:
                for _ in range(self.random.randint(1, 4)):  # between the steps of the preparation
                    await scale_at_random(stream, self.random, into_max=3)
        except Rejected:  # its lease ended, or its stream was sealed
            assert twin.decided is None
            assert (await txn_stream.get(twin.id)).state in (TxnState.ABORTING, TxnState.ABORTED)

    async def _stage(self, txn_stream: TxnStream, twin: TransactionTwin) -> None:
        if not twin.pending:
            count, width = self.random.randint(1, 6), self.random.choice([0, 0, 40, 700])
            number = len(twin.events)
            twin.pending = [
                (b"%s %d %s" % (twin.id.encode(), number + index, b"." * width), self.random.choice(KEYS))
                for index in range(count)
            ]
            twin.stagings += 1
        await write(txn_stream, twin.id, twin.pending, identity=twin.stagings)
        twin.events += twin.pending
        twin.pending = []

    async def _resume(self, txn_stream: TxnStream, stream: Stream, twin: TransactionTwin) -> None:
        """Go on after a death: repeat what was under way, which is not done twice, and decide."""
        found = await txn_stream.db.read(
            partial(find_txn, stream_id=txn_stream.stream.stream_id, txn_id=twin.id)
        )
        if found is None:
            assert not twin.began, "what began is known for a day"
            return
        twin.began = True
        if found.state is TxnState.OPEN and self.random.random() < 0.8:
            try:
                if twin.pending:
                    await self._stage(txn_stream, twin)
            except TransactionAborted:
                return
            await self._use(txn_stream, stream, twin)

    async def _scale(self, stream: Stream) -> None:
        for _ in range(self.random.randint(1, 8)):
            await self._pause(0.5)
            await scale_at_random(stream, self.random, into_max=3)

    async def _seal_early(self, stream: Stream) -> None:
        await self._pause(3)
        await stream.seal()

    async def _look(self, txn_stream: TxnStream) -> None:
        """Look at moments of the stream: each transaction is there whole, or not at all."""
        while True:
            await txn_stream.db.read(
                partial(self._verify_moment, stream_id=txn_stream.stream.stream_id, txn_stream=txn_stream)
            )
            await self._pause(0.25)

    def _verify_moment(self, tx: Tx, stream_id: int, txn_stream: TxnStream) -> None:
        for twin in self.twins:
            found = find_txn(tx, stream_id, twin.id)
            if found is not None:
                rows = tx.execute("SELECT count(*) FROM staged WHERE txn = ?", (twin.id,)).fetchone()
                assert not (found.state is TxnState.COMMITTED and rows[0]), "committed, and staged"
                assert bool(found.appended) == (found.state is TxnState.COMMITTED and found.events > 0)
        stream = get_stream(tx, NAME).value
        committed = tx.execute(
            "SELECT coalesce(sum(events), 0) FROM txn WHERE stream_id = ? AND state = 'committed'",
            (stream_id,),
        ).fetchone()[0]
        visible = tx.execute(
            "SELECT coalesce(sum(count), 0) FROM extent WHERE stream_id = ?", (stream_id,)
        ).fetchone()[0]
        assert visible == committed, f"{visible} events are visible in {current_epoch(tx, stream).number}"

    async def _compare(self, ep: Eventproc) -> None:
        txn_stream = TxnStream(ep.db, await ep.db.read(lambda tx: get_stream(tx, NAME).value))
        committed: list[tuple[int, Sequence[KeyedPayload]]] = []
        for twin in self.twins:
            found = await txn_stream.ended(twin.id)
            assert found is not None or not twin.began, "what began is known for a day"
            if found is None:
                continue
            assert twin.decided is None or twin.decided == (
                "commit" if found.state is TxnState.COMMITTED else "abort"
            )
            if found.state is TxnState.COMMITTED:
                assert "commit" in twin.tried, "the transaction was never decided"
                assert found.order is not None
                assert found.events in (len(twin.events), len(twin.events) + len(twin.pending))
                committed.append((found.order, [*twin.events, *twin.pending][: found.events]))
        wanted: dict[str | None, list[bytes]] = {}
        for _, events in sorted(committed, key=lambda each: each[0]):
            for payload, key in events:
                wanted.setdefault(key, []).append(payload)
        seen = by_key(await events_of(txn_stream))
        assert sorted(seen.pop(None, [])) == sorted(wanted.pop(None, []))
        assert seen == wanted
