"""REST of a serving process: Pravega's paths, those of an operator, and what is refused."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

import eventproc
from eventproc.base.clock import SystemClock, new_id
from eventproc.runtime import Eventproc
from eventproc.server.access.authority import Authority
from eventproc.server.rest import listener as rest_listener
from eventproc.server.rest.listener import serve_rest
from eventproc.server.rest.pravega_values import ScalingConfig
from eventproc.testing.crash import PATIENCE_S
from tests.groups.support import eventually
from tests.server.rest_client import RestClient
from tests.server.support import ServerProcess

pytestmark = pytest.mark.subprocess


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from eventproc.cli.main import run

    directory = tmp_path_factory.mktemp("rest") / "served"
    assert run(["-C", str(directory), "init", "--durability", "os"]) == 0
    return directory


@pytest.fixture(scope="module")
def rest(directory: Path) -> Iterator[RestClient]:
    with ServerProcess(directory, rest=True) as server:
        client = RestClient(server.rest)
        assert client.call("POST", "/v1/scopes", {"scopeName": "s"}).status == 201
        yield client
        client.close()


@pytest.fixture(scope="module")
async def ep(directory: Path, rest: RestClient) -> AsyncIterator[Eventproc]:
    """The same directory, opened by this process."""
    async with eventproc.open(directory, host=False) as ep:
        yield ep


def create(rest: RestClient, name: str, segments: int = 1) -> str:
    """Create a stream in the scope s, and return its path among the operator's."""
    scaling = {"type": "FIXED_NUM_SEGMENTS", "minSegments": segments}
    body = {"streamName": name, "scalingPolicy": scaling}
    assert rest.call("POST", "/v1/scopes/s/streams", body).status == 201
    return f"/eventproc/v1/streams/s/{name}"


def test_scopes_are_created_listed_shown_and_deleted_with_the_codes_of_pravega(rest: RestClient) -> None:
    created = rest.call("POST", "/v1/scopes", {"scopeName": "other"})
    assert (created.status, created.body) == (201, {"scopeName": "other"})
    assert rest.call("POST", "/v1/scopes", {"scopeName": "other"}).status == 409
    assert {"scopeName": "other"} in rest.get("/v1/scopes")["scopes"]
    assert {"scopeName": "_system"} not in rest.get("/v1/scopes")["scopes"]
    assert rest.get("/v1/scopes/other") == {"scopeName": "other"}
    body = {"streamName": "t"}
    assert rest.call("POST", "/v1/scopes/other/streams", body).status == 201
    assert rest.call("DELETE", "/v1/scopes/other").status == 412
    rest.call("PUT", "/v1/scopes/other/streams/t/state", {"streamState": "SEALED"})
    assert rest.call("DELETE", "/v1/scopes/other/streams/t").status == 204
    assert rest.call("DELETE", "/v1/scopes/other").status == 204
    assert rest.call("DELETE", "/v1/scopes/other").status == 404
    assert rest.call("GET", "/v1/scopes/other").status == 404


