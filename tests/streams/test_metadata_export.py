"""The export of all metadata: each line, read back, is what the store has; all of one moment."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import pytest

import eventproc
from eventproc import RetentionPolicy, ScalingPolicy
from eventproc.cluster import OffloadTask
from eventproc.errors import StaleVersion
from eventproc.groups.state import GroupState
from eventproc.groups.stored_state import folded_state
from eventproc.ingestion import SupervisorSpec
from eventproc.runtime import Eventproc
from eventproc.store.catalog import StoredHistory, get_stream, list_scopes, list_streams
from eventproc.store.catalog.stream_records import Scope
from eventproc.store.database import Tx
from eventproc.store.groups import GROUP, SHARE, GroupOptions, ShareOptions, progress_by_segment
from eventproc.store.model.epochs import Epoch, Segment
from eventproc.store.model.failures import error_from_plain
from eventproc.store.model.ids import SegmentId, parse_segment
from eventproc.store.model.policies import StreamConfig
from eventproc.store.model.progress import Progress
from eventproc.store.model.ranges import KeyRange
from eventproc.store.records import from_json, from_plain, get, to_json
from eventproc.store.requests import each_request
from eventproc.store.task_queue import TaskInfo, list_tasks
from eventproc.store.transactions import each_txn
from eventproc.testing import check
from eventproc.workflows.requests import AnyRequest, SealStream
from eventproc.workflows.workflow_table import WORKFLOWS
from tests.ingestion.support import spec_of

Row = dict[str, Any]


async def exported(ep: Eventproc) -> list[Row]:
    lines: list[str] = []
    count = await ep.export_metadata(lines.append)
    assert count == len(lines)
    assert all(line.endswith("\n") and line.count("\n") == 1 for line in lines)
    return [json.loads(line) for line in lines]


def of(rows: list[Row], kind: str) -> Iterator[Row]:
    """Return the lines of a kind, without the field that names it."""
    return (
        {name: value for name, value in row.items() if name != "object"}
        for row in rows
        if row["object"] == kind
    )


async def fill(ep: Eventproc) -> None:
    """Make something of every kind, with options that differ from their defaults."""
    await ep.create_scope("t")
    stream = await ep.create_stream(
        "s/orders",
        scaling=ScalingPolicy.by_event_rate(100, segments_min=2, segments_max=8),
        retention=RetentionPolicy(age_ms=86_400_000),
        tags=["billing", "eu"],
    )
    await ep.create_topic("t/clicks", partitions=3)
    group = await ep.create_reader_group("s/g", ["s/orders"], lease_ms=5_000, checkpoint_ms=1_000)
    await ep.create_share_group("s/q", ["s/orders"], deliveries_max=3)
    async with stream.writer() as writer:
        for number in range(20):
            await writer.write(b"%d" % number, key=str(number))
    await stream.split("0.0")
    async with group.reader("r1") as reader:
        taken = 0
        async with aclosing(reader.until(await stream.tail())) as events:
            async for _ in events:
                taken += 1
                if taken == 7:
                    break
    await group.checkpoint("noon")
    async with stream.transaction() as txn:
        await txn.write(b"a", key="k")
    open_txn = await stream.begin()
    await open_txn.write(b"b", key="k")
    await open_txn.flush()
    request = await ep.requests.submit(SealStream("s/orders", stream.stream_id, if_version=2))
    await ep.requests.wait(request.id)
    with pytest.raises(StaleVersion):
        await stream.seal(if_version=1)
    await ep.tasks.wait((await ep.tasks.submit(OffloadTask("s/orders", 7))).id)
    await ep.submit_supervisor(spec_of(streams=["t/clicks"]))


async def test_every_line_read_back_is_what_the_store_has(ep: Eventproc) -> None:
    await fill(ep)
    rows = await exported(ep)
    assert rows[0]["object"] == "export"
    assert rows[0]["format"] == 1
    assert rows[-1] == {"object": "end", "lines": len(rows)}

    def compare(tx: Tx) -> None:
        assert [from_plain(row, Scope) for row in of(rows, "scope")] == list_scopes(tx)
        streams = list(of(rows, "stream"))
        assert [row["name"] for row in streams] == [each.name for each in list_streams(tx)]
        for row in streams:
            compare_stream(tx, row, rows)
        compare_groups(tx, rows)
        requests = [
            (row, from_json(json.dumps(row["body"]).encode(), WORKFLOWS[row["kind"]].request))
            for row in of(rows, "request")
        ]
        stored = list(each_request(tx))
        assert [(row["id"], row["status"], to_json(body)) for row, body in requests] == [
            (each.id, each.status.value, each.body) for each in stored
        ]
        assert [from_plain(row, TaskInfo) for row in of(rows, "task")] == list_tasks(tx, limit=9)[::-1]

    await ep.db.read(compare)
    (supervisor,) = of(rows, "supervisor")
    assert SupervisorSpec.of(supervisor["spec"]) == spec_of(streams=["t/clicks"])
    assert supervisor["live"]


def compare_stream(tx: Tx, row: Row, rows: list[Row]) -> None:
    found = get_stream(tx, row["name"])
    stream, history = found.value, StoredHistory(tx, found.value)
    assert (row["stream_id"], row["version"], row["state"]) == (
        stream.stream_id,
        found.version,
        stream.state.value,
    )
    assert from_plain(row["config"], StreamConfig) == stream.config
    epochs = [
        Epoch(
            **{name: row[name] for name in ("number", "created_ms", "splits", "merges", "request_id")},
            sealed_bytes=row["sealed_bytes"],
            sealed_events=row["sealed_events"],
            segments=tuple(
                Segment(parse_segment(each["segment"]), KeyRange(each["low"], each["high"]))
                for each in row["segments"]
            ),
        )
        for row in of(rows, "epoch")
        if row["stream"] == stream.name
    ]
    assert epochs == [history.epoch(each) for each in range(stream.first_epoch, stream.epoch + 1)]
    txns = [row for row in of(rows, "transaction") if row["stream_id"] == stream.stream_id]
    assert [(row["id"], row["state"], row["events"], row["reason"]) for row in txns] == [
        (each.id, each.state.value, each.events, each.reason) for each in each_txn(tx, stream.stream_id)
    ]


def compare_groups(tx: Tx, rows: list[Row]) -> None:
    (group,) = of(rows, "group")
    record = get(tx, GROUP, "s/g").value
    state: GroupState = folded_state(tx, record).state
    assert from_plain(group["options"], GroupOptions) == record.options
    assert group["generation"] == record.generation
    assert positions(group["segments"]) == progress_by_segment(tx, "s/g") | {
        key: Progress() for key in state.waiting
    }
    assert [each["name"] for each in group["checkpoints"]] == [each.name for each in state.checkpoints]
    assert "noon" in [each["name"] for each in group["checkpoints"]]
    (share,) = of(rows, "share_group")
    assert from_plain(share["options"], ShareOptions) == get(tx, SHARE, "s/q").value.options
    assert positions(share["segments"]) == progress_by_segment(tx, "s/q")


def body_of(row: Row) -> AnyRequest:
    """Return the request that a line describes."""
    return from_json(json.dumps(row["body"]).encode(), WORKFLOWS[row["kind"]].request)


def positions(rows: list[Row]) -> dict[tuple[int, SegmentId], Progress]:
    return {
        (row["stream_id"], parse_segment(row["segment"])): Progress(
            row["number"], row["offset"], tuple(tuple(each) for each in row["finished"])
        )
        for row in rows
    }


async def test_outcome_of_a_refused_request_can_be_raised_from_its_line(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    seal = await ep.requests.submit(SealStream("s/t", stream.stream_id, if_version=1))
    update = stream.update(tags=["x"], if_version=1)
    await ep.requests.wait(seal.id)
    with pytest.raises(eventproc.EventprocError):
        await update
    for row in of(await exported(ep), "request"):
        if row["error"] is not None:
            text = row["error"].pop("text")
            assert str(error_from_plain(row["error"])) == text


async def test_empty_system_has_a_first_and_a_last_line() -> None:
    async with eventproc.open_memory() as ep:
        assert [row["object"] for row in await exported(ep)] == ["export", "end"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # a directory is opened on asyncio
async def test_what_changes_during_an_export_is_not_in_it(tmp_path: Path) -> None:
    lines: list[str] = []
    has_begun, goes_on = anyio.Event(), threading.Event()

    async with eventproc.open(tmp_path / "d") as ep:
        await ep.create_scope("a")
        await ep.create_scope("z")

        def write(line: str) -> None:
            if not lines:
                anyio.from_thread.run_sync(has_begun.set, token=token)
                assert goes_on.wait(60)
            lines.append(line)

        token = anyio.lowlevel.current_token()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ep.export_metadata, write)
            await has_begun.wait()
            await ep.create_stream("z/late")
            goes_on.set()
        assert [json.loads(line)["object"] for line in lines] == ["export", "scope", "scope", "end"]
        assert [row["object"] for row in await exported(ep)].count("stream") == 1
        await check(ep.db)


def test_blocking_twin_exports_into_a_file(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "d") as ep:
        ep.create_scope("s")
        with (tmp_path / "metadata.jsonl").open("w") as file:
            assert ep.export_metadata(file.write) == 3
    lines = (tmp_path / "metadata.jsonl").read_text().splitlines()
    assert [json.loads(line)["object"] for line in lines] == ["export", "scope", "end"]


async def test_failing_write_ends_the_export_and_is_raised(ep: Eventproc) -> None:
    def write(line: str) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        await ep.export_metadata(write)
    assert (await exported(ep))[-1]["object"] == "end"
