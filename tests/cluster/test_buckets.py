"""Buckets: each has one owner, shares are fair, and a death or a new instance moves few of them."""

from __future__ import annotations

from collections import Counter
from functools import partial

import anyio
import pytest

import eventproc
from eventproc import RetentionPolicy
from eventproc.cluster import policies
from eventproc.cluster.buckets import BUCKETS, JOIN_MS, OWNED_BUCKETS, bucket_owners
from eventproc.cluster.divisions import POLL_MS
from eventproc.cluster.policies import WALK_MS_MIN
from eventproc.store.catalog import streams_with_policies
from eventproc.store.database import Database, Tx
from eventproc.store.model.buckets import BUCKET_COUNT, bucket_of
from eventproc.store.model.errors import OwnerFenced
from eventproc.store.model.policies import StreamConfig
from eventproc.testing import SimulatedInstance, SimulatedWorld
from eventproc.workflows.policies.look import RETENTION_MS
from eventproc.workflows.requests import CreateStream
from tests.cluster.support import shares
from tests.support.simulated_world import in_simulated_world


def owned(instance: SimulatedInstance) -> set[int]:
    return set(instance.ep.db.shared[OWNED_BUCKETS].owned)


@pytest.mark.acceptance("F5")
@in_simulated_world
async def test_instances_that_may_host_share_the_buckets_and_a_death_gives_its_share_to_the_others(
    world: SimulatedWorld,
) -> None:
    first = await world.start()
    await anyio.sleep(0.1)
    assert await shares(world) == {"i1": BUCKET_COUNT}
    second, third = await world.start(), await world.start()
    await world.start(host=False)
    await anyio.sleep((JOIN_MS - 500) / 1000)
    assert await shares(world) == {"i1": BUCKET_COUNT}, "a short command moves nothing"
    await anyio.sleep(1)
    assert sorted((await shares(world)).values()) == [5, 5, 6]
    kept = owned(first), owned(third)
    assert owned(first) | owned(second) | owned(third) == set(range(BUCKET_COUNT))
    second.kill()
    await anyio.sleep((2 * POLL_MS + 50) / 1000)
    assert await shares(world) == {"i1": 8, "i3": 8}
    assert kept[0] <= owned(first)
    assert kept[1] <= owned(third)


@pytest.mark.parametrize("point", ["bucket.share.begun", "bucket.share.commit", "bucket.share.committed"])
@in_simulated_world
async def test_a_death_while_buckets_are_shared_leaves_each_with_one_owner(
    world: SimulatedWorld, point: str
) -> None:
    first = await world.start()
    second = await world.start(faults=[(point, "die")])
    await second.ended()
    await anyio.sleep(1)
    assert owned(first) == set(range(BUCKET_COUNT))
    assert await shares(world) == {"i1": BUCKET_COUNT}


@in_simulated_world
async def test_a_suspended_owner_is_fenced_once_another_instance_joined(world: SimulatedWorld) -> None:
    first = await world.start()
    await anyio.sleep(0.1)
    before = dict(first.ep.db.shared[OWNED_BUCKETS].owned)
    first.suspend()
    second = await world.start()
    await anyio.sleep(2 * JOIN_MS / 1000)
    moved = owned(second)
    assert len(moved) == BUCKET_COUNT // 2
    first.resume()
    for bucket, owner in before.items():
        if bucket in moved:
            with pytest.raises(OwnerFenced):
                await first.ep.db.write(owner.check)
        else:
            await first.ep.db.write(owner.check)


async def test_sharing_again_among_the_same_workers_changes_nothing() -> None:
    async with eventproc.open_memory() as ep:
        db: Database = ep.db
        again = partial(BUCKETS.divide, is_working=lambda _: True, joining=db.instance_id)
        await db.write(again)
        before = await db.read(bucket_owners)
        await db.write(again)
        assert await db.read(bucket_owners) == before == [db.instance_id] * BUCKET_COUNT


def test_streams_spread_over_all_buckets() -> None:
    found = Counter(bucket_of(f"shop/stream-{number}") for number in range(1_600))
    assert set(found) == set(range(BUCKET_COUNT))
    assert max(found.values()) < 2 * min(found.values())


@in_simulated_world
async def test_retention_goes_on_within_a_period_of_its_owners_death(world: SimulatedWorld) -> None:
    """Each of several streams is truncated by one instance, and by another one after its death."""
    names = [f"s/t{number}" for number in range(6)]

    first, second = await world.start(), await world.start()
    await world.ep.create_scope("s")
    retention = RetentionPolicy(age_ms=30_000)
    streams = [await world.ep.create_stream(name, retention=retention) for name in names]
    await anyio.sleep(2 * JOIN_MS / 1000)
    assert owned(first)
    assert owned(second)
    second.kill()
    for name in names:
        await world.write(name, b"old")
    await anyio.sleep(120)
    for stream in streams:
        assert (await stream.describe()).events == 0


@in_simulated_world
async def test_a_process_that_was_stopped_while_it_walked_over_the_streams_soon_notices_new_policies(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = await world.start()
    await world.ep.create_scope("s")
    stream = await world.ep.create_stream("s/t")
    await anyio.sleep(2 * WALK_MS_MIN / 1000)

    def stopping(tx: Tx, *, after: str, limit: int) -> tuple[list[str], str | None]:
        only.suspend()
        return streams_with_policies(tx, after=after, limit=limit)

    with monkeypatch.context() as patch:
        patch.setattr(policies, "streams_with_policies", stopping)
        await world.ep.requests.submit(CreateStream("s/u", StreamConfig()))
        await anyio.sleep(10)
    assert only.suspended, "while it walked"
    only.resume()
    await stream.update(retention=RetentionPolicy(age_ms=1))
    await world.write("s/t", b"old")
    await anyio.sleep((RETENTION_MS + 2 * WALK_MS_MIN) / 1000)
    assert (await stream.describe()).events == 0