def test_a_stream_lives_from_creation_to_deletion(rest: RestClient) -> None:
    path = "/v1/scopes/s/streams/life"
    body = {
        "streamName": "life",
        "scalingPolicy": {
            "type": "BY_RATE_IN_KBYTES_PER_SEC",
            "targetRate": 5,
            "scaleFactor": 3,
            "minSegments": 2,
        },
        "retentionPolicy": {"type": "LIMITED_DAYS", "timeBasedRetention": {"hours": 5, "minutes": 30}},
        "streamTags": ["billing"],
    }
    created = rest.call("POST", "/v1/scopes/s/streams", body)
    assert created.status == 201
    assert created.body == rest.get(path)
    assert created.body["scalingPolicy"] == body["scalingPolicy"]
    assert created.body["retentionPolicy"]["timeBasedRetention"] == {"days": 0, "hours": 5, "minutes": 30}
    assert created.body["tags"] == ["billing"]
    assert rest.call("POST", "/v1/scopes/s/streams", body).status == 409
    listed = rest.get("/v1/scopes/s/streams?filter_type=tag&filter_value=billing")["streams"]
    assert [each["streamName"] for each in listed] == ["life"]
    assert rest.get("/v1/scopes/s/streams?filter_type=showInternalStreams&filter_value=true") == {
        "streams": []
    }

    fixed = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 3}
    by_size = {"type": "LIMITED_SIZE_MB", "value": 10, "maxValue": 20}
    updated = rest.call("PUT", path, {"scalingPolicy": fixed, "retentionPolicy": by_size})
    assert updated.status == 200
    assert updated.body["scalingPolicy"]["minSegments"] == 3
    assert (updated.body["retentionPolicy"]["value"], updated.body["retentionPolicy"]["maxValue"]) == (10, 20)
    assert updated.body["tags"] == []
    for sent, there in (({"idWindowMs": 60_000}, 60_000), ({}, 60_000)):
        assert rest.call("PUT", path, {**sent, "retentionPolicy": by_size}).status == 200
        assert rest.get("/eventproc/v1/streams/s/life")["config"]["id_window_ms"] == there
    assert rest.call("PUT", path, {"idWindowMs": 0}).status == 400
    own = rest.get("/eventproc/v1/streams/s/life")
    assert len(own["segments"]) == 3
    assert own["config"]["retention"]["consumed"] is True

    assert rest.call("DELETE", path).status == 412
    sealed = rest.call("PUT", f"{path}/state", {"streamState": "SEALED"})
    assert (sealed.status, sealed.body) == (200, {"streamState": "SEALED"})
    assert rest.call("DELETE", path).status == 204
    assert rest.call("GET", path).status == 404


def test_an_offload_policy_is_set_kept_and_removed(rest: RestClient) -> None:
    path, own = "/v1/scopes/s/streams/cold", "/eventproc/v1/streams/s/cold"
    body = {"streamName": "cold", "offloadPolicy": {"ageMs": 60_000}}
    assert rest.call("POST", "/v1/scopes/s/streams", body).status == 201
    for change, expected in (
        ({"streamTags": ["a"]}, {"age_ms": 60_000, "size_bytes": None}),
        ({"offloadPolicy": {"sizeBytes": 5}}, {"age_ms": None, "size_bytes": 5}),
        ({"offloadPolicy": {}}, {"age_ms": None, "size_bytes": None}),
    ):
        assert rest.call("PUT", path, change).status == 200
        assert rest.get(own)["config"]["offload"] == expected
    wrong = rest.call("PUT", path, {"offloadPolicy": {"ageMs": 0}})
    assert (wrong.status, "offload age" in wrong.body["detail"]) == (400, True)
    topic = {"name": "cold-topic", "offload": {"size_bytes": 7}, "retention": {"age_ms": 9}}
    made = rest.call("POST", "/eventproc/v1/topics/s", topic)
    assert (made.status, made.body["config"]["offload"]["size_bytes"]) == (201, 7)
    assert made.body["config"]["retention"]["age_ms"] == 9
    altered = rest.call("POST", "/eventproc/v1/topics/s/cold-topic/alter", {"offload": {}})
    assert (altered.status, altered.body["config"]["offload"]["size_bytes"]) == (200, None)


@pytest.mark.parametrize(
    "retention",
    [{"age_ms": 90_500}, {"age_ms": 3_600_000, "size_bytes": 7}, {"size_bytes": 7}, {"consumed": True}],
)
def test_a_retention_that_pravega_has_no_form_for_stays_if_it_is_sent_as_shown(
    rest: RestClient, retention: dict[str, int]
) -> None:
    name = "kept-" + "-".join(map(str, retention.values())).lower()
    path = f"/v1/scopes/s/streams/{name}"
    made = rest.call("POST", "/eventproc/v1/topics/s", {"name": name, "retention": retention})
    shown = rest.get(path)["retentionPolicy"]
    assert rest.call("PUT", path, {"retentionPolicy": shown, "streamTags": ["a"]}).status == 200
    config = rest.get(f"/eventproc/v1/streams/s/{name}")["config"]
    assert config == {**made.body["config"], "tags": ["a"]}
    by_size = {"type": "LIMITED_SIZE_MB", "value": 10}
    assert rest.call("PUT", path, {"retentionPolicy": by_size}).status == 200
    config = rest.get(f"/eventproc/v1/streams/s/{name}")["config"]
    assert config["retention"]["size_bytes"] == 10 << 20


