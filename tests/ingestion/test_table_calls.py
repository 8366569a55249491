"""Tables are listed, described and dropped alike in Python, at the shell and over REST, without Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import Eventproc
from eventproc.errors import InvalidArgument, NotFound
from tests.cli.conftest import run_here
from tests.ingestion.support import HOUR_MS, publish_rows, spec_of
from tests.server.access_support import READ, add_user, loaded
from tests.server.rest_client import OWN, RestInMemory
from tests.support.asyncio_alone import anyio_backend as anyio_backend  # a fixture

SPEC = {"io": {"streams": ["s/t"]}, "schema": {"datasource": "clicks", "dimensions": ["page"]}}


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Eventproc]:
    async with eventproc.open(folder / "data", durability="os") as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        await ep.submit_supervisor({"id": "clicks", **SPEC})
        yield ep


@pytest.fixture
async def ep(tmp_path: Path) -> AsyncIterator[Eventproc]:
    async with opened(tmp_path) as ep:
        yield ep


async def publish(ep: Eventproc) -> None:
    """Publish three rows of two hours, in three files."""
    for time_ms in (1, 2, HOUR_MS):
        await publish_rows(ep.db, time_ms)


async def test_a_table_is_described_before_and_after_its_first_publication(ep: Eventproc) -> None:
    assert await ep.tables() == []
    before = await ep.describe_table("clicks")
    assert (before.files, before.first_ms, before.columns, before.partitioning) == (0, None, (), None)
    await publish(ep)
    found = await ep.describe_table("clicks")
    assert (found.files, found.rows, found.intervals, found.partitioning) == (3, 3, 2, "hour")
    assert (found.first_ms, found.last_ms) == (1, HOUR_MS)
    assert [(each.name, each.type) for each in found.columns] == [
        ("__time", "timestamptz"),
        ("page", "string"),
    ]
    assert [(each.start_ms, each.end_ms, each.files) for each in found.intervals_by_start] == [
        (0, HOUR_MS, 2),
        (HOUR_MS, 2 * HOUR_MS, 1),
    ]
    assert found.version == await ep.table_version("clicks") != before.version
    (listed,) = await ep.tables()
    assert eventproc.to_dict(listed).items() <= eventproc.to_dict(found).items()


@pytest.mark.parametrize("start", [HOUR_MS, str(HOUR_MS), "1970-01-01T01:00", "1970-01-01T03:00+02:00"])
async def test_the_bounds_of_a_description_are_times_in_each_of_their_forms(
    ep: Eventproc, start: int | str
) -> None:
    await publish(ep)
    assert (await ep.describe_table("clicks", start=start)).rows == 1
    assert (await ep.describe_table("clicks", end=start)).rows == 2


async def test_a_bound_in_iso_8601_is_exact_to_the_ms(ep: Eventproc) -> None:
    await publish_rows(ep.db, 1_081_820_707_392)
    for start, rows in (("2004-04-13T01:45:07.392", 1), ("2004-04-13T01:45:07.393", 0)):
        assert (await ep.describe_table("clicks", start=start)).rows == rows, start


async def test_a_dry_run_of_a_drop_says_what_the_drop_removes(ep: Eventproc) -> None:
    await publish(ep)
    before = await ep.tables()
    assert (await ep.drop_table("clicks", end=HOUR_MS - 1, dry_run=True)).files == 0, "within an interval"
    planned = await ep.drop_table("clicks", end=HOUR_MS, dry_run=True)
    assert (planned.files, planned.rows) == (2, 2)
    assert await ep.tables() == before
    assert await ep.drop_table("clicks", end=HOUR_MS) == planned
    assert [each.rows for each in await ep.tables()] == [1]
    planned = await ep.drop_table("clicks", dry_run=True)
    assert await ep.drop_table("clicks") == planned
    assert await ep.tables() == []
    assert (await ep.describe_table("clicks")).rows == 0


async def test_the_interval_of_all_times_begins_before_1970(ep: Eventproc) -> None:
    await ep.submit_supervisor(spec_of(schema={"segment_granularity": "all"}))
    await publish_rows(ep.db, -5)
    await publish_rows(ep.db, 5)
    assert (await ep.drop_table("clicks", start=0)).files == 0
    assert (await ep.drop_table("clicks", end=HOUR_MS)).files == 0
    assert (await ep.drop_table("clicks", start="0001-01-01", end="9999-12-31T23:59:59.999")).files == 0
    assert (await ep.drop_table("clicks", start="0001-01-01")).files == 2


async def test_tables_are_listed_in_pages_by_name(ep: Eventproc) -> None:
    for name in ("views", "carts", "clicks", "calls"):
        await publish_rows(ep.db, 1, table=name)
    assert [each.name for each in await ep.tables()] == ["calls", "carts", "clicks", "views"]
    assert [each.name for each in await ep.tables(prefix="c", after="calls", limit=1)] == ["carts"]
    assert [each.name for each in await ep.tables(after="clicks")] == ["views"]


async def test_a_table_that_no_spec_names_is_not_found_and_a_wrong_time_is_refused(ep: Eventproc) -> None:
    for call in (ep.describe_table, ep.table_version, ep.drop_table):
        with pytest.raises(NotFound, match="table 'views'"):
            await call("views")
    wrong: Any
    for wrong in ("yesterday", True, 1.5):
        with pytest.raises(InvalidArgument, match="start"):
            await ep.describe_table("clicks", start=wrong)
        with pytest.raises(InvalidArgument, match="start"):
            await ep.drop_table("clicks", start=wrong)


async def test_listing_and_dropping_tables_imports_no_spark(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    await publish(ep)
    assert len(await ep.tables()) == 1
    assert (await ep.drop_table("clicks", end=HOUR_MS)).files == 2


async def test_rest_shows_and_drops_tables_as_python_does(ep: Eventproc) -> None:
    rest = RestInMemory(ep)
    await publish(ep)
    await publish_rows(ep.db, 1, table="views")
    first = await rest.ok("GET", f"{OWN}/tables?limit=1")
    assert ([each["name"] for each in first["items"]], first["next"]) == (["clicks"], "clicks")
    described = await rest.ok("GET", f"{OWN}/tables/clicks?start=1970-01-01T01:00")
    assert described == eventproc.to_dict(await ep.describe_table("clicks", start=HOUR_MS))
    body = {"end": str(HOUR_MS), "dry_run": True}
    planned = await rest.ok("POST", f"{OWN}/tables/clicks/drop", body)
    assert planned["files"] == 2
    assert await rest.ok("POST", f"{OWN}/tables/clicks/drop", {**body, "dry_run": False}) == planned
    assert (await ep.describe_table("clicks")).rows == 1
    assert (await rest.call("GET", f"{OWN}/tables/carts")).status == 404
    assert (await rest.call("GET", f"{OWN}/tables/clicks?start=soon")).status == 400


def test_the_shell_shows_what_python_returns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def prepare() -> dict[str, object]:
        async with opened(tmp_path) as ep:
            await publish(ep)
            return eventproc.to_dict(await ep.describe_table("clicks", start=HOUR_MS))

    wanted = anyio.run(prepare)

    def printed(*arguments: object) -> Any:
        capsys.readouterr()
        assert run_here(tmp_path / "data", *arguments, "--output", "json") == 0
        return json.loads(capsys.readouterr().out)

    assert printed("table", "describe", "clicks", "--start", HOUR_MS) == wanted
    planned = printed("table", "drop", "clicks", "--end", HOUR_MS, "--dry-run")
    assert (planned["files"], planned["rows"]) == (2, 2)
    assert printed("table", "drop", "clicks", "--end", HOUR_MS, "--yes")["files"] == 2
    assert [each["rows"] for each in printed("table", "list")] == [1]


async def test_a_table_is_shown_to_those_who_may_read_all_streams_that_it_is_made_of(ep: Eventproc) -> None:
    await publish(ep)
    await publish_rows(ep.db, 1, table="views")  # of an engine that no stream is known of
    await ep.create_stream("s/u")
    tokens = await ep.db.write(
        lambda tx: {each: add_user(tx, f"u{len(each)}", (READ, each)) for each in ("*", "s/*", "s/other")}
    )
    authority = await loaded(ep)
    seen = {}
    for name, token in tokens.items():
        rest = RestInMemory(ep, authority, token)
        seen[name] = [each["name"] for each in (await rest.ok("GET", f"{OWN}/tables?limit=1"))["items"]]
        status = (await rest.call("GET", f"{OWN}/tables/clicks")).status
        assert status == (403 if name == "s/other" else 200), name
    assert seen == {"s/*": ["clicks"], "s/other": [], "*": ["clicks"]}
    spec = {"id": "both", **SPEC, "io": {"streams": ["s/t", "s/u"]}}
    await ep.submit_supervisor(spec)
    token = await ep.db.write(lambda tx: add_user(tx, "one", (READ, "s/t")))
    rest = RestInMemory(ep, await loaded(ep), token)
    assert (await rest.ok("GET", f"{OWN}/tables"))["items"] == []


async def test_a_supervisor_may_write_to_a_table_that_another_engine_made(ep: Eventproc) -> None:
    await publish_rows(ep.db, 1, table="views")
    effect = await ep.preview_supervisor(spec_of(id="views", schema={"datasource": "views"}))
    assert effect == "create"
    await ep.submit_supervisor(spec_of(id="views", schema={"datasource": "views"}))
    assert (await ep.describe_table("views")).rows == 1
