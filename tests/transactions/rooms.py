"""A stream of two segments, and clients of its transactions that say little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

import attrs

from eventproc.store.catalog import SCOPE, Scope, StreamRecord, insert_stream
from eventproc.store.clock import new_id
from eventproc.store.database import Database, Tx
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from eventproc.store.records import create
from eventproc.store.segments import SegmentEvents, WriterSequence
from eventproc.store.transactions import (
    PingResult,
    StagedTotals,
    TxnRecord,
    create_txn,
    decide_abort,
    decide_commit,
    get_txn,
    ping,
    stage,
)
from tests.segments.events import Written
from tests.segments.events import part as encode_part

T = TypeVar("T")

NAME: Final = "s/t"
ZERO, ONE = SegmentId(0), SegmentId(1)
LOW, HIGH = "N14228", "a"
"""Keys of the segments ZERO and ONE, while there are two."""


def part(segment: SegmentId, events: Sequence[tuple[bytes, str | None]]) -> SegmentEvents:
    """Return (payload, key) pairs as a writer hands them over."""
    return encode_part(segment, (Written(payload, key) for payload, key in events))


@attrs.frozen
class Room:
    """One stream in a database."""

    db: Database
    stream: StreamRecord

    async def begin(self, *, lease_ms: int | None = 10_000, txn_id: str | None = None) -> str:
        txn_id = txn_id or new_id(self.db.clock)
        make = partial(
            create_txn,
            stream=NAME,
            stream_id=self.stream.stream_id,
            txn_id=txn_id,
            instance=self.db.instance_id,
            lease_ms=lease_ms,
        )
        return (await self.db.write(make)).id

    def staging(
        self, txn_id: str, *parts: SegmentEvents, identity: WriterSequence | None = None
    ) -> Callable[[Tx], StagedTotals]:
        return partial(
            stage,
            stream=NAME,
            stream_id=self.stream.stream_id,
            txn_id=txn_id,
            parts=parts,
            identity=identity,
        )

    async def stage(
        self, txn_id: str, *parts: SegmentEvents, identity: WriterSequence | None = None
    ) -> StagedTotals:
        return await self.db.write(self.staging(txn_id, *parts, identity=identity))

    async def ping(self, txn_id: str, lease_ms: int | None = None, instance: str = "b") -> PingResult:
        return await self.db.write(
            lambda tx: ping(tx, self.stream.stream_id, txn_id, instance=instance, lease_ms=lease_ms)
        )

    async def commit(self, txn_id: str) -> TxnRecord:
        return await self.db.write(lambda tx: decide_commit(tx, self.stream.stream_id, txn_id))

    async def abort(self, txn_id: str, *, version: int | None = None) -> TxnRecord:
        return await self.db.write(
            lambda tx: decide_abort(tx, self.stream.stream_id, txn_id, reason="a test", version=version)
        )

    async def get(self, txn_id: str) -> TxnRecord:
        return await self.db.read(lambda tx: get_txn(tx, self.stream.stream_id, txn_id))

    async def rows(self, sql: str, *parameters: str | int) -> list[tuple[object, ...]]:
        return await self.db.read(lambda tx: tx.execute(sql, parameters).fetchall())


async def open_room(db: Database, *, segments: int = 2) -> Room:
    def make(tx: Tx) -> StreamRecord:
        create(tx, SCOPE, "s", Scope(name="s", created_ms=tx.now_ms))
        return insert_stream(tx, NAME, StreamConfig(scaling=ScalingPolicy.fixed(segments)))

    return Room(db, await db.write(make))
