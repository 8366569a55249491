"""Every list over REST is bounded: it has pages, or what it lists has a bound."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest

import eventproc
from eventproc import ReplicatedType
from eventproc.errors import InvalidArgument
from eventproc.runtime import Eventproc
from eventproc.server.rest import pravega_calls
from eventproc.server.rest.route_table import ROUTES
from eventproc.store.catalog import insert_stream
from eventproc.store.database import Tx
from eventproc.store.model import list_pages
from eventproc.store.model.policies import ScalingPolicy, StreamConfig
from tests.server.rest_client import RestInMemory
from tests.support.apps import run_until_idle

OWN = "/eventproc/v1"


@attrs.frozen
class Added:
    """Counts up."""


COUNTER = ReplicatedType[int, Added](
    name="counter", state=int, updates={"added": Added}, fold=lambda count, _: count + 1
)

BOUNDED = {
    "list_segments": "the segments of an epoch: 1,024",
    "list_checkpoints": "the checkpoints that a group keeps: 8, and those since its slowest reader",
    "list_group_partitions": "the partitions of a group's topics, of which a group has a bounded number",
    "list_positions": "the partitions of a topic: 1,023",
    "list_supervisor_tasks": "the tasks that run, and the last 200 that ended",
    "list_supervisor_lags": "240 samples",
}
"""Lists without pages, and what bounds them."""


@pytest.fixture
async def ep(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Eventproc]:
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 2)
    async with eventproc.open_memory() as ep:
        await ep.create_scope("s")
        yield ep


@pytest.fixture
async def rest(ep: Eventproc) -> RestInMemory:
    return RestInMemory(ep)


async def linked(rest: RestInMemory, path: str) -> list[Any]:
    """Return the bodies of all pages, each of which links to the next one."""
    bodies: list[Any] = []
    following: str | None = path
    while following is not None:
        answer = await rest.call("GET", following)
        assert answer.status == 200, answer
        bodies.append(answer.body)
        link = answer.headers.get("link")
        assert link is None or (link.startswith("<") and link.endswith('>; rel="next"'))
        following = None if link is None else link[1:].partition(">")[0]
    return bodies


async def paged(rest: RestInMemory, path: str, key: Callable[[Any], str]) -> list[str]:
    """Return the keys of the entries of all pages of one entry each."""
    keys: list[str] = []
    after = ""
    while True:
        page = await rest.ok("GET", f"{path}?limit=1{after}")
        assert len(page["items"]) <= 1
        keys += [key(each) for each in page["items"]]
        if page["next"] is None:
            return keys
        after = f"&after={page['next']}"


def test_every_list_has_pages_or_a_bound() -> None:
    lists = [each for each in ROUTES if each.name.startswith("list_") or each.name == "get_scaling_events"]
    unpaged = {each.name for each in lists if "limit" not in {one.name for one in each.parameters}}
    assert unpaged == set(BOUNDED)


async def test_pages_of_scopes_keep_the_form_of_pravega_and_link_to_the_next(
    rest: RestInMemory, ep: Eventproc
) -> None:
    for name in ("a", "b", "t", "u"):
        await ep.create_scope(name)
    assert [set(each) for each in await linked(rest, "/v1/scopes")] == [{"scopes"}]
    pages = await linked(rest, "/v1/scopes?limit=2")
    assert [[each["scopeName"] for each in page["scopes"]] for page in pages] == [
        ["a", "b"],
        ["s", "t"],
        ["u"],
    ]
    assert (await rest.call("GET", "/v1/scopes?limit=1001")).status == 400


async def test_pages_of_streams_and_groups_are_full_whatever_is_left_out(
    rest: RestInMemory, ep: Eventproc
) -> None:
    def insert(tx: Tx) -> None:
        for name in ("_a", "_b", "_c"):
            insert_stream(tx, f"s/{name}", StreamConfig(ScalingPolicy.fixed(1), tags=("all",)))

    names = ["A", "Z", "m", "n", "z"]
    for name in names:
        await ep.create_stream(f"s/{name}", tags=["all"])
        await ep.create_group(f"s/{name}-group", ["s/A"])
    await ep.create_share_group("s/C-queue", ["s/A"])  # is no reader group
    await ep.db.write(insert)
    path = "/v1/scopes/s/streams"
    for query, expected in (
        ("", names),
        ("filter_type=tag&filter_value=all&", names),
        ("filter_type=showInternalStreams&filter_value=x&", ["_a", "_b", "_c"]),
    ):
        pages = await linked(rest, f"{path}?{query}limit=2")
        listed = [[each["streamName"] for each in page["streams"]] for page in pages]
        assert [name for page in listed for name in page] == expected
        assert all(len(page) == 2 for page in listed[:-1])
    groups = await linked(rest, "/v1/scopes/s/readergroups?limit=2")
    listed = [[each["readerGroupName"] for each in page["readerGroups"]] for page in groups]
    assert [len(page) for page in listed] == [2, 2, 1]
    assert [name for page in listed for name in page] == [f"{name}-group" for name in names]


async def test_pages_of_scaling_events_are_those_of_one_list(
    rest: RestInMemory, ep: Eventproc, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = await ep.create_stream("s/t")
    for _ in range(3):
        (segment,) = (await stream.describe()).segments
        low, high = await stream.split(segment.id)
        await stream.merge(low, high)
    path = "/v1/scopes/s/streams/t/scaling-events?from=0&to=4000000000000"
    ((*expected,),) = await linked(rest, path)
    assert len(expected) == 7
    for limit in (1, 2, 7):
        pages = await linked(rest, f"{path}&limit={limit}")
        assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
        assert [each for page in pages for each in page] == expected
    monkeypatch.setattr(pravega_calls, "PAGE_SEGMENTS_MAX", 3)  # two epochs, of one segment and of two
    pages = await linked(rest, path)
    assert [len(page) for page in pages] == [2, 2, 2, 1]
    assert [each for page in pages for each in page] == expected


async def test_processors_supervisors_and_their_versions_have_pages(
    rest: RestInMemory, ep: Eventproc
) -> None:
    await ep.create_stream("s/t")
    app = eventproc.App()
    for name in ("p1", "p2", "p3"):

        @app.processor("s/t", group=name, name=name)
        async def handle(event: eventproc.Event) -> None: ...

    await ep.create_group("s/p2-readers", ["s/t"])
    async with ep.run(app) as running:
        await running.wait_idle()
    for number in range(3):
        for early in (True, False):
            spec = {
                "id": f"clicks{number}",
                "io": {"streams": ["s/t"], "use_earliest_offset": early},
                "schema": {"datasource": f"clicks{number}", "dimensions": ["page"]},
            }
            await ep.submit_supervisor(spec)
    assert await paged(rest, f"{OWN}/processors", lambda each: each["group"]["name"]) == [
        "s/p1",
        "s/p2",
        "s/p3",
    ]
    ids = [f"clicks{number}" for number in range(3)]
    assert await paged(rest, f"{OWN}/supervisors", lambda each: each["id"]) == ids
    path = f"{OWN}/supervisors/clicks1/versions"
    assert await paged(rest, path, lambda each: str(each["version"])) == ["2", "1"]


async def test_transactions_have_pages(rest: RestInMemory, ep: Eventproc) -> None:
    stream = await ep.create_stream("s/t")
    async with stream.transaction() as one, stream.transaction() as two, stream.transaction() as three:
        listed = await paged(rest, f"{OWN}/streams/s/t/transactions", lambda each: each["id"])
        assert listed == sorted([one.id, two.id, three.id])


async def test_pages_in_python_are_those_of_one_list(ep: Eventproc) -> None:
    for name in ("a/one", "a/two", "b/one"):
        if name.endswith("/one"):
            await ep.create_scope(name[0])
        await ep.synchronizer(name, COUNTER, initial=0)
    for number in range(3):
        await ep.users.add(f"user{number}")
    assert await ep.synchronizers(limit=2) == ["a/one", "a/two"]
    assert await ep.synchronizers(after="a/two", limit=2) == ["b/one"]
    assert await ep.synchronizers("a", prefix="t") == ["a/two"]
    assert [each.name for each in await ep.users.list(after="user0", limit=1)] == ["user1"]
    for listed in (ep.processors, ep.supervisors, ep.ingestion_workers, ep.synchronizers, ep.users.list):
        with pytest.raises(InvalidArgument):
            await listed(limit=0)


async def large_dead_letters(ep: Eventproc, payloads: list[bytes]) -> str:
    app = eventproc.App()

    @app.processor("s/t", group="mailer", retry=eventproc.RetryPolicy(attempts=1))
    async def mail(event: eventproc.Event) -> None:
        raise ValueError("no such address")

    async with (await ep.create_stream("s/t")).writer() as writer:
        for each in payloads:
            await writer.write(each, key="k")
    await run_until_idle(ep, app)
    return "processors/s/mailer/dead-letters"


async def large_delayed_events(ep: Eventproc, payloads: list[bytes]) -> str:
    async with (await ep.create_stream("s/t")).writer() as writer:
        for each in payloads:
            await writer.write(each, delay_ms=3_600_000)
    return "streams/s/t/delayed"


async def large_jobs(ep: Eventproc, payloads: list[bytes]) -> str:
    await ep.create_stream("s/t")
    await ep.create_share_group("s/mail", ["s/t"])
    for each in payloads:
        await ep.jobs("s/mail").submit(each)
    return "jobs/s/mail"


async def large_states(ep: Eventproc, payloads: list[bytes]) -> str:
    app = eventproc.App()

    @app.processor("s/t", group="totals", order="key", state=bytes)
    async def count(event: eventproc.Event, total: bytes) -> None: ...

    await ep.create_stream("s/t")
    await run_until_idle(ep, app)
    await ep.state("s/totals").store({f"key {number}": each for number, each in enumerate(payloads)})
    return "groups/s/totals/state"


@pytest.mark.parametrize("given", [large_dead_letters, large_delayed_events, large_jobs, large_states])
@pytest.mark.parametrize("limit", [3, 1_000])
async def test_a_page_ends_at_some_bytes_of_payloads_and_says_that_others_follow(
    rest: RestInMemory, ep: Eventproc, given: Callable[[Eventproc, list[bytes]], Awaitable[str]], limit: int
) -> None:
    path = await given(ep, [b"%d" % number + bytes(2**20) for number in range(9)])
    found, after = b"", ""
    while True:
        page = await rest.ok("GET", f"{OWN}/{path}?limit={limit}{after}")
        assert len(page["items"]) <= 4
        for each in page["items"]:
            found += base64.b64decode(each["payload" if "payload" in each else "value"])[:1]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert sorted(found) == sorted(b"012345678")  # ids of delayed events of one ms have any order
