"""What a handler gets besides its event: the attempt, a way to emit, a logger; and SQL at the commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from logging import Logger, LoggerAdapter
from typing import TypeAlias

from eventproc.processors.emit import Emission
from eventproc.store.database import Tx
from eventproc.store.database.tx import Cursor, SqlParameters

Log: TypeAlias = "LoggerAdapter[Logger]"


class Context:
    """Of one call of a handler. `attempt` counts from 1; it is larger when the event was tried before, here."""

    __slots__ = ("attempt", "emitted", "log")

    def __init__(self, attempt: int, log: Log) -> None:
        self.attempt = attempt
        self.log = log
        self.emitted: list[Emission] = []

    def emit(
        self,
        stream: str,
        payload: bytes,
        *,
        key: str | None = None,
        event_time: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Append an event to `stream` ("scope/stream") in the transaction that makes this one finished.

        Nothing is emitted when the call fails, is cancelled, or its segment was taken over meanwhile. Raises
        InvalidArgument for what no writer would take; a stream that is missing or sealed by then stops the
        processor.
        """
        self.emitted.append(Emission.make(stream, payload, key=key, event_time=event_time, headers=headers))


class AppTx:
    """SQL in a transaction of the library: read anything, change tables whose names begin with `app_`.

    Transaction control, ATTACH and PRAGMA raise NotSupported.
    """

    __slots__ = ("_tx",)

    def __init__(self, tx: Tx) -> None:
        self._tx = tx

    @property
    def now_ms(self) -> int:
        """Wall clock of the transaction, ms since 1970."""
        return self._tx.now_ms

    def execute(self, sql: str, parameters: SqlParameters = ()) -> Cursor:
        """Run one statement; its cursor must be used up before the function returns."""
        return self._tx.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[SqlParameters]) -> Cursor:
        """Run one statement for each row of parameters."""
        return self._tx.executemany(sql, parameters)
