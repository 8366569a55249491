"""The state of open stores through OpenTelemetry: the same values as `/metrics`, looked at once by each export."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    Histogram,
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
    Sum,
)

import eventproc
from eventproc.runtime import measures as measures_module, store_instruments
from eventproc.runtime.measures import MEASURES, StoreLook, look_at_store
from eventproc.runtime.store_instruments import StoreInstruments
from eventproc.testing.crash import PATIENCE_S


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


@pytest.fixture
def shown(reader: InMemoryMetricReader) -> StoreInstruments:
    return StoreInstruments(MeterProvider([reader]).get_meter("eventproc"))


def collect(reader: InMemoryMetricReader) -> Mapping[str, list[tuple[float, dict[str, object]]]]:
    """Return the values, or how many there are, and attributes by the names of their instruments."""
    read = reader.get_metrics_data()
    found: dict[str, list[tuple[float, dict[str, object]]]] = {}
    for resource in () if read is None else read.resource_metrics:
        for metric in (each for scope in resource.scope_metrics for each in scope.metrics):
            for point in metric.data.data_points:
                assert isinstance(point, NumberDataPoint | HistogramDataPoint)
                value = point.value if isinstance(point, NumberDataPoint) else point.count
                found.setdefault(metric.name, []).append((value, dict(point.attributes or {})))
            if not isinstance(metric.data, Histogram):
                assert isinstance(metric.data, Sum) == measures()[metric.name], metric.name
    return found


def measures() -> dict[str, bool]:
    """Return for each name whether it is a counter."""
    return {each.name: each.is_counter for each in MEASURES}


async def test_streams_and_groups_are_shown_with_the_attributes_of_the_conventions(
    reader: InMemoryMetricReader, shown: StoreInstruments
) -> None:
    async with eventproc.open_memory() as ep:
        shown.add(ep.db)
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        await ep.create_group("s/g", ["s/t"], start="head")
        async with stream.writer() as writer:
            await writer.write_many([(b"x", None)] * 7)
        found = await anyio.to_thread.run_sync(collect, reader)
        common = {"messaging.system": "eventproc", "eventproc.store.name": ep.db.name}
        of_stream = {**common, "messaging.destination.name": "s/t"}
        of_group = {**common, "messaging.consumer.group.name": "s/g"}
        assert found["eventproc.stream.events"] == [(7, of_stream)]
        assert found["eventproc.group.lag_events"] == [(7, of_group)]
        assert found["eventproc.streams"] == [(1, common)]
        sends = "messaging.client.operation.duration"
        assert found[sends] == [(1, {**of_stream, "messaging.operation.name": "send"})]
        assert found.keys() <= {*measures(), sends}
    assert (await anyio.to_thread.run_sync(collect, reader)).keys() == {sends}


async def test_an_export_looks_once_at_each_store(
    reader: InMemoryMetricReader, shown: StoreInstruments, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    async def counted(*arguments: Any) -> StoreLook:
        looks.append("look")
        return await look_at_store(*arguments)

    monkeypatch.setattr(store_instruments, "look_at_store", counted)
    async with eventproc.open_memory() as ep:
        shown.add(ep.db)
        for exports in (1, 2):
            assert (await anyio.to_thread.run_sync(collect, reader))["eventproc.streams"]
            assert len(looks) == exports


async def test_an_export_on_the_thread_of_the_event_loop_shows_nothing_and_does_not_wait(
    reader: InMemoryMetricReader, shown: StoreInstruments
) -> None:
    async with eventproc.open_memory() as ep:
        shown.add(ep.db)
        assert collect(reader) == {}
        assert await anyio.to_thread.run_sync(partial(collect, reader))


PROVIDER = """
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
"""

PROGRAM = """
import sys
import eventproc
with eventproc.open_blocking(sys.argv[1]) as ep:
    ep.create_scope("s")
    if "reader" in globals():
        scopes = reader.get_metrics_data().resource_metrics[0].scope_metrics
        print(*sorted(each.name for scope in scopes for each in scope.metrics))
print(any(each.startswith("opentelemetry") for each in sys.modules))
"""


@pytest.mark.subprocess
@pytest.mark.parametrize("has_provider", [True, False])
def test_a_program_with_a_provider_has_its_stores_shown_and_another_one_imports_nothing(
    tmp_path: object, has_provider: bool
) -> None:
    code = (PROVIDER if has_provider else "") + PROGRAM
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    *names, imported = done.stdout.split()
    assert imported == str(has_provider)
    assert ("eventproc.database_bytes" in names) == has_provider


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_state_that_takes_long_to_count_is_shown_by_a_later_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released, counts = threading.Event(), []

    def count_slowly(tx: object, record: object) -> tuple[int, int]:
        counts.append(record)
        released.wait(PATIENCE_S)
        return 7, 70

    monkeypatch.setattr(measures_module, "measure_state", count_slowly)
    monkeypatch.setattr(measures_module, "COUNT_WAIT_S", 0.01)

    async def keep(event: eventproc.Event, state: dict[str, int]) -> None:
        state["events"] = 1

    app = eventproc.App()
    app.add(keep, "s/t", group="s/g", state=dict[str, int])
    async with eventproc.open(tmp_path / "data") as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer() as writer, ep.run(app) as running:
            await writer.write(b"", key="a")
            await running.wait_idle()
        try:
            looks = [await look_at_store(ep.db) for _ in range(2)]
        finally:
            released.set()
        assert [(each.streams_count, each.states) for each in looks] == [(1, {})] * 2
        with anyio.fail_after(PATIENCE_S):
            while not (states := (await look_at_store(ep.db)).states):
                pass
        assert states["s/g"].keys == 7
        assert len(counts) == 1, "one look at a time counts"
