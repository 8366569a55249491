"""Dead letters: what they keep, and that redriving and dropping touch each of them once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import anyio
import attrs
import pytest

from eventproc.groups import add_stream, delete_group, get_group
from eventproc.processors.dead_letters import operations as module
from eventproc.processors.dead_letters.dead_letter import HEADERS
from eventproc.processors.dead_letters.operations import DeadLetters, append_letters, choose, drop_step
from eventproc.processors.dead_letters.store import LetterSpan
from eventproc.processors.errors import ERROR_CHARS_MAX
from eventproc.runtime import Eventproc
from eventproc.store.database import Tx
from eventproc.store.model.errors import InvalidArgument, NotFound, StreamSealed
from eventproc.store.model.group_errors import GroupStreamReplaced
from eventproc.store.model.limits import HEADER_NAME_CHARS_MAX, HEADERS_COUNT_MAX
from eventproc.store.segments import READ_BYTES_MAX
from eventproc.streams.codec import codec_for
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
    letter,
)
from tests.support.reading import events_of

__all__ = ["box", "ep"]


@pytest.mark.acceptance("K14")
async def test_a_letter_keeps_the_event_its_origin_its_error_and_its_attempts(
    ep: Eventproc, box: DeadLetters
) -> None:
    failed = event(17, b"\xff\0", key="customer-42", event_time=-3, headers={"trace": "1"})
    await fail(ep, failed)
    (found,) = await box.list()
    assert found == await box.get("0.0:0")
    assert attrs.asdict(found, filter=attrs.filters.exclude("_decode")) == {
        "id": "0.0:0",
        "stream": LETTERS,
        "timestamp": found.timestamp,
        "payload": b"\xff\0",
        "key": "customer-42",
        "event_time": -3,
        "headers": {"trace": "1"},
        "origin_stream": "s/t",
        "origin_segment": "0.0",
        "origin_offset": 170,
        "origin_number": 17,
        "origin_timestamp": 1017,
        "error": "bad",
        "error_type": "ValueError",
        "traceback": "ValueError: bad",
        "attempts": 5,
        "processor": "billing",
        "failed_ms": 7,
        "redriven": 0,
        "job": None,
    }


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text for you")


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (ValueError("x" * 10 * ERROR_CHARS_MAX), "x" * (ERROR_CHARS_MAX - 1) + "…"),
        (ValueError("x" * ERROR_CHARS_MAX), "x" * ERROR_CHARS_MAX),
        (ValueError("\ud800" * ERROR_CHARS_MAX), ("\\ud800" * ERROR_CHARS_MAX)[: ERROR_CHARS_MAX - 1] + "…"),
        (ValueError("half \ud800 of it"), "half \\ud800 of it"),
        (ValueError("nul \0 \n \U0001f680"), "nul \0 \n \U0001f680"),
        (Mute(), "it has no text: its str() fails"),
    ],
    ids=["long", "just fits", "all surrogates", "surrogate", "odd", "mute"],
)
async def test_whatever_the_error_says_its_letter_can_be_stored(
    ep: Eventproc, box: DeadLetters, why: Exception, text: str
) -> None:
    made = letter(event(1), why)
    await ep.db.write(lambda tx: append_letters(tx, GROUP, None, [made]))
    (found,) = await box.list()
    assert found.error == text


async def test_an_event_with_as_many_headers_as_are_possible_still_fits_into_a_letter(
    ep: Eventproc, box: DeadLetters
) -> None:
    headers = {f"{number:0{HEADER_NAME_CHARS_MAX}}": "v" for number in range(HEADERS_COUNT_MAX)}
    await fail(ep, event(1, headers=headers))
    (found,) = await box.list()
    assert found.headers == headers
    assert await box.redrive(found.id) == 1
    (back,) = await events_of(await ep.stream(REDRIVE))
    assert {name: value for name, value in back.headers.items() if name not in HEADERS} == headers


async def test_many_letters_of_one_transaction_are_one_append(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, *map(event, range(3000)))
    stream = await ep.stream(LETTERS)

    def extents(tx: Tx) -> int:
        row = tx.execute("SELECT count(*) FROM extent WHERE stream_id = ?", (stream.stream_id,)).fetchone()
        return int(row[0])

    assert await ep.db.read(extents) == 1
    assert [each.payload for each in await everything(box)] == [b"%d" % number for number in range(3000)]


async def test_a_letter_exists_exactly_when_the_rest_of_its_transaction_does(
    ep: Eventproc, box: DeadLetters
) -> None:
    def die(tx: Tx) -> None:
        append_letters(tx, GROUP, None, [letter(event(1))])
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await ep.db.write(die)
    await ep.db.write(lambda tx: append_letters(tx, GROUP, None, []))
    assert await box.list() == []
    with pytest.raises(NotFound):
        await ep.stream(LETTERS)


@pytest.mark.acceptance("K14")
async def test_redriving_gives_the_original_back_to_the_group_once(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, event(17, headers={"trace": "1"}, event_time=4), event(18))
    assert await box.redrive("0.0:0") == 1
    assert await box.redrive(["0.0:0"]) == 0
    assert await ids(box) == ["0.0:1"]
    (back,) = await events_of(await ep.stream(REDRIVE))
    assert (back.payload, back.key, back.event_time) == (b"17", "k2", 4)
    assert back.headers == {
        "trace": "1",
        "ep-stream": "s/t",
        "ep-segment": "0.0",
        "ep-offset": "170",
        "ep-number": "17",
        "ep-timestamp": "1017",
        "ep-redriven": "1",
    }
    group = await ep.db.read(lambda tx: get_group(tx, GROUP))
    assert [each.name for each in group.streams] == ["s/t", REDRIVE]


async def test_dead_letter_that_fails_again_keeps_its_origin_and_redrive_count(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(17, headers={"trace": "1"}))
    for turn in range(1, 4):
        assert await box.redrive("all") == 1
        back = (await events_of(await ep.stream(REDRIVE)))[-1]
        made = letter(back, KeyError(turn))
        await ep.db.write(partial(append_letters, group=GROUP, stream=None, letters=[made]))
        (found,) = await box.list()
        assert (found.origin_stream, found.origin_number, found.redriven) == ("s/t", 17, turn)
        assert (found.error, found.error_type, found.headers) == (str(turn), "KeyError", {"trace": "1"})


async def test_headers_of_another_s_event_are_not_believed(ep: Eventproc, box: DeadLetters) -> None:
    headers = {"ep-stream": "elsewhere", "ep-number": "many", "ep-redriven": "8", "mine": "1"}
    await fail(ep, event(17, headers=headers))
    (found,) = await box.list()
    assert (found.origin_stream, found.origin_number, found.redriven) == ("s/t", 17, 0)
    assert found.headers == {"mine": "1"}


async def test_what_somebody_else_wrote_to_the_stream_is_a_letter_without_an_origin(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(1))
    async with (await ep.stream(LETTERS)).writer() as writer:
        await writer.write(b"by hand", headers={"ep-attempts": "many"})
    found = await box.get("0.0:1")
    assert (found.payload, found.origin_stream, found.attempts, found.error) == (b"by hand", None, None, None)
    assert await box.redrive("0.0:1") == 1
    assert [each.payload for each in await events_of(await ep.stream(REDRIVE))] == [b"by hand"]


async def test_dropping_lets_go_of_the_chosen_letters_alone(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, *map(event, range(5)))
    assert await box.drop(["0.0:3", "0.0:1", "0.0:3"]) == 2
    assert await box.drop("0.0:1") == 0
    assert await ids(box) == ["0.0:0", "0.0:2", "0.0:4"]
    with pytest.raises(NotFound, match=r"redriven or dropped"):
        await box.get("0.0:1")
    assert (await box.count()).letters == 3
    assert await box.drop("all") == 3
    assert await box.list() == []


async def test_a_group_that_never_was_is_not_found_and_one_without_letters_has_none(ep: Eventproc) -> None:
    assert await ep.dead_letters(GROUP).list() == []
    assert await ep.dead_letters(GROUP).drop("all") == 0
    with pytest.raises(NotFound, match="group 's/none'"):
        await ep.dead_letters("s/none").list()
    with pytest.raises(InvalidArgument):
        ep.dead_letters("none")


async def test_letters_of_a_deleted_group_can_be_dropped_and_not_redriven(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(1))
    await ep.db.write(lambda tx: delete_group(tx, GROUP))
    with pytest.raises(NotFound, match="group 's/g'"):
        await box.redrive("all")
    assert await ids(box) == ["0.0:0"]
    with pytest.raises(NotFound):
        await ep.stream(REDRIVE)
    assert await box.drop("all") == 1


async def test_sealed_or_deleted_redrive_stream_is_reported_and_the_letter_stays(
    ep: Eventproc, box: DeadLetters
) -> None:
    await fail(ep, event(1), event(2))
    assert await box.redrive("0.0:0") == 1
    stream = await ep.stream(REDRIVE)
    await stream.seal()
    with pytest.raises(StreamSealed, match=REDRIVE):
        await box.redrive("all")
    await stream.delete()
    with pytest.raises(GroupStreamReplaced, match=REDRIVE):
        await box.redrive("all")
    assert await ids(box) == ["0.0:1"]


async def test_pages_are_bounded_in_letters_and_in_bytes(ep: Eventproc, box: DeadLetters) -> None:
    for number in range(4):
        await fail(ep, event(number, bytes(READ_BYTES_MAX // 2)))
    assert [each.id for each in await box.list()] == ["0.0:0", "0.0:1"]
    assert [each.id for each in await box.list(limit=1, after="0.0:0")] == ["0.0:1"]
    assert len(await everything(box)) == 4
    counted = await box.count(["0.0:2"])
    assert (counted.letters, counted.size_bytes) == (1, READ_BYTES_MAX // 2 + 8)
    assert await box.redrive("all") == 4


async def test_all_means_the_letters_that_are_pending_at_the_call(
    ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A letter that fails again while the others are redriven must not be redriven without end."""
    box = DeadLetters(ep.db, GROUP, codec_for(), step_letters_max=2)
    await fail(ep, *map(event, range(6)))
    step = module.redrive_step

    def failing_again(tx: Tx, group: str, spans: Sequence[LetterSpan], letters_max: int) -> module.LetterStep:
        done = step(tx, group, spans, letters_max)
        append_letters(tx, GROUP, None, [letter(event(100, stream=REDRIVE))])
        return done

    monkeypatch.setattr(module, "redrive_step", failing_again)
    assert await box.redrive("all") == 6
    assert await ids(box) == ["0.0:6", "0.0:7", "0.0:8"]


