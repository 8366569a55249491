"""What the page asks REST for: events, what a change would do, and what its caller may do."""

from __future__ import annotations

import base64

import pytest

from eventproc.runtime import Eventproc
from eventproc.server.rest.route_table import ROUTES
from tests.server.access_support import READ, add_user, loaded
from tests.server.rest_client import OWN, RestInMemory, ep as ep, rest as rest

EVENTS = f"{OWN}/streams/s/t/events"


def payloads(page: dict[str, list[dict[str, str]]]) -> list[bytes]:
    return [base64.b64decode(each["payload"]) for each in page["items"]]


async def test_events_are_read_page_by_page_and_on_from_the_end(rest: RestInMemory, ep: Eventproc) -> None:
    first = await rest.ok("GET", f"{EVENTS}?limit=2")
    assert (payloads(first), first["at_end"]) == ([b"0", b"1"], False)
    assert [(each["key"], each["number"], each["segment"]) for each in first["items"]] == [
        ("k", 0, "0.0"),
        ("k", 1, "0.0"),
    ]
    second = await rest.ok("GET", f"{EVENTS}?limit=2&start={first['next']}")
    assert (payloads(second), second["at_end"]) == ([b"2"], True)
    empty = await rest.ok("GET", f"{EVENTS}?start={second['next']}")
    assert (empty["items"], empty["at_end"], empty["next"]) == ([], True, second["next"])
    async with (await ep.stream("s/t")).writer() as writer:
        await writer.write(b"later")
    assert payloads(await rest.ok("GET", f"{EVENTS}?start={empty['next']}")) == [b"later"]


async def test_the_last_events_are_those_before_the_tails_of_the_active_segments(
    rest: RestInMemory, ep: Eventproc
) -> None:
    stream = await ep.stream("s/t")
    await stream.split("0.0", 2)
    async with stream.writer() as writer:
        for number in range(20):
            await writer.write(b"new %d" % number, key=f"k{number}")
    found = payloads(await rest.ok("GET", f"{EVENTS}?start=last&limit=4"))
    by_segment = {each.id: each.tail_number for each in await stream.segments()}
    assert len(found) == 4
    assert all(each.startswith(b"new") for each in found)
    numbers = [
        (each["segment"], each["number"])
        for each in (await rest.ok("GET", f"{EVENTS}?start=last&limit=4"))["items"]
    ]
    assert sorted(numbers) == sorted(
        (str(id), tail - back) for id, tail in by_segment.items() for back in (1, 2)
    )


async def test_events_of_a_key_or_a_segment_are_chosen(rest: RestInMemory, ep: Eventproc) -> None:
    stream = await ep.stream("s/t")
    await stream.split("0.0", 2)
    async with stream.writer() as writer:
        await writer.write(b"other", key="x")
    assert payloads(await rest.ok("GET", f"{EVENTS}?key=x")) == [b"other"]
    assert payloads(await rest.ok("GET", f"{EVENTS}?segment=0.0")) == [b"0", b"1", b"2"]
    assert payloads(await rest.ok("GET", f"{EVENTS}?key=k&segment=0.0&limit=1")) == [b"0"]
    assert (await rest.ok("GET", f"{EVENTS}?key=none"))["at_end"] is True


async def test_a_page_ends_with_the_event_that_reaches_its_bound_in_bytes(
    rest: RestInMemory, ep: Eventproc
) -> None:
    stream = await ep.create_stream("s/large")
    async with stream.writer() as writer:
        for size in (5 << 20, 3 << 20, 3 << 20, 10):
            await writer.write(b"x" * size)
    path, counts, start = f"{OWN}/streams/s/large/events", [], "head"
    while True:
        found = await rest.ok("GET", f"{path}?start={start}")
        counts.append(len(found["items"]))
        start = found["next"]
        if found["at_end"]:
            break
    assert counts == [1, 2, 1]


async def test_a_page_that_is_full_at_the_end_is_the_last_one(rest: RestInMemory) -> None:
    assert (await rest.ok("GET", f"{EVENTS}?limit=3"))["at_end"] is True


