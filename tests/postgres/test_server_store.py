"""A store on a PostgreSQL server, through the public API: what a directory offers, and what only a server can do."""

from __future__ import annotations

import logging
from collections import Counter
from contextlib import aclosing
from importlib import import_module
from itertools import pairwise
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import errors
from eventproc.testing import VirtualClock, check
from tests.postgres.support import run_hook
from tests.server.rest_client import OWN, RestInMemory
from tests.support.postgres import Server, running_server
from tests.support.reading import payloads_of
from tests.topics.compaction_twin import verify_killed_compaction

pytestmark = pytest.mark.subprocess

COUNT = 60


async def test_events_survive_a_split_and_a_new_opening(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("shop")
        orders = await ep.create_stream("shop/orders")
        async with orders.writer() as writer:
            await writer.write_many([(b"%d" % number, str(number % 7)) for number in range(COUNT)])
        [segment] = await orders.segments()
        await orders.split(segment.id)
        async with orders.writer() as writer:
            await writer.write_many([(b"%d" % number, str(number % 7)) for number in range(COUNT, 2 * COUNT)])
        await check(ep.db)
    async with eventproc.open(url, create=False) as ep:
        found = await payloads_of(await ep.stream("shop/orders"))
        assert Counter(found) == Counter(b"%d" % number for number in range(2 * COUNT))
        for key in range(7):
            mine = [int(each) for each in found if int(each) % 7 == key]
            assert mine == sorted(mine)
        await check(ep.db)


async def test_url_may_leave_the_host_to_its_options(url: str, server: Server) -> None:
    bare = url.replace("postgres@/", "/") + "&user=postgres"
    async with eventproc.open(bare) as ep:
        await ep.create_scope("s")
    async with eventproc.open(url) as ep:
        assert [each.name for each in await ep.scopes()] == ["s"]


async def test_transaction_shows_all_of_its_events_or_none(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.transaction() as transaction:
            await transaction.write(b"kept", key="a")
        async with stream.transaction() as transaction:
            await transaction.write(b"dropped", key="a")
            await transaction.abort()
        assert await payloads_of(stream) == [b"kept"]


async def test_exactly_once_processor_moves_progress_and_sql_in_one_transaction(url: str) -> None:
    app = eventproc.App()

    def total(tx: eventproc.AppTx, events: object) -> None:
        assert isinstance(events, (list, tuple))
        tx.execute("CREATE TABLE IF NOT EXISTS app_total (name text PRIMARY KEY, count integer)")
        tx.execute(
            "INSERT INTO app_total VALUES ('all', ?) ON CONFLICT (name) DO UPDATE SET"
            " count = app_total.count + excluded.count",
            (len(events),),
        )

    @app.processor("s/in", group="totals", exactly_once=True, on_commit=total)
    async def forward(event: eventproc.Event, context: eventproc.Context) -> None:
        context.emit("s/out", event.payload, key=event.key)

    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        source, target = await ep.create_stream("s/in"), await ep.create_stream("s/out")
        async with source.writer() as writer:
            await writer.write_many([(b"%d" % number, None) for number in range(COUNT)])
        async with ep.run(app) as running:
            await running.wait_idle()
        assert Counter(await payloads_of(target)) == Counter(b"%d" % number for number in range(COUNT))
        assert await ep.query("SELECT count FROM app_total") == [(COUNT,)]


@pytest.mark.parametrize(
    ("sql", "parameters", "text"),
    [("SELECT nothing FROM nowhere", (), "nowhere"), ("SELECT ?", (), "1"), ("SELECT :a", {"b": 1}, "'a'")],
)
async def test_query_with_invalid_sql_is_an_argument_error(
    url: str, sql: str, parameters: tuple[()] | dict[str, int], text: str
) -> None:
    async with eventproc.open(url) as ep:
        with pytest.raises(errors.InvalidArgument, match=text):
            await ep.query(sql, parameters)


async def test_schema_may_have_the_name_of_a_reserved_word(server: Server) -> None:
    async with eventproc.open(server.store("user")) as ep:
        await ep.create_scope("s")
        assert await ep.query("SELECT 1") == [(1,)]


async def test_role_may_use_a_schema_that_was_made_for_it(url: str, server: Server) -> None:
    schema = url.rpartition("=")[2]
    server.execute("CREATE ROLE modest LOGIN")
    server.execute(f"CREATE SCHEMA {schema} AUTHORIZATION modest")
    async with eventproc.open(url.replace("postgres@", "modest@")) as ep:
        await ep.create_scope("s")


async def test_time_limits_of_sessions_end_no_connection(url: str, server: Server) -> None:
    server.execute("CREATE ROLE impatient LOGIN SUPERUSER")
    server.execute("ALTER ROLE impatient SET idle_session_timeout = 60000")
    async with eventproc.open(url.replace("postgres@", "impatient@")) as ep:
        assert await ep.query("SELECT current_setting('idle_session_timeout')") == [("0",)]


async def test_temporary_table_of_users_sql_hides_no_table_of_the_store(url: str) -> None:
    def hide(tx: eventproc.AppTx) -> None:
        for table in ("record", "segment", "extent", "stream"):
            tx.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (nothing text)")

    async with eventproc.open(url) as ep:
        stream = await run_hook(ep, hide, b"1", b"2")
        assert await payloads_of(stream) == [b"1", b"2"]
        await check(ep.db)


async def test_opening_whose_row_was_removed_says_why_it_stops(url: str, server: Server) -> None:
    async with eventproc.open(url, host=False) as ep:
        server.execute(f"DELETE FROM {url.rpartition('=')[2]}.opening")
        with pytest.raises(errors.DatabaseStopped) as refused:
            await ep.create_scope("s")
        assert refused.value.reason.startswith("it was not heard of")


async def test_two_openings_wake_each_other(url: str) -> None:
    async with eventproc.open(url) as one, eventproc.open(url) as two:
        await one.create_scope("s")
        await one.create_stream("s/t")
        stream = await two.stream("s/t")
        async with stream.reader() as reader, (await one.stream("s/t")).writer() as writer:
            await writer.write(b"1")
            with anyio.fail_after(30):
                assert (await anext(aiter(reader))).payload == b"1"


async def test_writes_go_on_when_their_connections_are_terminated(url: str, server: Server) -> None:
    schema = url.rpartition("=")[2]
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer, anyio.create_task_group() as tasks:

            async def terminate() -> None:
                for _ in range(5):
                    await anyio.to_thread.run_sync(
                        server.execute,
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name LIKE 'eventproc%'",
                    )

            tasks.start_soon(terminate)
            for number in range(COUNT):
                await writer.write(b"%d" % number)
        assert await payloads_of(stream) == [b"%d" % number for number in range(COUNT)], schema
        await check(ep.db)


async def test_writes_go_on_after_a_crash_of_the_server(tmp_path: object) -> None:
    with running_server() as server:
        async with eventproc.open(server.url) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            async with stream.writer() as writer, anyio.create_task_group() as tasks:

                async def crash() -> None:
                    await anyio.to_thread.run_sync(server.kill)
                    await anyio.to_thread.run_sync(server.start)

                for number in range(COUNT):
                    if number == COUNT // 2:
                        tasks.start_soon(crash)
                    await writer.write(b"%d" % number)
            assert await payloads_of(stream) == [b"%d" % number for number in range(COUNT)]
            await check(ep.db)


async def test_writes_wait_until_a_standby_is_promoted() -> None:
    with running_server() as server:
        async with eventproc.open(server.url) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/t")
            async with stream.writer() as writer, anyio.create_task_group() as tasks:
                await writer.write(b"before")
                await anyio.to_thread.run_sync(server.become_standby)
                with pytest.raises(errors.StoreUnusable, match="standby"):
                    await eventproc.open(server.url)
                tasks.start_soon(writer.write, b"after")
                await anyio.to_thread.run_sync(server.promote)
            assert await payloads_of(stream) == [b"before", b"after"]


@pytest.mark.parametrize(
    ("address", "error", "text"),
    [
        ("postgresql://postgres@127.0.0.1:1/postgres", errors.Unreachable, "127.0.0.1:1"),
        ("postgresql://x:secret@[/d", errors.InvalidArgument, "URL"),
        ("postgresql://u@h/d?schema=Bad-Name", errors.InvalidArgument, "Bad-Name"),
        ("postgresql://u:secret/x@h/d", errors.InvalidArgument, "%2F"),
        ("postgresql://u:x@secret@h/d", errors.InvalidArgument, "%40"),
        ("postgresql://u:secret%zz@h/d", errors.InvalidArgument, "%25"),
        ("postgresql://u:secret@h/d?scheme=x", errors.InvalidArgument, "options"),
        (
            "postgresql://u:secret@127.0.0.1:1,127.0.0.1:2/d",
            errors.Unreachable,
            "u@127.0.0.1:1,127.0.0.1:2/d",
        ),
    ],
)
async def test_bad_address_is_one_clear_error(address: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as refused:
        async with eventproc.open(address):
            pass
    assert text in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_store_that_does_not_exist_is_missing_and_stays_so(url: str, server: Server) -> None:
    for _ in range(2):
        with pytest.raises(errors.StoreMissing):
            await eventproc.open(url, create=False)
    schema = url.rpartition("=")[2]
    assert server.execute(f"SELECT 1 FROM pg_namespace WHERE nspname = '{schema}'") == []


async def test_unsynced_server_is_refused_unless_the_store_asks_for_that(url: str, server: Server) -> None:
    server.execute("CREATE ROLE careless LOGIN SUPERUSER")
    server.execute("ALTER ROLE careless SET synchronous_commit = off")
    careless = url.replace("postgres@", "careless@")
    with pytest.raises(errors.StoreUnusable, match="synchronous_commit"):
        await eventproc.open(careless)
    other = careless.replace("schema=", "schema=os_")
    async with eventproc.open(other, durability="os") as ep:
        await ep.create_scope("s")


async def test_role_that_may_not_connect_is_refused(url: str, server: Server) -> None:
    server.execute("CREATE ROLE absent")
    with pytest.raises(errors.StoreUnusable, match="not permitted to log in"):
        await eventproc.open(url.replace("postgres@", "absent@"))


async def test_server_whose_rules_do_not_admit_the_address_refuses_it() -> None:
    with running_server() as server:
        [(rules,)] = server.execute("SHOW hba_file")
        server.stop()
        await anyio.Path(rules).write_text("local all someone trust\n", encoding="utf-8")
        server.start()
        with pytest.raises(errors.StoreUnusable, match=r"no pg_hba\.conf entry"):
            await eventproc.open(server.url)


async def test_role_without_rights_is_refused(url: str, server: Server) -> None:
    server.execute("CREATE ROLE nobody LOGIN")
    with pytest.raises(errors.StoreUnusable, match="permission denied"):
        await eventproc.open(url.replace("postgres@", "nobody@"))


async def test_dead_opening_is_noticed(url: str, server: Server) -> None:
    async with eventproc.open(url) as one:
        two = await eventproc.open(url)
        dead = two.db.instance_id
        assert one.db.peers.is_alive(dead)
        await two.close()
        with anyio.fail_after(30):
            while one.db.peers.is_alive(dead):  # noqa: ASYNC110  # what the server says is read once a second
                await anyio.sleep(0.1)
        assert one.db.peers.is_alive(one.db.instance_id)
    assert server.execute(f"SELECT count(*) FROM {url.rpartition('=')[2]}.opening") == [(0,)]


async def test_writer_notices_commits_of_openings_that_came_and_went(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for number in range(0, 12, 2):
                # Each makes as many commits as the one before; its clock is behind, so that its id sorts first.
                async with eventproc.open(url, host=False, clock=VirtualClock(number)) as other:
                    async with (await other.stream("s/t")).writer() as theirs:
                        await theirs.write(b"%d" % number)
                    await writer.write(b"%d" % (number + 1))
        assert await payloads_of(stream) == [b"%d" % number for number in range(12)]
        await check(ep.db)


async def test_storage_of_a_process_is_refused(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        with pytest.raises(errors.InvalidArgument, match="storage"):
            await ep.create_stream("s/t", storage="memory")


async def test_large_events_are_kept(url: str) -> None:
    large = bytes(range(256)) * 4096
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write_many([(large, None), (b"small", None)])
        assert await payloads_of(stream) == [large, b"small"]


async def test_processor_goes_on_after_the_server_was_away_for_longer_than_a_call_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import_module("opentelemetry.metrics")  # so the processor reads its lag all the time, also if it is idle
    monkeypatch.setattr("eventproc.store.postgres.connection.WRITE_WAIT_MS_MAX", 100)
    app, handled, done, waits = eventproc.App(), list[bytes](), anyio.Event(), anyio.Event()

    def note(record: logging.LogRecord) -> bool:
        if "goes on when that ends" in record.msg:
            waits.set()
        return True

    monkeypatch.setattr(logging.getLogger("eventproc.processors"), "filters", [note])

    @app.processor("s/in", group="g")
    async def handle(event: eventproc.Event) -> None:
        handled.append(event.payload)
        if event.payload == b"2":
            done.set()

    with running_server() as server:
        async with eventproc.open(server.url) as ep:
            await ep.create_scope("s")
            stream = await ep.create_stream("s/in")
            async with ep.run(app) as running, stream.writer() as writer:
                await writer.write(b"1")
                await running.wait_idle()
                with monkeypatch.context() as patch:
                    patch.setattr("eventproc.store.database.write_queue.WRITE_WAIT_MS_MAX", 1_000)
                    await anyio.to_thread.run_sync(server.kill)
                    with anyio.fail_after(60):
                        await waits.wait()
                await anyio.to_thread.run_sync(server.start)
                await writer.write(b"2")
                with anyio.fail_after(60):
                    await done.wait()
            assert handled == [b"1", b"2"]


async def test_an_id_is_appended_once_by_many_writers_on_a_server(url: str) -> None:
    places: set[tuple[object, ...]] = set()

    async def write(ep: eventproc.Eventproc) -> None:
        async with (await ep.stream("s/t")).writer() as writer:
            for each in range(20):
                found = await writer.write(b"x", key=str(each), id=f"é{each}")
                places.add((found.id, found.segment, found.number, found.offset, found.timestamp))

    async with eventproc.open(url) as one, eventproc.open(url) as two:
        await one.create_scope("s")
        stream = await one.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
        async with stream.writer() as writer:
            later = await writer.write(b"later", id="later", delay_ms=3_600_000)
            assert await writer.write(b"later", id="later", delay_ms=1) == later
            assert (await one.delayed.cancel("later")).payload == b"later"
        async with anyio.create_task_group() as tasks:
            for ep in (one, one, two, two):
                tasks.start_soon(write, ep)
        async with stream.reader() as reader:
            found = [event async for event in reader.until(await stream.tail())]
        assert (len(places), len(found), {each.id for each in found}) == (
            20,
            20,
            {f"é{n}" for n in range(20)},
        )
        await check(one.db)


async def test_delayed_events_and_ticks_are_appended_by_the_host_of_a_server(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer(name="w") as writer:
            await writer.write_many(
                [eventproc.NewEvent(b"%d" % n, "k\0", delay_ms=200 + n % 3) for n in range(30)], sequence=1
            )
        await ep.schedules.create("s/c", cron="* * * * * *", stream="s/t", payload="tick", missed="all")
        found: list[eventproc.Event] = []
        async with stream.reader() as reader, aclosing(aiter(reader)) as events:
            with anyio.fail_after(30):
                while sum(each.payload == b"tick" for each in found) < 2 or len(found) < 32:
                    found.append(await anext(events))
        await ep.schedules.delete("s/c")
        written = [int(each.payload) for each in found if each.payload != b"tick"]
        assert written == sorted(range(30), key=lambda n: (n % 3, n))
        ticks = [each.event_time or 0 for each in found if each.payload == b"tick"]
        assert [after - before for before, after in pairwise(ticks)] == [1_000] * (len(ticks) - 1)
        assert (await ep.delayed.list(), await ep.schedules.list()) == ([], [])
        await check(ep.db)


async def test_topic_keeps_the_newest_event_of_each_key(url: str) -> None:
    policy = eventproc.CompactionPolicy(min_age_ms=0)
    async with eventproc.open(url) as ep, eventproc.open(url) as other:
        await ep.create_scope("shop")
        prices = await ep.create_topic("shop/prices", compaction=policy)
        async with prices.writer() as writer:
            for number in range(COUNT):
                await writer.post(b"%d" % number * 100, key=str(number % 7))
        assert (await prices.compact()).events == COUNT - 7
        found = await (await other.topic("shop/prices")).read_range(0)
        assert [event.number for event in found] == list(range(COUNT - 7, COUNT))
        assert [event.payload for event in found] == [b"%d" % each.number * 100 for each in found]
        await ep.tasks.wait((await ep.tasks.submit(eventproc.CompactTopicTask("shop/prices"))).id)
        await check(ep.db)


async def test_a_compaction_that_is_killed_keeps_the_newest_event_of_each_key(url: str) -> None:
    await verify_killed_compaction(url, "compaction.commit", 2)


async def test_step_of_the_servers_clock_ends_no_call(url: str) -> None:
    calls, begun, may_end = Counter[str | None](), anyio.Event(), anyio.Event()
    app = eventproc.App()

    @app.processor("s/t", group="g", retry=eventproc.RetryPolicy(wait_ms=50), timeout_ms=60_000)
    async def handle(event: eventproc.Event) -> None:
        calls[event.key] += 1
        if event.key == "slow":
            begun.set()
            await may_end.wait()
        elif calls["fails"] == 1:
            await begun.wait()
            clock: Any = ep.db.clock
            clock.measure(clock.wall_ms() + 3_600_000)
            assert clock.monotonic_ms()  # an hour ahead of what the next look finds
            raise OSError("away")
        else:
            may_end.set()

    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with ep.run(app) as running, stream.writer() as writer:
            await writer.write_many([(b"", "slow"), (b"", "fails")])
            with anyio.fail_after(30):
                await may_end.wait()
            await running.wait_idle()
    assert calls == {"slow": 1, "fails": 2}


async def test_leases_are_measured_alike_after_the_servers_clock_was_set_back(url: str) -> None:
    async with eventproc.open(url) as host:
        await host.create_scope("s")
        await host.create_stream("s/t")
        clock: Any = host.db.clock
        clock.measure(clock.wall_ms() + 3_600_000)
        assert clock.monotonic_ms()  # an hour ahead of what the next look finds
        async with eventproc.open(url, host=False) as other:
            txn = await (await other.stream("s/t")).begin(lease_ms=60_000)
            await anyio.sleep(3)
            await txn.write(b"1")
            await txn.commit()


async def test_a_name_with_nul_is_refused_and_is_no_failure_of_the_server(url: str) -> None:
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        rest = RestInMemory(ep)
        for path in ("requests/a%00b", "groups?prefix=a%00b", "streams/s/a%00b/transactions/a"):
            assert (await rest.call("GET", f"{OWN}/{path}")).status == 400, path
        with pytest.raises(errors.InvalidArgument, match="NUL"):
            await ep.requests.get("a\0b")


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
async def test_a_database_that_does_not_hold_every_text_is_refused(server: Server, encoding: str) -> None:
    server.execute(f"CREATE DATABASE {encoding} TEMPLATE template0 ENCODING {encoding} LOCALE 'C'")
    address = server.store("s").replace("/postgres?", f"/{encoding.lower()}?")
    with pytest.raises(errors.StoreUnusable, match=f"{encoding}; create one with ENCODING 'UTF8'"):
        await eventproc.open(address)


async def test_the_encoding_of_the_environment_changes_no_text(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    async with eventproc.open(url) as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer(name="\u20ac") as writer:
            await writer.write(b"1")
        assert await payloads_of(stream) == [b"1"]