def test_a_rate_has_no_more_segments_than_writers_of_clients_can_serve(rest: RestClient) -> None:
    path = "/v1/scopes/s/streams/by-rate"
    rate = {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 10, "minSegments": 2}
    too_many = {"scalingPolicy": {**rate, "minSegments": 65}}
    refused = rest.call("POST", "/v1/scopes/s/streams", {"streamName": "by-rate", **too_many})
    assert (refused.status, "at most 64 segments" in refused.body["detail"]) == (400, True)
    created = rest.call("POST", "/v1/scopes/s/streams", {"streamName": "by-rate", "scalingPolicy": rate})
    assert created.status == 201
    own = "/eventproc/v1/streams/s/by-rate"
    assert rest.get(own)["config"]["scaling"]["segments_max"] == 64
    refused = rest.call("PUT", path, too_many)
    assert (refused.status, "at most 64 segments" in refused.body["detail"]) == (400, True)
    assert rest.call("PUT", path, {"scalingPolicy": {**rate, "targetRate": 20}}).status == 200
    assert rest.get(own)["config"]["scaling"]["segments_max"] == 64


def test_a_rate_below_a_kilobyte_is_shown_as_one_that_can_be_sent_back() -> None:
    shown = ScalingConfig.of(eventproc.ScalingPolicy.by_byte_rate(500))
    assert shown.policy().target == 1024


def test_scaling_events_are_those_of_a_period_after_the_one_before(rest: RestClient) -> None:
    own = create(rest, "scaled")
    stale = rest.call("POST", f"{own}/split", {"segment": "0.0", "if_version": 99})
    assert (stale.status, stale.body["type"]) == (409, "urn:eventproc:error:StaleVersion")
    assert len(rest.call("POST", f"{own}/split", {"segment": "0.0", "into": 3}).body) == 3
    assert rest.call("POST", f"{own}/merge", {"segments": ["1.1", "2.1"]}).status == 200
    path = "/v1/scopes/s/streams/scaled/scaling-events"
    first, second, third = rest.get(f"{path}?from=0&to=4000000000000")
    assert [len(each["segmentList"]) for each in (first, second, third)] == [1, 3, 2]
    assert [(each["splits"], each["merges"]) for each in (first, second, third)] == [(0, 0), (1, 0), (0, 1)]
    assert {each["number"] for each in third["segmentList"]} == {3, 4}
    last = rest.get(f"{path}?from={third['timestamp'] + 1}&to=4000000000000")
    assert [each["timestamp"] for each in last] == [third["timestamp"]]
    assert rest.get(f"{path}?from=0&to=1") == []
    for query in ("from=5&to=1", "from=-1&to=1", "from=1", "from=x&to=2"):
        assert rest.call("GET", f"{path}?{query}").status == 400
    assert rest.call("GET", "/v1/scopes/s/streams/none/scaling-events?from=0&to=1").status == 404


async def test_reader_groups_are_listed_shown_reset_and_deleted(rest: RestClient, ep: Eventproc) -> None:
    create(rest, "read")
    stream = await ep.stream("s/read")
    group = await ep.create_group("s/readers", ["s/read"])
    async with stream.writer() as writer:
        for number in range(5):
            await writer.post(b"%d" % number)
    async with group.reader("r1") as reader:
        async for event in reader.until(await stream.tail()):
            if event.payload == b"2":
                break
        found = rest.get("/v1/scopes/s/readergroups/readers")
        assert (found["streamList"], found["onlineReaderIds"]) == (["s/read"], ["r1"])
    assert {"readerGroupName": "readers"} in rest.get("/v1/scopes/s/readergroups")["readerGroups"]
    path = "/eventproc/v1/groups/s/readers"
    assert rest.get(path)["events"] == 2
    (looked,) = rest.call("POST", f"{path}/reset", {"start": ["head"], "dry_run": True}).body
    assert looked["events_after"] == 5
    assert rest.get(path)["events"] == 2
    assert rest.call("POST", f"{path}/reset", {"start": ["head"]}).body == [looked]
    assert rest.get(path)["events"] == 5
    cut = rest.get("/eventproc/v1/streams/s/read/cut?at=tail")["cut"]
    assert rest.call("POST", f"{path}/reset", {"start": [cut]}).status == 200
    assert rest.get(path)["cuts"] == {"s/read": cut}
    refused = rest.call("POST", f"{path}/reset", {"checkpoint": "none"})
    assert (refused.status, "checkpoint" in refused.body["detail"]) == (404, True)
    assert rest.call("POST", f"{path}/reset", {"to": ["head"]}).status == 400
    assert rest.call("DELETE", "/v1/scopes/s/readergroups/readers").status == 204
    assert rest.call("GET", "/v1/scopes/s/readergroups/readers").status == 404


