"""A transaction without `await`: events wait on the caller's side, and are handed to the loop in batches."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Generic, TypeVar

import anyio

from eventproc.blocking.buffer import Buffer
from eventproc.blocking.loop import Block, Loop
from eventproc.store.segments import AppendResult
from eventproc.store.transactions import PingResult
from eventproc.streams import NewEvent, Transaction, TransactionDescription
from eventproc.streams.codec import PayloadCodec
from eventproc.streams.new_events import check_events
from eventproc.streams.request_calls import WAIT_MS

P = TypeVar("P")


class BlockingTransaction(Block, Generic[P]):
    """A transaction of one stream; made by `BlockingStream.transaction`, `begin` and `transaction_of`.

    For one thread at a time. In `with`, leaving the block commits and returns when all is visible; an exception
    aborts, Ctrl-C too. See `Transaction`.
    """

    def __init__(self, loop: Loop, txn: Transaction[bytes], codec: PayloadCodec[P]) -> None:
        """txn: takes bytes; `codec` encodes on the caller's side, so a wrong payload is refused immediately."""
        super().__init__(loop, txn)
        self._txn = txn
        self._buffer = Buffer(codec, loop.check)
        # Being handed to the loop: an event stays here until the loop has added it, even if the call is interrupted.
        self._handed: deque[NewEvent[bytes]] = deque()
        self._one_hand_over = anyio.Lock()
        self.id = txn.id
        self.stream = txn.stream

    def __repr__(self) -> str:
        return f"Blocking{self._txn!r}"

    @property
    def appended(self) -> tuple[AppendResult, ...]:
        """Where its events are, once it is known to be committed. See `Transaction.appended`."""
        return self._txn.appended

    def begin(self) -> BlockingTransaction[P]:
        """Write the transaction to the database now, and return it. See `Transaction.begin`."""
        self._loop.call(self._txn.begin)
        return self

    def write(
        self,
        payload: P,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
        partition: int | None = None,
    ) -> None:
        """Add one event; about 2 us. Raises InvalidArgument immediately, other errors of `Transaction.write` later."""
        if self._buffer.add(self._buffer.event(payload, key, event_time, headers, partition)):
            self._hand_over()

    def write_many(self, events: Iterable[NewEvent[P] | tuple[P, str | None]]) -> int:
        """Add events, in order; return their number. See `Transaction.write_many`."""
        check_events(events)
        count = 0
        for chunk in self._buffer.chunks(events):
            self._hand_over()
            count += self._loop.call(self._txn.write_many, chunk)
        return count

    def flush(self) -> None:
        """Return when everything written is staged durably. See `Transaction.flush`."""
        self._hand_over()
        self._loop.call(self._txn.flush)

    def commit(self, *, wait: bool = True, timeout_ms: int = WAIT_MS) -> None:
        """Decide that all events become visible, and return when they are. See `Transaction.commit`."""
        self._hand_over()
        self._loop.call(partial(self._txn.commit, wait=wait, timeout_ms=timeout_ms))

    def abort(self, *, force: bool = False) -> None:
        """Decide that the events never become visible, durably. See `Transaction.abort`."""
        self._buffer.take()
        self._handed.clear()
        self._loop.call(partial(self._txn.abort, force=force))

    def ping(self, *, lease_ms: int | None = None) -> PingResult:
        """Extend the lease and become the owner. See `Transaction.ping`."""
        return self._loop.call(partial(self._txn.ping, lease_ms=lease_ms))

    def status(self) -> TransactionDescription:
        """Stage what was written, and return what the database knows. See `Transaction.status`."""
        self._hand_over()
        return self._loop.call(self._txn.status)

    def _leave(self, why: BaseException | None) -> None:
        if why is None:
            try:
                self._hand_over()
            except BaseException as failure:
                super()._leave(failure)
                raise
        super()._leave(why)

    def _hand_over(self) -> None:
        self._handed.extend(self._buffer.take())
        if self._handed:
            self._loop.call(self._add_handed)

    # On the loop's thread:

    async def _add_handed(self) -> None:
        # An interrupted call may still be running here until the loop's next turn.
        async with self._one_hand_over:
            while self._handed:
                event = self._handed[0]
                await self._txn.write(
                    event.payload,
                    key=event.key,
                    event_time=event.event_time,
                    headers=event.headers,
                    partition=event.partition,
                )
                self._handed.popleft()
