"""A tenant with READ on the names of one scope sees its own things, and nothing that depends on those of others."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

import eventproc
from eventproc import Eventproc
from eventproc.errors import StillPending
from eventproc.store.model import list_pages
from tests.server.access_support import LISTS, METRICS_PATH, READ, UPDATE, add_user, loaded, tenant
from tests.server.rest_client import OWN, RestInMemory
from tests.server.test_changes import PATH, serving, watching

CHANGING = frozenset(
    {"id", "stream_id", "created_ms", "finished_ms", "due_ms", "age_ms", "at_ms", "unfinished_age_ms"}
)
"""Fields that say when or as what something was made."""


async def fill(ep: Eventproc, scope: str) -> None:
    """Make something of each kind in a scope."""
    await ep.create_scope(scope)
    for number in range(5):
        stream = await ep.create_stream(f"{scope}/s{number}", tags=["billing"])
        async with stream.writer() as writer:
            await writer.write(b"12", key="k")
    await ep.create_topic(f"{scope}/topic")
    for number in range(3):
        await ep.create_group(f"{scope}/g{number}", [f"{scope}/s{number}"])
        await ep.create_share_group(f"{scope}/q{number}", [f"{scope}/s{number}"])
        await ep.schedules.create(f"{scope}/n{number}", cron="0 3 * * *", stream=f"{scope}/s{number}")
        io = {"streams": [f"{scope}/s{number}"], "start_delay_ms": 3_600_000}
        schema = {"datasource": f"{scope}{number}", "dimensions": ["page"]}
        await ep.submit_supervisor({"id": f"{scope}-{number}", "io": io, "schema": schema})
    stream = await ep.stream(f"{scope}/s0")
    await stream.begin(lease_ms=None)


async def hide(ep: Eventproc) -> None:
    """Make things in the tenant's scope that are made of what it may not read."""
    await ep.create_group("a/hidden", ["a/s0", "b/s0"])
    await ep.create_share_group("a/hiddenshare", ["b/s0"])
    await ep.schedules.create("a/hidden", cron="0 3 * * *", stream="b/s0")
    schema = {"datasource": "hidden", "dimensions": ["page"]}
    for name, io in (("hidden", {"streams": ["a/s0", "b/s0"]}), ("hidden-2", {"pattern": "a/.*"})):
        await ep.submit_supervisor({"id": name, "io": {**io, "start_delay_ms": 3_600_000}, "schema": schema})


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_pages, "ENTRIES_A_STEP", 3)


@pytest.fixture
async def alone() -> AsyncIterator[Eventproc]:
    """Give a store of the tenant alone."""
    async with eventproc.open_memory() as ep:
        await fill(ep, "a")
        yield ep


@pytest.fixture
async def shared() -> AsyncIterator[Eventproc]:
    """Give a store that others use too, whose scopes sort before and behind the tenant's."""
    async with eventproc.open_memory() as ep:
        for scope in ("A", "b", "a", "aa"):
            await fill(ep, scope)
        await hide(ep)
        yield ep


async def pages(http: httpx.AsyncClient, path: str, limit: int, **given: str) -> list[list[Any]]:
    """Return all pages of a list."""
    found: list[list[Any]] = []
    after: str | None = None
    while True:
        query = {**given, "limit": str(limit), **({} if after is None else {"after": after})}
        answer = await http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        body = answer.json()
        if "items" in body:
            found.append(body["items"])
            after = body["next"]
        else:
            (items,) = body.values()
            found.append(items)
            link = re.search(r"after=([^&>]*)", answer.headers.get("link", ""))
            after = None if link is None else link[1]
        if after is None:
            return found


def stable(value: Any) -> Any:
    """Return what does not depend on the time or the number of things in the store."""
    if isinstance(value, dict):
        named = "name" in value or "kind" not in value  # of requests the id is one of those things
        return {
            name: stable(each)
            for name, each in value.items()
            if name not in CHANGING or (name == "id" and named)
        }
    return list(map(stable, value)) if isinstance(value, list) else value


