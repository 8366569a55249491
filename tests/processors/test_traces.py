"""Traces from a write to the handlers, retries, commits and workflows that follow from it, and nothing without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing, nullcontext
from functools import partial
from pathlib import Path

import anyio
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, DEFAULT_ON, Sampler
from opentelemetry.trace import SpanKind, StatusCode

import eventproc
from eventproc.errors import StreamSealed, TransactionAborted
from eventproc.processors import App, Context, RetryPolicy
from tests.processors.support import GROUP, OUT, STREAM, events, finish, system

NO_PAUSE = RetryPolicy(attempts=2, wait_ms=0, wait_ms_max=0, jitter_ms=0)
HEADER = "traceparent"


class Spans:
    """What was exported, and the tracer of the program."""

    def __init__(self, sampler: Sampler = DEFAULT_ON) -> None:
        self._exported = InMemorySpanExporter()
        self.provider = TracerProvider(sampler)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exported))
        self.tracer = self.provider.get_tracer("program")

    def named(self, name: str) -> list[ReadableSpan]:
        """Return the spans of this name, in the order of their ends."""
        return [each for each in self._exported.get_finished_spans() if each.name == name]

    def one(self, name: str) -> ReadableSpan:
        """Return the only span of this name."""
        (found,) = self.named(name)
        return found


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Spans:
    made = Spans()
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: made.provider)
    return made


def id_of(span: ReadableSpan) -> int:
    context = span.get_span_context()
    assert context is not None
    return context.span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def linked(span: ReadableSpan) -> set[int]:
    return {each.context.span_id for each in span.links}


def carried_id(event: eventproc.Event) -> int:
    """Return the id of the span that sent an event."""
    return int(event.headers[HEADER].split("-")[2], 16)


async def test_a_write_is_a_child_of_its_caller_and_its_handler_a_child_of_the_write(spans: Spans) -> None:
    async def handle(event: eventproc.Event, context: Context) -> None:
        context.emit(OUT, event.payload)

    async with system() as ep:
        stream = await ep.stream(STREAM)
        async with stream.writer() as writer:
            with spans.tracer.start_as_current_span("order"):
                written = await writer.write(b"x", headers={"a": "b"})
        app = App()
        app.add(handle, STREAM, group=GROUP, name="billing")
        await finish(ep, app)
        sent, processed, committed = (
            spans.one(name) for name in (f"send {STREAM}", f"process {STREAM}", f"commit {GROUP}")
        )
        assert parent_of(sent) == id_of(spans.one("order"))
        assert (sent.kind, processed.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
        assert carried_id(written) == id_of(sent) == parent_of(processed)
        assert written.headers["a"] == "b"
        assert linked(committed) == {id_of(processed)}
        (emitted,) = await events(ep, OUT)
        assert carried_id(emitted) == id_of(processed)
        assert dict(processed.attributes or {}) == {
            "messaging.system": "eventproc",
            "messaging.destination.name": STREAM,
            "messaging.destination.partition.id": "0.0",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": GROUP,
            "eventproc.processor.name": "billing",
            "eventproc.event.number": 0,
            "eventproc.attempt": 1,
        }


async def test_every_attempt_is_a_span_and_a_failed_one_has_its_error(spans: Spans) -> None:
    async def handle(event: eventproc.Event, context: Context) -> None:
        if context.attempt == 1:
            raise OSError("once")

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            with spans.tracer.start_as_current_span("order"):
                await writer.write(b"x")
        app = App()
        app.add(handle, STREAM, group=GROUP, retry=NO_PAUSE)
        await finish(ep, app)
    first, second = spans.named(f"process {STREAM}")
    assert parent_of(first) == parent_of(second) == id_of(spans.one(f"send {STREAM}"))
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert (first.attributes or {})["error.type"] == "OSError"
    assert [(each.attributes or {})["eventproc.attempt"] for each in (first, second)] == [1, 2]


async def handle_batch(events: Sequence[eventproc.Event]) -> None:
    assert trace.get_current_span().is_recording()


def handle_on_thread(event: eventproc.Event) -> None:
    assert trace.get_current_span().is_recording()


async def test_a_batch_is_linked_to_the_senders_of_its_events(spans: Spans) -> None:
    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            with spans.tracer.start_as_current_span("orders"):
                assert await writer.write_many([(b"x", "a"), (b"y", "a")]) == 2
            await writer.write(b"z", key="a")
        app = App()
        app.add(handle_batch, STREAM, group=GROUP, batch=3)
        await finish(ep, app)
    processed = spans.one(f"process {STREAM}")
    assert parent_of(processed) is None
    assert linked(processed) == {id_of(each) for each in spans.named(f"send {STREAM}")}
    assert (processed.attributes or {})["messaging.batch.message_count"] == 3


async def test_a_handler_on_a_thread_runs_in_its_span(spans: Spans) -> None:
    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            with spans.tracer.start_as_current_span("order"):
                await writer.post(b"x")
                await writer.flush()
        app = App()
        app.add(handle_on_thread, STREAM, group=GROUP)
        await finish(ep, app)
    assert spans.one(f"process {STREAM}").status.status_code is StatusCode.UNSET


async def test_a_failed_write_ends_its_span_with_the_error(spans: Spans) -> None:
    async with system() as ep:
        stream = await ep.stream(STREAM)
        async with stream.writer() as writer:
            await stream.seal()
            with spans.tracer.start_as_current_span("order"), pytest.raises(StreamSealed):
                await writer.write(b"x")
    assert spans.one(f"send {STREAM}").status.status_code is StatusCode.ERROR


async def test_delayed_events_transactions_and_jobs_carry_the_context_of_their_caller(spans: Spans) -> None:
    async with system() as ep:
        stream = await ep.stream(STREAM)
        with spans.tracer.start_as_current_span("order") as order:
            async with stream.writer() as writer:
                await writer.write(b"later", delay_ms=0)
            async with stream.transaction() as txn:
                await txn.write(b"x")
            await ep.create_share_group("s/work", [OUT])
            await ep.jobs("s/work", OUT).submit(b"job")
        trace_id = f"{order.get_span_context().trace_id:032x}"
        async with stream.reader() as reader, aclosing(aiter(reader)) as following:
            found = [await anext(following), await anext(following), *await events(ep, OUT)]
        assert [each.headers[HEADER].split("-")[1] for each in found] == [trace_id] * 3


async def test_the_commit_of_a_transaction_is_linked_to_the_senders_of_its_events(spans: Spans) -> None:
    async with system() as ep:
        txn = await (await ep.stream(STREAM)).begin()
        with spans.tracer.start_as_current_span("order"):
            await txn.write(b"x")
            await txn.write(b"y")
        with spans.tracer.start_as_current_span("payment"):
            await txn.write(b"z")
            await txn.commit()
        with spans.tracer.start_as_current_span("refund"):
            async with ep.transaction() as joint:
                await joint.write(STREAM, b"x")
                await joint.write(OUT, b"y")
        untraced = await (await ep.stream(STREAM)).begin()
        await untraced.write(b"x")
        await untraced.commit()
    committed, together = spans.one(f"commit {STREAM}"), spans.one("commit transaction")
    assert parent_of(committed) == id_of(spans.one("payment"))
    assert linked(committed) == {id_of(spans.one("order"))}
    assert (committed.attributes or {})["eventproc.transaction.id"] == txn.id
    assert parent_of(together) == id_of(spans.one("refund"))
    assert linked(together) == set()


async def test_a_commit_that_fails_ends_its_span_with_the_error(spans: Spans) -> None:
    async with system() as ep:
        stream = await ep.stream(STREAM)
        txn = await stream.begin()
        with spans.tracer.start_as_current_span("order"):
            await txn.write(b"x")
        await txn.abort()
        with pytest.raises(TransactionAborted):
            await txn.commit()
    committed = spans.one(f"commit {STREAM}")
    assert (parent_of(committed), committed.status.status_code) == (None, StatusCode.ERROR)
    assert linked(committed) == {id_of(spans.one("order"))}


def test_the_commit_of_a_blocking_transaction_is_linked_to_the_spans_of_its_thread(
    spans: Spans, tmp_path: Path
) -> None:
    with eventproc.open_blocking(tmp_path) as ep:
        ep.create_scope("s")
        with spans.tracer.start_as_current_span("order"), ep.create_stream("s/t").transaction() as txn:
            txn.write(b"x")
    assert linked(spans.one("commit s/t")) | {parent_of(spans.one("commit s/t"))} >= {
        id_of(spans.one("order"))
    }


async def test_a_worker_traces_its_jobs(spans: Spans) -> None:
    done = anyio.Event()

    async def work(event: eventproc.Event) -> None:
        done.set()

    async with system() as ep:
        await ep.create_share_group("s/work", [STREAM])
        app = App()
        app.worker(STREAM, share_group="work")(work)
        with spans.tracer.start_as_current_span("order"):
            await ep.jobs("s/work").submit(b"job")
        async with ep.run(app):
            await done.wait()
    processed = spans.one(f"process {STREAM}")
    assert parent_of(processed) == id_of(spans.one("order"))
    assert linked(spans.one("commit s/work")) == {id_of(processed)}


async def test_the_run_of_a_request_is_a_descendant_of_its_caller(spans: Spans) -> None:
    async with system() as ep:
        with spans.tracer.start_as_current_span("setup"):
            await ep.create_stream("s/more")
    asked = spans.one("create s/more")
    assert parent_of(asked) == id_of(spans.one("setup"))
    assert parent_of(spans.one("process _system/request")) == id_of(asked)


async def test_a_header_that_the_caller_has_put_is_the_parent_of_the_write(spans: Spans) -> None:
    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            sampled, ignored = (f"00-{'1' * 32}-{'2' * 16}-{flag}" for flag in ("01", "00"))
            await writer.write(b"x", headers={HEADER: sampled})
            await writer.write(b"x", headers={HEADER: ignored})
        first, second = await events(ep, STREAM)
    sent = spans.one(f"send {STREAM}")
    assert parent_of(sent) == int("2" * 16, 16)
    assert carried_id(first) == id_of(sent)
    assert second.headers == {HEADER: ignored}


async def test_headers_without_room_are_written_as_they_are(spans: Spans) -> None:
    full = {str(number): "x" for number in range(64)}
    async with system() as ep, (await ep.stream(STREAM)).writer() as writer:
        with spans.tracer.start_as_current_span("order"):
            assert (await writer.write(b"x", headers=full)).headers == full
    assert spans.named(f"send {STREAM}") == []


@pytest.mark.parametrize("way", ["no provider", "no span", "not sampled"])
async def test_an_event_that_no_recorded_span_sends_has_no_header_and_no_span(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    spans = Spans(ALWAYS_OFF if way == "not sampled" else DEFAULT_ON)
    if way != "no provider":
        monkeypatch.setattr(trace, "get_tracer_provider", lambda: spans.provider)

    async def handle(event: eventproc.Event) -> None:
        assert not trace.get_current_span().is_recording()

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            with nullcontext() if way == "no span" else spans.tracer.start_as_current_span("order"):
                written = await writer.write(b"x")
        assert written.headers == {}
        app = App()
        app.add(handle, STREAM, group=GROUP)
        await finish(ep, app)
    assert spans.named(f"process {STREAM}") == []


async def test_a_handler_that_overruns_its_timeout_ends_its_span_with_an_error(spans: Spans) -> None:
    async def handle(event: eventproc.Event) -> None:
        await anyio.sleep_forever()

    async with system() as ep:
        async with (await ep.stream(STREAM)).writer() as writer:
            with spans.tracer.start_as_current_span("order"):
                await writer.write(b"x")
        app = App()
        app.add(handle, STREAM, group=GROUP, timeout_ms=1, retry=RetryPolicy(attempts=1))
        await finish(ep, app)
    assert spans.one(f"process {STREAM}").status.status_code is StatusCode.ERROR


@pytest.mark.parametrize("way", ["write", "post", "write_many"])
def test_the_blocking_writer_carries_the_context_of_its_thread(
    spans: Spans, way: str, tmp_path: Path
) -> None:
    with eventproc.open_blocking(tmp_path) as ep:
        ep.create_scope("s")
        stream = ep.create_stream("s/t")
        with stream.writer() as writer, spans.tracer.start_as_current_span("order"):
            ways: dict[str, Callable[[], object]] = {
                "write": partial(writer.write, b"x"),
                "post": partial(writer.post, b"x"),
                "write_many": partial(writer.write_many, [(b"x", None)]),
            }
            ways[way]()
        with stream.reader() as reader:
            (event,) = reader.until(stream.tail())
    sent = spans.one("send s/t")
    assert parent_of(sent) == id_of(spans.one("order"))
    assert carried_id(event) == id_of(sent)