async def test_a_stream_is_truncated_at_a_cut(rest: RestClient, ep: Eventproc) -> None:
    own = create(rest, "cut")
    stream = await ep.stream("s/cut")
    async with stream.writer() as writer:
        for number in range(4):
            await writer.write(b"%d" % number)
    assert rest.get(own)["events"] == 4
    truncated = rest.call("POST", f"{own}/truncate", {"cut": "tail"})
    assert (truncated.status, truncated.body["events"]) == (200, 0)
    assert rest.get(f"{own}/cut?at=head")["cut"] == truncated.body["tail"]
    assert rest.call("POST", f"{own}/truncate", {"cut": "soon"}).status == 400


async def test_transactions_are_listed_by_pages_and_aborted(rest: RestClient, ep: Eventproc) -> None:
    own = create(rest, "txn")
    stream = await ep.stream("s/txn")
    begun = [await stream.begin() for _ in range(3)]
    first = rest.get(f"{own}/transactions?limit=2")
    rest_of_them = rest.get(f"{own}/transactions?limit=2&after={first['next']}")
    listed = [each["id"] for each in (*first["items"], *rest_of_them["items"])]
    assert sorted(listed) == sorted(each.id for each in begun)
    assert rest_of_them["next"] is None
    for each in begun:
        aborted = rest.call("POST", f"{own}/transactions/{each.id}/abort")
        assert aborted.status == 200
        assert aborted.body["state"] in ("aborting", "aborted")
    assert rest.call("POST", f"{own}/transactions/none/abort").status == 404


async def test_tasks_are_shown_and_cancelled(rest: RestClient, ep: Eventproc) -> None:
    create(rest, "moved")
    task = await ep.tasks.submit(eventproc.OffloadTask("s/moved", 0))
    ended = await ep.tasks.wait(task.id)
    path = "/eventproc/v1/tasks"
    assert rest.get(f"{path}/{task.id}")["status"] == ended.status.value
    assert rest.get(f"{path}?limit=1")["items"][0]["id"] == task.id
    assert rest.get(f"{path}?after={task.id}")["items"] == []
    assert rest.call("POST", f"{path}/{task.id}/cancel").body["status"] == ended.status.value
    assert rest.call("POST", f"{path}/none/cancel").status == 404


async def test_a_topic_is_compacted_by_a_task(rest: RestClient, ep: Eventproc) -> None:
    path = "/eventproc/v1/topics/s"
    body = {"name": "prices", "compaction": {"min_age_ms": 0}}
    assert rest.call("POST", path, body).status == 201
    topic = await ep.topic("s/prices")
    async with topic.writer() as writer:
        await writer.write_many([(b"1", "tea"), (b"2", "tea")])
    begun = rest.call("POST", f"{path}/prices/compact")
    assert begun.status == 202
    ended = await ep.tasks.wait(begun.body["id"])
    assert ended.result == {"events": 1, "bytes": 9}
    assert [event.number for event in await topic.read_range(0)] == [1]
    altered = rest.call("POST", f"{path}/prices/alter", {"compaction": {"min_age_ms": None}})
    assert altered.body["config"]["compaction"]["min_age_ms"] is None