@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_lists_are_those_of_a_store_without_others(
    alone: Eventproc, shared: Eventproc, limit: int
) -> None:
    assert len(LISTS) >= 10
    async with await tenant(alone) as expected, await tenant(shared) as found:
        for template in LISTS:
            path = template.format(scope="a", supervisor="a-0")
            wanted = await pages(expected, path, limit)
            assert stable(await pages(found, path, limit)) == stable(wanted), path
            assert all(len(each) == limit for each in wanted[:-1]), path
            if path not in (f"{OWN}/processors", f"{OWN}/tables", "/v1/scopes"):
                assert wanted[0], path


async def test_an_overview_sums_up_what_the_caller_may_read(alone: Eventproc, shared: Eventproc) -> None:
    async with await tenant(alone) as expected, await tenant(shared) as found:
        wanted = (await expected.get(f"{OWN}/overview")).json()
        assert (wanted["streams_count"], wanted["transactions_open"], len(wanted["groups"])) == (6, 1, 6)
        shown = (await found.get(f"{OWN}/overview")).json()
        for each in (wanted, shown):
            for name in ("streams", "groups"):
                each[name].sort(key=lambda row: row.get("name") or row["group"])
        assert stable(shown) == stable(wanted)


def samples(text: str) -> Mapping[tuple[str, ...], float]:
    return {
        (each.name, *each.labels.values()): each.value
        for family in parse_text(text)
        for each in family.samples
        if not each.name.endswith(("_created", "_lag_seconds", "_sum", "_bucket"))
    }


async def test_metrics_are_those_of_a_store_without_others(alone: Eventproc, shared: Eventproc) -> None:
    async with await tenant(alone) as expected, await tenant(shared) as found:
        wanted = samples((await expected.get(METRICS_PATH)).text)
        assert samples((await found.get(METRICS_PATH)).text) == wanted
        assert wanted["eventproc_streams",] == 6
        assert wanted["eventproc_stream_events_total", "a/s0"] == 1
        assert wanted["eventproc_group_lag_events", "a/g0"] == 1
        assert wanted["eventproc_supervisor_healthy", "a-0"] == 1
        assert wanted["eventproc_transactions_open",] == 1
        of_server = (
            "process_",
            "eventproc_database",
            "eventproc_instances",
            "eventproc_tasks",
            "eventproc_ready",
        )
        assert not [name for name, *_ in wanted if name.startswith(of_server)]


async def test_everything_that_a_reader_of_all_sees_is_unchanged(shared: Eventproc) -> None:
    async with await tenant(shared, "*") as http:
        found = await pages(http, f"{OWN}/streams", 1000)
        assert [each["name"] for each in found[0]] == [each.name for each in await shared.streams()]
        assert "process_cpu_seconds_total" in (await http.get(METRICS_PATH)).text
        assert "hidden" in (await http.get(f"{OWN}/supervisors")).text


async def test_no_answer_to_a_tenant_names_what_is_not_its_own(shared: Eventproc) -> None:
    async with await tenant(shared) as http:
        for path in (*LISTS, f"{OWN}/overview", METRICS_PATH):
            text = (await http.get(path.format(scope="a", supervisor="a-0"))).text
            assert not re.search(r"\b(A|b|aa)[/-]|hidden", text), path


@pytest.mark.parametrize(
    "path", ["supervisors/{}", "supervisors/{}/health", "supervisors/{}/lags", "tables/{}"]
)
async def test_what_may_not_be_known_is_refused_like_what_does_not_exist(
    shared: Eventproc, path: str
) -> None:
    async with await tenant(shared) as http:
        answers = [
            await http.get(f"{OWN}/{path.format(name)}") for name in ("hidden", "hidden-2", "b-0", "missing")
        ]
        assert {each.status_code for each in answers} == {403}
        assert len({each.text for each in answers}) == 1


