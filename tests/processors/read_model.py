"""A read model in a database of a test's user: the payloads that were applied, and apps that keep it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import sqlalchemy as sa

from eventproc import App, Event, RetryPolicy
from eventproc.runtime import Eventproc
from tests.processors.support import GROUP, STREAM

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)


def database(url: str) -> sa.Engine:
    """Return a database with a table for what is applied."""
    created = sa.create_engine(url, poolclass=sa.NullPool)
    with created.begin() as tx:
        tx.execute(sa.text("CREATE TABLE IF NOT EXISTS applied (number INTEGER, key TEXT)"))
    return created


def apply(tx: sa.Connection, events: Sequence[Event[Any]]) -> None:
    rows = [{"number": int(event.payload), "key": event.key} for event in events]
    tx.execute(sa.text("INSERT INTO applied VALUES (:number, :key)"), rows)


def applied(engine: sa.Engine) -> list[int]:
    """Return the numbers that were applied, sorted."""
    with engine.connect() as tx:
        return list(tx.execute(sa.text("SELECT number FROM applied ORDER BY number")).scalars())


def app_of(
    engine: sa.Engine,
    function: Callable[..., None] = apply,
    *,
    payload: type[Any] = bytes,
    retry: RetryPolicy = AT_ONCE,
    round_events: int | None = None,
) -> App:
    app = App()
    app.projection(
        STREAM, group=GROUP, database=engine, payload=payload, retry=retry, round_events=round_events
    )(function)
    return app


async def finish(ep: Eventproc, app: App) -> None:
    """Run the app until everything is durably finished. What a database of the user has is not handled again."""
    async with ep.run(app) as running:
        await running.wait_idle()
