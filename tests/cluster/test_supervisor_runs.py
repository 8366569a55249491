"""Supervisors are shared by the instances of a directory, and survive the one that runs them."""

from __future__ import annotations

import anyio

from eventproc.cluster.buckets import JOIN_MS, OWNED_BUCKETS
from eventproc.cluster.supervisor_runs import bucket_name
from eventproc.describe import SupervisorState
from eventproc.ingestion import DataSchema, IoConfig, SupervisorSpec
from eventproc.store.ingestion.supervisors import next_runs, write_memory
from eventproc.testing import SimulatedInstance, SimulatedWorld
from tests.support.simulated_world import in_simulated_world

IDS = [f"clicks-{number}" for number in range(8)]


def run_by(instance: SimulatedInstance) -> list[str]:
    """Return the supervisors whose buckets the instance owns."""
    owner_of = instance.ep.db.shared[OWNED_BUCKETS].owner_of
    return [each for each in IDS if owner_of(bucket_name(each)) is not None]


@in_simulated_world
async def test_a_supervisor_whose_memory_is_unreadable_stops_no_other_one(world: SimulatedWorld) -> None:
    await world.start()
    await world.ep.create_scope("s")
    await world.ep.create_stream("s/t")
    io = IoConfig(streams=("s/t",), start_delay_ms=0, period_ms=1_000)
    for each in IDS[:3]:
        schema = DataSchema(datasource="clicks")
        await world.ep.submit_supervisor(SupervisorSpec(id=each, io=io, schema=schema))
    await anyio.sleep(1)
    await world.ep.db.write(lambda tx: write_memory(tx, IDS[0], "no JSON", 0))
    before = await world.ep.db.read(next_runs)
    await anyio.sleep(3)
    after = await world.ep.db.read(next_runs)
    assert all(after[each] > before[each] for each in IDS[1:3])
    assert after[IDS[0]] == 0


@in_simulated_world
async def test_a_death_moves_the_supervisors_of_an_instance_to_the_others(world: SimulatedWorld) -> None:
    first, second = await world.start(), await world.start()
    await world.ep.create_scope("s")
    await world.ep.create_stream("s/t")
    io = IoConfig(streams=("s/t",), start_delay_ms=0, period_ms=1_000)
    for each in IDS:
        schema = DataSchema(datasource="clicks")
        await world.ep.submit_supervisor(SupervisorSpec(id=each, io=io, schema=schema))
    await anyio.sleep((JOIN_MS + 500) / 1000)
    moved, kept = run_by(second), run_by(first)
    assert sorted(moved + kept) == IDS
    assert moved, "both run some"
    second.kill()
    await anyio.sleep(1)
    assert run_by(first) == IDS
    before = await world.ep.db.read(next_runs)
    await anyio.sleep(2)
    after = await world.ep.db.read(next_runs)
    assert all(after[each] > before[each] for each in IDS), "each runs once a second"
    states = {each.id: each.state for each in await world.ep.supervisors()}
    assert states == dict.fromkeys(IDS, SupervisorState.RUNNING)


async def set_clock_back(world: SimulatedWorld, *, restarts: bool) -> None:
    """Assert that a supervisor still runs once a period. restarts: whether another instance has it then."""
    first = await world.start()
    await world.ep.create_scope("s")
    await world.ep.create_stream("s/t")
    io = IoConfig(streams=("s/t",), start_delay_ms=0)
    spec = SupervisorSpec(id=IDS[0], io=io, schema=DataSchema(datasource="clicks"))
    await world.ep.submit_supervisor(spec)
    await anyio.sleep(40)
    if restarts:
        first.kill()
    world.clock.step_wall(-24 * 3_600_000)
    if restarts:
        await world.start()
    await anyio.sleep(80)
    due_ms = (await world.ep.db.read(next_runs))[IDS[0]]
    assert due_ms - world.clock.wall_ms() <= io.period_ms


@in_simulated_world
async def test_a_wall_clock_that_is_set_back_stops_no_supervisor(world: SimulatedWorld) -> None:
    await set_clock_back(world, restarts=False)


@in_simulated_world
async def test_a_wall_clock_that_is_set_back_between_two_instances_stops_no_supervisor(
    world: SimulatedWorld,
) -> None:
    await set_clock_back(world, restarts=True)