async def test_a_scope_that_does_not_exist_looks_like_that_of_others(shared: Eventproc) -> None:
    async with await tenant(shared) as http:
        for path in ("/v1/scopes/{}/streams", "/v1/scopes/{}/readergroups", OWN + "/streams?scope={}"):
            found, missing = [await http.get(path.format(each)) for each in ("b", "missing")]
            assert (found.status_code, found.text) == (200, missing.text)


async def test_a_supervisor_that_ever_read_the_stream_of_others_is_hidden(shared: Eventproc) -> None:
    async with await tenant(shared) as http:
        assert (await http.get(f"{OWN}/supervisors/a-0")).status_code == 200
        schema = {"datasource": "a0", "dimensions": ["page"]}
        for streams in (["a/s0", "b/s0"], ["a/s0"]):
            await shared.submit_supervisor({"id": "a-0", "io": {"streams": streams}, "schema": schema})
        assert (await http.get(f"{OWN}/supervisors/a-0/versions")).status_code == 403


async def test_ids_of_changes_say_nothing_of_requests_of_others(shared: Eventproc) -> None:
    token = await shared.db.write(partial(add_user, name="ann"))
    await shared.users.grant("ann", READ, "a/*")
    async with serving(shared, await loaded(shared)) as answers:
        async with watching(answers, token=token) as found:
            await shared.create_stream("b/more")
            await shared.create_stream("a/one")
            await shared.create_stream("a/two")
            events = await found.until("request", "create", "a/two", "done")
        assert {each.data["target"] for each in events} == {"a/one", "a/two"}
        ids = [str(each.id) for each in events]
        assert len(set(ids)) == len(ids)
        assert len({len(each) for each in ids}) == 1
        assert not any("-" in each for each in ids)
        await shared.create_stream("b/again")
        await shared.create_stream("a/three")
        async with watching(answers, token=token, last_id=ids[-1]) as found:
            missed = await found.until("request", "create", "a/three", "done")
            assert [each.data["target"] for each in missed] == ["a/three"]


async def test_a_tenant_cannot_ask_whether_a_place_of_the_feed_is_one(shared: Eventproc) -> None:
    async with await tenant(shared) as http:
        for text in ("0-0", "10-20", "0" * 88, "f" * 88):
            found = await http.head(PATH, headers={"Last-Event-ID": text})
            assert found.status_code == 400, text


async def test_a_pending_request_counts_for_those_who_may_read_its_target(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path, host=False, durability="os") as ep:
        await ep.create_scope("a")
        await ep.create_scope("b")
        for name in ("a/x", "b/x", "b/y"):
            with pytest.raises(StillPending):
                await ep.create_stream(name, timeout_ms=0)
        async with await tenant(ep) as http:
            assert (await http.get(f"{OWN}/overview")).json()["requests_pending"] == 1
            found = samples((await http.get(METRICS_PATH)).text)
            assert found["eventproc_requests_pending",] == 1
            assert sum(value for (name, *_), value in found.items() if name == "eventproc_requests") == 1


async def test_what_several_streams_are_read_for_is_shown_to_those_who_may_read_them_all(
    shared: Eventproc,
) -> None:
    await shared.jobs("a/hiddenshare").submit(b"secret")
    async with await tenant(shared) as http:
        for path in (
            f"{OWN}/groups/a/{{}}",
            f"{OWN}/groups/a/{{}}/partitions",
            f"{OWN}/groups/a/{{}}/checkpoints",
            "/v1/scopes/a/readergroups/{}",
            f"{OWN}/schedules/a/{{}}",
            f"{OWN}/shares/a/{{}}share",
            f"{OWN}/jobs/a/{{}}share",
        ):
            found = await http.get(path.format("hidden"))
            assert found.status_code == 403, path
            assert not re.search(r"\bb/|secret", found.text), path
        for path in (f"{OWN}/groups/a/g0", f"{OWN}/shares/a/q0", f"{OWN}/schedules/a/n0"):
            assert (await http.get(path)).status_code == 200, path


