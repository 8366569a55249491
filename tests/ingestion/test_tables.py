"""Other engines read the tables, and a change of a table takes effect whole, or not at all."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import anyio
import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import eventproc
from eventproc.base import kernel
from eventproc.cluster.health_checks import HealthReport, check_database
from eventproc.cluster.integrity_checks import IntegrityReport, verify_directory
from eventproc.errors import InvalidArgument, NotSupported, TableChanged
from eventproc.runtime import Eventproc
from eventproc.store.ingestion.iceberg import StoreTables
from eventproc.store.model.ingestion import TIME, TableFile, TablePartitioning
from eventproc.testing import VirtualClock
from tests.ingestion.support import (
    COLUMNS,
    HOUR_MS,
    Bench,
    publish_rows,
    replace_rows,
    sweep_tables_later,
    with_tables,
    write_rows,
)
from tests.support.child_process import ChildProcess
from tests.support.postgres import Server
from tests.support.s3_server import S3Server, s3 as s3, s3_process as s3_process, url as url

pytestmark = pytest.mark.parametrize("anyio_backend", ["asyncio"], indirect=True)


@pytest.fixture
async def ep(tmp_path: Path) -> AsyncIterator[Eventproc]:
    async with eventproc.open(tmp_path / "data", durability="os") as ep:
        yield ep


def opened(path: Path) -> SqlCatalog:
    """Open the catalog of a directory as a user of pyiceberg does."""
    return catalog_of(f"sqlite:///{path / 'eventproc.db'}")


CATALOGS: list[SqlCatalog] = []


def catalog_of(uri: str, **properties: str) -> SqlCatalog:
    CATALOGS.append(SqlCatalog("eventproc", uri=uri, init_catalog_tables="false", **properties))
    return CATALOGS[-1]


@pytest.fixture(autouse=True)
def closed_catalogs() -> Iterator[None]:
    yield
    while CATALOGS:
        CATALOGS.pop().close()


def load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """Load what reads Iceberg, from packages instead of the network."""
    for extension in (duckdb_extension_avro, duckdb_extension_iceberg):
        (file,) = Path(extension.__path__[0]).rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{file}'")


async def used(ep: Eventproc, version: str | None = None) -> list[TableFile]:
    return await with_tables(ep.db, lambda tables: tables.used("clicks", version=version))


def directory_of(ep: Eventproc) -> Path:
    assert ep.db.path is not None
    return ep.db.path


def opened_rows(ep: Eventproc) -> int:
    """Return how many rows another engine reads."""
    return len(opened(directory_of(ep)).load_table("tables.clicks").scan().to_arrow())


async def rows_of(ep: Eventproc) -> int:
    return (await ep.describe_table("clicks")).rows


async def test_other_engines_read_the_rows_that_are_published(
    ep: Eventproc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # its own one is another package
    for hour in range(30):
        await publish_rows(ep.db, *(hour * HOUR_MS + each for each in range(hour + 1)))
    wanted = sum(range(31))
    catalog = opened(tmp_path / "data")
    assert catalog.list_tables("tables") == [("tables", "clicks")]
    table = catalog.load_table("tables.clicks")
    assert table.scan().to_arrow().num_rows == wanted == await rows_of(ep)
    assert table.scan(row_filter="__time >= '1970-01-02T00:00:00+00:00'").count() == sum(range(25, 31))
    assert polars.scan_iceberg(table).select(polars.len()).collect().item() == wanted
    metadata = (await ep.describe_table("clicks")).metadata
    with duckdb.connect() as connection:
        load_extensions(connection)
        found = connection.execute(f"SELECT count(*), max(epoch_ms(__time)) FROM iceberg_scan('{metadata}')")
        assert found.fetchone() == (wanted, 29 * HOUR_MS + 29)


async def test_a_table_is_refused_if_the_disk_gives_it_the_folder_of_another(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish_rows(ep.db, 0)
    monkeypatch.setattr(kernel, "FOLDS_CASE", True)
    with pytest.raises(InvalidArgument, match="on this disk its folder is that of clicks"):
        await publish_rows(ep.db, 0, table="Clicks")
    assert [each.name for each in await ep.tables()] == ["clicks"]


@pytest.mark.subprocess
async def test_tables_on_a_server_are_read_and_changed_by_another_engine(
    server: Server, s3: S3Server, url: str
) -> None:
    schema = server.new_schema()
    async with eventproc.open(server.store(schema), chunks=url) as ep:
        for hour in range(3):
            await publish_rows(ep.db, hour * HOUR_MS, hour * HOUR_MS + 1)
        catalog = catalog_of(
            f"{server.url.replace('postgresql:', 'postgresql+psycopg:', 1)}&options=-csearch_path%3D{schema}",
            **{"s3.endpoint": f"http://127.0.0.1:{s3.port}", "s3.region": "us-east-1"},
        )
        table = catalog.load_table("tables.clicks")
        assert table.scan().count() == len(table.scan().to_arrow()) == 6
        table.delete("__time < '1970-01-01T01:00:00+00:00'")
        assert await rows_of(ep) == 4
        await publish_rows(ep.db, 3 * HOUR_MS)
        assert table.refresh().scan().count() == await rows_of(ep) == 5


async def test_publications_a_compaction_and_drops_at_once_lose_and_double_no_row(ep: Eventproc) -> None:
    published, dropped, compacted = 0, 0, 0

    async def publish(hour: int) -> None:
        nonlocal published
        for each in range(5):
            await publish_rows(ep.db, hour * HOUR_MS + each)
            published += 1

    async def drop() -> None:
        nonlocal dropped
        for _ in range(5):
            gone = await with_tables(
                ep.db, lambda tables: tables.drop("clicks", lambda file: file.start_ms >= 5 * HOUR_MS)
            )
            dropped += len(gone)

    async def compact() -> None:
        """Replace what lies in the first hours by one file with as many rows."""
        nonlocal compacted
        for _ in range(5):
            version = await with_tables(ep.db, lambda tables: tables.version("clicks"))
            old: list[TableFile] = []
            with suppress(TableChanged):
                old = await used(ep, version)
            if old and {each.start_ms for each in old} == {0}:
                times = [0] * sum(each.rows for each in old)
                compacted += await replace_rows(ep.db, *times, version=version)

    async with anyio.create_task_group() as tasks:
        for hour in (0, 0, 5):
            tasks.start_soon(publish, hour)
        tasks.start_soon(drop)
        tasks.start_soon(compact)
    assert published == 15
    assert await rows_of(ep) == published - dropped
    assert await replace_rows(ep.db, *([0] * await rows_of(ep)))
    assert await rows_of(ep) == published - dropped


KILLED = """
import os, signal, sys
import anyio
import eventproc
from eventproc.store.ingestion import iceberg, iceberg_files
from tests.ingestion.support import publish_rows

