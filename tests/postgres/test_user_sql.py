"""SQL of users on a server: the rights that it runs with, and what it cannot change."""

from __future__ import annotations

import pytest

import eventproc
from eventproc import errors
from eventproc.testing import check
from tests.postgres.support import run_hook
from tests.support.postgres import Server

pytestmark = pytest.mark.subprocess


def allow_modest(server: Server, url: str, name: str) -> tuple[str, str]:
    """Return a schema, and its address for its owner, a role that may not create roles."""
    schema = url.rpartition("=")[2]
    server.execute(f"CREATE ROLE {name} LOGIN")
    server.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {name}")
    return schema, url.replace("postgres@", f"{name}@")


async def test_role_of_users_sql_comes_with_an_opening_that_may_create_it(url: str, server: Server) -> None:
    schema, modest = allow_modest(server, url, "humble")
    async with eventproc.open(modest) as ep:
        with pytest.raises(errors.NotSupported, match="eventproc init"):
            await ep.query("SELECT 1")
        async with eventproc.open(url, host=False):
            assert await ep.query("SELECT 1") == [(1,)]
        assert await ep.query(f"SELECT 1 FROM {schema}.segment WHERE false") == []
        await run_hook(ep, lambda tx: tx.execute("CREATE TABLE app_mine (n bigint)"))


async def test_opening_grants_tables_that_the_role_of_users_sql_cannot_read(url: str, server: Server) -> None:
    schema = url.rpartition("=")[2]
    async with eventproc.open(url, host=False) as ep:
        server.execute(f"REVOKE SELECT ON {schema}.segment FROM {schema}_app")
        with pytest.raises(errors.NotSupported, match="permission denied"):
            await ep.query("SELECT 1 FROM segment")
        async with eventproc.open(url, host=False):
            assert await ep.query("SELECT 1 FROM segment WHERE false") == []


@pytest.mark.parametrize(
    "sql", ["SELECT*FROM (VALUES (1)) AS t", "VALUES(1)", "(SELECT 1)", "SELECT/**/1", "\t(\n(SELECT(1)))"]
)
async def test_users_sql_needs_no_space_after_its_first_word(url: str, sql: str) -> None:
    async with eventproc.open(url, host=False) as ep:
        assert await ep.query(sql) == [(1,)]


@pytest.mark.parametrize(
    "change",
    [
        "SELECT set_config('role', 'none', true)",
        "SELECT set_config('role', 'postgres', false)",
        "UPDATE pg_settings SET setting = 'off' WHERE name = 'synchronous_commit'",
        "SELECT set_config('synchronous_commit', 'off', true)",
        "SELECT set_config('synchronous_commit', 'off', false)",
    ],
)
async def test_users_sql_that_changes_role_or_durability_is_undone(url: str, change: str) -> None:
    def hook(tx: eventproc.AppTx) -> None:
        tx.execute(change)
        if "role" in change:
            tx.execute("DELETE FROM segment")

    async with eventproc.open(url) as ep:
        with pytest.raises(errors.ProcessorFailed, match="it changed role or synchronous_commit"):
            await run_hook(ep, hook)
        assert await (await ep.stream("s/in")).segments()
        assert await ep.query("SELECT current_setting('synchronous_commit')") == [("on",)]
        await check(ep.db)


@pytest.mark.parametrize("value", ["a\0b", object()])
async def test_parameter_that_cannot_be_sent_is_an_argument_error(url: str, value: str) -> None:
    async with eventproc.open(url, host=False) as ep:
        with pytest.raises(errors.InvalidArgument, match="SELECT"):
            await ep.query("SELECT ?::text", (value,))


async def test_deferred_constraint_of_a_users_table_fails_its_function_only(url: str) -> None:
    def hook(tx: eventproc.AppTx) -> None:
        tx.execute("CREATE TABLE app_a (n bigint PRIMARY KEY)")
        tx.execute("CREATE TABLE app_b (n bigint REFERENCES app_a DEFERRABLE INITIALLY DEFERRED)")
        tx.execute("INSERT INTO app_b VALUES (1)")

    async with eventproc.open(url) as ep:
        with pytest.raises(errors.ProcessorFailed, match="foreign key"):
            await run_hook(ep, hook)
        await ep.create_scope("other")