async def test_a_search_for_a_rare_key_has_a_bound_in_bytes(rest: RestInMemory, ep: Eventproc) -> None:
    stream = await ep.create_stream("s/large")
    async with stream.writer() as writer:
        for _ in range(10):
            await writer.post(b"x" * (7 << 20), key="common")
        await writer.write(b"found", key="rare")
    path = f"{OWN}/streams/s/large/events?key=rare"
    first = await rest.ok("GET", path)
    assert (first["items"], first["at_end"]) == ([], False)
    assert payloads(await rest.ok("GET", f"{path}&start={first['next']}")) == [b"found"]


async def test_events_that_are_not_there_are_refused(rest: RestInMemory, ep: Eventproc) -> None:
    stream = await ep.stream("s/t")
    head = await stream.head()
    await stream.truncate(await stream.tail())
    assert (await rest.call("GET", f"{EVENTS}?start={head}")).status == 410
    assert (await rest.call("GET", f"{EVENTS}?start=nowhere")).status == 400
    assert (await rest.call("GET", f"{EVENTS}?segment=x")).status == 400
    assert (await rest.call("GET", f"{OWN}/streams/s/none/events")).status == 404


async def test_a_dry_run_says_what_a_change_would_do_and_changes_nothing(
    rest: RestInMemory, ep: Eventproc
) -> None:
    stream = await ep.stream("s/t")
    before = await stream.describe()
    truncation = await rest.ok("POST", f"{OWN}/streams/s/t/truncate?dry_run=true", {"cut": "tail"})
    assert (truncation["would"], truncation["target"], truncation["events"]) == ("truncate", "s/t", 3)
    assert truncation["cut"] == str(before.tail)
    split = await rest.ok("POST", f"{OWN}/streams/s/t/split?dry_run=true", {"segment": "0.0"})
    assert (split["dry_run"], split["would"], split["already_done"]) == (True, "scale", False)
    sealed = await rest.ok("PUT", "/v1/scopes/s/streams/t/state?dry_run=true", {"streamState": "SEALED"})
    assert (sealed["would"], sealed["transactions"]) == ("seal", 0)
    assert (await rest.call("DELETE", "/v1/scopes/s/streams/t?dry_run=true")).status == 412
    made = await rest.ok("POST", "/v1/scopes/s/streams?dry_run=true", {"streamName": "more"})
    assert (made["would"], made["target"]) == ("create", "s/more")
    assert await stream.describe() == before
    assert [each.name for each in await ep.streams()] == ["s/t"]
    assert await ep.requests.list(limit=100) == await ep.requests.list(limit=1), "only the creation of s/t"


async def test_a_change_that_has_no_dry_run_refuses_to_be_asked_for_one(
    rest: RestInMemory, ep: Eventproc
) -> None:
    await ep.create_topic("s/topic", partitions=2)
    refused = await rest.call("DELETE", f"{OWN}/topics/s/topic?dry_run=true")
    assert (refused.status, "dry_run" in refused.body["detail"]) == (400, True)
    assert (await ep.topics())[0].name == "s/topic"
    for each in ROUTES:
        if each.submits and not each.has_dry_run:
            assert each.name in {"create_topic", "alter_topic", "delete_topic"}, each.name


@pytest.mark.parametrize("on", ["*", "s", "s/t", "other/t", "s/t/x"])
async def test_a_caller_is_told_what_it_may_do(ep: Eventproc, on: str) -> None:
    token = await ep.db.write(lambda tx: add_user(tx, "ann", (READ, "s/*")))
    rest = RestInMemory(ep, await loaded(ep), token)
    found = await rest.ok("GET", f"{OWN}/caller?on={on}")
    assert found == {"user": "ann", "reads": on == "s/t", "updates": False}


async def test_a_caller_without_users_may_do_everything(rest: RestInMemory) -> None:
    assert await rest.ok("GET", f"{OWN}/caller") == {"user": None, "reads": True, "updates": True}