def test_streams_epochs_and_requests_are_listed_by_pages(rest: RestClient) -> None:
    own = create(rest, "page-1")
    create(rest, "page-2")
    query = "/eventproc/v1/streams?scope=s&prefix=page-&limit=1"
    first = rest.get(query)
    second = rest.get(f"{query}&after={first['next']}")
    assert [first["items"][0]["name"], second["items"][0]["name"]] == ["s/page-1", "s/page-2"]
    assert (first["next"], second["next"]) == ("s/page-1", None)
    rest.call("POST", f"{own}/split", {"segment": "0.0"})
    epochs = rest.get(f"{own}/epochs?limit=1")
    assert rest.get(f"{own}/epochs?after={epochs['next']}")["items"][0]["number"] == 1
    assert len(rest.get(f"{own}/segments?at=head")) == 1
    newest = rest.get("/eventproc/v1/requests?limit=1")
    assert (newest["items"][0]["kind"], newest["items"][0]["target"]) == ("scale", "s/page-1")
    older = rest.get(f"/eventproc/v1/requests?limit=1&after={newest['next']}")
    assert older["items"][0]["target"] == "s/page-2"


async def test_the_history_of_a_stream_is_asked_for(rest: RestClient, ep: Eventproc) -> None:
    own = create(rest, "past")
    stream = await ep.stream("s/past")
    async with stream.writer() as writer:
        await writer.write_many([(b"event", "key")] * 4)
    middle = await stream.tail()
    await stream.split("0.0")
    assert [each["id"] for each in rest.get(f"{own}/segments?epoch=0")] == ["0.0"]
    family = rest.get(f"{own}/segments/0.0")
    assert (family["segment"]["sealed"], family["predecessors"]) == (True, [])
    assert family["successors"] == [
        {"id": "1.1", "predecessors": ["0.0"]},
        {"id": "2.1", "predecessors": ["0.0"]},
    ]
    assert rest.get(f"{own}/segments/1.1")["predecessors"] == ["0.0"]
    assert rest.call("GET", f"{own}/segments/9.9").status == 404
    (sealed,) = rest.get(f"{own}/sealed-segments")["items"]
    assert (sealed["id"], sealed["tail_number"]) == ("0.0", 4)
    first = rest.get(f"{own}/segments-between?limit=2")
    (last,) = rest.get(f"{own}/segments-between?limit=2&after={first['next']}")["items"]
    assert [each["id"] for each in (*first["items"], last)] == ["0.0", "1.1", "2.1"]
    scales = rest.get(f"{own}/scales?limit=1")
    (scale,) = rest.get(f"{own}/scales?after={scales['next']}")["items"]
    assert (scale["sealed"], scale["opened"]) == (["0.0"], ["1.1", "2.1"])
    assert rest.get(f"{own}/size")["between"]["events"] == 4
    assert rest.get(f"{own}/size?start={middle}")["before"]["events"] == 4
    assert rest.get(f"{own}/compare?one=head&other={middle}")["order"] == "before"
    assert rest.get(f"{own}/truncation") is None
    await stream.truncate(middle)
    assert rest.get(f"{own}/truncation")["events_before"] == 4
    assert rest.call("GET", f"{own}/size?start=tail&end=head").status == 400


def test_a_scale_needs_the_same_keys(rest: RestClient) -> None:
    own = create(rest, "ranges", 2)
    half = {"seal": ["0.0"], "ranges": [{"low": 0, "high": 0.2}, {"low": 0.2, "high": 0.5}]}
    assert len(rest.call("POST", f"{own}/scale", half).body) == 2
    refused = rest.call("POST", f"{own}/scale", half)
    assert refused.status in (404, 409)
    wrong = rest.call("POST", f"{own}/scale", {"seal": ["1.0"], "ranges": [{"low": 0, "high": 0.1}]})
    assert wrong.status in (400, 409)
    assert wrong.body["detail"]


def test_a_repeated_key_finds_the_first_request(rest: RestClient) -> None:
    key = new_id(SystemClock())
    body = {"streamName": "once"}
    for _ in range(2):
        assert rest.call("POST", "/v1/scopes/s/streams", body, idempotency_key=key).status == 201
    assert rest.get(f"/eventproc/v1/requests/{key}")["status"] == "done"
    other = {"streamName": "twice"}
    assert rest.call("POST", "/v1/scopes/s/streams", other, idempotency_key="1").status == 400
    rest.call("PUT", "/v1/scopes/s/streams/once/state", {"streamState": "SEALED"})
    key = new_id(SystemClock())
    for _ in range(2):
        assert rest.call("DELETE", "/v1/scopes/s/streams/once", idempotency_key=key).status == 204


SPLIT = {"segment": "0.0"}
SCALING = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 3}
RANGES = [{"low": 0, "high": 0.25}, {"low": 0.25, "high": 0.5}]


