"""`/metrics`: the values of a directory in Prometheus' text, and in OpenMetrics."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

import eventproc
from eventproc.errors import StreamSealed
from eventproc.runtime import measures
from eventproc.runtime.measures import look_at_store, reporting
from eventproc.server.endpoints import serve_metrics
from eventproc.server.rest.metrics import render_metrics
from eventproc.windows import Tumbling, Window
from tests.groups.support import eventually
from tests.ingestion.support import add_worker
from tests.server.rest_client import RestInMemory
from tests.support.child_process import PATIENCE_S, REPOSITORY

SENDS = "messaging_client_operation_duration_seconds"
CONNECTIONS = {"connections": lambda: 3}


def samples(body: bytes) -> dict[tuple[str, ...], float]:
    """Return the values by their names and labels, which are sorted by their names."""
    return {
        (each.name, *each.labels.values()): each.value
        for family in parse_text(body.decode())
        for each in family.samples
    }


async def test_counters_are_what_was_written_and_gauges_what_is_left() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(2))
        group = await ep.create_group("s/g", ["s/t"])
        async with stream.writer() as writer:
            for number in range(10):
                await writer.write(b"12", key=str(number))
        await stream.truncate(await stream.tail())
        async with stream.writer() as writer:
            await writer.write(b"12", key="a")
        await group.reset("head")
        await ep.create_share_group("s/q", ["s/t"])
        with reporting(ep.db, CONNECTIONS):
            body, media_type = await render_metrics(ep, "")
        assert media_type.startswith("text/plain")
        found = samples(body)
        assert found["eventproc_stream_events_total", "s/t"] == 11
        assert found["eventproc_stream_bytes_total", "s/t"] == 110
        assert found["eventproc_stream_readable_events", "s/t"] == 1
        assert found["eventproc_stream_readable_bytes", "s/t"] == 10
        assert found["eventproc_stream_segments", "s/t"] == 2
        assert found["eventproc_group_lag_events", "s/g"] == 1
        assert found["eventproc_group_readers", "s/g"] == 0
        assert found["eventproc_group_lag_seconds", "s/g"] >= 0
        assert found["eventproc_group_lag_events", "s/q"] == 1
        assert found["eventproc_group_dead_letters", "s/q"] == 0
        assert found["eventproc_streams",] == 1
        assert found["eventproc_instances",] == 1
        assert found["eventproc_connections",] == 3
        assert found["process_resident_memory_bytes",] > 0


async def test_transactions_tasks_requests_and_deliveries_are_counted_by_their_states() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await ep.create_share_group("s/q", ["s/t"])
        async with stream.writer() as writer:
            for number in range(3):
                await writer.write(b"x", key=str(number))
            await writer.write(b"later", delay_ms=3_600_000)
        shares = await ep.share_group("s/q")
        task = await ep.tasks.submit(eventproc.VerifyTask())
        await ep.tasks.wait(task.id)
        async with shares.consumer("c") as consumer, stream.transaction() as txn:
            await consumer.poll(1)
            await txn.write(b"x")
            await txn.flush()
            found = samples((await render_metrics(ep, ""))[0])
        assert found["eventproc_transactions_open",] == 1
        assert found["eventproc_stream_delayed_events", "s/t"] == 1
        assert found["eventproc_group_deliveries", "s/q", "in_flight"] == 1
        assert found["eventproc_group_paused", "s/q"] == 0
        assert found["eventproc_tasks", "verify", "done"] == 1
        assert found["eventproc_requests", "create", "person", "done"] == 1
        assert found["eventproc_requests_pending",] == 0
        assert found["eventproc_database_bytes",] > found["eventproc_database_free_bytes",] >= 0
        assert found["eventproc_chunk_files",] == 0


async def test_supervisors_show_their_lag_tasks_and_totals_and_workers_their_slots() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            for number in range(10):
                await writer.write(b"12", key=str(number))
        spec = {
            "id": "clicks",
            "io": {"streams": ["s/t"], "use_earliest_offset": True, "start_delay_ms": 0},
            "schema": {"datasource": "clicks", "dimensions": ["page"]},
        }
        supervisor = await ep.submit_supervisor(spec)

        async def waits() -> bool:
            return (await supervisor.status()).waiting == 1

        await eventually(ep, waits)
        await add_worker(ep, ep.db.instance_id, slots=3)
        await add_worker(ep, "dead", slots=5)
        found = samples((await render_metrics(ep, ""))[0])
        assert found["eventproc_supervisor_healthy", "clicks"] == 1
        assert found["eventproc_supervisor_state", "running", "clicks"] == 1
        assert found["eventproc_supervisor_lag_events", "clicks"] == 10
        states = ("waiting", "reading", "publishing")
        assert [found["eventproc_supervisor_tasks", each, "clicks"] for each in states] == [1, 0, 0]
        for name in ("events", "unparseable_events", "thrown_away_rows", "publications", "hung_tasks"):
            assert found[f"eventproc_supervisor_{name}_total", "clicks"] == 0
        assert found["eventproc_supervisor_ended_tasks_total", "failed", "clicks"] == 0
        workers = ("workers", "dead_workers", "slots", "used_slots")
        assert [found[f"eventproc_ingestion_{each}",] for each in workers] == [1, 1, 3, 0]


async def test_states_by_key_show_their_size_and_how_far_event_time_has_come(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = eventproc.App()

    @app.window("s/t", Tumbling(10), group="s/g", value=int)
    async def count(event: eventproc.Event, window: Window[int]) -> int:
        return window.value + 1

    async def write(ep: eventproc.Eventproc, *times: int) -> None:
        async with (await ep.stream("s/t")).writer() as writer:
            await writer.write_many(eventproc.NewEvent(b"", key=f"k{at}", event_time=at) for at in times)
        async with ep.run(app) as running:
            await running.wait_idle()

    monkeypatch.setattr(measures, "PAUSE_PER_COUNT", 1_000_000)
    monkeypatch.setattr(measures, "COUNT_WAIT_S", PATIENCE_S)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        found = samples((await render_metrics(ep, ""))[0])
        assert not [each for each in found if "_state_" in each[0]]
        await write(ep, 1_001, 1_003)
        found = samples((await render_metrics(ep, ""))[0])
        assert found["eventproc_group_state_keys", "s/g"] == 2
        assert found["eventproc_group_state_bytes", "s/g"] == 2 * len('{"1000/1010":1}')
        assert found["eventproc_group_watermark_seconds", "s/g"] == 1.003
        await write(ep, 2_000)
        found = samples((await render_metrics(ep, ""))[0])
        assert found["eventproc_group_watermark_seconds", "s/g"] == 2.0
        assert found["eventproc_group_state_keys", "s/g"] == 2, "counting takes long: the last count is shown"
        await (await ep.group("s/g")).delete()
        found = samples((await render_metrics(ep, ""))[0])
        assert not [each for each in found if "_state_" in each[0]]


async def test_events_are_counted_as_sent_and_as_read_by_this_process() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        shares = await ep.create_share_group("s/q", ["s/t"])
        async with stream.writer() as writer:
            await writer.write_many([(b"x", None)] * 5)
        async with stream.reader() as reader:
            assert len([event async for event in reader.until(await stream.tail())]) == 5
        async with shares.consumer("c") as consumer:
            assert len(await consumer.poll(2)) == 2
        found = samples((await render_metrics(ep, ""))[0])
        assert found["messaging_client_sent_messages_total", "s/t"] == 5
        assert found["messaging_client_consumed_messages_total", "s/t"] == 7


async def test_sends_are_measured_by_stream_and_error() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with serve_metrics(ep, ("127.0.0.1", 0)), stream.writer() as writer:
            await writer.write(b"x")
            await writer.write(b"y")
            await stream.seal()
            with pytest.raises(StreamSealed):
                await writer.write(b"z")
        found = samples((await render_metrics(ep, ""))[0])
    assert found[f"{SENDS}_count", "", "s/t"] == found[f"{SENDS}_bucket", "", "+Inf", "s/t"] == 2
    assert found[f"{SENDS}_count", "StreamSealed", "s/t"] == 1
    assert found[f"{SENDS}_sum", "", "s/t"] >= 0
    buckets = [value for name, value in found.items() if name[:2] == (f"{SENDS}_bucket", "")]
    assert buckets == sorted(buckets)


MEASURED = """
import anyio, eventproc
from eventproc.server.endpoints import serve_metrics
from eventproc.server.rest.metrics import render_metrics

