"""What dead instances held is free soon, also if nobody else uses it: members of groups, locks of share groups."""

from __future__ import annotations

import anyio
import pytest

import eventproc
from eventproc.cluster.failover import LOOK_MS
from eventproc.cluster.membership import LOOK_MS as CHANGES_MS
from eventproc.describe import InstanceAdded, InstanceRemoved
from eventproc.testing import SimulatedInstance, SimulatedWorld, check
from tests.cluster.support import hold_for_ever, read_for_ever
from tests.support.simulated_world import in_simulated_world

STREAM, GROUP, SHARE = "s/t", "s/g", "s/q"


async def with_groups(world: SimulatedWorld) -> None:
    await world.ep.create_scope("s")
    await world.ep.create_stream(STREAM)
    await world.ep.create_group(GROUP, [STREAM])
    await world.ep.create_share_group(SHARE, [STREAM])
    await world.write(STREAM, b"a", key="ana")


async def members(world: SimulatedWorld) -> int:
    return len((await (await world.ep.group(GROUP)).describe()).members)


async def locked(world: SimulatedWorld) -> int:
    return (await (await world.ep.share_group(SHARE)).describe()).in_flight


@pytest.mark.parametrize(("host_dies", "life_s"), [(False, 2), (True, 2), (False, 0.1)])
@in_simulated_world
async def test_a_group_whose_members_all_died_is_empty_soon(
    world: SimulatedWorld, host_dies: bool, life_s: float
) -> None:
    host = await world.start()
    await with_groups(world)
    await anyio.sleep(0.3)
    user = host if host_dies else await world.start(host=False)
    user.start_soon(read_for_ever, user, GROUP)
    user.start_soon(hold_for_ever, user, SHARE)
    await anyio.sleep(life_s)
    assert (await members(world), await locked(world)) == (1, 1)
    user.kill()
    if host_dies:
        await world.start()
    await anyio.sleep(2 * LOOK_MS / 1000)
    assert (await members(world), await locked(world)) == (0, 0)
    await check(world.ep.db)


@pytest.mark.parametrize("point", ["host.failover.begun", "host.failover.commit", "host.failover.committed"])
@in_simulated_world
async def test_the_next_host_finishes_a_sweep_that_a_death_interrupted(
    world: SimulatedWorld, point: str
) -> None:
    host = await world.start(faults=[(point, "die")])
    await with_groups(world)
    user = await world.start(host=False)
    user.start_soon(read_for_ever, user, GROUP)
    user.start_soon(hold_for_ever, user, SHARE)
    await anyio.sleep(2)
    user.kill()
    await host.ended()
    assert host.killed
    await world.start()
    await anyio.sleep(2 * LOOK_MS / 1000)
    assert (await members(world), await locked(world)) == (0, 0)
    await check(world.ep.db)


@in_simulated_world
async def test_a_static_member_that_stays_away_is_expired_with_nobody_left(world: SimulatedWorld) -> None:
    async def read(instance: SimulatedInstance) -> None:
        group = await instance.ep.group(GROUP)
        async with group.consumer("r", static_ms=30_000) as consumer:
            await consumer.poll(timeout_ms=1_000)
            await anyio.sleep_forever()

    await world.start()
    await world.ep.create_scope("s")
    await world.ep.create_topic("s/t", partitions=2)
    await world.ep.create_group(GROUP, ["s/t"], on_deleted="drop")
    user = await world.start(host=False)
    user.start_soon(read, user)
    await anyio.sleep(2)
    user.kill()
    await anyio.sleep(10)
    assert await members(world) == 1, "it may come back"
    await anyio.sleep(30)
    assert await members(world) == 0


@in_simulated_world
async def test_changes_name_each_instance_that_comes_or_goes(world: SimulatedWorld) -> None:
    seen: list[InstanceAdded | InstanceRemoved] = []

    first = await world.start()

    async def watch() -> None:
        changes = world.ep.cluster.changes()
        while True:
            seen.append(await anext(changes))

    world.instances[0].start_soon(watch)
    await anyio.sleep(2 * CHANGES_MS / 1000)
    second = await world.start(host=False)
    await anyio.sleep(2 * CHANGES_MS / 1000)
    second.kill()
    await anyio.sleep(2 * CHANGES_MS / 1000)
    ids = [each.ep.db.instance_id for each in (first, second)]
    added, removed = InstanceAdded, InstanceRemoved
    assert seen == [
        added(world.ep.db.instance_id, None),
        added(ids[0], None),
        added(ids[1], None),
        removed(ids[1], None),
    ]


async def test_the_cluster_names_its_host() -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        await ep.create_stream("s/t")
        found = await ep.cluster.describe()
        (only,) = await ep.cluster.list()
    assert (found.host, found.host_epoch, found.instances) == (only.id, 1, (only,))
    assert (only.is_host, only.is_self, only.buckets, len(found.buckets)) == (True, True, 16, 16)
