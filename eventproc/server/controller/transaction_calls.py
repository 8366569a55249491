"""The controller's calls on transactions: begin, ping, commit, abort, and their states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from eventproc.store.model.epochs import Epoch
from eventproc.store.model.errors import IllegalTransition, NotFound, TransactionAborted
from eventproc.store.model.transactions import TxnState
from eventproc.store.transactions import (
    TxnRecord,
    create_txn,
    decide_abort,
    decide_commit,
    find_txn,
    list_finished,
    ping,
)


class TransactionCalls:
    """Answers calls on transactions."""

    def __init__(self, db: Database) -> None:
        self.db = db

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

        txn, epoch = await self.db.write(make)
        return pb.CreateTxnResponse(
            txnId=txn_message(txn.id),
            activeSegments=[segment_range(name, each) for each in epoch.segments],
        )

    async def commit(self, request: pb.TxnRequest) -> pb.TxnStatus:
        """Decide to commit; the host does it. A repeated call changes nothing."""

        def decide(tx: Tx, stream_id: int, txn_id: str) -> None:
            decide_commit(tx, stream_id, txn_id)

        return await self._decide(request, decide)

    async def abort(self, request: pb.TxnRequest) -> pb.TxnStatus:
        """Decide to abort. A repeated call changes nothing."""

        def decide(tx: Tx, stream_id: int, txn_id: str) -> None:
            decide_abort(tx, stream_id, txn_id, reason="aborted by its client")

        return await self._decide(request, decide)

    async def _decide(self, request: pb.TxnRequest, decide: Callable[[Tx, int, str], None]) -> pb.TxnStatus:
        name, txn_id = name_of(request.streamInfo), txn_id_of(request.txnId)
        try:
            await self.db.write(lambda tx: decide(tx, get_stream(tx, name).value.stream_id, txn_id))
        except NotFound as why:
            missing = pb.TxnStatus.TRANSACTION_NOT_FOUND
            return pb.TxnStatus(
                status=missing if why.kind == "transaction" else pb.TxnStatus.STREAM_NOT_FOUND
            )
        except (TransactionAborted, IllegalTransition):  # decided otherwise; the client must not try again
            return pb.TxnStatus(status=pb.TxnStatus.TRANSACTION_NOT_FOUND)
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
        """Return the state; UNKNOWN for a transaction that never existed, or is forgotten."""
        name = name_of(request.streamInfo)

        def look(tx: Tx) -> TxnRecord | None:
            return find_txn(tx, get_stream(tx, name).value.stream_id, txn_id_of(request.txnId))

        found = await self.db.read(look)
        return pb.TxnState() if found is None else pb.TxnState(state=STATES[found.state])

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
    return list_finished(tx, get_stream(tx, name).value.stream_id)
