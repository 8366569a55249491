"""A share group is changed while its consumers work: options, streams, and a consumer that is declared dead."""

from __future__ import annotations

import pytest

from eventproc import ShareOptions
from eventproc.errors import AlreadyExists, InvalidArgument, LockLost, NotFound
from eventproc.runtime import Eventproc
from eventproc.testing import check
from tests.shares.support import drain, numbers_of, pass_ms, poll_now, write_numbers, written_to

SOON_MS = 1_000
LATER_MS = 600_000


async def test_changed_options_hold_for_the_next_locks_and_deliveries(ep: Eventproc) -> None:
    await written_to(ep, 3)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=LATER_MS)
    async with group.consumer("a") as consumer:
        (held,) = await consumer.poll(1)
        assert await group.update(lock_ms=SOON_MS) == ShareOptions(lock_ms=SOON_MS)
        assert await group.update(deliveries_max=1) == ShareOptions(lock_ms=SOON_MS, deliveries_max=1)
        (short,) = await consumer.poll(1)
        assert held.until_ms - short.until_ms > LATER_MS - 10 * SOON_MS
        await consumer.renew(held)
        assert held.until_ms <= short.until_ms + 10 * SOON_MS
        await pass_ms(ep, SOON_MS)
        assert len(await poll_now(consumer)) == 1
    letters = await ep.dead_letters("s/work").list()
    assert [each.attempts for each in letters] == [1, 1, 1]


async def test_an_event_that_had_more_deliveries_than_are_allowed_now_gets_one_more(ep: Eventproc) -> None:
    await written_to(ep, 1)
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        for _ in range(3):
            await consumer.release(await consumer.poll())
        await group.update(deliveries_max=2)
        await check(ep.db)
        (last,) = await consumer.poll()
        await check(ep.db)
        await consumer.release(last)
    assert [each.attempts for each in await ep.dead_letters("s/work").list()] == [4]


async def test_a_program_that_starts_again_may_name_the_options_of_before_the_change(ep: Eventproc) -> None:
    await written_to(ep, 1)
    group = await ep.create_share_group("work", ["s/t"], deliveries_max=3)
    await group.update(deliveries_max=4)
    await group.update(lock_ms=SOON_MS)
    await ep.create_share_group("work", ["s/t"], deliveries_max=3)
    await ep.create_share_group("work", ["s/t"], deliveries_max=4, lock_ms=SOON_MS)
    assert (await group.info()).share == ShareOptions(deliveries_max=4, lock_ms=SOON_MS)
    with pytest.raises(AlreadyExists, match="options"):
        await ep.create_share_group("work", ["s/t"], deliveries_max=4)


async def test_streams_are_added_and_removed_while_the_others_keep_their_place(ep: Eventproc) -> None:
    await written_to(ep, 4)
    await written_to(ep, 2, name="s/gone")
    other = await written_to(ep, 3, name="s/new", segments=2)
    await other.truncate(await other.tail())
    await write_numbers(other, range(10, 13))
    group = await ep.create_share_group("work", ["s/t", "s/gone"])
    async with group.consumer("a") as consumer:
        held = await poll_now(consumer)
        kept = [each for each in held if each.event.stream == "s/t"]
        await consumer.accept(kept[:1])
        await group.update(streams=["s/t", "s/new"])
        assert [each.name for each in (await group.info()).streams] == ["s/t", "s/new"]
        with pytest.raises(LockLost, match="a deleted stream"):
            await consumer.accept([each for each in held if each.event.stream == "s/gone"])
        await consumer.accept(kept[1:3])
        found = await poll_now(consumer)
        assert numbers_of(found) == [10, 11, 12]
        await consumer.accept(found)
        described = await group.describe()
        assert (described.events, described.lost_events) == (1, 0)
    await group.update(streams=["s/gone", "s/t"])
    assert await drain(group) == [0, 1, 3]


async def test_an_event_of_a_stream_that_was_left_out_and_added_again_is_settled_once(ep: Eventproc) -> None:
    await written_to(ep, 3)
    await written_to(ep, 1, name="s/other")
    group = await ep.create_share_group("work", ["s/t"])
    async with group.consumer("a") as consumer:
        before = await poll_now(consumer)
        await group.update(streams=["s/other"])
        await group.update(streams=["s/t"])
        now = await poll_now(consumer)
        assert numbers_of(now) == [0, 1, 2]
        await consumer.release([*before[:2], *now[1:]])
        await check(ep.db)
        assert numbers_of(await poll_now(consumer)) == [0, 1, 2]


async def test_a_wrong_change_is_refused_and_changes_nothing(ep: Eventproc) -> None:
    await written_to(ep, 1)
    group = await ep.create_share_group("work", ["s/t"])
    before = await group.info()
    changes: list[dict[str, object]] = [
        {"lock_ms": 1},
        {"lock_ms": 2**63 - 1},
        {"deliveries_max": 0},
        {"streams": []},
        {"streams": "s/t"},
        {"owner": 1},
    ]
    for wrong in changes:
        with pytest.raises(InvalidArgument):
            await group.update(**{"lock_ms": SOON_MS, **wrong})  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await group.update(streams=["s/t", "s/none"], deliveries_max=2)
    with pytest.raises(InvalidArgument):
        await group.consumer_offline(7)  # type: ignore[arg-type]
    assert await group.info() == before
    await group.delete()
    with pytest.raises(NotFound):
        await group.update(deliveries_max=2)
    with pytest.raises(NotFound):
        await group.consumer_offline("a")


async def test_what_a_consumer_held_that_is_taken_offline_is_available_immediately(ep: Eventproc) -> None:
    await written_to(ep, 5)
    group = await ep.create_share_group("work", ["s/t"], lock_ms=LATER_MS, deliveries_max=2)
    async with group.consumer("a") as hanging, group.consumer("b") as other:
        held = await hanging.poll()
        assert await other.poll(timeout_ms=0) == []
        assert await group.consumer_offline("c") == 0
        assert await other.poll(timeout_ms=0) == []
        assert await group.consumer_offline("a") == 5
        again = await poll_now(other)
        assert (numbers_of(again), {each.deliveries for each in again}) == (list(range(5)), {2})
        with pytest.raises(LockLost):
            await hanging.accept(held)
        await other.accept(again[:4])
        await group.consumer_offline("b")
        assert await poll_now(hanging) == []
    (letter,) = await ep.dead_letters("s/work").list()
    assert letter.attempts == 2
    assert (await group.describe()).events == 0