async def test_a_joint_transaction_names_the_streams_that_the_caller_may_read(shared: Eventproc) -> None:
    streams = [await shared.stream(each) for each in ("a/s1", "b/s1")]
    async with shared.transaction() as joint:
        for each in streams:
            await joint.write(each, b"1")
        async with await tenant(shared) as http:
            path = f"{OWN}/streams/a/s1/transactions"
            (listed,) = (await http.get(path)).json()["items"]
            assert listed["streams"] == ["a/s1"]
            assert (await http.get(f"{path}/{listed['id']}")).json()["streams"] == ["a/s1"]


async def test_a_joint_transaction_is_decided_by_a_caller_that_may_change_all_its_streams(
    shared: Eventproc,
) -> None:
    token = await shared.db.write(lambda tx: add_user(tx, "writer", (UPDATE, "a/*")))
    rest = RestInMemory(shared, await loaded(shared), token)
    joint = shared.transaction()
    async with joint:
        for each in ("a/s1", "b/s1"):
            await joint.write(await shared.stream(each), b"1")
        await joint.flush()  # it is stored in both from here on
        path = f"{OWN}/streams/a/s1/transactions"
        (listed,) = (await rest.ok("GET", path))["items"]
        for verb in ("commit", "abort"):
            answer = await rest.call("POST", f"{path}/{listed['id']}/{verb}")
            assert answer.status == 403
            assert "b/s1" not in answer.body["detail"]
        assert (await rest.ok("GET", f"{path}/{listed['id']}"))["state"] == listed["state"]


async def test_a_supervisor_that_names_the_stream_of_others_for_bad_events_is_hidden(
    shared: Eventproc,
) -> None:
    io = {"streams": ["a/s0"], "start_delay_ms": 3_600_000}
    schema = {"datasource": "odd", "dimensions": ["page"]}
    tuning = {"unparseable_stream": "b/s0"}
    await shared.submit_supervisor({"id": "odd", "io": io, "schema": schema, "tuning": tuning})
    async with await tenant(shared) as http:
        assert (await http.get(f"{OWN}/supervisors/odd/versions")).status_code == 403
        assert "odd" not in (await http.get(f"{OWN}/supervisors")).text


@pytest.mark.parametrize("limit", [1, 2, 1000])
async def test_a_list_for_several_patterns_has_each_name_once_in_order(shared: Eventproc, limit: int) -> None:
    patterns = "b/s1", "a/s3*", "a/s*1", "a/s3", "a*/t*", "a/zzz"
    expected = ["a/s1", "a/s3", "a/topic", "aa/topic", "b/s1"]
    async with await tenant(shared, *patterns) as http:
        for prefix, wanted in (
            ("", expected),
            ("s", ["a/s1", "a/s3", "b/s1"]),
            ("s3", ["a/s3"]),
            ("x", []),
        ):
            found = await pages(http, f"{OWN}/streams", limit, prefix=prefix)
            assert [each["name"] for page in found for each in page] == wanted, prefix


async def test_a_list_looks_at_no_names_that_no_pattern_begins_with(monkeypatch: pytest.MonkeyPatch) -> None:
    async with eventproc.open_memory() as ep:
        await ep.create_scope("a")
        for number in range(12):
            await ep.create_group(f"a/g{number:02}", [await ep.create_stream(f"a/s{number:02}")])
        async with await tenant(ep, "a/s11", "a/g11") as http:
            looked: list[str] = []
            allows = list_pages.ListPage.allows

            def noted(page: list_pages.ListPage, *names: str) -> bool:
                looked.extend(names)
                return allows(page, *names)

            monkeypatch.setattr(list_pages.ListPage, "allows", noted)
            for kind, name in (("streams", "a/s11"), ("groups", "a/g11")):
                (page,) = await pages(http, f"{OWN}/{kind}", 5)
                assert [each["name"] for each in page] == [name]
            assert set(looked) == {"a/s11", "a/g11"}