left = int(sys.argv[2])

def die_at(owner, name, *, after=False):
    done = getattr(owner, name)
    def step(*arguments):
        global left
        if not after:
            left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        found = done(*arguments)
        if after:
            left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    setattr(owner, name, step)

async def main():
    async with eventproc.open(sys.argv[1], durability="os") as ep:
        await publish_rows(ep.db, 1)
        die_at(iceberg_files.StoreFiles, "new_output")
        die_at(iceberg.StoreTables, "commit_table", after=True)
        await publish_rows(ep.db, 2)

anyio.run(main)
"""


@pytest.mark.subprocess
@pytest.mark.parametrize("step", [1, 2, 3, 4], ids=["manifest", "manifest list", "metadata", "committed"])
async def test_a_publisher_that_is_killed_has_published_all_of_it_or_nothing(
    tmp_path: Path, step: int
) -> None:
    with ChildProcess.running(KILLED, tmp_path / "data", step) as child:
        assert child.finish() == -signal.SIGKILL
    async with eventproc.open(tmp_path / "data", durability="os") as ep:
        assert await rows_of(ep) == (2 if step == 4 else 1)
        await publish_rows(ep.db, 3)
        assert await rows_of(ep) == (3 if step == 4 else 2)
        assert opened(tmp_path / "data").load_table("tables.clicks").scan().count() == await rows_of(ep)


async def test_a_version_holds_while_supervisors_publish_and_has_none_of_their_files(ep: Eventproc) -> None:
    path = await publish_rows(ep.db, 1)
    version = await with_tables(ep.db, lambda tables: tables.version("clicks"))
    await publish_rows(ep.db, 2)
    found = await used(ep, version)
    assert [each.path for each in found] == [path]


@pytest.mark.parametrize("change", ["compact", "drop", "fill", "drop all"])
async def test_a_version_ends_when_what_it_holds_is_replaced_or_dropped(ep: Eventproc, change: str) -> None:
    if change != "fill":
        await publish_rows(ep.db, 1)
    version = await with_tables(ep.db, lambda tables: tables.version("clicks"))
    if change in ("compact", "fill"):
        assert await replace_rows(ep.db, 1)
    else:
        gone = await with_tables(
            ep.db,
            lambda tables: (
                tables.drop("clicks", lambda _: True) if change == "drop" else tables.remove("clicks")
            ),
        )
        assert len(gone) == 1
        await publish_rows(ep.db, 1)
    with pytest.raises(TableChanged):
        await used(ep, version)
    assert not await replace_rows(ep.db, 2, version=version)


async def test_dropped_rows_leave_the_table_and_their_files_stay_for_queries_that_run(ep: Eventproc) -> None:
    kept = [await publish_rows(ep.db, HOUR_MS + each) for each in range(3)]
    old = await publish_rows(ep.db, 1)
    gone = await with_tables(
        ep.db, lambda tables: tables.drop("clicks", lambda file: file.start_ms < HOUR_MS)
    )
    assert [each.path for each in gone] == [old]
    # Each forgets snapshots that nobody needs.
    kept += [await publish_rows(ep.db, 2 * HOUR_MS + each) for each in range(30)]
    found = await with_tables(ep.db, lambda tables: tables.find("clicks"))
    assert found is not None
    assert len(found.metadata.snapshots) < 15
    named = await with_tables(ep.db, lambda tables: tables.named())
    assert {old, *kept} <= named
    assert {each.path for each in await used(ep)} == set(kept)


async def test_tables_of_a_directory_that_was_moved_are_read_and_after_a_sweep_by_all_engines(
    tmp_path: Path,
) -> None:
    async with eventproc.open(tmp_path / "old", durability="os") as ep:
        await publish_rows(ep.db, 1, 2)
    (tmp_path / "old").rename(tmp_path / "new")
    async with eventproc.open(tmp_path / "new", durability="os") as ep:
        assert await rows_of(ep) == 2
        await publish_rows(ep.db, HOUR_MS)
        with pytest.raises(FileNotFoundError):
            opened(tmp_path / "new").load_table("tables.clicks")
        await with_tables(ep.db, lambda tables: tables.relocate())
        assert opened(tmp_path / "new").load_table("tables.clicks").scan().count() == await rows_of(ep) == 3
        await publish_rows(ep.db, HOUR_MS + 1)
        assert opened(tmp_path / "new").load_table("tables.clicks").scan().count() == 4


async def test_tables_in_the_layout_of_before_become_icebergs_once(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path / "data", durability="os") as ep:

        def write(number: int) -> str:
            path = f"clicks/0/{number}.parquet"
            folder = tmp_path / "data" / "tables"
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            return path

        files = await with_tables(ep.db, lambda tables: tables.files)
        for number in range(3):
            write_rows(files, write(number), number * HOUR_MS, number * HOUR_MS + 1)
            await ep.db.write(
                lambda tx, number=number: tx.execute(  # type: ignore[misc]
                    "INSERT INTO published (supervisor, datasource, start_ms, end_ms, version, partition, path, bytes,"
                    " rows, min_ms, max_ms, sequence, created_ms, unused_ms)"
                    " VALUES ('', 'clicks', ?, ?, '0', 0, ?, 1, 2, 0, 1, '', 0, ?)",
                    (
                        number * HOUR_MS,
                        (number + 1) * HOUR_MS,
                        f"clicks/0/{number}.parquet",
                        0 if number == 2 else None,  # it was dropped
                    ),
                )
            )
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(rows_of, ep)
        assert await rows_of(ep) == 4
    assert opened(tmp_path / "data").load_table("tables.clicks").scan().count() == 4


async def test_a_sweep_keeps_what_is_published_while_it_looks_and_whose_instance_dies_then(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    await publish_rows(ep.db, 1)
    dead = set[str]()

    def sweep(tables: StoreTables) -> int:
        named = tables.named

        def publish_and_die() -> set[str]:
            found = named()
            path = f"clicks/0/{ep.db.instance_id}_{ep.db.instance_id}.parquet"
            write_rows(tables.files, path, 2)
            assert tables.append("clicks", COLUMNS, TablePartitioning.HOUR, [path]) is None
            dead.add(ep.db.instance_id)
            return found

        monkeypatch.setattr(tables, "named", publish_and_die)
        return tables.sweep(lambda instance: instance not in dead)

    assert await with_tables(ep.db, sweep) == 0
    assert opened_rows(ep) == await rows_of(ep) == 2


async def test_a_sweep_keeps_what_a_task_has_read_for_longer_than_a_day(ep: Eventproc) -> None:
    async def scratch() -> list[str]:
        await sweep_tables_later(ep.db, 25 * HOUR_MS)
        paths = await with_tables(ep.db, lambda tables: list(tables.files.paths("_tasks")))
        return [path.split("/")[1] for path in paths]

    await ep.create_scope("s")
    bench = Bench(ep, VirtualClock())
    await bench.begin()
    await bench.start_supervisor()
    worker = await bench.worker(ep.db.instance_id)
    (task,) = await worker.claim()
    for name in (task.id, "ended"):
        path = f"_tasks/{name}/{ep.db.instance_id}_{ep.db.instance_id}.parquet"
        await with_tables(ep.db, partial(lambda tables, path: write_rows(tables.files, path, 1), path=path))
    assert await scratch() == [task.id]
    await task.finish(error="it failed")
    assert await scratch() == []


async def test_a_version_of_no_table_ends_when_somebody_fills_it(ep: Eventproc) -> None:
    version = await with_tables(ep.db, lambda tables: tables.version("clicks"))
    assert await replace_rows(ep.db, 1, 2, version=version)
    assert opened_rows(ep) == 2
    for each in range(15):
        await publish_rows(ep.db, each)
    assert not await replace_rows(ep.db, 1, 2, version=version)


async def test_a_version_ends_when_another_engine_goes_back_to_an_older_snapshot(ep: Eventproc) -> None:
    await publish_rows(ep.db, 1)
    table = opened(directory_of(ep)).load_table("tables.clicks")
    first = table.metadata.current_snapshot_id
    assert first is not None
    await publish_rows(ep.db, 2)
    version = await with_tables(ep.db, lambda tables: tables.version("clicks"))
    table.refresh().manage_snapshots().rollback_to_snapshot(first).commit()
    with pytest.raises(TableChanged):
        await used(ep, version)


async def test_what_another_engine_changed_is_refused_by_name_and_other_tables_go_on(ep: Eventproc) -> None:
    await publish_rows(ep.db, 1)
    await publish_rows(ep.db, 1, table="views")
    catalog = opened(directory_of(ep))
    with catalog.load_table("tables.clicks").update_schema() as schema:
        schema.rename_column("page", "address")
    catalog.create_table(
        "tables.others",
        catalog.load_table("tables.views").schema(),
        location=f"file://{directory_of(ep)}/elsewhere",
    )
    with pytest.raises(NotSupported, match="clicks"):
        await used(ep)
    with pytest.raises(NotSupported, match="clicks"):
        await publish_rows(ep.db, 2)
    found = await ep.tables()
    assert [(each.name, each.rows) for each in found] == [("clicks", 1), ("views", 1)]
    with pytest.raises(NotSupported, match="others"):
        await publish_rows(ep.db, 1, table="others")
    assert await with_tables(ep.db, lambda tables: tables.sweep(lambda _: False)) == 2, "what was refused"
    assert (await ep.drop_table("clicks")).files == 1
    await publish_rows(ep.db, 2)
    assert await rows_of(ep) == 1


async def test_engines_find_rows_by_values_that_only_some_row_groups_have_bounds_of(ep: Eventproc) -> None:
    def publish(tables: StoreTables) -> None:
        data = pa.BufferOutputStream()
        with pq.ParquetWriter(data, COLUMNS) as writer:
            for page in ("a", "z" * 5_000):  # Parquet keeps no bounds of so long a text
                writer.write_table(pa.table({TIME: [1], "page": [page]}, schema=COLUMNS))
        file = tables.files.create("clicks/0/long.parquet")
        file.write(memoryview(data.getvalue()))
        file.finish()
        assert tables.append("clicks", COLUMNS, TablePartitioning.HOUR, ["clicks/0/long.parquet"]) is None

    await with_tables(ep.db, publish)
    table = opened(directory_of(ep)).load_table("tables.clicks")
    assert table.scan(row_filter="page >= 'm'").to_arrow().num_rows == 1


async def test_columns_are_added_whatever_their_names_are(ep: Eventproc) -> None:
    await publish_rows(ep.db, 1)

    def publish(tables: StoreTables) -> None:
        columns = COLUMNS.append(pa.field("page.address", pa.string()))
        write_rows(tables.files, "clicks/0/more.parquet", 2)
        assert tables.append("clicks", columns, TablePartitioning.DAY, ["clicks/0/more.parquet"]) is None

    await with_tables(ep.db, publish)
    table = opened(directory_of(ep)).load_table("tables.clicks")
    assert table.schema().column_names == ["__time", "page", "page.address"]
    assert table.scan().to_arrow().num_rows == await rows_of(ep) == 2


async def test_a_restored_store_is_swept_and_its_tables_go_on(ep: Eventproc, tmp_path: Path) -> None:
    for each in range(5):
        await publish_rows(ep.db, each)
    await publish_rows(ep.db, 1, table="views")
    await with_tables(ep.db, lambda tables: tables.remove("views"))
    await ep.backup(tmp_path / "backup")
    eventproc.restore_backup(tmp_path / "backup", tmp_path / "restored")
    async with eventproc.open(tmp_path / "restored", durability="os") as again:
        assert await with_tables(again.db, lambda tables: tables.sweep(lambda _: False)) == 0
        await publish_rows(again.db, 7)
        assert await rows_of(again) == 6


@pytest.mark.parametrize("kind", ["*.metadata.json", "*.avro"])
async def test_doctor_and_verify_report_damaged_metadata(kind: str, ep: Eventproc, tmp_path: Path) -> None:
    await publish_rows(ep.db, 5)
    for file in (tmp_path / "data").rglob(kind):
        file.write_bytes(file.read_bytes()[:-100])
    health, integrity = HealthReport(), IntegrityReport("directory")
    await check_database(ep.db, health, describe_spark=dict)
    await verify_directory(ep.db, integrity)
    for problems in (health.problems, integrity.problems):
        (problem,) = problems
        assert problem.startswith("table clicks: ")