async def main():
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer:
            await writer.write(b"before")
            async with serve_metrics(ep, ("127.0.0.1", 0)):
                await writer.write(b"during")
            await writer.write(b"after")
        print((await render_metrics(ep, ""))[0].decode())

anyio.run(main)
"""


@pytest.mark.subprocess
def test_sends_are_measured_only_while_metrics_are_served() -> None:
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, check=True)
    assert samples(done.stdout)[f"{SENDS}_count", "", "s/t"] == 1


async def test_what_is_exported_is_what_the_documentation_lists() -> None:
    async with eventproc.open_memory() as ep:
        text = (await render_metrics(ep, ""))[0].decode()
    exported = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE ")]
    page = (REPOSITORY / "docs" / "metrics.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `[a-z._]+` \| `(\w+)` \|", page, re.MULTILINE)
    assert [each for each in exported if not each.startswith("process_")] == listed


async def test_all_streams_are_counted_and_only_the_first_ones_have_metrics_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eventproc.runtime.measures.STREAMS_MAX", 2)
    async with eventproc.open_memory() as ep:
        for scope in ("a", "b"):
            await ep.create_scope(scope)
            for name in ("t", "u"):
                await ep.create_stream(f"{scope}/{name}")
        found = await look_at_store(ep.db)
        assert found.streams_count == 4
        assert [each.name for each in found.streams] == ["a/t", "a/u"]


async def test_a_scraper_that_asks_for_openmetrics_gets_it() -> None:
    async with eventproc.open_memory() as ep:
        with reporting(ep.db, CONNECTIONS):
            body, media_type = await render_metrics(ep, "application/openmetrics-text; version=1.0.0")
        assert media_type.startswith("application/openmetrics-text")
        names = {family.name for family in parse_openmetrics(body.decode())}  # type: ignore[no-untyped-call]
        assert {"eventproc_streams", "eventproc_connections", "eventproc_stream_events"} <= names


async def test_a_scraper_that_asks_for_a_version_that_is_none_gets_the_text_of_prometheus() -> None:
    async with eventproc.open_memory() as ep:
        media_type, _ = await RestInMemory(ep).text("/metrics", "application/openmetrics-text; version=new")
        assert media_type.startswith("text/plain; version=0.0.4")
