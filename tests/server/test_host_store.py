"""The containers of segments: shared by the serving processes, moved by a death, and fenced where they were."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

import anyio
import pytest

import eventproc
from eventproc.cluster.divisions import POLL_MS
from eventproc.cluster.owner_watch import BEAT_MS, SILENT_MS
from eventproc.cluster.segment_containers import (
    CONTAINER_COUNT,
    CONTAINERS,
    DYING_MS_MAX,
    SegmentContainers,
    container_of,
    serving_containers,
)
from eventproc.server.access.authority import Authority
from eventproc.server.controller import controller_pb2 as pb
from eventproc.server.controller.service import Controller
from eventproc.server.wire import commands as c
from eventproc.server.wire.greeting import GREETING_WAIT_S
from eventproc.store.model.errors import NotSupported, OwnerFenced
from eventproc.testing import Fault, FaultPlan, SimulatedInstance, SimulatedWorld, VirtualRuntime
from eventproc.testing.virtual_runtime import BACKENDS
from tests.server.wire_peer import block, connected

MOVED_S = (2 * POLL_MS + 50) / 1000
"""Virtual time within which a death is seen and its containers are shared."""


@pytest.fixture(params=BACKENDS)
def runtime(request: pytest.FixtureRequest) -> VirtualRuntime:
    return VirtualRuntime(seed=7, backend=request.param)


async def shares(world: SimulatedWorld) -> dict[str, int]:
    """Return the number of containers of each live instance, by name."""
    names = {each.ep.db.instance_id: each.name for each in world.instances if each.alive}
    found = await world.ep.db.read(CONTAINERS.read)
    counts = Counter(names.get("" if each is None else each.instance, "nobody") for each in found.owners)
    return dict(sorted(counts.items()))


class Serving:
    """Instances that serve; what each knows of the containers, and an event that lets it end."""

    def __init__(self, world: SimulatedWorld) -> None:
        self.world = world
        self.known: dict[str, SegmentContainers] = {}
        self._ends: dict[str, anyio.Event] = {}

    async def start(self, *, faults: Sequence[tuple[str, Literal["die"]]] = ()) -> SimulatedInstance:
        instance = await self.world.start(faults=faults)
        self._ends[instance.name] = anyio.Event()
        instance.start_soon(self._serve, instance)
        await anyio.sleep(MOVED_S)
        return instance

    async def end(self, instance: SimulatedInstance) -> None:
        self._ends[instance.name].set()
        await anyio.sleep(MOVED_S)

    async def _serve(self, instance: SimulatedInstance) -> None:
        port = int(instance.name.removeprefix("i"))
        async with serving_containers(instance.ep.db, ("127.0.0.1", port), ("127.0.0.1", port)) as known:
            self.known[instance.name] = known
            await self._ends[instance.name].wait()

    async def answers(self, address: tuple[str, int]) -> bool:
        """Return whether the instance at an address runs."""
        instance = next(each for each in self.world.instances if each.name == f"i{address[1]}")
        return instance.alive and not instance.suspended

    def owned(self, instance: SimulatedInstance) -> set[int]:
        return {each for each in range(CONTAINER_COUNT) if self.known[instance.name].own(each)}


def in_world(runtime: VirtualRuntime, main: Callable[[Serving], Awaitable[None]]) -> None:
    """Run `main` with the instances of a simulated world."""

    async def run() -> None:
        async with SimulatedWorld(seed=runtime.seed) as world:
            await main(Serving(world))

    runtime.run(run)


def test_serving_processes_share_the_containers_and_a_death_or_an_end_moves_its_share_only(
    runtime: VirtualRuntime,
) -> None:
    async def main(serving: Serving) -> None:
        first, second = await serving.start(), await serving.start()
        assert await shares(serving.world) == {"i1": 32, "i2": 32}
        kept = serving.owned(first)
        third = await serving.start()
        assert sorted((await shares(serving.world)).values()) == [21, 21, 22]
        known = serving.known["i1"]
        assert {known.server_of(each).segment_store[1] for each in range(CONTAINER_COUNT)} == {1, 2, 3}
        assert known.server_of(None).segment_store[1] == 1
        await serving.end(third)
        assert await shares(serving.world) == {"i1": 32, "i2": 32}
        second.kill()
        await anyio.sleep(MOVED_S)
        assert await shares(serving.world) == {"i1": CONTAINER_COUNT}
        assert len(kept & serving.owned(first)) == 32
        assert [each.controller[1] for each in known.servers] == [1]

    in_world(runtime, main)


def test_a_suspended_process_loses_its_containers_after_a_deadline_and_joins_again(
    runtime: VirtualRuntime,
) -> None:
    async def main(serving: Serving) -> None:
        await serving.start()
        second = await serving.start()
        lost = {each: serving.known["i2"].own(each) for each in serving.owned(second)}
        second.suspend()
        await anyio.sleep((SILENT_MS - BEAT_MS) / 1000)
        assert await shares(serving.world) == {"i1": 32, "i2": 32}, "it may be slow"
        await anyio.sleep(3 * BEAT_MS / 1000 + MOVED_S)
        assert await shares(serving.world) == {"i1": CONTAINER_COUNT}
        found = await serving.known["i1"].locate(min(lost), serving.answers)
        assert found.segment_store[1] == 1
        second.resume()
        for owner in lost.values():
            assert owner is not None
            with pytest.raises(OwnerFenced):
                await second.ep.db.write(owner.check)
        await anyio.sleep(2 * BEAT_MS / 1000 + MOVED_S)
        assert await shares(serving.world) == {"i1": 32, "i2": 32}
        assert len(serving.owned(second)) == 32
        assert [each.controller[1] for each in serving.known["i1"].servers] == [1, 2]

    in_world(runtime, main)


def test_a_process_answers_for_segments_of_another_one_with_its_address(runtime: VirtualRuntime) -> None:
    async def main(serving: Serving) -> None:
        first = await serving.start()
        await first.ep.create_scope("s")
        await first.ep.create_stream("s/t", scaling=eventproc.ScalingPolicy.fixed(16))
        known = serving.known["i1"]
        async with connected(first.ep, containers=known) as peer:
            for number in range(16):
                writer = number.to_bytes(16, "big")
                await peer.set_up(name_of(number), writer)
                await peer.send(c.ReadSegment(name_of(number), 0, 8, "", number))
            await serving.start()
            refused = {(await peer.take_as(c.WrongHost)).request_id for _ in range(number_moved(known))}
            assert refused == {each for each in range(16) if known.own(container(each)) is None}
            for number in range(16):
                writer = number.to_bytes(16, "big")
                for command in (
                    block(b"a", last=0, writer=writer, request_id=7),
                    c.SetupAppend(7, writer, name_of(number)),
                    c.GetStreamSegmentInfo(7, name_of(number)),
                    c.TruncateSegment(7, name_of(number), 0),
                    c.CreateTransientSegment(7, writer, name_of(number)),
                ):
                    if number not in refused:
                        continue
                    wrong = await peer.ask(command, c.WrongHost)
                    assert (wrong.request_id, wrong.segment) == (7, name_of(number))
                    assert wrong.correct_host == "127.0.0.1:2"

    in_world(runtime, main)


def test_the_controller_leads_to_the_owner_that_lives_and_to_itself_for_tables(
    runtime: VirtualRuntime,
) -> None:
    async def main(serving: Serving) -> None:
        first, second = await serving.start(), await serving.start()
        controller = Controller(first.ep.db, serving.known["i1"], Authority(first.ep.db), serving.answers)
        ask = partial(stores_of, controller, "t")
        assert await ask() == {1, 2}
        assert await stores_of(controller, "g_kvtable") == {1}
        known = controller.rules["getControllerServerList"].call
        assert known is not None
        assert [each.port for each in (await known(pb.ServerRequest())).nodeURI] == [1, 2]
        second.suspend()
        assert await ask() == {1, 2}
        second.kill()
        assert await ask() == {1}, "before anybody has looked for the dead"

    in_world(runtime, main)


def test_a_process_that_says_nothing_counts_as_suspended_after_a_second_and_a_greeting(
    runtime: VirtualRuntime,
) -> None:
    async def main(serving: Serving) -> None:
        first, second = await serving.start(), await serving.start()
        second.suspend()
        segment = min(serving.owned(second))

        async def says_nothing(_: tuple[str, int]) -> bool:
            await anyio.sleep(GREETING_WAIT_S)
            return False

        begun = anyio.current_time()
        found = await serving.known[first.name].locate(segment, says_nothing)
        assert found.segment_store[1] == 2
        assert anyio.current_time() - begun <= GREETING_WAIT_S + DYING_MS_MAX / 1000

    in_world(runtime, main)


def test_a_read_that_ends_late_does_not_bring_former_owners_back(runtime: VirtualRuntime) -> None:
    async def main(serving: Serving) -> None:
        first = await serving.start()
        second = await serving.start()
        late = await first.ep.db.read(CONTAINERS.read)
        second.kill()
        await anyio.sleep(MOVED_S)
        serving.known["i1"].replace(late, first.ep.db.instance_id)
        assert serving.owned(first) == set(range(CONTAINER_COUNT))

    in_world(runtime, main)


async def test_an_opening_that_serves_refuses_a_second_server_and_serves_again_after_the_first_one() -> None:
    async with eventproc.open_memory() as ep:
        for _ in range(2):
            async with serving_containers(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 1)) as first:
                with pytest.raises(NotSupported, match="once more"):
                    async with serving_containers(ep.db, ("127.0.0.1", 2), ("127.0.0.1", 2)):
                        pass
                assert len(first.owned) == CONTAINER_COUNT
                (server,) = (await ep.db.read(CONTAINERS.read)).members
                assert server.segment_store[1] == 1


async def test_an_opening_that_failed_to_leave_serves_again_at_its_new_address() -> None:
    faults = FaultPlan([Fault("container.share.commit", "full", nth=2, times=100)])
    async with eventproc.open_memory(faults=faults) as ep:
        async with serving_containers(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 1)):
            pass
        assert len((await ep.db.read(CONTAINERS.read)).members) == 1
        faults.heal()
        async with serving_containers(ep.db, ("127.0.0.1", 2), ("127.0.0.1", 2)) as second:
            assert [each.segment_store[1] for each in second.known.members] == [2]
            assert {second.server_of(each).segment_store[1] for each in range(CONTAINER_COUNT)} == {2}


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_task_that_is_cancelled_while_it_joins_serves_nothing() -> None:
    faults = FaultPlan([Fault("container.share.committed", "delay", ms=60_000)])
    async with eventproc.open_memory(faults=faults) as ep:

        async def serve() -> None:
            async with serving_containers(ep.db, ("127.0.0.1", 1), ("127.0.0.1", 1)):
                raise AssertionError("it was cancelled before")

        task = asyncio.create_task(serve())
        while not (await ep.db.read(CONTAINERS.read)).members:
            await anyio.lowlevel.checkpoint()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ep.db.read(CONTAINERS.read)).members == ()


async def stores_of(controller: Controller, stream: str) -> set[int]:
    locate = controller.rules["getURI"].call
    info = pb.StreamInfo(scope="s", stream=stream)
    return {(await locate(pb.SegmentId(streamInfo=info, segmentId=number))).port for number in range(16)}


def name_of(number: int) -> str:
    return f"s/t/{number}.#epoch.0"


def container(number: int) -> int:
    found = container_of("s/t", number)
    assert found is not None
    return found


def number_moved(known: SegmentContainers) -> int:
    return sum(known.own(container(each)) is None for each in range(16))
