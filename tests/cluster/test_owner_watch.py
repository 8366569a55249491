"""Owners that are suspended: the others take over what they own after a deadline, and fence them when they continue."""

from __future__ import annotations

from collections.abc import Callable

import anyio
import pytest

from eventproc.cluster.buckets import JOIN_MS, OWNED_BUCKETS, bucket_owners
from eventproc.cluster.divisions import POLL_MS
from eventproc.cluster.failover import LOOK_MS
from eventproc.cluster.owner_watch import BEAT_MS, SILENT_MS, SilenceDeadlines
from eventproc.store.database import Tx
from eventproc.store.database.instances import Heartbeat
from eventproc.store.database.memory_database import MemoryStore
from eventproc.store.model.buckets import BUCKET_COUNT
from eventproc.store.model.errors import OwnerFenced
from eventproc.testing import SimulatedInstance, SimulatedWorld
from tests.cluster.support import read_for_ever, shares
from tests.support.simulated_world import in_simulated_world

TAKEN_S = (SILENT_MS + 2 * BEAT_MS + 2 * POLL_MS) / 1000
"""Virtual time within which what a suspended instance owns belongs to others."""


async def two_workers(world: SimulatedWorld) -> tuple[SimulatedInstance, SimulatedInstance]:
    first = await world.start()
    await anyio.sleep(0.1)  # it becomes the host
    second = await world.start()
    await anyio.sleep(2 * JOIN_MS / 1000)
    assert await shares(world) == {"i1": BUCKET_COUNT // 2, "i2": BUCKET_COUNT // 2}
    return first, second


def change_count(tx: Tx) -> int:
    """Return how many rows were ever changed by all instances."""
    return int(tx.execute("SELECT total_changes()").fetchone()[0])


def looked(deadlines: SilenceDeadlines, beats: Callable[[int], int], begin_ms: int, end_ms: int) -> list[int]:
    """Look every BEAT_MS; return the times at which the owner was silent. beats: its last heartbeat at a time."""
    times = range(begin_ms, end_ms, BEAT_MS)
    return [now_ms for now_ms in times if deadlines.silent({"owner": beats(now_ms)}, now_ms)]


@pytest.mark.parametrize(
    ("beats", "begin_ms", "last_ms"),
    [(lambda now_ms: min(now_ms, 50_000), 0, 50_000), (lambda _: 7, 500_000, 500_000)],
    ids=["that of its last heartbeat", "that of the first look at it"],
)
def test_an_owner_is_silent_when_its_time_is_over(
    beats: Callable[[int], int], begin_ms: int, last_ms: int
) -> None:
    found = looked(SilenceDeadlines(), beats, begin_ms, begin_ms + 100_000)
    assert found[0] == last_ms + SILENT_MS + BEAT_MS


def test_nobody_is_silent_after_a_pause_of_the_instance_that_looks() -> None:
    deadlines = SilenceDeadlines()
    assert looked(deadlines, lambda now_ms: now_ms, 0, 20_000) == []
    assert looked(deadlines, lambda _: 20_000, 900_000, 900_000 + SILENT_MS) == [], "the machine was stopped"
    assert looked(deadlines, lambda now_ms: now_ms, 900_000 + SILENT_MS, 950_000) == []


@in_simulated_world
async def test_a_suspended_worker_loses_its_buckets_after_a_deadline_and_is_fenced(
    world: SimulatedWorld,
) -> None:
    _, second = await two_workers(world)
    before = dict(second.ep.db.shared[OWNED_BUCKETS].owned)
    second.suspend()
    await anyio.sleep((SILENT_MS - BEAT_MS) / 1000)
    assert (await shares(world))["i2"] == len(before), "it may be slow"
    await anyio.sleep(TAKEN_S - (SILENT_MS - BEAT_MS) / 1000)
    assert await shares(world) == {"i1": BUCKET_COUNT}
    second.resume()
    for owner in before.values():
        with pytest.raises(OwnerFenced):
            await second.ep.db.write(owner.check)
    await anyio.sleep(TAKEN_S)
    assert await shares(world) == {"i1": BUCKET_COUNT // 2, "i2": BUCKET_COUNT // 2}, "it joins again"


@in_simulated_world
async def test_workers_that_work_keep_their_buckets(world: SimulatedWorld) -> None:
    await two_workers(world)
    before = await world.ep.db.read(bucket_owners)
    await anyio.sleep(3 * TAKEN_S)
    assert await world.ep.db.read(bucket_owners) == before


@in_simulated_world
async def test_a_suspended_host_is_replaced_after_a_deadline_though_nothing_is_pending(
    world: SimulatedWorld,
) -> None:
    first, second = await two_workers(world)
    await world.ep.create_scope("s")
    await world.ep.create_stream("s/t")
    group = await world.ep.create_group("s/g", ["s/t"])
    reading = await world.start(host=False)
    reading.start_soon(read_for_ever, reading, "s/g")
    await anyio.sleep(1)
    first.suspend()
    reading.kill()
    await anyio.sleep(TAKEN_S + 2 * LOOK_MS / 1000)
    found = await world.ep.cluster.describe()
    assert found.host == second.ep.db.instance_id
    assert (await group.describe()).members == (), "a sweep of the new host"
    first.resume()
    await anyio.sleep(TAKEN_S)
    after = await world.ep.cluster.describe()
    assert (after.host, after.host_epoch) == (found.host, found.host_epoch)
    assert await shares(world) == {"i1": BUCKET_COUNT // 2, "i2": BUCKET_COUNT // 2}
    await world.ep.create_stream("s/u")


@in_simulated_world
async def test_instances_that_do_nothing_commit_nothing_and_one_alone_gives_no_signs(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    beats: list[str] = []
    write_beat = MemoryStore.write_beat

    def counting(store: MemoryStore, name: str, instance_id: str, beat: Heartbeat) -> None:
        if name.startswith("instances/"):
            beats.append(instance_id)
        write_beat(store, name, instance_id, beat)

    monkeypatch.setattr(MemoryStore, "write_beat", counting)
    first = await world.start()
    await anyio.sleep(20)
    assert len(beats) <= 2, "when it begins to own something"
    second = await world.start()
    await anyio.sleep(20)
    commits = await world.ep.db.read(change_count)
    beats.clear()
    await anyio.sleep(20)
    assert await world.ep.db.read(change_count) == commits
    expected = 20_000 // BEAT_MS
    for each in (first, second):
        assert expected / 2 < beats.count(each.ep.db.instance_id) <= expected + 1
