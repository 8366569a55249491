"""Names and values of the measurements, their absence without OpenTelemetry, and the fields of log records."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence

import anyio
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import (
    HistogramDataPoint,
    InMemoryMetricReader,
    NumberDataPoint,
)

import eventproc
from eventproc.processors import App, Context, RetryPolicy
from eventproc.processors.observe.telemetry import NOTHING, Telemetry, event_log, telemetry
from eventproc.store.model.ids import segment_id
from eventproc.store.segments import Event
from eventproc.testing import VirtualClock
from tests.processors.support import GROUP, OUT, STREAM, finish, system, write
from tests.support.virtual_time import in_virtual_time

COMMON = {
    "messaging.system": "eventproc",
    "messaging.consumer.group.name": "shop/billing",
    "eventproc.processor.name": "billing",
}
OF_ORDERS = {
    **COMMON,
    "messaging.destination.name": "shop/orders",
    "messaging.operation.name": "process",
    "messaging.operation.type": "process",
}


class Measured:
    """A processor's measurements, and what a reader finds of them."""

    def __init__(self, made: Telemetry, reader: InMemoryMetricReader) -> None:
        self.of = made
        self._reader = reader

    def points(self) -> Mapping[str, Sequence[object]]:
        """Return the data points by the name of their instrument."""
        read = self._reader.get_metrics_data()
        assert read is not None, "nothing was measured"
        return {
            metric.name: metric.data.data_points
            for resource in read.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if scope.scope.name == "eventproc"
        }

    def values(self, name: str) -> list[tuple[float, dict[str, object]]]:
        """Return the values of a counter or gauge, with their attributes."""
        found: list[tuple[float, dict[str, object]]] = []
        for point in self.points()[name]:
            assert isinstance(point, NumberDataPoint)
            found.append((point.value, dict(point.attributes or {})))
        return found


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    found = InMemoryMetricReader()
    provider = MeterProvider([found])
    monkeypatch.setattr("opentelemetry.metrics.get_meter", provider.get_meter)
    return found


@pytest.fixture
def measured(reader: InMemoryMetricReader) -> Measured:
    return Measured(telemetry("billing", "shop/billing"), reader)


@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_processor_that_runs_is_measured(reader: InMemoryMetricReader, exactly_once: bool) -> None:
    async def handle(event: Event, context: Context) -> None:
        if event.payload == b"2" and context.attempt == 1:
            raise OSError("once")
        if event.payload == b"3":
            raise ValueError("always")
        context.emit(OUT, event.payload)

    async with system() as ep:
        await write(ep, "aabbcc")
        app = App()
        retry = RetryPolicy(attempts=2, wait_ms=0, wait_ms_max=0, jitter_ms=0)
        app.add(handle, STREAM, group=GROUP, name="billing", retry=retry, exactly_once=exactly_once)
        await finish(ep, app)
    found = Measured(NOTHING, reader)

    def total(name: str) -> float:
        values = found.values(f"eventproc.processor.{name}")
        return sum(value for value, where in values if where["eventproc.processor.name"] == "billing")

    assert {name: total(name) for name in ("finished", "failed_attempts", "retries", "dead_letters")} == {
        "finished": 6,
        "failed_attempts": 3,
        "retries": 2,
        "dead_letters": 1,
    }
    assert (total("emitted"), total("in_flight")) == (5, 0)
    assert {"messaging.process.duration", "eventproc.processor.commit.duration"} <= found.points().keys()


@in_virtual_time
async def test_lag_is_measured_by_stream(reader: InMemoryMetricReader) -> None:
    async def handle(event: Event) -> None:
        await anyio.sleep_forever()

    async with eventproc.open_memory(clock=VirtualClock()) as ep:
        await ep.create_scope("s")
        for name in (STREAM, OUT):
            await ep.create_stream(name)
        await write(ep, "abc")
        app = App()
        app.add(handle, STREAM, OUT, group=GROUP)
        async with ep.run(app, grace_ms=0):
            await anyio.sleep(5)
    lags = Measured(NOTHING, reader).values("eventproc.processor.lag")
    assert {where["messaging.destination.name"]: value for value, where in lags} == {STREAM: 3, OUT: 0}


