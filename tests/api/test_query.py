"""Reading the tables of apps with SQL: `ep.query`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import eventproc
from eventproc.errors import InvalidArgument, NotSupported


async def test_query_returns_the_rows_that_a_processor_wrote() -> None:
    app = eventproc.App()

    @app.setup
    def make_tables(tx: eventproc.AppTx) -> None:
        tx.execute("CREATE TABLE IF NOT EXISTS app_seen (key TEXT, payload BLOB)")

    def note(tx: eventproc.AppTx, events: Sequence[eventproc.Event]) -> None:
        tx.executemany("INSERT INTO app_seen VALUES (?, ?)", [(event.key, event.payload) for event in events])

    @app.processor("shop/orders", exactly_once=True, on_commit=note)
    async def handle(event: eventproc.Event) -> None: ...

    async with eventproc.open_memory() as ep:
        await ep.create_scope("shop")
        orders = await ep.create_stream("shop/orders")
        async with orders.writer() as writer:
            await writer.write_many([(b"apple", "ana"), (b"pear", "bob")])
        async with ep.run(app) as running:
            await running.wait_idle()
        assert sorted(await ep.query("SELECT key, payload FROM app_seen")) == [
            ("ana", b"apple"),
            ("bob", b"pear"),
        ]
        assert await ep.query("SELECT payload FROM app_seen WHERE key = ?", ("bob",)) == [(b"pear",)]
        assert await ep.query("SELECT payload FROM app_seen WHERE key = :key", {"key": "eve"}) == []


@pytest.mark.parametrize(
    "sql, parameters, reason",
    [
        ("SELEC", (), "syntax error"),
        ("SELECT * FROM app_no", (), "no such table: app_no"),
        ("SELECT ?", (), "bindings"),
        ("SELECT ?", (2**70,), "too large"),
        ("SELECT ?", ("\udcff",), "surrogates not allowed"),
        ("SELECT 1; SELECT 2", (), "one statement"),
        ("CREATE TABLE app_new (n)", (), "readonly"),
        (3, (), "must be str"),
    ],
)
async def test_query_names_the_statement_that_is_not_valid(
    sql: str, parameters: tuple[int | str, ...], reason: str
) -> None:
    async with eventproc.open_memory() as ep:
        with pytest.raises(InvalidArgument, match=reason) as raised:
            await ep.query(sql, parameters)
        assert str(sql) in str(raised.value)


@pytest.mark.parametrize("sql", ["COMMIT", "PRAGMA user_version", "ATTACH ':memory:' AS other"])
async def test_query_refuses_statements_that_are_not_allowed(sql: str) -> None:
    async with eventproc.open_memory() as ep:
        with pytest.raises(NotSupported):
            await ep.query(sql)