@pytest.mark.parametrize(
    "method, path, body, others",
    [
        ("POST", "/v1/scopes/s/streams", {"streamName": "keyed-new"}, [{"streamName": "keyed-other"}]),
        (
            "POST",
            "/v1/scopes/s/streams",
            {"streamName": "keyed-config"},
            [{"streamName": "keyed-config", "scalingPolicy": SCALING}],
        ),
        (
            "PUT",
            "/v1/scopes/s/streams/NAME",
            {"streamTags": ["a"], "scalingPolicy": SCALING},
            [{"streamTags": ["b"], "scalingPolicy": SCALING}, {"streamTags": ["a"]}],
        ),
        ("POST", "OWN/split", SPLIT, [SPLIT | {"into": 3}, {"segment": "0.1"}]),
        (
            "POST",
            "OWN/scale",
            {"seal": ["0.0"], "ranges": RANGES},
            [
                {"seal": ["0.1"], "ranges": RANGES},
                {"seal": ["0.0"], "ranges": [{"low": 0, "high": 0.1}, {"low": 0.1, "high": 0.5}]},
            ],
        ),
        ("POST", "OWN/truncate", {"cut": "CUT"}, [{"cut": "OTHER"}]),
        ("POST", "/eventproc/v1/topics/s/TOPIC/alter", {"partitions": 3}, [{"partitions": 4}]),
    ],
    ids=["name", "config", "update", "split", "scale", "truncate", "topic"],
)
def test_a_repeated_key_with_another_body_is_refused_and_with_an_equal_one_succeeds(
    rest: RestClient, request: pytest.FixtureRequest, method: str, path: str, body: Any, others: list[Any]
) -> None:
    name = f"keyed-{request.node.callspec.id}-stream"
    own = create(rest, name, segments=2)
    assert rest.call("POST", "/eventproc/v1/topics/s", {"name": f"{name}-topic"}).status == 201
    cut = rest.get(f"{own}/cut")["cut"]
    known = {
        "OWN": own,
        "NAME": name,
        "TOPIC": f"{name}-topic",
        "CUT": cut,
        "OTHER": cut.replace("0.0=0", "0.0=5"),
    }
    path = re.sub("[A-Z]{3,}", lambda found: known[found[0]], path)
    key, before = new_id(SystemClock()), None
    for each in (body, *others, body):
        sent = {
            field: known.get(value, value) if isinstance(value, str) else value
            for field, value in each.items()
        }
        answer = rest.call(method, path, sent, idempotency_key=key)
        if each is body:
            assert answer.status < 300, answer
            assert before in (None, answer.body)
            before = answer.body
        else:
            assert answer.status == 422
            assert "belongs to another request" in answer.body["detail"]


def test_a_call_that_does_not_wait_is_given_the_place_of_its_request(rest: RestClient) -> None:
    key = new_id(SystemClock())
    body = {"streamName": "later"}
    answer = rest.call("POST", "/v1/scopes/s/streams", body, prefer="wait=0", idempotency_key=key)
    if answer.status == 202:  # else the host was faster than the answer
        assert answer.headers["location"] == f"/eventproc/v1/requests/{key}"
    assert rest.call("POST", "/v1/scopes/s/streams", body, idempotency_key=key).status == 201


