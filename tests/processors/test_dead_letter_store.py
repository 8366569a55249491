"""Where dead letters lie: in streams that are scaled, sealed, deleted, truncated and exchanged meanwhile."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from random import Random

import pytest

from eventproc.groups import ensure_group
from eventproc.processors.dead_letters.operations import DeadLetters, verify_letter_stream
from eventproc.runtime import Eventproc
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamSealed
from eventproc.testing import check
from tests.processors.dead_letters import (
    GROUP,
    LETTERS,
    REDRIVE,
    box,
    ep,
    event,
    everything,
    fail,
    ids,
)
from tests.support.reading import events_of

__all__ = ["box", "ep"]


async def test_bytes_go_with_the_letters_as_soon_as_no_older_one_is_pending(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, *map(event, range(5)))
    stream = await ep.stream(LETTERS)
    for dropped, readable in [("0.0:1", 5), ("0.0:2", 5), ("0.0:0", 2), ("0.0:4", 2), ("0.0:3", 0)]:
        assert await box.drop(dropped) == 1
        assert (await stream.describe()).events == readable


async def test_bytes_stay_while_another_group_reads_the_dead_letters(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, event(1), event(2))
    await ep.db.write(lambda tx: ensure_group(tx, "s/alarm", [LETTERS]))
    assert await box.drop("all") == 2
    assert (await (await ep.stream(LETTERS)).describe()).events == 2
    assert await box.list() == []


async def test_dead_letters_of_a_scaled_stream_keep_ids_and_are_truncated_in_order(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, *map(event, range(6)))
    stream = await ep.stream(LETTERS)
    await stream.split(0)
    await fail(ep, *map(event, range(6, 12)))
    await stream.merge(*[each.id for each in await stream.segments()])
    await fail(ep, event(12))
    assert [each.payload for each in await everything(box, limit=4)][:6] == [
        b"%d" % each for each in range(6)
    ]
    before = await ids(box)
    assert before[-1] == "3.2:0"
    assert await box.drop("3.2:0") == 1  # the newest: nothing can be truncated yet
    assert (await stream.describe()).events == 13
    assert await box.drop([each for each in before if each.startswith("0.0")]) == 6
    assert (await stream.describe()).events == 7
    assert await box.drop("all") == 6
    assert (await stream.describe()).events == 0
    await fail(ep, event(13))
    assert await ids(box) == ["3.2:1"]


async def test_a_sealed_stream_keeps_its_letters_and_takes_no_more(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, event(1), event(2))
    await (await ep.stream(LETTERS)).seal()
    with pytest.raises(StreamSealed, match=LETTERS):
        await fail(ep, event(3))
    assert await box.drop("0.0:0") == 1
    assert await box.redrive("all") == 1
    assert await box.list() == []


async def test_letters_of_a_deleted_stream_are_gone_and_their_ids_mean_no_others(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(1), event(2))
    stream = await ep.stream(LETTERS)
    await stream.seal()
    await stream.delete()
    assert await box.list() == []
    await fail(ep, event(3))
    assert [(each.id, each.payload) for each in await box.list()] == [("0.0:0@2", b"3")]
    for refused in (box.get, box.drop, box.redrive):
        with pytest.raises(NotFound, match=r"0\.0:0 \(s/g-dead-letters was deleted with it\)"):
            await refused("0.0:0")
    assert await box.drop("0.0:0@2") == 1


async def test_letters_of_the_stream_that_was_configured_before_stay_within_reach(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(1), event(2))
    await fail(ep, event(3), stream="s/failed")
    await fail(ep, event(4))
    found = [(each.id, each.stream) for each in await everything(box, limit=1)]
    assert found == [("0.0:0", LETTERS), ("0.0:1", LETTERS), ("0.0:2", LETTERS), ("0.0:0@2", "s/failed")]
    assert await box.redrive(["0.0:0@2", "0.0:1"]) == 2
    assert [each.payload for each in await events_of(await ep.stream(REDRIVE))] == [b"2", b"3"]
    assert await ids(box) == ["0.0:0", "0.0:2"]


async def test_letters_that_somebody_truncated_are_not_found(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, event(1))
    stream = await ep.stream(LETTERS)
    await stream.truncate(await stream.tail())
    await fail(ep, event(2))
    assert await ids(box) == ["0.0:1"]
    with pytest.raises(NotFound, match="truncated"):
        await box.drop(["0.0:1", "0.0:0"])
    assert await ids(box) == ["0.0:1"]
    assert await box.drop("all") == 1


async def test_a_truncation_beyond_letters_that_were_dropped_leaves_those_behind_it(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, *map(event, range(5)))
    assert await box.drop("0.0:1") == 1
    stream = await ep.stream(LETTERS)
    tail = await stream.tail()
    await fail(ep, event(5))
    await stream.truncate(tail)
    assert await ids(box) == ["0.0:5"]
    assert await box.redrive("all") == 1


@pytest.mark.parametrize("unknown", ["0.0:2", "1.0:0", "0.0:0@2"])
async def test_a_letter_that_never_was_is_not_found_and_nothing_is_done(
    ep: Eventproc, box: DeadLetters, unknown: str
) -> None:
    await fail(ep, event(1), event(2))
    with pytest.raises(NotFound, match=r"no dead letter .* of s/g"):
        await box.get(unknown)
    for finish in (box.drop, box.redrive):
        with pytest.raises(NotFound, match=r"no dead letter .* of s/g"):
            await finish(["0.0:0", unknown])
    assert len(await box.list()) == 2


@pytest.mark.parametrize("bad", ["", "0.0", "0.0:", ":1", "a.b:1", "0.0:-1", "0.0:1@", "0.0:1 ", "0.0:1@x"])
async def test_what_names_no_letter_is_refused(ep: Eventproc, box: DeadLetters, bad: str) -> None:
    for refused in (box.get, box.drop, box.redrive):
        with pytest.raises(InvalidArgument):
            await refused(bad)
    with pytest.raises(InvalidArgument):
        await box.list(after=bad)
    with pytest.raises(InvalidArgument):
        await box.list(limit=0)
    with pytest.raises(InvalidArgument):
        await box.drop(17)  # type: ignore[arg-type]


async def test_a_stream_that_cannot_hold_the_letters_is_refused_at_the_start(ep: Eventproc) -> None:
    await fail(ep, event(1), stream="s/failed")

    async def verify(group: str, stream: str | None, reads: Sequence[str] = ()) -> None:
        await ep.db.read(partial(verify_letter_stream, group=group, stream=stream, reads=reads))

    await verify(GROUP, None, ["s/t"])
    await verify(GROUP, "s/failed", ["s/t"])
    for group, stream, why in [
        ("s/other", "s/failed", "it holds the dead letters of s/g"),
        (GROUP, "s/t", "s/g reads it"),
        (GROUP, REDRIVE, "s/g reads it"),
        (GROUP, "_system/request", "the system's own"),
        ("s/" + "g" * 245, None, "250 are possible"),
    ]:
        with pytest.raises(InvalidArgument, match=why):
            await verify(group, stream, ["s/t"])
    with pytest.raises(InvalidArgument, match="it holds the dead letters of s/g"):
        await fail(ep, event(1), stream="s/failed", group="s/other")


async def test_no_letter_is_made_in_a_scope_that_is_gone(ep: Eventproc) -> None:
    with pytest.raises(NotFound, match="scope 'none'"):
        await fail(ep, event(1), stream="none/failed")


@pytest.mark.hunt(seeds=20)
async def test_each_letter_is_redriven_once_or_dropped_or_pending(
    ep: Eventproc, box: DeadLetters, seed: int
) -> None:
    """Letters come, go by all doors in any order, while their streams are scaled, and one is deleted."""
    random = Random(seed)
    number = 0
    waiting: dict[str, bytes] = {}
    back: list[bytes] = []

    async def come() -> None:
        nonlocal number
        count = random.randint(1, 30)
        before = set(waiting)
        await fail(ep, *map(event, range(number, number + count)), stream=random.choice([None, "s/failed"]))
        number += count
        fresh = [each for each in await everything(box, limit=random.randint(1, 20)) if each.id not in before]
        assert len(fresh) == count
        waiting.update({each.id: each.payload for each in fresh})

    async def go(gone: list[bytes]) -> None:
        count = random.choice([random.randint(0, len(waiting)), len(waiting)])
        wanted = random.sample(sorted(waiting), count)
        finish = box.redrive if gone is back else box.drop
        assert await finish("all" if count == len(waiting) else wanted) == count
        gone.extend(waiting.pop(each) for each in wanted)

    async def scale() -> None:
        for name in (LETTERS, "s/failed"):
            try:
                stream = await ep.stream(name)
            except NotFound:
                continue
            active = [each.id for each in await stream.segments()]
            if len(active) > 1 and random.random() < 0.5:
                await stream.merge(*active)
            else:
                await stream.split(random.choice(active))

    dropped: list[bytes] = []
    steps: list[Callable[[], Awaitable[None]]] = [
        come,
        come,
        partial(go, back),
        partial(go, dropped),
        scale,
    ]
    for _ in range(12):
        await random.choice(steps)()
        found = await everything(box, limit=random.randint(1, 50))
        assert {each.id: each.payload for each in found} == waiting
        assert (await box.count()).letters == len(waiting)
        await check(ep.db)
    redriven = [] if not back else [each.payload for each in await events_of(await ep.stream(REDRIVE))]
    assert sorted(redriven) == sorted(back)
