"""Reads on a server: each on one snapshot, on another connection if the first one is lost."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import psycopg

from eventproc.base.clock import Clock
from eventproc.store.database.database import WRITE_WAIT_MS_MAX
from eventproc.store.database.tx import ReadState, SharedState, Tx
from eventproc.store.model.errors import Unreachable
from eventproc.store.postgres.connection import PostgresConnection, is_lost, one_line, user_sql

T = TypeVar("T")


class SnapshotReader:
    """Runs reads. closing: ends waiting for the server."""

    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing

    def __call__(
        self, connection: PostgresConnection, fn: Callable[[Tx], T], clock: Clock, shared: SharedState
    ) -> T:
        """See `ReadOne`. Waits for the server as long as a write does. Raises Unreachable."""
        began_ms = clock.monotonic_ms()

        def waited_ms() -> int:
            return clock.monotonic_ms() - began_ms

        while True:
            try:
                return _read(connection, fn, clock, shared)
            except psycopg.Error as why:
                if not is_lost(why):
                    raise
                if not connection.connect_until(self._closing, lambda: waited_ms() >= WRITE_WAIT_MS_MAX):
                    reason = f"{one_line(why)}, for {waited_ms() / 1000:.1f} s"
                    raise Unreachable(place=connection.address.name, reason=reason) from why


def _read(connection: PostgresConnection, fn: Callable[[Tx], T], clock: Clock, shared: SharedState) -> T:
    connection.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        return fn(Tx(connection, clock, ReadState(shared), snapshot=True, restrict=user_sql))
    finally:
        if connection.in_transaction:  # after ROLLBACK the driver would prepare its statements again
            connection.run("ROLLBACK" if connection.is_failed else "COMMIT")