@pytest.mark.parametrize(
    "path, body, said",
    [
        ("/v1/scopes", {"scopName": "x"}, "did you mean 'scopeName'?"),
        ("/v1/scopes", {}, "scopeName"),
        ("/v1/scopes", {"scopeName": 5}, "it must be a text"),
        ("/v1/scopes", {"scopeName": "\ud800"}, "surrogate"),
        ("/v1/scopes", {"scopeName": "a b"}, "scope name"),
        ("/v1/scopes", [], "it must be an object"),
        ("/v1/scopes", {1: "a", "1": "b"}, "a field is given twice"),
        (
            "/v1/scopes/s/streams",
            {"streamName": "x", "scalingPolicy": {"type": "FIXED", "minSegments": 1}},
            "FIXED_NUM_SEGMENTS",
        ),
        (
            "/v1/scopes/s/streams",
            {"streamName": "x", "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegment": 1}},
            "scalingPolicy.minSegment",
        ),
        (
            "/v1/scopes/s/streams",
            {"streamName": "x", "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 10**9}},
            "1024",
        ),
        ("/v1/scopes/s/streams", {"streamName": "x", "rolloverSizeBytes": 5}, "rolloverSizeBytes"),
        ("/eventproc/v1/streams/s/x/split", {"segment": "zero"}, "number.epoch"),
        ("/eventproc/v1/groups/s", {"name": "g", "streams": []}, "least possible is 1"),
        (
            "/eventproc/v1/streams/s/x/scale",
            {"seal": ["0.0"], "ranges": [{"low": 0, "high": "x"}]},
            "ranges[0].high 'x': it must be a number",
        ),
    ],
)
def test_a_bad_body_is_refused_with_its_place_and_reason(
    rest: RestClient, path: str, body: object, said: str
) -> None:
    answer = rest.call("POST", path, body)
    assert answer.status == 400
    assert answer.body["type"].startswith("urn:eventproc:error:")
    assert said in answer.body["detail"]


def test_what_http_refuses_is_a_problem_too(rest: RestClient) -> None:
    assert rest.call("GET", "/v2/nothing").status == 404
    assert rest.call("GET", "/v1/scopes/").status == 404, "a redirection might lead around a proxy"
    assert rest.call("PATCH", "/v1/scopes").headers["allow"]
    assert rest.call("PATCH", "/v1/scopes").status == 405
    text = {"content_type": "text/plain"}
    assert rest.call("POST", "/v1/scopes", {"scopeName": "x"}, **text).status == 415
    assert rest.call("POST", "/v1/scopes", {"scopeName": "x" * 2**20}).status == 413
    assert rest.call("GET", "/v1/scopes", host="attacker.example").status == 421
    assert rest.call("GET", "/v1/scopes", origin="http://attacker.example").status == 403
    assert rest.call("GET", "/v1/scopes", origin="http://[").status == 403
    assert rest.call("GET", "/v1/scopes", origin=rest.base).status == 200
    assert "did you mean 'limit'?" in rest.call("GET", "/eventproc/v1/streams?limits=1").body["detail"]
    assert rest.call("GET", "/eventproc/v1/streams?limit=0").status == 400
    assert rest.call("GET", "/eventproc/v1/streams?limit=1&limit=2").status == 400


def test_a_serving_process_is_healthy(rest: RestClient) -> None:
    health = rest.get("/v1/health")
    assert (health["status"], health["readiness"], health["liveness"]) == ("UP", True, True)
    assert set(health["children"]) == {"database", "host"}
    assert rest.get("/v1/health/status") == "UP"
    assert rest.get("/v1/health/readiness") is True
    assert rest.get("/v1/health/liveness/database") is True
    assert rest.get("/v1/health/details/host")["host"] == rest.get("/eventproc/v1/cluster")["host"]
    assert rest.get("/v1/health/host")["status"] == "UP"
    assert rest.call("GET", "/v1/health/none").status == 404


def test_metrics_are_scraped_from_the_same_port_and_refused_to_foreign_pages(rest: RestClient) -> None:
    with httpx.Client(base_url=rest.base, timeout=PATIENCE_S, trust_env=False) as http:
        found = http.get("/metrics")
        assert found.status_code == 200
        assert "eventproc_containers 64.0" in found.text.splitlines()
        assert http.get("/metrics", headers={"host": "evil.example"}).status_code == 421


def test_a_server_with_an_idle_connection_ends_without_an_error(directory: Path) -> None:
    with ServerProcess(directory, rest=True) as server, closing(RestClient(server.rest)) as client:
        assert client.get("/v1/health/liveness") is True
        assert server.end(signal.SIGTERM) == 0


