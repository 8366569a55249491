"""The controller's calls on transactions: begin, ping, commit, abort, and their states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from eventproc.base.bounded_cache import BoundedCache
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.conversions import (
    PINGS,
    STATES,
    name_of,
    new_txn_id,
    segment_range,
    server_lease_ms,
    txn_id_of,
    txn_message,
)
from eventproc.server.writable_streams import verify_writable
from eventproc.store.catalog import current_epoch, get_stream
from eventproc.store.database import Database, Tx
from eventproc.store.marks import CommitTime, note_at_commit
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import Corrupt
from eventproc.store.model.time_marks import is_writer_name
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions import (
    CLIENT_IDS_END,
    TXN_OUTCOMES,
    TxnRecord,
    create_txn,
    decide_abort,
    decide_and_commit,
    decide_commit,
    find_txn,
    list_finished,
    ping,
    watch_txn,
)

STATE_WAIT_MS: Final = 500
"""How long a question for the state of a decided transaction waits until it is final, in ms. Higher: a client whose
commit fails learns later that it is not visible yet; lower: more questions, of a millisecond of CPU each."""

COMMITTED_MAX: Final = 1_000
"""Committed transactions that are remembered, of 0.3 kB each. Higher: more memory; lower: under many clients their
questions read the database."""

DECIDED: Final = (TxnState.COMMITTING, TxnState.ABORTING)
"""The states that end by themselves."""


class TransactionCalls:
    """Answers calls on transactions."""

    def __init__(self, db: Database) -> None:
        self.db = db
        self._committed = BoundedCache[tuple[str, str], bool](COMMITTED_MAX)
        """The last transactions that calls have committed: their clients ask for the state next."""

    async def begin(self, request: pb.CreateTxnRequest) -> pb.CreateTxnResponse:
        """Begin a transaction on the segments of the current epoch. Raises NotFound, StreamSealed, InvalidArgument."""
        name = name_of(request.streamInfo)

        def make(tx: Tx) -> tuple[TxnRecord, Epoch]:
            stream = get_stream(tx, name).value
            verify_writable(stream)
            epoch = current_epoch(tx, stream)
            txn = create_txn(
                tx,
                name,
                stream.stream_id,
                new_txn_id(self.db.clock, epoch.number),
                instance=self.db.instance_id,
                lease_ms=server_lease_ms(request.lease),
            )
            return txn, epoch

        txn, epoch = await self.db.write(make, brief=True)
        return pb.CreateTxnResponse(
            txnId=txn_message(txn.id),
            activeSegments=[segment_range(name, each) for each in epoch.segments],
        )

    async def commit(self, request: pb.TxnRequest) -> pb.TxnStatus:
        """Commit, in this step if possible; else the host does it. A repeated call changes nothing.

        With the commit its writer may note a time. The Rust client sends 0 where it has none.
        """
        name = name_of(request.streamInfo)
        noted = CommitTime(request.writerId, request.timestamp)

        def commit(tx: Tx, stream_id: int, txn_id: str) -> None:
            txn = decide_and_commit(tx, stream_id, txn_id)
            note(tx, txn)
            if txn.state is TxnState.COMMITTED:
                tx.after(partial(self._committed.keep, (name, txn_id), True))

        def decide(tx: Tx, stream_id: int, txn_id: str) -> None:
            note(tx, decide_commit(tx, stream_id, txn_id))

        def note(tx: Tx, txn: TxnRecord) -> None:
            if noted.writer and is_writer_name(noted.writer) and noted.time > 0:
                note_at_commit(tx, get_stream(tx, name).value, txn, noted)

        try:
            return await self._decide(request, commit)
        except Corrupt:  # the host says so, and keeps the order of commits
            return await self._decide(request, decide)

    async def abort(self, request: pb.TxnRequest) -> pb.TxnStatus:
        """Decide to abort. A repeated call changes nothing."""

        def decide(tx: Tx, stream_id: int, txn_id: str) -> None:
            decide_abort(tx, stream_id, txn_id, reason="aborted by its client")

        return await self._decide(request, decide)

    async def _decide(self, request: pb.TxnRequest, decide: Callable[[Tx, int, str], None]) -> pb.TxnStatus:
        name, txn_id = name_of(request.streamInfo), txn_id_of(request.txnId)
        await self.db.write(lambda tx: decide(tx, get_stream(tx, name).value.stream_id, txn_id), brief=True)
        return pb.TxnStatus()

    async def ping(self, request: pb.PingTxnRequest) -> pb.PingTxnStatus:
        """Extend the lease. Raises NotFound for a missing stream."""
        name = name_of(request.streamInfo)

        def extend(tx: Tx) -> pb.PingTxnStatus:
            stream_id = get_stream(tx, name).value.stream_id
            lease_ms = server_lease_ms(request.lease)
            answer = ping(
                tx,
                stream_id,
                txn_id_of(request.txnId),
                instance=self.db.instance_id,
                lease_ms=lease_ms,
            )
            return pb.PingTxnStatus(status=PINGS[answer])

        return await self.db.write(extend)

    async def state(self, request: pb.TxnRequest) -> pb.TxnState:
        """Return the state; UNKNOWN for a transaction that never existed, or is forgotten.

        Clients ask again without a pause until a decided transaction is final, which it is within milliseconds. So the
        answer waits for that, for STATE_WAIT_MS at most.
        """
        name, txn_id = name_of(request.streamInfo), txn_id_of(request.txnId)
        if self._committed.find((name, txn_id)) is not None:
            return pb.TxnState(state=STATES[TxnState.COMMITTED])

        def look(tx: Tx) -> tuple[int, TxnRecord | None]:
            stream_id = get_stream(tx, name).value.stream_id
            return stream_id, find_txn(tx, stream_id, txn_id)

        stream_id, found = await self.db.read(look)
        if found is not None and found.state in DECIDED:
            found = await self._wait_final(stream_id, txn_id, look)
        return pb.TxnState() if found is None else pb.TxnState(state=STATES[found.state])

    async def _wait_final(
        self, stream_id: int, txn_id: str, look: Callable[[Tx], tuple[int, TxnRecord | None]]
    ) -> TxnRecord | None:
        """Return a decided transaction when it is final, as this process writes it or the database says."""
        endings = self.db.shared[TXN_OUTCOMES]
        until_ms = self.db.clock.monotonic_ms() + STATE_WAIT_MS
        key = stream_id, txn_id
        with endings.expecting(key), self.db.subscribe([watch_txn(stream_id, txn_id)]) as changes:
            while True:
                _, found = await self.db.read(look)  # after the subscription, which therefore misses nothing
                left_ms = until_ms - self.db.clock.monotonic_ms()
                if found is None or found.state not in DECIDED or left_ms <= 0:
                    return found
                await changes.wait(left_ms)
                if (ended := endings.find(key)) is not None:
                    return ended

    async def completed(self, request: pb.ListCompletedTxnRequest) -> pb.ListCompletedTxnResponse:
        """Return the latest finished transactions that clients can name."""
        name = name_of(request.streamInfo)
        look = partial(_finished, name=name)
        answer = pb.TxnResponse
        rows = [
            answer(
                txnId=message,
                status=answer.COMMITTED if txn.state is TxnState.COMMITTED else answer.ABORTED,
            )
            for txn in await self.db.read(look)
            if (message := txn_message(txn.id)) is not None
        ]
        return pb.ListCompletedTxnResponse(response=rows)


def _finished(tx: Tx, name: str) -> list[TxnRecord]:
    return list_finished(tx, get_stream(tx, name).value.stream_id, after=CLIENT_IDS_END)