async def test_concurrent_redrives_return_each_letter_once(ep: Eventproc) -> None:
    box = DeadLetters(ep.db, GROUP, codec_for(), step_letters_max=7)
    await fail(ep, *map(event, range(100)))
    counts: list[int] = []

    async def redrive_all() -> None:
        counts.append(await box.redrive("all"))

    async with anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(redrive_all)
    assert sum(counts) == 100
    back = [each.payload for each in await events_of(await ep.stream(REDRIVE))]
    assert sorted(back) == sorted(b"%d" % number for number in range(100))


async def test_two_who_drop_at_once_count_each_letter_once(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, *map(event, range(10)))
    counts: list[int] = []

    async def drop_some(*wanted: int) -> None:
        counts.append(await box.drop([f"0.0:{number}" for number in wanted]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(drop_some, 1, 2, 3, 5)
        tasks.start_soon(drop_some, 3, 4, 5, 6)
    assert sum(counts) == 6
    assert await ids(box) == [f"0.0:{number}" for number in (0, 7, 8, 9)]


async def test_letters_can_be_finished_in_the_transaction_that_makes_them(
    ep: Eventproc, box: DeadLetters
) -> None:
    def give_up_and_drop(tx: Tx) -> int:
        append_letters(tx, GROUP, None, [letter(event(1)), letter(event(2))])
        return drop_step(tx, GROUP, choose(tx, GROUP, "0.0:0")).count

    assert await ep.db.write(give_up_and_drop) == 1
    assert await ids(box) == ["0.0:1"]


async def test_many_letters_are_redriven_and_dropped(ep: Eventproc, box: DeadLetters) -> None:
    await fail(ep, *map(event, range(2500)))
    assert await box.drop(["0.0:0", "0.0:2"]) == 2
    assert await box.redrive("all") == 2498
    assert await box.list() == []
    await ep.db.write(lambda tx: add_stream(tx, GROUP, REDRIVE))  # it has it already