async def test_calls_that_run_too_long_are_refused_when_the_server_ends(tmp_path: Path) -> None:
    async with eventproc.open(tmp_path, host=False) as ep:  # nobody runs the request
        await ep.create_scope("s")
        listener = socket.create_server(("127.0.0.1", 0))
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        answers: list[httpx.Response] = []

        async def wait_long(http: httpx.AsyncClient) -> None:
            headers = {"Prefer": "wait=600"}
            body = {"streamName": "t"}
            answers.append(await http.post("/v1/scopes/s/streams", json=body, headers=headers))

        async def is_recorded() -> bool:
            return bool(await ep.requests.list())

        async with (
            httpx.AsyncClient(base_url=base, timeout=PATIENCE_S, trust_env=False) as http,
            anyio.create_task_group() as tasks,
            serve_rest(ep, Authority(ep.db), listener, "127.0.0.1", close_wait_s=0.05),
        ):
            tasks.start_soon(wait_long, http)
            await eventually(ep, is_recorded)
        assert [each.status_code for each in answers] == [503]
        assert answers[0].headers["retry-after"]


async def test_a_server_ends_without_an_error_while_a_caller_takes_nothing_of_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rest_listener, "END_WAIT_S", 0.05)
    async with eventproc.open(tmp_path, durability="os") as ep:
        await ep.create_scope("s")
        async with (await ep.create_stream("s/t")).writer() as writer:
            await writer.write(bytes(7 << 20))
        listener = socket.create_server(("127.0.0.1", 0))
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            async with serve_rest(ep, Authority(ep.db), listener, "127.0.0.1", close_wait_s=0.05):
                caller.connect(listener.getsockname())
                caller.sendall(b"GET /eventproc/v1/streams/s/t/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
                await anyio.wait_readable(caller)


def test_delayed_events_are_listed_moved_and_cancelled(rest: RestClient, directory: Path) -> None:
    with eventproc.open_blocking(directory, host=False) as ep:
        ep.create_scope("later")
        with ep.create_stream("later/t").writer() as writer:
            made = [writer.write(b"1", key="k", delay_ms=3_600_000) for _ in range(2)]
    first, second = sorted(made, key=lambda each: each.id)  # within a ms, ids have no order
    path = "/eventproc/v1/streams/later/t/delayed"
    page = rest.get(f"{path}?limit=1")
    assert [each["id"] for each in page["items"]] == [first.id]
    assert [each["id"] for each in rest.get(f"{path}?after={first.id}")["items"]] == [second.id]
    assert rest.get(f"{path}/{first.id}") == {**page["items"][0], "payload": "MQ==", "key": "k"}
    assert rest.call("POST", f"{path}/{first.id}/cancel").body["id"] == first.id
    assert rest.call("GET", f"{path}/{first.id}").status == 404
    for body in ({}, {"delay_ms": 1, "at": "5"}, {"at": "soon"}, {"delay_ms": -1}):
        assert rest.call("POST", f"{path}/{second.id}/move", body).status == 400
    moved = rest.call("POST", f"{path}/{second.id}/move", {"at": "2100-01-31T08:00Z"})
    assert (moved.status, moved.body["due_ms"]) == (200, 4_105_065_600_000)
    assert rest.call("GET", f"/eventproc/v1/streams/s/x/delayed/{second.id}").status == 404


def test_schedules_are_created_paused_resumed_listed_and_deleted(rest: RestClient, directory: Path) -> None:
    with eventproc.open_blocking(directory, host=False) as ep:
        ep.create_scope("again")
        ep.create_stream("again/t")
    path = "/eventproc/v1/schedules/again/close"
    asked = {"cron": "0 18 * * mon-fri", "tz": "Europe/Paris", "stream": "again/t", "payload": "close"}
    made = rest.call("POST", path, asked)
    assert (made.status, made.body["payload"], made.body["due_ms"] > 0) == (201, "Y2xvc2U=", True)
    assert rest.call("POST", path, {**asked, "tz": "UTC"}).status == 409
    wrong: list[tuple[str, object]] = [
        ("cron", "no"),
        ("cron", []),
        ("headers", {"": None}),
        ("missed", "some"),
    ]
    for name, value in wrong:
        assert rest.call("POST", path, {**asked, name: value}).status == 400
    assert rest.call("POST", f"{path}/pause").body["due_ms"] is None
    assert rest.call("POST", f"{path}/resume").body["due_ms"] == made.body["due_ms"]
    assert [each["name"] for each in rest.get("/eventproc/v1/schedules?scope=again")["items"]] == [
        "again/close"
    ]
    assert rest.get(path)["missed"] == "latest"
    assert rest.call("DELETE", path).status == 204
    assert rest.call("GET", path).status == 404
