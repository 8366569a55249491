"""What an instance leaves to the others when it dies or hangs: its transactions, their timers, its share of a group."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest

import eventproc
from eventproc.store.transactions import decide_abort, decide_commit, first_open
from eventproc.testing import SimulatedWorld, check
from tests.support.simulated_world import in_simulated_world

STREAM, GROUP = "s/t", "s/g"
LEASE_MS = 5_000


async def stream_of(world: SimulatedWorld) -> eventproc.Stream:
    await world.ep.create_scope("s")
    return await world.ep.create_stream(STREAM)


@pytest.mark.acceptance(
    "C7", differs="there is no index of hosts: the table says what is open, posted notices what is decided"
)
@in_simulated_world
async def test_transactions_of_a_dead_host_reach_their_end_on_another_one(world: SimulatedWorld) -> None:
    first = await world.start()
    stream = await stream_of(world)
    assert await world.host() is first
    own = await first.ep.stream(STREAM)
    leases = {"open": None, "leased": LEASE_MS, "committed": None, "aborted": None}
    begun = {name: await own.begin(lease_ms=lease_ms) for name, lease_ms in leases.items()}
    for name, txn in begun.items():
        await txn.write(name.encode(), key="ana")
        await txn.flush()
    first.suspend()  # it decides nothing more, and ends nothing
    for name, decide in (
        ("committed", decide_commit),
        ("aborted", partial(decide_abort, reason="test")),
    ):
        await world.ep.db.write(partial(decide, stream_id=stream.stream_id, txn_id=begun[name].id))
    first.kill()
    second = await world.start()
    await world.settled()
    assert await world.host() is second
    ended = {each.id: str(each.state) for each in await stream.transactions(finished=True)}
    assert {name: ended[txn.id] for name, txn in begun.items()} == {
        "open": "aborted",
        "leased": "aborted",
        "committed": "committed",
        "aborted": "aborted",
    }
    assert [event.payload for event in await world.events(STREAM)] == [b"committed"]
    assert await world.ep.db.read(first_open) is None
    assert await stream.transactions() == []
    await check(world.ep.db)


@pytest.mark.acceptance(
    "C9", differs="ownership is a column; the timer is the host's, and remembers the version"
)
@in_simulated_world
async def test_a_host_whose_timer_another_instance_pinged_past_aborts_nothing(world: SimulatedWorld) -> None:
    host, other = await world.start(), await world.start(host=False)
    stream = await stream_of(world)
    assert await world.host() is host
    txn = await (await host.ep.stream(STREAM)).begin(lease_ms=LEASE_MS)
    continued = (await other.ep.stream(STREAM)).transaction_of(txn.id)
    await anyio.sleep(0.8 * LEASE_MS / 1000)  # the timer of the host is set for the end of the first lease
    await continued.ping()
    pinged_ms = world.clock.monotonic_ms()
    await anyio.sleep(0.9 * LEASE_MS / 1000)
    assert [each.id for each in await stream.transactions()] == [txn.id], "the first timer did nothing"
    await world.settled()
    assert world.clock.monotonic_ms() - pinged_ms >= LEASE_MS
    (ended,) = await stream.transactions(finished=True)
    assert (ended.id, str(ended.state)) == (txn.id, "aborted")


@pytest.mark.acceptance("D5")
@pytest.mark.parametrize(
    "point", ["group.join.committed", "group.refresh.commit", "processor.progress.commit"]
)
@in_simulated_world
async def test_events_of_a_dead_instance_are_handled_although_its_heir_dies_too(
    world: SimulatedWorld, point: str
) -> None:
    """The first instance dies with three of six events durably finished, the second one while it takes over."""
    handled: Counter[bytes] = Counter()
    app, hangs = eventproc.App(), True

    @app.processor(STREAM, group=GROUP, order="segment", exactly_once=True)
    async def handle(event: eventproc.Event, context: eventproc.Context) -> None:
        if event.payload == b"3" and hangs:
            await anyio.sleep_forever()
        handled[event.payload] += 1
        context.emit("s/out", event.payload)

    await world.start()  # the host, which lives on
    await stream_of(world)
    await world.ep.create_stream("s/out")
    first = await world.start(app, host=False)
    for number in range(6):
        await world.write(STREAM, b"%d" % number, key="ana")
    await anyio.sleep(10)  # several commits of progress
    assert (handled.total(), await world.lag(GROUP)) == (3, 3)
    first.kill()
    hangs = False
    second = await world.start(app, host=False, faults=[(point, "die")])
    with anyio.move_on_after(60):
        await second.ended()
    assert second.killed
    await world.start(app, host=False)
    await world.settled()
    assert [event.payload for event in await world.events("s/out")] == [b"%d" % n for n in range(6)]
    assert {payload: handled[payload] for payload in (b"0", b"1", b"2")} == {
        b"0": 1,
        b"1": 1,
        b"2": 1,
    }
    await check(world.ep.db)
