"""Directories that earlier versions made: they keep their data, and everything of this version works in them.

And the same tables for PostgreSQL.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import eventproc
from eventproc import GroupOptions, ScalingPolicy, ShareOptions
from eventproc.errors import CorruptRecord
from eventproc.store.catalog import SYSTEM_MIGRATIONS, insert_stream
from eventproc.store.database import Tx
from eventproc.store.groups import write_segment
from eventproc.store.inspection.schema_check import differences, expected_tables, found_tables
from eventproc.store.model.ids import SegmentId
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.progress import Progress
from eventproc.store.replicated import create_log
from eventproc.store.schema import for_postgres
from eventproc.store.schema_changes import ADDED_2, adding
from eventproc.store.segments import EventBlock, SegmentEvents, append
from eventproc.testing import check
from eventproc.workflows.scopes import create_scope
from tests.database.support import open_database


@pytest.mark.parametrize(("schema", "has_tables"), [(1, False), (1, True), (2, False), (3, False)])
async def test_a_directory_of_an_older_schema_works_as_a_new_one(
    tmp_path: Path, schema: int, has_tables: bool
) -> None:
    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS[:schema]) as db:
        if has_tables:
            await db.write(adding(ADDED_2))  # while the number is still that of the first
    async with eventproc.open(tmp_path / "data") as ep:
        assert differences(await expected_tables(), await ep.db.read(found_tables)) == []
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await stream.split(0)
        await stream.seal()
        await stream.delete()
        await check(ep.db)


@pytest.mark.parametrize("options", [{}, {"lock_ms": 5_000, "deliveries_max": 2}])
async def test_share_groups_of_the_third_schema_go_on(tmp_path: Path, options: dict[str, int]) -> None:
    stored = {"name": "s/work", "generation": 7, "created_ms": 1, "lost_events": 3}
    streams = [{"name": "s/gone", "stream_id": 99, "epoch": 0, "added": True}]

    def fill(tx: Tx) -> None:
        create_scope(tx, "s")
        stream = insert_stream(tx, "s/t", StreamConfig(scaling=ScalingPolicy.fixed(1)))
        consumed = {"name": "s/t", "stream_id": stream.stream_id, "epoch": 0}
        body = stored | {"streams": [consumed, *streams]} | ({"options": options} if options else {})
        tx.execute(
            "INSERT INTO record (kind, key, version, body) VALUES ('share group', 's/work', 1, ?)",
            (f"1:{json.dumps(body)}".encode(),),
        )
        key = stream.stream_id, SegmentId(0)
        events = EventBlock(payloads=[b"%d" % number for number in range(6)]).encode()
        append(tx, "s/t", stream.stream_id, [SegmentEvents(SegmentId(0), events)])
        tx.execute(  # events 0 and 3 are finished
            'INSERT INTO group_segment (group_name, stream_id, segment, "offset", number, finished)'
            " VALUES ('s/work', ?, ?, 9, 1, '[1,9,3,4,36]')",
            key,
        )
        tx.executemany(
            "INSERT INTO delivery (group_name, stream_id, segment, low, high, start_offset, end_offset, count, session,"
            " consumer, instance, boot, until_ms) VALUES ('s/work', ?, ?, ?, ?, ?, ?, 1, ?, ?, ?, ?, ?)",
            [
                (*key, 1, 3, 9, 27, "dead", "dead", "dead", "dead", 5),
                (*key, 4, 5, 36, 45, None, None, None, None, None),
            ],
        )

    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS[:3]) as db:
        await db.write(fill)
    async with eventproc.open(tmp_path / "data") as ep:
        group = await ep.share_group("s/work")
        info = await group.info()
        assert (info.kind, info.generation, info.share) == ("share", 7, ShareOptions(**options))
        assert [(each.name, each.epoch, each.added) for each in info.streams] == [
            ("s/t", 0, False),
            ("s/gone", 0, True),
        ]
        assert (await group.describe()).lost_events == 3
        assert (await group.describe()).events == 4
        async with group.consumer() as consumer:
            events = await consumer.poll()
            while len(events) < 4:
                events += await consumer.poll()
            assert sorted((each.event.payload, each.deliveries) for each in events) == [
                (b"1", 2),
                (b"2", 2),
                (b"4", 2),
                (b"5", 1),
            ]
            await consumer.accept(events)
        assert (await group.describe()).events == 0
        await group.reset("head")
        assert (await group.info()).generation == 8
        await check(ep.db)


@pytest.mark.parametrize("body", [b"\x00", b"1:", b"1:[]", b"1:{}", b"1:\xff"])
async def test_a_damaged_share_group_of_the_third_schema_stays_damaged(tmp_path: Path, body: bytes) -> None:
    def fill(tx: Tx) -> None:
        create_scope(tx, "s")
        insert_stream(tx, "s/t", StreamConfig(scaling=ScalingPolicy.fixed(1)))
        tx.execute(
            "INSERT INTO record (kind, key, version, body) VALUES ('share group', 's/work', 1, ?)", (body,)
        )

    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS[:3]) as db:
        await db.write(fill)
    async with eventproc.open(tmp_path / "data") as ep:
        with pytest.raises(CorruptRecord, match="group s/work"):
            await ep.share_group("s/work")
        await ep.create_share_group("s/other", ["s/t"])
        assert [each.name for each in await ep.share_groups()] == ["s/other"]


@pytest.mark.parametrize("body", [b"1:[]", b"1:5", b'1:{"options":[1]}', b'1:{"updates":3}'])
async def test_a_damaged_group_of_the_first_format_stays_damaged(tmp_path: Path, body: bytes) -> None:
    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS) as db:
        sql = "INSERT INTO record (kind, key, version, body) VALUES ('group', 's/g', 1, ?)"
        await db.write(lambda tx: tx.execute(sql, (body,)))
    async with eventproc.open(tmp_path / "data") as ep:
        with pytest.raises(CorruptRecord, match="group s/g"):
            await ep.group("s/g")


@pytest.mark.parametrize(
    ("created", "updated", "patience_ms"),
    [
        ({"lease_ms": 5_000, "rebalance_ms": 30_000}, {}, None),
        ({}, {"lease_ms": 5_000, "rebalance_ms": 30_000}, 30_000),
        ({"rebalance_ms": 7_000, "added_start": 5}, {"lease_ms": 5_000, "added_start": 5}, 5_000),
        ({"rebalance_ms": 7_000}, {"rebalance_ms": 7_000, "checkpoint_ms": 500}, 7_000),
    ],
)
async def test_groups_of_the_first_format_have_one_deadline_and_one_start(
    tmp_path: Path, created: dict[str, int], updated: dict[str, int], patience_ms: int | None
) -> None:
    def fill(tx: Tx) -> None:
        create_scope(tx, "s")
        stream_id = insert_stream(tx, "s/t", StreamConfig(scaling=ScalingPolicy.fixed(1))).stream_id
        log, streams = create_log(tx), [{"name": "s/t", "stream_id": stream_id}]
        open_segment = {"stream_id": stream_id, "segment": 0, "progress": {}, "owner_epoch": 1}
        state = {"generation": 1, "streams": streams, "assignments": [open_segment], "options": created}
        entries = [{"init": state}, {"updates": [{"options_changed": {"options": updated}}]}]
        block = EventBlock([f"1:{json.dumps(each)}".encode() for each in entries]).encode()
        append(tx, f"log {log}", log, (SegmentEvents(SegmentId(0), block),), expected_offset=0)
        body = {
            "name": "s/g",
            "streams": streams,
            "generation": 2,
            "kind": "readers",
            "created_ms": 1,
            "log": log,
        }
        tx.execute(
            "INSERT INTO record (kind, key, version, body) VALUES ('group', 's/g', 1, ?)",
            (f"1:{json.dumps(body | {'options': updated, 'created_options': created})}".encode(),),
        )
        write_segment(
            tx, "s/g", (stream_id, SegmentId(0)), Progress(), owner=None, owner_epoch=1, target=None
        )

    async with open_database(tmp_path / "data", migrations=SYSTEM_MIGRATIONS) as db:
        await db.write(fill)
    async with eventproc.open(tmp_path / "data") as ep:
        await check(ep.db)
        group = await ep.group("s/g")
        options = (await group.info()).options
        assert options == GroupOptions(patience_ms=patience_ms, checkpoint_ms=updated.get("checkpoint_ms"))
        assert (
            await ep.create_group("s/g", ["s/t"], patience_ms=max(created.values(), default=None))
        ).name == "s/g"
        stream = await ep.stream("s/t")
        async with stream.writer() as writer, group.reader("r") as reader:
            await writer.write(b"1")
            assert [event.payload async for event in reader.until(await stream.tail())] == [b"1"]
        assert await group.update(patience_ms=8_000) == GroupOptions(
            patience_ms=8_000, checkpoint_ms=updated.get("checkpoint_ms")
        )
        await check(ep.db)


def test_tables_get_types_of_postgresql() -> None:
    created = (
        "CREATE TABLE owner (name TEXT PRIMARY KEY, body BLOB, owner_epoch INTEGER NOT NULL) WITHOUT ROWID"
    )
    assert for_postgres(created).rstrip() == (
        'CREATE TABLE owner (name text COLLATE "C" PRIMARY KEY, body bytea, owner_epoch bigint NOT NULL)'
    )
    assert for_postgres("id INTEGER PRIMARY KEY") == "id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
