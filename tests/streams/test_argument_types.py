"""What people call from outside: a wrong type is refused by name, and never as Python's own error."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

import eventproc
from eventproc.runtime import Eventproc
from eventproc.runtime.requests import Requests
from eventproc.store.model.errors import InvalidArgument, InvalidCut
from eventproc.store.model.policies import StreamConfig
from eventproc.streams import EventWriter, NewEvent, Stream, StreamReader, Transaction, request_calls
from eventproc.streams.delayed_events import DelayedEvents
from eventproc.streams.schedules import Schedules
from eventproc.workflows.requests import (
    CreateStream,
    DeleteScope,
    ScaleStream,
    SealStream,
    TruncateStream,
    UpdateStream,
)


@attrs.frozen
class OpenHandles:
    """The objects that are called. Untyped, as a type checker refuses these calls."""

    ep: Any
    stream: Any
    writer: Any
    reader: Any
    txn: Any


@pytest.fixture
async def world() -> AsyncIterator[OpenHandles]:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        stream = await ep.create_stream("s/t")
        async with stream.writer(name="n") as writer, stream.reader() as reader:
            txn = await stream.begin(lease_ms=None)
            asked = await ep.requests.list()
            yield OpenHandles(ep, stream, writer, reader, txn)
            assert await ep.requests.list() == asked
            assert [each.id for each in await stream.transactions()] == [txn.id]
            assert (await txn.status()).events == 0
            assert writer.events_written == 0
        assert [each.name for each in await ep.streams()] == ["s/t"]
        assert (await stream.describe()).epoch == 0


def cut(**fields: object) -> object:
    made: Any = eventproc.StreamCut
    return made(**{"stream": "s/t", "stream_id": 1, "offsets": {0: 0}, **fields})


untyped: Any = SimpleNamespace(
    Create=CreateStream,
    Scale=ScaleStream,
    Seal=SealStream,
    Truncate=TruncateStream,
    Update=UpdateStream,
    DeleteScope=DeleteScope,
    Event=NewEvent,
    Policy=eventproc.ScalingPolicy,
)

THING = object()
SHARED = eventproc.ReplicatedType(name="int", state=int, updates={"add": int}, fold=int.__add__)
NO_TEXT = [5, None, b"s/t", ["s/t"], THING, float("nan"), "\ud800", "s/\udc00"]
NO_INT = ["x", None, 1.5, True, float("nan"), [1], 2**70, THING]
NO_WAIT = [*NO_INT, -1]
NO_SEGMENT = ["x", 1.5, None, b"0.0", -1, 2**70, [0], THING]
NO_ID = [5, b"", [], THING, ""]
NO_EVENT_ID = [5, b"a", [], {}, THING, "", "a\0", "\ud800", "a" * 201]
NO_PREFIX = [5, b"s", ["s"], THING, "\ud800"]
NO_TYPE = [5, "str", [], b"", THING]
NO_PLACE = [None, 1.5, "end", b"tail", True, [], THING]
NO_POSITIVE = [each for each in NO_INT if each is not None] + [0]
NO_TIME = ["x", "end", 1.5, True, b"0", [], THING]
NO_CONFIG: list[dict[str, Any]] = [
    {"retention": eventproc.RetentionPolicy(age_ms=-1)},
    {"offload": eventproc.OffloadPolicy(age_ms=0)},
    {"scaling": eventproc.ScalingPolicy(eventproc.ScalingKind.EVENT_RATE, 1)},
    {"scaling": eventproc.ScalingPolicy(eventproc.ScalingKind.FIXED, 2, factor=3)},
    {"tags": ("",)},
    {"ttl_ms": 0},
    {"id_window_ms": 0},
    {"partitioning": eventproc.Partitioning.KEY},
    {"compaction": eventproc.CompactionPolicy(min_age_ms=-1)},
    {"compaction": eventproc.CompactionPolicy(tombstone_ms=-1)},
    {"compaction": eventproc.CompactionPolicy(min_age_ms=1)},
]
NO_CUT = ["tail", 5, {0: 0}, [], b"", THING]

CALLS: dict[str, tuple[Callable[[OpenHandles, Any], Any], list[Any]]] = {
    "open": (lambda _, x: eventproc.open(x), [5, b"data", None, THING]),
    "open, durability": (lambda _, x: eventproc.open("data", durability=x), [5, [], THING]),
    "open, chunks": (lambda _, x: eventproc.open("data", chunks=x), [5, b"data", [], THING, ""]),
    "open, clock": (lambda _, x: eventproc.open("data", clock=x), [5, "now", object(), THING]),
    "open, faults": (lambda _, x: eventproc.open("data", faults=x), [5, None, THING]),
    "open_memory, clock": (lambda _, x: eventproc.open_memory(clock=x), [5, "now", object(), THING]),
    "open_memory, faults": (lambda _, x: eventproc.open_memory(faults=x), [5, None, THING]),
    "create_scope": (lambda w, x: w.ep.create_scope(x), NO_TEXT),
    "delete_scope": (lambda w, x: w.ep.delete_scope(x), NO_TEXT),
    "delete_scope, all of it": (lambda w, x: w.ep.delete_scope(x, recursive=True), NO_TEXT),
    "delete_scope, timeout": (lambda w, x: w.ep.delete_scope("s", recursive=True, timeout_ms=x), NO_WAIT),
    "create_stream": (lambda w, x: w.ep.create_stream(x), NO_TEXT),
    "create_stream, scaling": (lambda w, x: w.ep.create_stream("s/u", scaling=x), [2, "2", [], {}, 0, THING]),
    "create_stream, made scaling": (
        lambda w, x: w.ep.create_stream("s/u", scaling=untyped.Policy(x, x)),
        [2, 0, "fixed", None],
    ),
    "create_stream, id_window_ms": (lambda w, x: w.ep.create_stream("s/u", id_window_ms=x), NO_POSITIVE),
    "update, id_window_ms": (lambda w, x: w.stream.update(id_window_ms=x), NO_POSITIVE),
    "create_stream, timeout": (lambda w, x: w.ep.create_stream("s/u", timeout_ms=x), NO_WAIT),
    "create_stream, payload": (lambda w, x: w.ep.create_stream("s/u", payload=x), NO_TYPE),
    "stream": (lambda w, x: w.ep.stream(x), NO_TEXT),
    "stream, payload": (lambda w, x: w.ep.stream("s/t", payload=x), NO_TYPE),
    "stream, codec": (lambda w, x: w.ep.stream("s/t", codec=x), [5, str, [], THING]),
    "streams": (lambda w, x: w.ep.streams(x), NO_PREFIX),
    "streams, prefix": (lambda w, x: w.ep.streams("s", prefix=x), NO_PREFIX),
    "streams, tag": (lambda w, x: w.ep.streams("s", tag=x), NO_PREFIX),
    "scopes, prefix": (lambda w, x: w.ep.scopes(prefix=x), NO_TEXT),
    "tables, prefix": (lambda w, x: w.ep.tables(prefix=x), NO_TEXT),
    "tables, limit": (lambda w, x: w.ep.tables(limit=x), NO_POSITIVE),
    "describe_table": (lambda w, x: w.ep.describe_table(x), NO_TEXT),
    "describe_table, start": (lambda w, x: w.ep.describe_table("t", start=x), NO_TIME),
    "table_version": (lambda w, x: w.ep.table_version(x), NO_TEXT),
    "drop_table": (lambda w, x: w.ep.drop_table(x), NO_TEXT),
    "drop_table, end": (lambda w, x: w.ep.drop_table("t", end=x), NO_TIME),
    "ingestion_workers, limit": (lambda w, x: w.ep.ingestion_workers(limit=x), NO_POSITIVE),
    "ingestion_log": (lambda w, x: w.ep.ingestion_log(x), NO_TEXT),
    "ingestion_log, after": (
        lambda w, x: w.ep.ingestion_log("t", after=x),
        [each for each in NO_INT if each is not None],
    ),
    "ingestion_log, limit": (lambda w, x: w.ep.ingestion_log("t", limit=x), NO_POSITIVE),
    "follow_ingestion_log": (lambda w, x: anext(w.ep.follow_ingestion_log(x)), NO_TEXT),
    "requests.submit": (lambda w, x: w.ep.requests.submit(x), ["seal", None, 5, {}, THING, SealStream]),
    "requests.preview": (
        lambda w, x: w.ep.requests.preview(x),
        ["seal", None, 5, {}, THING, SealStream],
    ),
    "requests.submit, policy of a new stream": (
        lambda w, x: w.ep.requests.submit(untyped.Create("s/u", StreamConfig(**x))),
        NO_CONFIG,
    ),
    "requests.submit, policy": (
        lambda w, x: w.ep.requests.submit(untyped.Update("s/t", 0, StreamConfig(**x))),
        NO_CONFIG,
    ),
    "requests.submit, one limit": (
        lambda w, x: w.ep.requests.submit(
            untyped.Update("s/t", 0, StreamConfig(**x[1]), keep_segments=True, fields=(x[0],))
        ),
        [
            ("retention.age_ms", {"retention": eventproc.RetentionPolicy(age_ms=-1)}),
            ("retention.age_ms_min", {"retention": eventproc.RetentionPolicy(age_ms_min=1)}),
            ("compaction.min_age_ms", {"compaction": eventproc.CompactionPolicy(min_age_ms=1)}),
            ("offload.size_bytes", {"offload": eventproc.OffloadPolicy(size_bytes=0)}),
            ("scaling.factor", {"scaling": attrs.evolve(eventproc.ScalingPolicy.fixed(1), factor=3)}),
            ("scaling.segments_min", {"scaling": eventproc.ScalingPolicy(eventproc.ScalingKind.FIXED, 0)}),
            ("tags", {"tags": ("",)}),
            ("ttl_ms", {"ttl_ms": 0}),
            ("id_window_ms", {"id_window_ms": 0}),
        ],
    ),
    "requests.submit, id": (lambda w, x: w.ep.requests.submit(SealStream("s/t", 1), request_id=x), NO_ID),
    "requests.submit, within": (
        lambda w, x: w.ep.requests.submit(SealStream("s/t", 1), within_ms=x),
        [each for each in NO_WAIT if each is not None],
    ),
    "requests.submit, timeout": (
        lambda w, x: w.ep.requests.submit(SealStream("s/t", 1), timeout_ms=x),
        NO_WAIT,
    ),
    "requests.submit, of a stream": (lambda w, x: w.ep.requests.submit(untyped.Seal(x, 1)), NO_TEXT),
    "requests.submit, of an id": (
        lambda w, x: w.ep.requests.submit(untyped.Seal("s/t", x)),
        ["x", None, 1.5, [1], THING],
    ),
    "requests.submit, if_version": (
        lambda w, x: w.ep.requests.submit(untyped.Seal("s/t", 1, if_version=x)),
        NO_POSITIVE,
    ),
    "requests.submit, config": (
        lambda w, x: w.ep.requests.submit(untyped.Update("s/t", 1, x)),
        [5, None, "x", THING],
    ),
    "requests.submit, fields": (
        lambda w, x: w.ep.requests.submit(untyped.Update("s/t", 1, StreamConfig(), fields=x)),
        [5, "tags", b"", ["years"], [None], [["tags"]], THING],
    ),
    "requests.submit, scaling": (
        lambda w, x: w.ep.requests.submit(untyped.Create("s/u", StreamConfig(x))),
        [5, None, THING],
    ),
    "requests.submit, of a scope": (lambda w, x: w.ep.requests.submit(untyped.DeleteScope(x)), NO_TEXT),
    "requests.submit, seals": (
        lambda w, x: w.ep.requests.submit(untyped.Scale("s/t", 1, x, ())),
        [5, None, "x", [1.5], THING],
    ),
    "requests.submit, ranges": (
        lambda w, x: w.ep.requests.submit(untyped.Scale("s/t", 1, (), x)),
        [5, None, "x", [5], THING],
    ),
    "requests.submit, offsets": (
        lambda w, x: w.ep.requests.submit(untyped.Truncate("s/t", 1, x)),
        [5, None, [0], {0: "x"}, THING],
    ),
    "requests.get": (lambda w, x: w.ep.requests.get(x), NO_TEXT),
    "requests.list": (lambda w, x: w.ep.requests.list(limit=x), [*NO_INT, 0, -1]),
    "requests.wait": (lambda w, x: w.ep.requests.wait(x), NO_TEXT),
    "requests.wait, timeout": (lambda w, x: w.ep.requests.wait("x", timeout_ms=x), NO_WAIT),
    "fixed": (lambda _, x: untyped.Policy.fixed(x), [*NO_INT, 0]),
    "writer": (lambda w, x: w.stream.writer(payload=x), NO_TYPE),
    "writer, codec": (lambda w, x: w.stream.writer(codec=x), [5, int, [], THING]),
    "writer, name": (lambda w, x: w.stream.writer(name=x), [5, b"n", [], THING]),
    "reader": (lambda w, x: w.stream.reader(x), [None, 1.5, "end", b"tail", True, [], {}, 2**70, THING]),
    "reader, payload": (lambda w, x: w.stream.reader(payload=x), NO_TYPE),
    "reader, segments": (lambda w, x: w.stream.reader(segments=x), [5, "0.0", THING, ["x"], [1.5], [None]]),
    "transaction": (lambda w, x: w.stream.transaction(payload=x), NO_TYPE),
    "transaction, lease": (lambda w, x: w.stream.transaction(lease_ms=x), NO_POSITIVE),
    "begin": (lambda w, x: w.stream.begin(payload=x), NO_TYPE),
    "transactions, after": (lambda w, x: w.stream.transactions(after=x), [5, b"x", THING, "\ud800"]),
    "transactions, limit": (lambda w, x: w.stream.transactions(limit=x), [*NO_INT, 0]),
    "transaction_of": (lambda w, x: w.stream.transaction_of(x), NO_TEXT),
    "transaction_of, payload": (lambda w, x: w.stream.transaction_of("x", payload=x), NO_TYPE),
    "commit": (lambda w, x: w.txn.commit(timeout_ms=x), NO_WAIT),
    "ping": (lambda w, x: w.txn.ping(lease_ms=x), ["x", 1.5, True, float("nan"), [1], 0, THING]),
    "write, to a transaction": (lambda w, x: w.txn.write(x), [5, None, "text", [b""], THING]),
    "write_many, to a transaction": (
        lambda w, x: w.txn.write_many(x),
        [5, None, b"ab", [5], [(b"",)], [(b"", 5)]],
    ),
    "segments": (lambda w, x: w.stream.segments(x), NO_PLACE),
    "segments, epoch": (
        lambda w, x: w.stream.segments(epoch=x),
        [each for each in NO_INT if each is not None],
    ),
    "cut_at": (lambda w, x: w.stream.cut_at(x), NO_INT),
    "measure": (lambda w, x: w.stream.measure(x), [*NO_PLACE, {}]),
    "plot": (lambda w, x: w.stream.plot(x), [each for each in NO_INT if each is not None]),
    "plot, to": (lambda w, x: w.stream.plot(None, x), [each for each in NO_INT if each is not None]),
    "measure, end": (lambda w, x: w.stream.measure("head", x), [*NO_PLACE, {}]),
    "update": (lambda w, x: w.stream.update(scaling=x), [2, None, "2", [], THING]),
    "update, timeout": (
        lambda w, x: w.stream.update(scaling=eventproc.ScalingPolicy.fixed(1), timeout_ms=x),
        NO_WAIT,
    ),
    "scale, seal": (lambda w, x: w.stream.scale(seal=x, ranges=[(0, 1)]), [5, None, "0.0", ["x"], [1.5]]),
    "scale, ranges": (
        lambda w, x: w.stream.scale(seal=[0], ranges=x),
        [5, None, "0-1", ["x"], [5], [(0,)], [("0", "1")], [(0.5, 0.5)], [(float("nan"), 1)]],
    ),
    "split, request id": (lambda w, x: w.stream.split(0, request_id=x), NO_ID),
    "update, request id": (lambda w, x: w.stream.update(tags=["a"], request_id=x), NO_ID),
    "seal, request id": (lambda w, x: w.stream.seal(request_id=x), NO_ID),
    "create_stream, request id": (lambda w, x: w.ep.create_stream("s/u", request_id=x), NO_ID),
    "split": (lambda w, x: w.stream.split(x), NO_SEGMENT),
    "split, if_version": (lambda w, x: w.stream.split(0, if_version=x), NO_POSITIVE),
    "split, into": (lambda w, x: w.stream.split(0, x), NO_INT),
    "merge": (lambda w, x: w.stream.merge(x, x), NO_SEGMENT),
    "truncate": (lambda w, x: w.stream.truncate(x), [*NO_CUT, None]),
    "offload, older_than": (lambda w, x: w.stream.offload(older_than_ms=x), NO_INT),
    "seal, timeout": (lambda w, x: w.stream.seal(timeout_ms=x), NO_WAIT),
    "write": (lambda w, x: w.writer.write(x), [5, None, "text", [b""], THING]),
    "write, key": (lambda w, x: w.writer.write(b"", key=x), [5, bytearray(b"k"), ["k"], {}, THING]),
    "write, event time": (lambda w, x: w.writer.write(b"", event_time=x), ["x", 1.5, True, [1], 2**70]),
    "write, headers": (lambda w, x: w.writer.write(b"", headers=x), [5, "x", ["a"], {"a": 1}, {1: "a"}]),
    "write, delay": (lambda w, x: w.writer.write(b"", delay_ms=x), [v for v in NO_WAIT if v is not None]),
    "write, at": (lambda w, x: w.writer.write(b"", at=x), [v for v in NO_WAIT if v is not None]),
    "post, delay": (lambda w, x: w.writer.post(b"", delay_ms=x), [v for v in NO_WAIT if v is not None]),
    "write, id": (lambda w, x: w.writer.write(b"", id=x), NO_EVENT_ID),
    "note_time": (lambda w, x: w.writer.note_time(x), [None, "x", 1.5, True, [1], 2**63, THING]),
    "post, id": (lambda w, x: w.writer.post(b"", id=x), NO_EVENT_ID),
    "write_many, id": (lambda w, x: w.writer.write_many([untyped.Event(b"", id=x)]), NO_EVENT_ID),
    "state": (lambda w, x: w.ep.state(x).get("k"), [5, b"", None, THING]),
    "state, state": (lambda w, x: w.ep.state("s/g", x).get("k"), [5, "x", None, THING]),
    "state, key": (lambda w, x: w.ep.state("s/g").find(x), [5, None, THING, "\ud800"]),
    "state, keys": (lambda w, x: w.ep.state("s/g").drop(x), [5, "x", b"x", [5], THING]),
    "state, states": (lambda w, x: w.ep.state("s/g").restore(x), [5, "x", None, [5], [None], THING]),
    "state, values": (
        lambda w, x: w.ep.state("s/g").store(x),
        [5, "x", None, [5], {5: b""}, {"a": 5}, THING],
    ),
    "jobs": (lambda w, x: w.ep.jobs(x).list(), [5, b"", [], None, THING]),
    "schedules.create": (
        lambda w, x: w.ep.schedules.create(x, cron="* * * * *", stream="s/t"),
        [5, b"s/t", None, "s", THING],
    ),
    "schedules.create, cron": (
        lambda w, x: w.ep.schedules.create("s/c", cron=x, stream="s/t"),
        [5, None, "", "x", "* * * *", "61 * * * *", "0 0 30 2 *", THING],
    ),
    "schedules.create, stream": (
        lambda w, x: w.ep.schedules.create("s/c", cron="* * * * *", stream=x),
        [5, None, "s", THING],
    ),
    "schedules.create, tz": (
        lambda w, x: w.ep.schedules.create("s/c", cron="* * * * *", stream="s/t", tz=x),
        [5, None, "", "Mars/Olympus", "../etc", "a\0b", THING],
    ),
    "schedules.create, missed": (
        lambda w, x: w.ep.schedules.create("s/c", cron="* * * * *", stream="s/t", missed=x),
        [5, None, "", "some", THING],
    ),
    "schedules.get": (lambda w, x: w.ep.schedules.get(x), [5, b"", [], None, THING]),
    "schedules.list": (
        lambda w, x: w.ep.schedules.list(limit=x),
        [*NO_INT[:1], *NO_INT[2:], 0, -1],
    ),
    "schedules.next": (lambda w, x: w.ep.schedules.next("s/c", count=x), [*NO_INT, 0, 1_001]),
    "schedules.pause": (lambda w, x: w.ep.schedules.pause(x), [5, b"", [], None, THING]),
    "schedules.resume": (lambda w, x: w.ep.schedules.resume(x), [5, b"", [], None, THING]),
    "schedules.delete": (lambda w, x: w.ep.schedules.delete(x), [5, b"", [], None, THING]),
    "delayed.list": (lambda w, x: w.ep.delayed.list(limit=x), [*NO_INT, 0, -1]),
    "delayed.get": (lambda w, x: w.ep.delayed.get(x), [5, b"", [], None, THING]),
    "delayed.cancel": (lambda w, x: w.ep.delayed.cancel(x), [5, b"", [], None, THING]),
    "delayed.move": (lambda w, x: w.ep.delayed.move("x", delay_ms=x), NO_WAIT),
    "post, key": (lambda w, x: w.writer.post(b"", key=x), [5, bytearray(b"k"), ["k"], {}, THING]),
    "write_many": (lambda w, x: w.writer.write_many(x), [5, None, b"ab", "ab", THING]),
    "write_many, event": (
        lambda w, x: w.writer.write_many([x]),
        [
            5,
            None,
            b"ab",
            "ab",
            (),
            (b"",),
            (b"", "k", 5),
            [b"", "k"],
            (5, "k"),
            (b"", 5),
            (b"", ["k"]),
            THING,
        ],
    ),
    "write_many, new event": (
        lambda w, x: w.writer.write_many([untyped.Event(b"", x)]),
        [5, ["k"], bytearray(b"k")],
    ),
    "write_many, sequence": (lambda w, x: w.writer.write_many([], sequence=x), ["x", 1.5, True, 0, [1]]),
    "write_many, event of a sequence": (
        lambda w, x: w.writer.write_many([x], sequence=1),
        [5, None, (b"",), (b"", "k", 5), (b"", 5), (b"", ["k"])],
    ),
    "until": (lambda w, x: w.reader.until(x), [*NO_CUT, None]),
    "batches": (lambda w, x: w.reader.batches(until=x), NO_CUT),
    "create_group": (lambda w, x: w.ep.create_group(x, ["s/t"]), NO_TEXT),
    "create_group, streams": (
        lambda w, x: w.ep.create_group("s/g", x),
        [5, None, "s/t", [], [5], ["t"], ["s/t", "s/t"], THING],
    ),
    "create_group, start": (
        lambda w, x: w.ep.create_group("s/g", ["s/t"], start=x),
        [None, 1.5, True, "end", b"tail", [], THING],
    ),
    "create_group, until": (lambda w, x: w.ep.create_group("s/g", ["s/t"], until=x), [5, {"s/t": 5}]),
    "group": (lambda w, x: w.ep.group(x), NO_TEXT),
    "groups": (lambda w, x: w.ep.groups(x), [5, b"s", ["s"], THING]),
    "synchronizer": (lambda w, x: w.ep.synchronizer(x, SHARED), NO_TEXT),
    "synchronizer, kind": (lambda w, x: w.ep.synchronizer("s/o", x), [5, None, "int", int, THING]),
    "synchronizers": (lambda w, x: w.ep.synchronizers(x), [5, b"s", ["s"], THING]),
    "delete_synchronizer": (lambda w, x: w.ep.delete_synchronizer(x), NO_TEXT),
    "backup": (lambda w, x: w.ep.backup(x), [5, None, b"copy", "", [], THING]),
    "query": (lambda w, x: w.ep.query(x), [5, None, b"SELECT 1", [], THING]),
    "query, parameters": (lambda w, x: w.ep.query("SELECT ?", x), [5, None, [], [THING], THING]),
    "dead_letters": (lambda w, x: w.ep.dead_letters(x).list(), NO_TEXT),
    "processor": (lambda w, x: w.ep.processor(x), NO_TEXT),
    "pause_processor": (lambda w, x: w.ep.pause_processor(x), NO_TEXT),
    "resume_processor": (lambda w, x: w.ep.resume_processor(x), NO_TEXT),
    "run": (lambda w, x: w.ep.run(x), [5, None, "shop:app", [], THING]),
    "run, grace": (lambda w, x: w.ep.run(eventproc.App(), grace_ms=x), [*NO_INT, -1]),
    "StreamCut, stream": (lambda _, x: cut(stream=x), NO_TEXT),
    "StreamCut, stream id": (lambda _, x: cut(stream_id=x), NO_INT),
    "StreamCut, offsets": (lambda _, x: cut(offsets=x), [5, None, [0], "x", {1.5: 0}, {0: "x"}, {0: None}]),
    "StreamCut.parse": (lambda _, x: eventproc.StreamCut.parse(x, "s/t"), [5, None, b"1:0.0=0", THING]),
}


async def use(made: Any) -> None:
    """Do with the result of a call what its caller would do next."""
    if isinstance(made, Awaitable):
        await made
    elif hasattr(made, "__aenter__"):
        async with made:
            pass
    elif hasattr(made, "__anext__"):
        await anext(made)


@pytest.mark.parametrize("call_name", CALLS)
async def test_a_wrong_type_is_refused_by_name_and_changes_nothing(
    call_name: str, world: OpenHandles
) -> None:
    call, wrong = CALLS[call_name]
    for value in wrong:
        with pytest.raises(InvalidArgument) as caught:
            await use(call(world, value))
        assert caught.value.what, value
        assert caught.value.reason, value
        str(caught.value).encode()


@pytest.mark.parametrize(
    "call, bounds",
    [
        (lambda ep: ep.requests.list(limit=2**63), f"1 to {2**63 - 1}"),
        (lambda ep: ep.requests.wait("x", timeout_ms=2**63), f"0 to {request_calls.PATIENCE_MS_MAX}"),
        (lambda ep: ep.requests.wait("x", timeout_ms=-1), f"0 to {request_calls.PATIENCE_MS_MAX}"),
    ],
)
async def test_a_number_out_of_range_is_refused_with_both_bounds(
    ep: Eventproc, call: Callable[[Eventproc], Awaitable[object]], bounds: str
) -> None:
    with pytest.raises(InvalidArgument, match=bounds):
        await call(ep)


async def test_segments_may_be_named_by_their_text(ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    parts = await stream.split("0.0")
    assert parts == (1 << 32 | 1, 1 << 32 | 2)
    async with stream.reader(segments=["1.1", parts[1]]) as reader:
        assert set(reader.offsets) == set(parts)
    assert await stream.merge("1.1", "2.1") == 2 << 32 | 3


async def test_a_reader_refuses_to_read_up_to_a_cut_of_another_stream(ep: Eventproc) -> None:
    stream, other = await ep.create_stream("s/t"), await ep.create_stream("s/u")
    async with stream.reader() as reader:
        with pytest.raises(InvalidCut, match="it is a cut of s/u"):
            await anext(reader.until(await other.tail()))


def test_every_public_method_is_in_the_table() -> None:
    """A method that is renamed or added is to be found here."""
    named = {call_name.partition(",")[0] for call_name in CALLS}
    without_arguments = {
        "aclose",
        "abort",
        "cut",
        "delete",
        "describe",
        "epochs",
        "flush",
        "head",
        "requests.new_id",
        "overview",
        "preview_abort",
        "processors",
        "scopes",
        "status",
    }
    for kind, prefix in (
        (Eventproc, ""),
        (Requests, "requests."),
        (DelayedEvents, "delayed."),
        (Schedules, "schedules."),
        (Stream, ""),
        (EventWriter, ""),
        (StreamReader, ""),
        (Transaction, ""),
    ):
        methods = {prefix + name for name in vars(kind) if name[0] != "_" and callable(getattr(kind, name))}
        assert methods - named - {"tail", *without_arguments} == set()