def test_events_are_counted_by_what_became_of_them(measured: Measured) -> None:
    measured.of.finished("shop/orders", 90)
    measured.of.finished("shop/orders", 10)
    measured.of.dead_lettered("shop/orders", 2)
    measured.of.skipped("shop/orders", 3)
    measured.of.committed(0.004, {"shop/bills": 7, "shop/mails": 1})
    measured.of.committed(0.002, {"shop/bills": 1})
    assert measured.values("eventproc.processor.finished") == [(100, OF_ORDERS)]
    assert measured.values("eventproc.processor.dead_letters") == [(2, OF_ORDERS)]
    assert measured.values("eventproc.processor.skipped") == [(3, OF_ORDERS)]
    emitted = {"messaging.operation.name": "emit", "messaging.operation.type": "send"}
    assert measured.values("eventproc.processor.emitted") == [
        (8, {**COMMON, **emitted, "messaging.destination.name": "shop/bills"}),
        (1, {**COMMON, **emitted, "messaging.destination.name": "shop/mails"}),
    ]


def test_failed_attempts_are_counted_by_error_type_and_retries_apart(
    measured: Measured,
) -> None:
    for again in (True, True, False):
        measured.of.failed("shop/orders", KeyError("x"), again=again)
    measured.of.failed("shop/orders", subprocess.SubprocessError(), again=False)
    assert measured.values("eventproc.processor.failed_attempts") == [
        (3, {**OF_ORDERS, "error.type": "KeyError"}),
        (1, {**OF_ORDERS, "error.type": "subprocess.SubprocessError"}),
    ]
    assert measured.values("eventproc.processor.retries") == [(2, OF_ORDERS)]


def test_gauges_show_the_last_value(measured: Measured) -> None:
    measured.of.in_flight(5)
    measured.of.in_flight(3)
    measured.of.lag("shop/orders", 1000)
    assert measured.values("eventproc.processor.in_flight") == [(3, COMMON)]
    assert measured.values("eventproc.processor.lag") == [(1000, OF_ORDERS)]


def test_durations_are_histograms_in_seconds_with_one_value_a_turn(measured: Measured) -> None:
    measured.of.handled("shop/orders", 0.3)
    measured.of.committed(0.004, {})
    measured.of.committed(0.0004, {})
    for name, count, total, where in [
        ("messaging.process.duration", 1, 0.3, OF_ORDERS),
        ("eventproc.processor.commit.duration", 2, 0.0044, COMMON),
    ]:
        (point,) = measured.points()[name]
        assert isinstance(point, HistogramDataPoint)
        assert (point.count, dict(point.attributes or {})) == (count, where)
        assert point.sum == pytest.approx(total)
        assert (point.explicit_bounds[0], point.explicit_bounds[-1]) == (0.001, 10.0)


def test_of_many_turns_between_two_commits_some_are_recorded(measured: Measured) -> None:
    for turns in (160, 160):
        for _ in range(turns):
            measured.of.handled("shop/orders", 0.001)
        measured.of.committed(0.001, {})
    (point,) = measured.points()["messaging.process.duration"]
    assert isinstance(point, HistogramDataPoint)
    assert point.count == 160 + 160 // 21  # all of them before the first commit says how many there are


CALLS: list[Callable[[Telemetry], None]] = [
    lambda made: made.handled("s/t", 0.1),
    lambda made: made.finished("s/t", 1),
    lambda made: made.failed("s/t", ValueError(), again=True),
    lambda made: made.dead_lettered("s/t", 1),
    lambda made: made.skipped("s/t", 1),
    lambda made: made.committed(0.1, {"s/t": 1}),
    lambda made: made.in_flight(1),
    lambda made: made.lag("s/t", 1),
]


def test_in_a_program_without_opentelemetry_nothing_is_measured_and_every_call_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.metrics")
    made = telemetry("billing", "shop/billing")
    assert made is NOTHING
    for call in CALLS:
        call(made)


def test_records_of_a_call_carry_its_fields_and_its_own(caplog: pytest.LogCaptureFixture) -> None:
    event = Event(b"", "customer-42", 0, None, "shop/orders", segment_id(2, 1), 170, 17, {})
    log = event_log("billing", event, attempt=3)
    with caplog.at_level(logging.INFO):
        log.warning("no %s", "money", extra={"amount": 5, "attempt": "third"})
        log.info("plain")
    first, second = caplog.records
    assert first.getMessage() == "no money"
    assert first.name == "eventproc.processors.handler"
    fields = {
        "processor": "billing",
        "stream": "shop/orders",
        "segment": "2.1",
        "offset": 170,
        "number": 17,
        "key": "customer-42",
        "attempt": 3,
    }
    assert {name: getattr(second, name) for name in fields} == fields
    assert {name: getattr(first, name) for name in fields} == {**fields, "attempt": "third"}
    assert first.__dict__["amount"] == 5
    assert "amount" not in second.__dict__
