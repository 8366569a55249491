"""What a processor keeps by key: as the handler left it, once for each event, whatever fails."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import anyio
import attrs
import msgspec
import pydantic
import pytest

import eventproc
from eventproc import App, AppTx, Context, Event, KeyState, ProcessorFailed, RetryPolicy
from eventproc.describe import KeyValue
from eventproc.errors import CallEnded, GroupNotEmpty, InvalidArgument, NotFound
from eventproc.processors.engine.key_queues import Item
from eventproc.processors.engine.states import KeyStateCache
from eventproc.testing import VirtualRuntime, check
from tests.processors.support import GROUP, OUT, STREAM, letters, payloads, system, write
from tests.support.apps import run_until_idle

AT_ONCE = RetryPolicy(attempts=3, wait_ms=0, wait_ms_max=0, jitter_ms=0)
ONCE = RetryPolicy(attempts=1)


@attrs.define
class Total:
    count: int = 0
    last: int = -1


@dataclasses.dataclass
class DataTotal:
    count: int = 0
    last: int = -1


class ModelTotal(pydantic.BaseModel):
    count: int = 0
    last: int = -1


class StructTotal(msgspec.Struct):
    count: int = 0
    last: int = -1


@attrs.frozen
class FrozenTotal:
    count: int = 0


async def add(event: Event, total: Any) -> None:
    total.count += 1
    total.last = int(event.payload)


def app_of(handler: Callable[..., object] = add, state: Any = Total, **choices: Any) -> App:
    app = App()
    choices = {"retry": AT_ONCE, "state": state, **choices}
    app.add(handler, STREAM, group=GROUP, **choices)
    return app


@pytest.mark.parametrize("kind", [Total, DataTotal, ModelTotal, StructTotal])
async def test_a_handler_changes_the_state_of_its_key(kind: type[Any]) -> None:
    async with system() as ep:
        await write(ep, ["a", "b", "a"])
        await run_until_idle(ep, app_of(state=kind))
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(state=kind))
        kept = ep.state(GROUP, kind)
        assert await kept.get("a") == kind(count=3, last=0)
        assert await kept.get("b") == kind(count=1, last=1)
        assert await kept.get("c") is None


async def test_a_plain_function_on_a_thread_and_an_object_have_states_too() -> None:
    def on_thread(event: Event, total: dict[str, int]) -> None:
        total["count"] = total.get("count", 0) + 1

    class WithStart:
        async def start(self) -> None:
            self.step = 10

        async def process(self, event: Event, total: dict[str, int], context: Context) -> None:
            total["count"] = total.get("count", 0) + self.step * context.attempt

    async with system() as ep:
        await write(ep, ["a", "b"] * 100)
        await run_until_idle(ep, app_of(on_thread, dict[str, int]))
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(WithStart, dict[str, int]))
        assert await ep.state(GROUP, dict[str, int]).get("a") == {"count": 110}
        assert await ep.state(GROUP).get("b") == b'{"count":100}'


async def test_what_a_handler_returns_takes_the_place_of_a_value_that_cannot_change() -> None:
    async def count(event: Event, total: FrozenTotal) -> FrozenTotal:
        return attrs.evolve(total, count=total.count + 1)

    async with system() as ep:
        await write(ep, ["a", "a"])
        await run_until_idle(ep, app_of(count, FrozenTotal))
        assert await ep.state(GROUP, FrozenTotal).get("a") == FrozenTotal(count=2)


async def test_an_object_that_a_handler_returns_for_two_keys_is_not_shared_by_them() -> None:
    zero = Total()

    async def count(event: Event, total: Total) -> Total | None:
        if total.last < 0:
            zero.last = 0
            return zero
        total.count += 1
        return None

    async with system() as ep:
        await write(ep, ["a", "b", "a", "b", "b"])
        await run_until_idle(ep, app_of(count))
        assert [each.value.count for each in await ep.state(GROUP, Total).list()] == [1, 2]
    assert zero.count == 0


@pytest.mark.parametrize("is_sync", [False, True])
async def test_a_call_that_fails_or_leaves_another_type_changes_nothing(is_sync: bool) -> None:
    failed: list[int] = []

    def change(event: Event, total: Total) -> object:
        number = int(event.payload)
        total.count += 100
        if number not in failed or number == 2:
            failed.append(number)
            if number == 3:
                return "a text"
            raise ValueError("now and then")
        total.count -= 99
        total.last = number
        return None

    async def change_on_loop(event: Event, total: Total) -> object:
        return change(event, total)

    async with system() as ep:
        await write(ep, ["a"] * 5)
        await run_until_idle(ep, app_of(change if is_sync else change_on_loop))
        assert await ep.state(GROUP, Total).get("a") == Total(count=4, last=4)
        assert await letters(ep) == [(2, "ValueError", 3)]
    assert failed == [0, 1, 2, 2, 2, 3, 4]


async def test_a_call_that_is_cancelled_changes_nothing() -> None:
    calls = 0

    async def hang(event: Event, total: Total) -> None:
        nonlocal calls
        calls += 1
        total.count += 1
        if calls == 1:
            await anyio.sleep_forever()

    async with system() as ep:
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(hang, timeout_ms=10))
        assert await ep.state(GROUP, Total).get("a") == Total(count=1)


async def test_a_handler_forgets_a_state_and_begins_anew() -> None:
    async def toggle(event: Event, total: Total, context: Context) -> None:
        total.count += 1
        if int(event.payload) % 3 == 2:
            context.forget_state()

    async with system() as ep:
        await write(ep, ["a"] * 6)
        await run_until_idle(ep, app_of(toggle))
        assert await ep.state(GROUP, Total).list() == []
        await write(ep, ["a"] * 2)
        await run_until_idle(ep, app_of(toggle))
        assert await ep.state(GROUP, Total).get("a") == Total(count=2)


async def test_a_state_that_is_larger_than_an_event_may_be_fails_its_call() -> None:
    async def grow(event: Event, text: dict[str, str]) -> None:
        text["all"] = "x" * eventproc.EVENT_BYTES_MAX

    async with system() as ep:
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(grow, dict[str, str], retry=ONCE))
        (letter,) = await ep.dead_letters(GROUP).list()
        assert "a state has at most 8388600" in (letter.error or "")
        assert await ep.state(GROUP).get("a") is None


async def test_states_that_leave_a_small_cache_return_as_they_were() -> None:
    async with system() as ep:
        keys = [f"k{number % 400}" for number in range(1_600)]
        await write(ep, keys)
        await run_until_idle(ep, app_of(state=KeyState(Total, cache_bytes=1)))
        kept = ep.state(GROUP, Total)
        found = await kept.list(limit=10_000)
        assert [each.value.count for each in found] == [4] * 400
        info = await kept.describe()
        assert (info.keys, info.stream, info.payload, info.versions) == (400, STREAM, "Total", (1,))
        assert info.value_bytes == sum(len(each.value) for each in await ep.state(GROUP).list(limit=10_000))


async def test_a_segment_that_is_lost_while_a_thread_loads_its_states_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loads, load, lost = 0, KeyStateCache.load, anyio.Event()

    async def lose_and_load(self: KeyStateCache, items: Sequence[Item]) -> None:
        nonlocal loads
        loads += 1
        if loads == 2:  # the first one was before the events were handed out
            owned: Any = items[0][1].owned
            owned.closing = True
            self.lose(owned)
        await load(self, items)
        if loads == 2:
            lost.set()

    def count(event: Event, total: Total) -> None:
        total.count += 1

    monkeypatch.setattr(KeyStateCache, "load", lose_and_load)
    async with system() as ep:
        await write(ep, ["a", "a"])
        async with ep.run(app_of(count)):
            await lost.wait()
        await run_until_idle(ep, app_of(count))
        assert await ep.state(GROUP, Total).get("a") == Total(count=2)


async def test_long_keys_count_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[KeyStateCache] = []
    load = KeyStateCache.load

    async def note(self: KeyStateCache, items: Sequence[Item]) -> None:
        caches.append(self)
        await load(self, items)

    monkeypatch.setattr(KeyStateCache, "load", note)
    async with system() as ep:
        await write(ep, [f"{number:01000}" for number in range(10)])
        await run_until_idle(ep, app_of())
    assert caches[0].size_bytes > 10_000


async def test_states_are_listed_by_ranges_and_pages_of_keys() -> None:
    async with system() as ep:
        await write(ep, ["a", "b", "ba", "c", "é"])
        await run_until_idle(ep, app_of())
        kept = ep.state(GROUP, Total)

        async def keys(**choices: Any) -> list[str]:
            return [each.key for each in await kept.list(**choices)]

        assert await keys() == ["a", "b", "ba", "c", "é"]
        assert await keys(first="b", last="c") == ["b", "ba"]
        assert await keys(after="b", limit=2) == ["ba", "c"]
        assert await keys(first="d") == ["é"]


async def test_a_state_expires_after_its_last_change_and_its_row_is_swept(
    eventproc_runtime: VirtualRuntime,
) -> None:
    state = KeyState(Total, ttl_ms=300_000)
    async with eventproc_runtime.running(app_of(state=state)) as running:
        kept = running.ep.state(GROUP, state)

        async def add_to(*keys: str) -> None:
            await write(running.ep, keys)
            await running.settled()

        async def rows() -> int:
            found = await running.ep.db.read(
                lambda tx: tx.execute("SELECT count(*) FROM key_state").fetchone()
            )
            return int(found[0])

        await add_to("a", "b")
        await anyio.sleep(250)
        await add_to("a")
        await anyio.sleep(100)
        assert [(each.key, each.value.count) for each in await kept.list()] == [("a", 2)]
        assert await kept.get("b") is None
        assert await rows() == 1
        await add_to("b")
        assert await kept.get("b") == Total(count=1, last=0)
        await anyio.sleep(400)
        assert await rows() == 0
        await add_to("a")
        assert await kept.get("a") == Total(count=1, last=0)


async def test_a_state_stays_once_its_processor_declares_no_expiry_any_more(
    eventproc_runtime: VirtualRuntime,
) -> None:
    async def look(event: Event, total: Total) -> None:
        total.count = max(total.count, 5)

    async with eventproc_runtime.running(streams=[STREAM]) as system:
        await write(system.ep, ["a"])
        await run_until_idle(system.ep, app_of(look, KeyState(Total, ttl_ms=300_000)))
        await write(system.ep, ["a"])
        async with system.ep.run(app_of(look)) as running:
            await running.wait_idle()
            await anyio.sleep(600)
            await write(system.ep, ["a"])
            await running.wait_idle()
        assert await system.ep.state(GROUP, Total).get("a") == Total(count=5)


@attrs.define
class Money:
    cents: int = 0


def upgrade(version: int, data: bytes) -> Money:
    assert version == 1
    return Money(cents=100 * msgspec.json.decode(data)["count"])


async def test_states_of_an_older_version_are_upgraded_when_they_are_needed() -> None:
    async def pay(event: Event, money: Money) -> None:
        money.cents += 1

    state = KeyState(Money, version=2, upgrade=upgrade)
    async with system() as ep:
        await write(ep, ["a", "b"])
        await run_until_idle(ep, app_of())
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(pay, state))
        assert [(each.key, each.value, each.version) for each in await ep.state(GROUP, state).list()] == [
            ("a", Money(cents=101), 2),
            ("b", Money(cents=100), 1),
        ]
        assert (await ep.state(GROUP).describe()).versions == (1, 2)


@pytest.mark.parametrize(
    ("state", "remedy"),
    [(KeyState(Total, version=3), "give an `upgrade`"), (KeyState(Total), "the program that has stored it")],
)
async def test_a_version_that_cannot_be_read_refuses_the_start_and_names_a_key(
    state: KeyState[Total], remedy: str
) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        await run_until_idle(ep, app_of(state=KeyState(Total, version=2)))
        with pytest.raises(ProcessorFailed, match=f"key 'ana' has version 2.*{remedy}"):
            await run_until_idle(ep, app_of(state=state))
        assert await ep.state(GROUP).drop() == 1
        await write(ep, ["ana"])
        await run_until_idle(ep, app_of(state=state))
        assert await ep.state(GROUP, state).get("ana") == Total(count=1, last=0)


async def test_a_version_of_which_no_key_is_left_refuses_nothing() -> None:
    async with system() as ep:
        await write(ep, ["a"])
        await run_until_idle(ep, app_of(state=KeyState(Total, version=2)))
        await ep.state(GROUP, KeyState(Total, version=2)).store({"a": None})
        await run_until_idle(ep, app_of())
        assert (await ep.state(GROUP).describe()).versions == (1,)


def fail(version: int, data: bytes) -> Total:
    raise ValueError("unknown")


@pytest.mark.parametrize(
    "upgrade, why", [(fail, "ValueError: unknown"), (lambda version, data: "a text", ".*Total")]
)
async def test_a_state_that_an_upgrade_fails_to_make_stops_the_processor_with_its_key(
    upgrade: Callable[[int, bytes], Any], why: str
) -> None:
    async with system() as ep:
        await write(ep, ["ana"])
        await run_until_idle(ep, app_of())
        await write(ep, ["ana"])
        with pytest.raises(ProcessorFailed, match=f"the state of key 'ana' cannot be read: {why}"):
            await run_until_idle(ep, app_of(state=KeyState(Total, version=2, upgrade=upgrade)))


async def test_what_is_stored_without_a_version_has_the_newest_one() -> None:
    state = KeyState(Money, version=2, upgrade=upgrade)
    async with system() as ep:
        await run_until_idle(ep, app_of(state=state))
        await ep.state(GROUP).store({"a": b'{"cents":7}'})
        await ep.state(GROUP, Money).store({"b": Money(cents=8)})
        kept = await ep.state(GROUP, state).list()
        assert [(each.value, each.version) for each in kept] == [(Money(cents=7), 2), (Money(cents=8), 2)]
        assert (await ep.state(GROUP).describe()).payload == "Money"


@pytest.mark.parametrize("kind", [Total, DataTotal, ModelTotal, StructTotal])
async def test_a_value_that_cannot_be_read_back_fails_its_call(kind: type[Any]) -> None:
    async def spoil(event: Event, total: Any) -> None:
        total.count += 1
        if event.payload == b"1":
            total.last = None

    async with system() as ep:
        await write(ep, ["a"] * 3)
        await run_until_idle(ep, app_of(spoil, kind))
        assert await ep.state(GROUP, kind).get("a") == kind(count=2)
        assert [(payload, attempts) for payload, _, attempts in await letters(ep)] == [(1, 3)]


async def test_states_are_stored_and_dropped_only_while_the_processor_does_not_run() -> None:
    async with system() as ep:
        kept = ep.state(GROUP, Total)
        with pytest.raises(NotFound, match=GROUP):
            await kept.get("a")
        async with ep.run(app_of()) as running:
            await running.wait_idle()
            with pytest.raises(GroupNotEmpty, match="storing its state"):
                await kept.store({"a": Total()})
            with pytest.raises(GroupNotEmpty, match="dropping its state"):
                await kept.drop()
        await kept.store({f"k{number}": Total(count=number) for number in range(2_500)})
        await write(ep, ["k7"])
        await run_until_idle(ep, app_of())
        assert await kept.get("k7") == Total(count=8, last=0)
        assert await kept.drop() == 2_500
        with pytest.raises(NotFound):
            await kept.describe()


async def test_what_a_list_returns_is_restored_with_its_versions_and_its_expiry() -> None:
    soon = KeyState(Total, version=2, ttl_ms=3_600_000)
    async with system() as ep, system() as other:
        for each in (ep, other):
            await write(each, ["a"])
            await run_until_idle(each, app_of(state=soon))
        first = ep.state(GROUP, KeyState(Total))
        await first.store({f"k{number:04}": Total(count=number) for number in range(1_500)})
        found = await ep.state(GROUP).list(limit=2_000)
        assert {(each.version, each.expires_ms is None) for each in found} == {(1, True), (2, False)}
        raw = other.state(GROUP)
        await raw.drop()
        await raw.restore(found)
        assert await raw.list(limit=2_000) == found
        assert (await raw.describe()).versions == (1, 2)
        key = found[0].key
        states = [KeyValue(key=key, value=Total(count=count), version=1) for count in (1, 5)]
        await other.state(GROUP, soon).restore(states)
        assert (await raw.list(first=key, limit=1))[0].version == 2
        assert await other.state(GROUP, soon).get(key) == Total(count=5)


async def test_states_of_some_keys_are_dropped_and_the_others_stay() -> None:
    async with system() as ep:
        await write(ep, ["a", "b"])
        await run_until_idle(ep, app_of())
        kept = ep.state(GROUP, Total)
        assert await kept.drop(["a", "c", b"a"]) == 1
        assert [each.key for each in await kept.list()] == ["b"]
        assert await kept.drop([]) == 0
        await kept.store({f"k{number}": Total() for number in range(1_200)})
        assert await kept.drop(f"k{number}" for number in range(2_000)) == 1_200
        async with ep.run(app_of()) as running:
            await running.wait_idle()
            for change in (kept.drop(["b"]), kept.restore(await kept.list())):
                with pytest.raises(GroupNotEmpty, match="its state"):
                    await change
        assert await kept.get("b") is not None


async def test_a_missing_group_and_a_group_without_a_state_are_told_apart() -> None:
    async with system() as ep:
        await ep.create_group("s/plain", [STREAM])
        for name, said in (("s/none", "no group 's/none'"), ("s/plain", "no state by key 's/plain'")):
            kept = ep.state(name)
            for look in (kept.get("a"), kept.list(), kept.describe(), kept.drop(), kept.drop(["a"])):
                with pytest.raises(NotFound, match=said):
                    await look


async def test_a_state_goes_with_its_group_and_with_its_stream() -> None:
    async with system() as ep:
        await write(ep, ["a"])
        await run_until_idle(ep, app_of())
        stream = await ep.stream(STREAM)
        await stream.seal()
        await stream.delete()
        await ep.create_stream(STREAM)
        await write(ep, ["a"])
        await run_until_idle(ep, app_of())
        assert await ep.state(GROUP, Total).get("a") == Total(count=1, last=0)
        await (await ep.group(GROUP)).delete()
        with pytest.raises(NotFound):
            await ep.state(GROUP, Total).get("a")


@pytest.mark.parametrize("made_again", [False, True])
async def test_states_of_a_deleted_group_are_swept_in_steps_and_never_read_again(
    made_again: bool, eventproc_runtime: VirtualRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventproc.store.key_states.DROPPED_A_STEP", 2)
    async with eventproc_runtime.running(streams=[STREAM]) as running:
        ep = running.ep

        async def rows() -> int:
            found = await ep.db.read(lambda tx: tx.execute("SELECT count(*) FROM key_state").fetchone())
            return int(found[0])

        await write(ep, "abcde")
        await run_until_idle(ep, app_of())
        await (await ep.group(GROUP)).delete()
        assert await rows() == 5
        await check(ep.db)
        if made_again:
            await run_until_idle(ep, app_of(start="tail"))
            await write(ep, "e")
            await run_until_idle(ep, app_of())
            assert [each.key for each in await ep.state(GROUP, Total).list()] == ["e"]
        await anyio.sleep(4_000)
        assert await rows() == int(made_again)
        await check(ep.db)


async def test_states_that_no_record_names_are_found_by_the_check() -> None:
    async with system() as ep:
        await write(ep, ["a"])
        await run_until_idle(ep, app_of())
        change = "UPDATE key_state SET stream_id = stream_id + {}"
        await ep.db.write(lambda tx: tx.execute(change.format(1000)))
        with pytest.raises(
            AssertionError, match=f"key_state, watermark: rows of group {GROUP} that no record"
        ):
            await check(ep.db)
        await ep.db.write(lambda tx: tx.execute(change.format(-1000)))


async def test_what_a_handler_emits_and_changes_in_tables_comes_with_its_state() -> None:
    async def handle(event: Event, total: Total, context: Context) -> None:
        total.count += 1
        key, count = event.key, total.count

        def note(tx: AppTx) -> None:
            tx.execute("INSERT INTO app_noted VALUES (?, ?)", (key, count))
            tx.emit(OUT, b"2")

        context.emit(OUT, b"1")
        context.change_tables(note)

    async with system() as ep:
        app = app_of(handle)
        app.setup(lambda tx: tx.execute("CREATE TABLE IF NOT EXISTS app_noted (key TEXT, count INTEGER)"))
        await write(ep, ["a", "b", "a"])
        await run_until_idle(ep, app)
        assert await ep.query("SELECT key, count FROM app_noted ORDER BY key, count") == [
            ("a", 1),
            ("a", 2),
            ("b", 1),
        ]
        assert sorted(await payloads(ep)) == [1, 1, 1, 2, 2, 2]


async def test_sql_of_a_handler_that_fails_stops_the_processor_and_names_the_event() -> None:
    kept: list[Context] = []

    async def handle(event: Event, context: Context) -> None:
        kept.append(context)
        context.change_tables(lambda tx: tx.execute("INSERT INTO app_missing VALUES (1)"))

    app = App()
    app.add(handle, STREAM, group=GROUP, retry=AT_ONCE)
    async with system() as ep:
        await write(ep, ["a"])
        failure = r"change_tables failed 3 times: .*app_missing.*event 0 \(key 'a'\)"
        with pytest.raises(ProcessorFailed, match=failure):
            await run_until_idle(ep, app)
        with pytest.raises(CallEnded):
            kept[0].change_tables(lambda tx: None)
        with pytest.raises(InvalidArgument, match="the processor keeps no state"):
            kept[0].forget_state()


def no_state(event: Event) -> None:
    """Takes no state."""


def wrong(event: Event, state: Money) -> None:
    """Takes another one."""


@attrs.define
class Needs:
    value: int


class WithoutHash(type):
    __hash__ = None  # type: ignore[assignment]

    def __eq__(cls, other: object) -> bool:
        return cls is other


class Unhashable(metaclass=WithoutHash):
    """Its class cannot be a key of a dict, as some libraries need."""


@pytest.mark.parametrize(
    ("handler", "choices", "reason"),
    [
        (add, {"order": None}, "order=None calls the handler for several events of a key at a time"),
        (add, {"batch": 5}, "a batch has events of several keys"),
        (add, {"retry": RetryPolicy(frees_key=True)}, "handles later events of a key before an earlier one"),
        (add, {"state": Needs}, "give each field a default"),
        (add, {"state": 5}, r"it must be a class, or an eventproc.KeyState \(state of the processor 'add'\)"),
        (add, {"state": Total()}, r"it must be a class, or an eventproc.KeyState \(.* 'add'\)"),
        (add, {"state": Unhashable}, "unhashable type.*; pass codec=.*processor 'add'; declare a KeyState"),
        (add, {"state": Annotated[int, []]}, "unhashable type.*; pass codec=.*processor 'add'"),
        (no_state, {}, "it must take an event, the state of its key"),
        (wrong, {}, "annotate it as Total"),
    ],
)
def test_a_declaration_that_cannot_be_kept_is_refused(
    handler: Callable[..., object], choices: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        app_of(handler, **{"state": Total, **choices})


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ({"version": 0}, "state version"),
        ({"ttl_ms": 0}, "state ttl_ms"),
        ({"ttl_ms": sys.maxsize}, "state ttl_ms"),
        ({"cache_bytes": 0}, "state cache_bytes"),
        ({"upgrade": 5}, "state upgrade"),
    ],
)
def test_an_option_of_a_state_is_checked(choices: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        KeyState(Total, **choices)


@pytest.mark.parametrize("value", [Total(), [], 5])
def test_a_state_of_an_object_in_place_of_a_class_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="it must be the class of the values"):
        KeyState(value)


def test_a_class_without_a_hash_is_a_state_with_a_codec() -> None:
    class OneCodec:
        def encode(self, value: Unhashable) -> bytes:
            return b"one"

        def decode(self, payload: bytes) -> Unhashable:
            return Unhashable()

    assert KeyState(Unhashable, codec=OneCodec()).encode(Unhashable()) == b"one"


def test_a_state_of_several_streams_is_refused() -> None:
    app = App()
    with pytest.raises(InvalidArgument, match="emit into one stream, by key"):
        app.add(add, STREAM, OUT, group=GROUP, state=Total)


async def test_a_topic_is_refused_for_a_key_may_have_events_in_several_partitions() -> None:
    async with system() as ep:
        await ep.create_topic("s/topic")
        app = App()
        app.add(add, "s/topic", group=GROUP, state=Total)
        with pytest.raises(InvalidArgument, match="partitions of topic s/topic: emit into a stream"):
            await run_until_idle(ep, app)
