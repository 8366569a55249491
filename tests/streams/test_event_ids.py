"""Ids of events: of the events of a stream that have the same id, the first one alone is appended."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import anyio
import attrs
import pytest

import eventproc
from eventproc import App, Context, Event, NewEvent, ScalingPolicy
from eventproc.describe import DelayedEvent
from eventproc.errors import InvalidArgument, NotFound, StreamSealed
from eventproc.runtime import Eventproc
from eventproc.streams import EventWriter
from eventproc.testing import CrashDirectory, RunningApp, SimulatedWorld, VirtualRuntime, check
from tests.support.reading import events_of
from tests.support.virtual_time import live, run_live

SECOND_MS, MINUTE_MS, DAY_MS = 1_000, 60_000, 86_400_000

Place = tuple[object, ...]


checked = partial(live, checked=True)


def place(event: Event[Any] | DelayedEvent[Any]) -> Place:
    """Return where an event lies, and since when."""
    assert isinstance(event, Event)
    return event.segment, event.number, event.offset, event.timestamp


async def payloads(t: RunningApp) -> list[bytes]:
    return [each.payload for each in await t.events("s/t")]


async def count_ids(t: RunningApp) -> int:
    return int(await t.ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM event_id").fetchone()[0]))


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_second_event_of_an_id_is_not_appended_and_returns_where_the_first_one_lies(backend: str) -> None:
    async def test(t: RunningApp) -> None:
        stream = await t.ep.stream("s/t")
        async with stream.writer() as writer:
            await writer.write(b"0")
            first = await writer.write(b"1", key="k", headers={"h": "1"}, id="a\u00e9", event_time=5)
        await anyio.sleep(3)
        async with stream.writer() as writer:
            again = await writer.write(b"2", key="l", headers={"h": "2"}, id="a\u00e9")
            assert again == first._replace(payload=b"2", key="l", headers={"h": "2"}, event_time=None)
            assert (again.id, first.id, writer.events_written) == ("a\u00e9", "a\u00e9", 0)
            assert (await writer.write(b"3", id="b")).number == 2
        read = await t.events("s/t")
        assert [each.payload for each in read] == [b"0", b"1", b"3"]
        assert [each.id for each in read] == [None, "a\u00e9", "b"]
        assert read[1] == first

    run_live(test, backend=backend, checked=True)


@checked
async def test_equal_ids_of_one_send_are_one_event_and_the_others_keep_their_places(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    await stream.split(0)
    async with stream.writer() as writer:
        await writer.write(b"first", key="x", id="known")
        found: list[Event] = []

        async def write(number: int, id: str | None) -> None:
            event = await writer.write(b"%d" % number, key=f"k{number % 5}", id=id)
            found.append(event)

        ids = [None, "known", "a", "a", None, "b", "known", "a", None, "b"]
        async with anyio.create_task_group() as tasks:  # all but the first are one send
            for number, id in enumerate(ids):
                tasks.start_soon(write, number, id)
    there = {(each.segment, each.number): each for each in await t.events("s/t")}
    assert len(there) == 3 + 3
    for event in found:
        lying = there[event.segment, event.number]
        assert (event.offset, event.timestamp, event.id) == (lying.offset, lying.timestamp, lying.id)
        if event.id is None:
            assert event == lying


@pytest.mark.parametrize("seed", range(6))
def test_each_caller_gets_the_place_of_the_first_event_while_the_stream_scales(seed: int) -> None:
    random = Random(seed)

    async def test(t: RunningApp) -> None:
        stream = await t.ep.stream("s/t")
        found: list[Event] = []

        async def write(writer: EventWriter[bytes], number: int) -> None:
            id = random.choice([None, *map(str, range(20))])
            if random.random() < 0.3:
                await writer.post(b"posted", key=f"k{number}", id=id)
            else:
                found.append(await writer.write(b"%d" % number, key=f"k{number}", id=id))

        async def scale() -> None:
            for _ in range(4):
                await stream.split(random.choice(await stream.segments()).id)

        async with stream.writer() as one, stream.writer() as two:
            for burst in range(12):
                async with anyio.create_task_group() as tasks:
                    if burst % 4 == 1:
                        tasks.start_soon(scale)
                    for number in range(10):
                        tasks.start_soon(write, random.choice([one, two]), number)
        read = await t.events("s/t")
        there = {(each.segment, each.number): each for each in read}
        ids = [each.id for each in read if each.id is not None]
        assert len(ids) == len(set(ids))
        for event in found:
            lying = there[event.segment, event.number]
            assert (event.offset, event.timestamp, event.id) == (lying.offset, lying.timestamp, lying.id)
            if event.id is None:
                assert event == lying

    run_live(test, checked=True)


@checked
async def test_write_many_and_post_append_what_the_stream_does_not_know(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    events = [NewEvent(b"%d" % number, "k", id=str(number % 700)) for number in range(1_400)]
    async with stream.writer() as writer:
        await writer.post(b"posted", id="3")
        assert await writer.write_many(events) == 1_400
        assert writer.events_written == 700
        await writer.post(b"again", id="3")
    assert await payloads(t) == [b"posted", *(b"%d" % each for each in range(700) if each != 3)]


@checked
async def test_a_repeated_sequence_of_a_named_writer_appends_nothing_whatever_the_ids(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    for _ in range(2):
        async with stream.writer(name="w") as writer:
            await writer.write_many([NewEvent(b"1", id="a"), (b"2", None)], sequence=1)
            assert await writer.write_many([NewEvent(b"3", id="a")], sequence=2) in (0, 1)
            await writer.write_many(
                [(b"4", None), NewEvent(b"5", id="b"), NewEvent(b"6", id="b")], sequence=3
            )
            assert writer.sequence == 3
    assert await payloads(t) == [b"1", b"2", b"4", b"5"]


@checked
async def test_an_id_is_free_again_after_the_window_of_the_stream_and_its_row_is_swept(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    assert (await stream.describe()).config.id_window_ms == DAY_MS
    await stream.update(id_window_ms=MINUTE_MS)
    async with stream.writer() as writer:
        first = await writer.write(b"1", id="a")
        await anyio.sleep(59.9)
        assert place(await writer.write(b"2", id="a")) == place(first)
        await anyio.sleep(0.1)
        second = await writer.write(b"3", id="a")
        assert place(second) != place(first)
        await stream.update(id_window_ms=10 * MINUTE_MS)  # of later events
        await anyio.sleep(59)
        assert place(await writer.write(b"4", id="a")) == place(second)
        await writer.write_many(NewEvent(b"", id=str(number)) for number in range(2_500))
    assert await count_ids(t) == 2_501
    await anyio.sleep(15 * 60)
    assert await count_ids(t) == 0


@checked
async def test_the_first_event_keeps_its_place_after_it_was_truncated(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    async with stream.writer() as writer:
        first = await writer.write(b"1", id="a")
        await stream.truncate(await stream.tail())
        assert place(await writer.write(b"2", id="a")) == place(first)
    assert await payloads(t) == []


@checked
async def test_a_sealed_stream_refuses_repeated_events_and_a_new_one_of_the_name_knows_no_ids(
    t: RunningApp,
) -> None:
    stream = await t.ep.stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"1", id="a")
        await stream.seal()
        with pytest.raises(StreamSealed):
            await writer.write(b"2", id="a")
    await stream.delete()
    stream = await t.ep.create_stream("s/t")
    async with stream.writer() as writer:
        await writer.write(b"3", id="a")
    assert await payloads(t) == [b"3"]
    await t.settled()
    assert await count_ids(t) == 1


@checked
async def test_a_delayed_event_has_its_id_while_it_waits_and_after_it_was_appended(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    async with stream.writer() as writer:
        await stream.update(id_window_ms=MINUTE_MS)
        first = await writer.write(b"1", id="a", delay_ms=3 * MINUTE_MS)
        assert isinstance(first, DelayedEvent)
        again = await writer.write(b"2", id="a", delay_ms=5)
        assert again == attrs.evolve(first, payload=b"2")
        with pytest.raises(InvalidArgument, match="a delayed event of s/t has it"):
            await writer.write(b"3", id="a")
        await writer.post(b"4", id="a")
        assert await t.ep.delayed.get("a") == first
        await anyio.sleep(3 * MINUTE_MS / 1000 + 0.05)
        (there,) = await t.events("s/t")
        assert (there.payload, there.id) == (b"1", "a")
        with pytest.raises(NotFound):
            await t.ep.delayed.get("a")
        assert place(await writer.write(b"5", id="a")) == place(there)
        assert place(await writer.write(b"5", id="a", delay_ms=5)) == place(there)
        await anyio.sleep(MINUTE_MS / 1000)
        await writer.write(b"6", id="a")
    assert await payloads(t) == [b"1", b"6"]


@checked
async def test_a_cancelled_delayed_event_frees_its_id_and_one_that_is_moved_keeps_it(t: RunningApp) -> None:
    other = await t.ep.create_stream("s/u")
    async with (await t.ep.stream("s/t")).writer() as writer, other.writer() as another:
        await writer.write(b"1", id="a", delay_ms=MINUTE_MS)
        assert (await t.ep.delayed.cancel("a")).payload == b"1"
        now = await writer.write(b"2", id="a")
        moved = await writer.write(b"3", id="b", delay_ms=MINUTE_MS)
        assert isinstance(moved, DelayedEvent)
        await another.write(b"4", id="b", delay_ms=MINUTE_MS)
        with pytest.raises(InvalidArgument, match="several streams"):
            await t.ep.delayed.cancel("b")
        await t.ep.delayed.move(moved.id, delay_ms=2 * MINUTE_MS)
        await anyio.sleep(MINUTE_MS / 1000 + 0.05)
        assert (await t.ep.delayed.move("b", delay_ms=0)).id == moved.id
    await t.settled()
    assert await payloads(t) == [b"2", b"3"]
    assert [each.payload for each in await t.events("s/u")] == [b"4"]
    assert now.number == 0


@checked
async def test_a_transaction_refuses_events_with_ids(t: RunningApp) -> None:
    stream = await t.ep.stream("s/t")
    async with stream.transaction() as txn:
        with pytest.raises(InvalidArgument, match="events of a transaction have no id"):
            await txn.write_many([NewEvent(b"", id="a")])
    async with t.ep.transaction() as joint:
        with pytest.raises(InvalidArgument, match="events of a transaction have no id"):
            await joint.write_many(stream, [NewEvent(b"", id="a")])


def test_what_handlers_emit_with_an_id_is_appended_once_and_a_copy_of_headers_has_no_id() -> None:
    app = App()

    @app.processor("s/in", group="s/g")
    async def emit(event: Event, context: Context) -> None:
        context.emit("s/t", event.payload, id=str(len(event.payload)), headers={"h": "1"})
        context.emit("s/t", event.payload, id=str(len(event.payload)))
        context.emit("s/t", b"late", id="late", delay_ms=MINUTE_MS)
        context.emit("s/copies", event.payload, headers=event.headers)

    async def test(t: RunningApp) -> None:
        for each in (b"a", b"bb", b"c", b"dd", b"eee"):
            async with (await t.ep.stream("s/in")).writer() as writer:
                await writer.write(each, id=each.decode(), headers={"of": "in"})
        await t.settled()
        assert await payloads(t) == [b"a", b"bb", b"eee", b"late"]
        assert [each.headers for each in await t.events("s/t")] == [{"h": "1"}] * 3 + [{}]
        copies = await t.events("s/copies")
        assert [(each.id, each.headers) for each in copies] == [(None, {"of": "in"})] * 5

    async def run(t: RunningApp) -> None:
        await t.ep.create_stream("s/copies")
        await test(t)

    run_live(run, app, checked=True)


@pytest.mark.parametrize(
    "header", ["ep-id", "ep-ttl-ms", "ep-priority", "ep-job", "ep-job-group", "ep-compacted"]
)
@checked
async def test_the_names_of_reserved_headers_are_refused(t: RunningApp, header: str) -> None:
    headers = {header: "removed"}
    async with (await t.ep.stream("s/t")).writer() as writer:
        for write in (
            partial(writer.write, b"", headers=headers),
            partial(writer.write, b"", headers=headers, priority=1),
            partial(writer.write_many, [NewEvent(b"", headers=headers)]),
            partial(t.ep.jobs("s/work", "s/t").submit, b"", headers=headers),
        ):
            with pytest.raises(InvalidArgument, match="the name is reserved; pass"):
                await write()
    assert await payloads(t) == []


@attrs.define
class NaiveIds:
    """What a stream must do with ids, as one dict."""

    window_ms: int
    known: dict[str | None, tuple[Place | None, float]] = attrs.field(factory=dict)
    """{id: place of the first event, if a caller was told; until when it is known, in ms}"""
    appended: list[tuple[str, bytes]] = attrs.field(factory=list)
    """Key and payload of each event."""

    def write(self, event: NewEvent[bytes], now_ms: int) -> bool:
        """Return whether the event is appended."""
        if event.id in self.known and self.known[event.id][1] > now_ms:
            return False
        if event.id is not None:
            self.known[event.id] = None, now_ms + self.window_ms
        self.appended.append((str(event.key), event.payload))
        return True


@pytest.mark.parametrize("seed", range(12))
def test_random_writes_are_those_of_a_naive_twin(seed: int) -> None:
    random = Random(seed)
    twin = NaiveIds(random.choice([10, 60]) * SECOND_MS + 50)  # no sum of the pauses below

    async def test(t: RunningApp) -> None:
        stream = await t.ep.create_stream("s/r", scaling=ScalingPolicy.fixed(2), id_window_ms=twin.window_ms)
        writers = [stream.writer() for _ in range(2)]
        for writer in writers:
            await writer
        for number in range(60):
            writer = random.choice(writers)
            await anyio.sleep(random.choice([0, 1, 5, 9.9]))
            if random.random() < 0.1:
                await stream.split((await stream.segments())[0].id)
            batch = [
                NewEvent(b"%d.%d" % (number, each), random.choice("kl"), id=random.choice([None, *"abcdef"]))
                for each in range(random.choice([1, 1, 2, 9]))
            ]
            now_ms = t.clock.wall_ms()
            if len(batch) > 1:
                for each in batch:
                    twin.write(each, now_ms)
                await writer.write_many(batch)
                continue
            (event,) = batch
            is_new = twin.write(event, now_ms)
            found = await writer.write(event.payload, key=event.key, id=event.id)
            assert found.timestamp >= now_ms or not is_new
            if event.id is not None:
                before, until_ms = twin.known[event.id]
                assert before is None or before == place(found)
                twin.known[event.id] = place(found), until_ms
        for writer in writers:
            await writer.close()
        read = [(str(each.key), each.payload) for each in await events_of(stream)]
        for key in "kl":
            assert [each for each in read if each[0] == key] == [
                each for each in twin.appended if each[0] == key
            ]

    run_live(test, checked=True)


def test_writers_of_several_instances_append_an_id_once() -> None:
    async def run() -> None:
        async with SimulatedWorld(seed=3) as world:
            for _ in range(3):
                await world.start()
            await world.ep.create_scope("s")
            await world.ep.create_stream("s/t")
            places: list[Place] = []

            async def write(ep: Eventproc, number: int) -> None:
                async with (await ep.stream("s/t")).writer() as writer:
                    for each in range(20):
                        found = await writer.write(b"%d" % number, id=str(each))
                        places.append((each, *place(found)))

            async with anyio.create_task_group() as tasks:
                for number, instance in enumerate(world.instances):
                    tasks.start_soon(write, instance.ep, number)
            assert (len(places), len(set(places))) == (60, 20)
            assert len(await world.events("s/t")) == 20
            await check(world.ep.db)

    VirtualRuntime().run(run)


def test_the_blocking_twin_takes_ids(tmp_path: Path) -> None:
    with eventproc.open_blocking(tmp_path / "home") as ep:
        ep.create_scope("s")
        numbers = ep.create_stream("s/n", payload=int, id_window_ms=MINUTE_MS)
        with numbers.writer() as writer:
            first = writer.write(1, id="a")
            assert place(writer.write(2, id="a", ttl_ms=5)) == place(first)
            writer.post(3, id="a")
            assert writer.write_many([NewEvent(4, id="b", ttl_ms=MINUTE_MS), NewEvent(5, id="b")]) == 2
            writer.write(6, id="c", delay_ms=10 * MINUTE_MS)
            assert ep.delayed.cancel("c").headers["ep-id"] == "c"
            with pytest.raises(InvalidArgument, match="it must have 1 to 200 characters"):
                writer.post(7, id="")
        with numbers.reader() as reader:
            assert [(each.payload, each.id) for each in reader.until(numbers.tail())] == [(1, "a"), (4, "b")]
        topic = ep.create_topic("s/topic", id_window_ms=MINUTE_MS)
        topic.alter(id_window_ms=2 * MINUTE_MS)
        with topic.producer() as producer:
            assert [producer.write(b"", id="a", partition=0).number for _ in range(2)] == [0, 0]
        assert topic.describe().config.id_window_ms == 2 * MINUTE_MS


async def write_id(ep: Eventproc) -> None:
    async with (await ep.stream("s/t")).writer() as writer:
        await writer.write(b"1", id="a")


async def create(ep: Eventproc) -> None:
    await ep.create_scope("s")
    await ep.create_stream("s/t")


async def count(ep: Eventproc) -> int:
    return len(await events_of(await ep.stream("s/t")))


@pytest.mark.subprocess
@pytest.mark.parametrize(("point", "kept"), [("write.commit", 0), ("write.committed", 1)])
def test_a_write_that_is_repeated_after_a_kill_is_appended_once(
    eventproc_crash: CrashDirectory, point: str, kept: int
) -> None:
    eventproc_crash.run(create)
    eventproc_crash.start(write_id, at=point, host=False).wait_killed()
    assert eventproc_crash.run(count) == kept
    for _ in range(2):
        eventproc_crash.run(write_id)
        assert eventproc_crash.run(count) == 1
    eventproc_crash.check()
